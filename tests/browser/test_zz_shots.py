"""Screens."""
import threading
from datetime import timedelta

from django.utils import timezone
from playwright.sync_api import expect

from chatapp.models import Session
from tests.browser.test_chat import answer, call, failure, later, send, stream_head, text, wait_for_rest


def shoot(page, name):
    for scheme in ("light","dark"):
        page.emulate_media(color_scheme=scheme)
        for w,h in ((1200,800),(390,844)):
            page.set_viewport_size({"width":w,"height":h}); page.wait_for_timeout(350)
            page.screenshot(path=f"/tmp/shots/{name}-{scheme}-{w}.png")
    page.set_viewport_size({"width":1200,"height":800})

def test_shots(page, provider, talk, alice):
    go=threading.Event()
    def waits():
        go.wait(60)
        return stream_head()+answer({"content":"Let me look there first."},{"tool_calls":[call(0,"c1","list_files","{}"),call(1,"c2","read_file",'{"path":"nowhere/at/all/with/a/long/name/of/a/file.md"}')]},finish="tool_calls")
    refusal = failure("401 Unauthorized", {"error": {"message": "no such key", "code": "invalid_api_key"}})
    provider.answers=[waits, later(text("This goes on until it is cut", finish="length")), lambda: refusal]
    send(page,"what is there?")
    expect(page.get_by_role("button", name="Steer")).to_be_visible()
    page.fill("#text","be brief"); page.press("#text","Control+Enter")
    expect(page.locator(".chip")).to_have_count(1)
    page.fill("#text","and another one")
    shoot(page,"steer")
    go.set()
    wait_for_rest(page,1)
    page.fill("#text","")
    send(page,"fail now")
    expect(page.locator(".failure")).to_be_visible()
    page.wait_for_timeout(500)
    shoot(page,"failed")
    Session.objects.filter(pk=talk.pk).update(status="queued")
    page.fill("#text", "x"*200_001); page.press("#text","Enter"); page.wait_for_timeout(500)
    page.evaluate("document.getElementById('chat')._htmx.ws.connection.socket.close(1000)")
    page.wait_for_timeout(500)
    page.evaluate("document.getElementById('text').value='short'; document.getElementById('text').dispatchEvent(new Event('input'))")
    page.press("#text","Enter"); page.wait_for_timeout(300)
    shoot(page,"ended")
    now=timezone.now()
    Session.objects.bulk_create(Session(id=f"c{n:04}", owner=alice, root_id=f"c{n:04}", agent_id="main", title=f"talk {n}.", updated_at=now-timedelta(days=1,minutes=n)) for n in range(299))
    page.reload(); page.wait_for_timeout(500)
    page.evaluate("document.querySelector('#list').scrollTop=1e6")
    shoot(page,"queued")
    page.set_viewport_size({"width":390,"height":844})
    page.get_by_role("button", name="Conversations", exact=True).click(); page.wait_for_timeout(400)
    page.evaluate("document.querySelector('#list').scrollTop=1e6")
    page.screenshot(path="/tmp/shots/sheet.png")
