"""The thread as a person reads it and works with it."""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from axe_playwright_python.sync_playwright import Axe
from django.contrib.auth.models import User
from django.utils import timezone
from playwright.sync_api import Browser, BrowserContext, Page, WebSocketRoute, expect

from chatapp.models import Event, Session, ToolCall
from chatapp.runtime.ids import new_id
from chatapp.store.conversations import create_conversation
from gateway.render import PageRenderer
from tests.browser.conftest import Provider, Server
from tests.browser.test_chat import later, send, wait_for_rest
from tests.runtime.provider_server import stream_head, text

LONG_CODE = "\n".join(f"line {n}" for n in range(300))
FIRST_OPACITY = "getComputedStyle(document.querySelector('#r-r1 > .actions').children[0]).opacity"
GAP = "t => t.scrollHeight - t.scrollTop - t.clientHeight"


def told(talk: Session, kind: str, reply_id: str = "", **data: Any) -> Event:
    """An event at the end of the ledger, without an agent."""
    at = data.pop("at", timezone.now())
    row = Session.objects.get(pk=talk.pk)
    event = Event.objects.create(
        conversation=talk, session=talk, seq=row.next_seq, type=kind, agent_id="main", reply_id=reply_id,
        created_at=at, data=data,
    )  # fmt: skip
    Session.objects.filter(pk=talk.pk).update(next_seq=row.next_seq + 1)
    return event


def exchange(talk: Session, number: int, said: str = "", **more: Any) -> None:
    """A message and its reply, `m-m<number>` and `r-r<number>`."""
    told(talk, "USER_MESSAGE", message_id=f"m{number}", text=f"question {number}", state="running", **more)
    told(talk, "AGENT_START", f"r{number}", trigger="user", **more)
    lines = "\n\n".join(f"answer {number} line {n}" for n in range(8))
    told(talk, "TEXT_BLOCK_END", f"r{number}", block_id=new_id(), text=said or lines, state="complete", **more)
    told(talk, "AGENT_END", f"r{number}", reason="MODEL_STOP", **more)


def opened(context: BrowserContext, talk: Session, end: str = "") -> Page:
    page = context.new_page()
    page.goto(f"/c/{talk.id}/{end}")
    page.wait_for_selector("#link-dot[data-link=connected]", state="attached")
    return page


@pytest.fixture
def quiet(context: BrowserContext, chromium: Browser, server: Server) -> Iterator[BrowserContext]:
    """alice's browser too, for what fails: a browser itself complains about such answers."""
    quiet = chromium.new_context(base_url=server.url, storage_state=context.storage_state())
    yield quiet
    quiet.close()


def clipboard(context: BrowserContext, page: Page, kind: str) -> str:
    context.grant_permissions(["clipboard-read", "clipboard-write"])
    script = "async kind => (await (await navigator.clipboard.read())[0].getType(kind)).text()"
    return str(page.evaluate(script, kind))


def test_an_answer_is_copied_rich_and_plain_at_once(context: BrowserContext, talk: Session) -> None:
    source = "Some **bold** text.\n\n```python\nx = '<1>'\n```\n\nNote[^1].\n\n[^1]: Here."
    exchange(talk, 1, source)
    context.grant_permissions(["clipboard-read", "clipboard-write"])
    page = opened(context, talk)
    page.get_by_role("button", name="Copy this answer").click()
    expect(page.locator("#say")).to_have_text("Copied")
    assert clipboard(context, page, "text/plain") == source
    html = clipboard(context, page, "text/html")
    assert "<strong>bold</strong>" in html
    assert not re.search(r"<button|class=|tabindex|href=\"#", html)


def test_without_a_secure_origin_copying_still_works(context: BrowserContext, talk: Session) -> None:
    exchange(talk, 1, "Some **bold** text.")
    context.add_init_script("delete Navigator.prototype.clipboard")
    page = opened(context, talk)
    page.evaluate(
        "() => { const set = DataTransfer.prototype.setData; window.kinds = {};"
        "DataTransfer.prototype.setData = function (kind, value) { kinds[kind] = value; set.call(this, kind, value) } }"
    )
    page.get_by_role("button", name="Copy this answer").click()
    expect(page.locator("#say")).to_have_text("Copied")
    kinds = page.evaluate("kinds")
    assert kinds["text/plain"] == "Some **bold** text."
    assert "<strong>bold</strong>" in kinds["text/html"]


def test_a_message_is_copied_as_it_was_written(page: Page, context: BrowserContext) -> None:
    context.grant_permissions(["clipboard-read", "clipboard-write"])
    send(page, "  two *stars*  & <b>")
    wait_for_rest(page, 1)
    page.hover(".msg.user")
    page.get_by_role("button", name="Copy your message").click()
    expect(page.locator("#say")).to_have_text("Copied")
    assert clipboard(context, page, "text/plain") == page.locator(".bubble").text_content()


def test_a_copy_that_fails_says_so(quiet: BrowserContext, talk: Session) -> None:
    exchange(talk, 1)
    page = opened(quiet, talk)
    page.route("**/text/", lambda route: route.abort())
    page.get_by_role("button", name="Copy this answer").click()
    expect(page.locator("#say")).to_have_text("Could not be copied")
    expect(page.locator("#toast")).to_contain_text("Could not be copied")


def test_what_can_be_done_comes_when_the_answer_is_over(page: Page, provider: Provider) -> None:
    go_on = threading.Event()

    def waits() -> bytes:
        go_on.wait(20)
        return stream_head() + text("Done.")

    provider.answers = [waits, later(text("Again."))]
    send(page, "hello")
    expect(page.locator(".reply")).to_have_count(1)
    expect(page.locator(".reply .actions")).to_have_count(0)
    go_on.set()
    expect(page.locator(".reply .actions")).to_have_count(1)
    expect(page.get_by_role("button", name="Retry")).to_have_count(1)
    send(page, "and again")
    wait_for_rest(page, 2)
    expect(page.locator(".reply").last.locator(".actions")).to_have_count(1)
    expect(page.get_by_role("button", name="Retry")).to_have_count(1)
    expect(page.locator(".reply").last.get_by_role("button", name="Retry")).to_have_count(1)


def test_an_opinion_is_kept_and_can_be_taken_back(context: BrowserContext, talk: Session) -> None:
    exchange(talk, 1)
    page = opened(context, talk)
    good, bad = page.get_by_role("button", name="Good answer"), page.get_by_role("button", name="Bad answer")
    good.focus()
    page.keyboard.press("Enter")
    expect(good).to_have_attribute("aria-pressed", "true")
    expect(good).to_be_focused()
    bad.click()
    expect(bad).to_have_attribute("aria-pressed", "true")
    expect(good).to_have_attribute("aria-pressed", "false")
    page.reload()
    expect(bad).to_have_attribute("aria-pressed", "true")
    bad.click()
    expect(bad).to_have_attribute("aria-pressed", "false")
    page.reload()
    expect(bad).to_have_attribute("aria-pressed", "false")


def test_an_opinion_that_is_not_stored_says_so_and_leaves_the_thread_alone(
    quiet: BrowserContext, talk: Session
) -> None:
    exchange(talk, 1)
    page = opened(quiet, talk)
    page.route("**/feedback/", lambda route: route.fulfill(status=503, body="<h1>away</h1>"))
    page.get_by_role("button", name="Good answer").click()
    expect(page.locator("#toast")).to_contain_text("did not work")
    expect(page.get_by_role("button", name="Good answer")).to_have_attribute("aria-pressed", "false")
    assert "away" not in page.inner_text("#log")


def test_actions_are_reached_by_keyboard_and_always_there_on_touch(
    context: BrowserContext, chromium: Browser, server: Server, talk: Session
) -> None:
    exchange(talk, 1)
    exchange(talk, 2)
    page = opened(context, talk)
    page.mouse.move(5, 5)
    first = page.locator("#r-r1 > .actions")
    assert first.evaluate("row => getComputedStyle(row.children[0]).opacity") == "0"
    first.get_by_role("button", name="Copy this answer").focus()
    page.wait_for_function(f"() => {FIRST_OPACITY} === '1'")
    phone = chromium.new_context(
        base_url=server.url, viewport={"width": 390, "height": 844}, has_touch=True, is_mobile=True,
        storage_state=context.storage_state(),
    )  # fmt: skip
    touch = opened(phone, talk)
    assert touch.evaluate(FIRST_OPACITY) == "1"
    assert touch.locator("#r-r1 > .actions button").first.bounding_box()["width"] >= 36  # type: ignore[index]
    phone.close()


def test_long_code_is_folded_and_opens_and_closes(context: BrowserContext, talk: Session) -> None:
    context.grant_permissions(["clipboard-read", "clipboard-write"])
    exchange(talk, 1, f"```text\n{LONG_CODE}\n```\n\n```text\nshort\n```")
    page = opened(context, talk)
    pre = page.locator(".code.long pre")
    expect(page.locator(".fold")).to_have_count(1)
    folded = pre.evaluate("e => e.clientHeight")
    page.get_by_role("button", name="Show all 300 lines").press("Enter")
    assert pre.evaluate("e => e.clientHeight") > folded * 8
    page.get_by_role("button", name="Fold").press("Enter")
    assert pre.evaluate("e => e.clientHeight") == folded
    page.locator(".code.long .copy").click()
    expect(page.locator("#say")).to_have_text("Copied")
    assert clipboard(context, page, "text/plain") == LONG_CODE + "\n"


class Live:
    """The server's end of a page's socket, spoken by the test."""

    def __init__(self, context: BrowserContext, talk: Session) -> None:
        self.page = context.new_page()
        self.routes: list[WebSocketRoute] = []
        self.talk = talk
        self.renderer = PageRenderer(talk.id)
        self.seq = 0
        self.page.route_web_socket(re.compile("/ws/"), lambda route: self.routes.append(route))
        self.page.goto(f"/c/{talk.id}/")
        self.page.wait_for_selector("#link-dot[data-link=connected]", state="attached")

    def send(self, frame: dict[str, Any]) -> None:
        self.routes[-1].send(json.dumps(frame, separators=(",", ":")))

    def event(self, kind: str, reply_id: str = "r1", **data: Any) -> None:
        self.seq += 1
        event = {
            "seq": self.seq, "id": f"e{self.seq}", "type": kind, "source": None, "reply_id": reply_id,
            "conversation_id": self.talk.id, "session_id": self.talk.id, "created_at": timezone.now().isoformat(),
        }  # fmt: skip
        self.html(self.renderer.event(event | data))

    def delta(self, text: str, offset: int = 0) -> None:
        delta = {"type": "TEXT_BLOCK_DELTA", "source": None, "reply_id": "r1", "block_id": "b1"}
        self.html(self.renderer.delta(delta | {"offset": offset, "text": text}))

    def html(self, content: str) -> None:
        self.send({"kind": "html", "seq": self.seq, "content": content, "swap": "none"})


def test_a_block_that_was_unfolded_stays_so_when_the_answer_ends(context: BrowserContext, talk: Session) -> None:
    live = Live(context, talk)
    source = f"```\n{LONG_CODE}\n```\n"
    live.event("AGENT_START", trigger="user")
    live.event("TEXT_BLOCK_START", block_id="b1")
    live.delta("```\n" + LONG_CODE[:2000])
    expect(live.page.locator(".code")).to_have_count(1)
    expect(live.page.locator(".fold")).to_have_count(0)
    live.delta(LONG_CODE[2000:] + "\n```\n", len("```\n" + LONG_CODE[:2000]))
    live.page.get_by_role("button", name="Show all 300 lines").click()
    live.event("TEXT_BLOCK_END", block_id="b1", text=source + "\nEnd.", state="complete")
    expect(live.page.locator("#b-b1")).to_contain_text("End.")
    expect(live.page.get_by_role("button", name="Fold")).to_be_visible()


def test_a_block_does_not_fold_under_the_eyes_of_its_reader(context: BrowserContext, talk: Session) -> None:
    live = Live(context, talk)
    live.event("TEXT_BLOCK_START", block_id="b1")
    live.delta("```\n" + LONG_CODE)
    live.page.wait_for_function("() => document.getElementById('thread').scrollTop > 500")
    live.page.mouse.move(600, 300)
    live.page.mouse.wheel(0, -600)
    live.page.wait_for_function(f"() => ({GAP})(document.getElementById('thread')) > 100")
    before = live.page.evaluate("document.getElementById('thread').scrollTop")
    live.delta("\n```\n", len("```\n" + LONG_CODE))
    expect(live.page.get_by_role("button", name="Fold")).to_have_count(1)
    assert live.page.evaluate("document.getElementById('thread').scrollTop") == before


def test_a_selection_in_a_finished_block_survives_the_end_of_the_answer(context: BrowserContext, talk: Session) -> None:
    live = Live(context, talk)
    live.event("TEXT_BLOCK_START", block_id="b1")
    live.delta("First paragraph.\n\nSecond ")
    expect(live.page.locator("#b-b1 > p")).to_have_text("First paragraph.")
    live.page.evaluate("getSelection().selectAllChildren(document.querySelector('#b-b1 > p'))")
    live.event("TEXT_BLOCK_END", block_id="b1", text="First paragraph.\n\nSecond one.", state="complete")
    live.event("AGENT_END", reason="MODEL_STOP")
    expect(live.page.locator(".reply .actions")).to_have_count(1)
    assert live.page.evaluate("getSelection().toString()") == "First paragraph."


def test_thinking_says_how_long_it_took_and_keeps_focus(context: BrowserContext, talk: Session) -> None:
    live = Live(context, talk)
    began = timezone.now()
    live.event("THINKING_BLOCK_START", block_id="k1", created_at=began.isoformat())
    live.page.locator(".thinking summary").focus()
    later = (began + timedelta(seconds=12)).isoformat()
    live.event("THINKING_BLOCK_END", block_id="k1", text="hm", state="complete", created_at=later)
    expect(live.page.locator(".thinking summary")).to_have_text("Thought for 12.0 s")
    expect(live.page.locator(".thinking summary")).to_be_focused()
    expect(live.page.locator(".thoughts")).to_be_hidden()
    live.page.keyboard.press("Enter")
    expect(live.page.locator(".thoughts")).to_be_visible()
    expect(live.page.locator("#say")).to_be_empty()


def test_the_voice_speaks_once_at_start_and_end_and_never_per_token(context: BrowserContext, talk: Session) -> None:
    live = Live(context, talk)
    live.page.evaluate(
        "() => { window.said = [];"
        "new MutationObserver(() => said.push(say.textContent)).observe(say, {childList: true}) }"
    )
    live.event("AGENT_START", trigger="user")
    live.event("TEXT_BLOCK_START", block_id="b1")
    for n in range(10):
        live.delta("word ", 5 * n)
    live.event("TEXT_BLOCK_END", block_id="b1", text="word " * 10, state="complete")
    live.event("AGENT_END", reason="MODEL_STOP")
    live.event("AGENT_START", "r2", trigger="user")
    live.event("AGENT_END", "r2", reason="INTERRUPTED")
    expect(live.page.locator("#say")).to_have_text("Stopped")
    assert live.page.evaluate("said") == ["Replying", "Reply ready", "Replying", "Stopped"]


def test_caught_up_is_said_once_after_a_reconnect_only(context: BrowserContext, talk: Session) -> None:
    exchange(talk, 1)
    live = Live(context, talk)
    log = live.page.locator("#log")
    live.send({"kind": "caught_up", "seq": 4})
    live.event("CUSTOM", name="nothing")
    live.routes[-1].close(code=1012)
    expect(live.page.locator("#link")).to_have_text("reconnecting…")
    expect(live.page.locator("#link")).to_have_text("connected")
    expect(log).not_to_have_attribute("data-caught", "caught up")
    live.send({"kind": "caught_up", "seq": 4})
    expect(log).to_have_attribute("data-caught", "caught up")
    assert "caught up" in log.evaluate("e => getComputedStyle(e, '::after').content")
    live.event("USER_MESSAGE", message_id="m2", text="next", state="running")
    expect(live.page.locator("#m-m2")).to_be_visible()
    expect(log).not_to_have_attribute("data-caught", "caught up")


def test_a_long_result_is_cut_and_shown_whole_when_asked(context: BrowserContext, talk: Session) -> None:
    output = "\n".join(f"\x1b[32mrow {n}\x1b[0m" for n in range(1000))
    a_call(talk, output, {"text": "y" * 5000})
    page = opened(context, talk)
    page.locator(".tool summary").click()
    pre = page.locator(".tool-output pre")
    assert "row 199" in pre.inner_text()
    assert "row 200" not in pre.inner_text()
    assert "[32m" not in pre.inner_text()
    page.locator(".tool-output").get_by_role("button", name="Show all").press("Enter")
    expect(pre).to_contain_text("row 999")
    expect(pre).to_be_focused()
    expect(page.locator(".tool-args pre")).not_to_contain_text("y" * 3000)
    page.locator(".tool-args").get_by_role("button", name="Show all").click()
    expect(page.locator(".tool-args pre")).to_contain_text("y" * 5000)
    with page.expect_download() as download:
        page.locator(".tool-output").get_by_role("link", name="Download").click()
    assert Path(download.value.path()).read_text() == output


def a_call(talk: Session, output: str, args: dict[str, Any], *, truncated: bool = False) -> None:
    told(talk, "USER_MESSAGE", message_id="m1", text="look", state="running")
    told(talk, "AGENT_START", "r1", trigger="user")
    told(talk, "TOOL_CALL_END", "r1", tool_call_id="c1", tool_name="read_file", args=args)
    told(talk, "TOOL_RESULT_START", "r1", tool_call_id="c1", tool_name="read_file")
    told(talk, "TOOL_RESULT_END", "r1", tool_call_id="c1", tool_name="read_file", state="success", output=output,
         truncated=truncated)  # fmt: skip
    told(talk, "AGENT_END", "r1", reason="MODEL_STOP")
    ToolCall.objects.create(
        id="c1", session=talk, reply_id="r1", step=0, index=0, name="read_file", args=args, result=output,
        truncated=truncated, status="done", joined=True,
    )  # fmt: skip


@pytest.mark.alone
def test_a_line_of_a_million_characters_neither_widens_nor_freezes_the_page(
    context: BrowserContext, talk: Session
) -> None:
    a_call(talk, "x" * 5_000_000, {})
    page = opened(context, talk)
    page.set_viewport_size({"width": 390, "height": 844})
    page.locator(".tool summary").click()
    expect(page.locator(".tool-output pre")).to_be_visible()
    page.evaluate(
        "window.tasks = []; new PerformanceObserver(list => tasks.push(...list.getEntries().map(e => e.duration)))"
        ".observe({type: 'longtask'})"
    )
    page.get_by_role("button", name="Show all").click()
    expect(page.locator(".tool-output .rest")).to_contain_text("only its beginning")
    page.locator(".tool-output pre").evaluate("e => { e.scrollTop = e.scrollHeight; return e.offsetHeight }")
    assert page.evaluate("document.documentElement.scrollWidth") == 390
    assert page.evaluate("document.getElementById('thread').scrollWidth <= 390")
    print("long tasks", page.evaluate("tasks"))
    assert max(page.evaluate("tasks"), default=0) < 1500


def test_footnotes_lead_there_and_back_by_keyboard(context: BrowserContext, talk: Session) -> None:
    filler = "\n\n".join(f"line {n}" for n in range(60))
    exchange(talk, 1, f"Claim[^1].\n\n{filler}\n\n[^1]: The source.")
    page = opened(context, talk)
    reference = page.locator("[role=doc-noteref]")
    reference.focus()
    page.keyboard.press("Enter")
    expect(page.locator(".footnotes li")).to_be_in_viewport()
    page.keyboard.press("Tab")
    expect(page.locator("[role=doc-backlink]")).to_be_focused()
    page.keyboard.press("Enter")
    expect(reference).to_be_in_viewport()


def test_a_link_to_an_old_message_opens_its_part_in_one_request(context: BrowserContext, talk: Session) -> None:
    for n in range(100):
        exchange(talk, n)
    asked: list[str] = []
    context.on("request", lambda request: asked.append(request.url) if "/older/" in request.url else None)
    page = opened(context, talk, "#m-m7")
    expect(page.locator("#m-m7")).to_be_in_viewport()
    expect(page.locator("#m-m7")).to_be_focused()
    assert page.locator("#thread").evaluate(GAP) > 1000
    assert len([url for url in asked if "to=" in url]) == 1
    ids = page.locator("#log > .msg.user").evaluate_all("all => all.map(e => e.id)")
    assert ids[-93:] == [f"m-m{n}" for n in range(7, 100)]
    page.evaluate("location.hash = '#r-r50'")
    expect(page.locator("#r-r50")).to_be_focused()


def test_a_link_to_nothing_leaves_the_page_at_its_end(quiet: BrowserContext, talk: Session) -> None:
    for n in range(60):
        exchange(talk, n)
    page = quiet.new_page()
    with page.expect_response(re.compile("to=m-nothing")):
        page.goto(f"/c/{talk.id}/#m-nothing")
    expect(page.locator("#r-r59")).to_be_in_viewport()
    assert "not found" not in page.inner_text("#log").lower()


def test_copy_link_gives_an_address_that_leads_back(context: BrowserContext, talk: Session) -> None:
    context.grant_permissions(["clipboard-read", "clipboard-write"])
    for n in range(20):
        exchange(talk, n)
    page = opened(context, talk)
    page.locator("#r-r3 > .actions").get_by_role("button", name="Copy link to this answer").click()
    expect(page.locator("#say")).to_have_text("Copied")
    address = clipboard(context, page, "text/plain")
    assert address.endswith(f"/c/{talk.id}/#r-r3")
    page.goto("/settings/")
    page.goto(address)
    expect(page.locator("#r-r3")).to_be_focused()


def test_a_reload_keeps_the_place_and_the_end(context: BrowserContext, talk: Session) -> None:
    for n in range(30):
        exchange(talk, n)
    page = opened(context, talk)
    assert page.locator("#thread").evaluate(GAP) < 2
    page.reload()
    page.wait_for_selector("#link-dot[data-link=connected]", state="attached")
    assert page.locator("#thread").evaluate(GAP) < 2
    page.mouse.move(600, 300)
    page.mouse.wheel(0, -3000)
    page.wait_for_function(f"() => ({GAP})(document.getElementById('thread')) > 2000")
    where = "() => document.querySelector('#r-r20').getBoundingClientRect().top"
    before = page.evaluate(where)
    page.reload()
    page.wait_for_function(f"() => Math.abs(({where})() - {before}) < 2")


def test_back_and_forward_through_three_conversations_give_the_right_one_with_one_socket(
    context: BrowserContext, alice: User, talk: Session
) -> None:
    talks = [talk, *(create_conversation(alice, model="demo") for _ in range(2))]
    for number, row in enumerate(talks):
        for n in range(20):
            exchange(row, n, f"talk {number} answer {n}\n\n" * 5)
    page = context.new_page()
    page.add_init_script(
        "window.made = []; const Plain = WebSocket;"
        "window.WebSocket = class extends Plain { constructor(...all) { super(...all); made.push(this) } }"
    )

    def shows(number: int) -> None:
        expect(page).to_have_url(re.compile(talks[number].id))
        expect(page.locator("#link")).to_have_text("connected")
        expect(page.locator("#r-r19")).to_contain_text(f"talk {number} answer 19")
        sockets = page.evaluate("made.filter(socket => socket.readyState < 2).map(socket => socket.url)")
        assert [talks[number].id in url for url in sockets] == [True]

    for number, row in enumerate(talks):
        page.goto(f"/c/{row.id}/")
        shows(number)
    page.mouse.move(600, 300)
    page.mouse.wheel(0, -1500)
    page.wait_for_function(f"() => ({GAP})(document.getElementById('thread')) > 1000")
    gap = page.locator("#thread").evaluate(GAP)
    for number, step in ((1, page.go_back), (0, page.go_back), (1, page.go_forward), (2, page.go_forward)):
        step()
        shows(number)
    page.wait_for_function(f"() => Math.abs(({GAP})(document.getElementById('thread')) - {gap}) < 3")


def test_earlier_messages_do_not_move_what_is_read(context: BrowserContext, talk: Session) -> None:
    for n in range(60):
        exchange(talk, n)
    page = opened(context, talk)
    page.mouse.move(600, 300)
    with page.expect_response(re.compile("/older/")):
        page.evaluate("document.getElementById('thread').scrollTop = 0")
    expect(page.locator("#m-m0")).to_have_count(1)
    expect(page.locator("#m-m20")).to_be_in_viewport()


def test_days_are_set_apart_also_where_an_older_part_comes_in(context: BrowserContext, talk: Session) -> None:
    now = timezone.now()
    for n in range(60):
        exchange(talk, n, at=now - timedelta(days=2 - n // 30))
    page = opened(context, talk)
    days = page.locator(".day")
    expect(days).to_have_count(2)
    expect(page.locator(".day + #m-m30")).to_have_count(1)
    page.evaluate("location.hash = '#m-m0'")
    expect(page.locator("#m-m0")).to_be_focused()
    expect(days).to_have_count(2)
    expect(page.locator(".day + #m-m0")).to_have_count(1)


ODD = """A word of sixty: Donaudampfschifffahrtselektrizitaetenhauptbetriebswerkbauamtxx

مرحبا `x = 1` שלום 日本語 👨‍👩‍👧

| one | two | three | four | five |
|---|---|---|---|---|
| aaaaaaaaaaaaaaaaaaaaaaaa | bbbbbbbbbbbbbbbbbbbbbbbbbb | cccccccccccccccccccc | dddddddddddddddd | e |

$$
\\frac{aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa}{bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb}
$$

```python
x = "a line that is far too long for a phone and must scroll inside its own block, not the page" * 10
```
"""


@pytest.mark.parametrize("width", [1200, 390])
def test_odd_content_never_widens_the_page(context: BrowserContext, talk: Session, width: int) -> None:
    exchange(talk, 1, ODD)
    told(talk, "USER_MESSAGE", message_id="m2", text="w" * 5000 + "\nשלום", state="running")
    page = opened(context, talk)
    page.set_viewport_size({"width": width, "height": 844})
    assert page.evaluate("document.documentElement.scrollWidth") == width
    assert page.locator("#thread").evaluate("e => e.scrollWidth === e.clientWidth")
    scrolls = "e => e.scrollWidth > e.clientWidth && getComputedStyle(e).direction"
    assert page.locator(".code pre").evaluate(scrolls) == "ltr"
    page.get_by_role("group", name="Table").focus()
    assert page.locator(".table").evaluate("e => e.scrollWidth > e.clientWidth && e === document.activeElement")


def test_attached_files_show_their_name_size_and_picture(context: BrowserContext, talk: Session) -> None:
    files = [
        {"path": "uploads/a b.png", "name": "a b.png", "size": 2048, "media_type": "image/png"},
        {"path": "uploads/x‮gnp.exe", "name": "x‮gnp.exe", "size": 5, "media_type": "application/octet-stream"},
    ]
    told(talk, "USER_MESSAGE", message_id="m1", text="", state="running", attachments=files)
    context.route("**/api/sessions/**", lambda route: route.fulfill(body=""))
    page = opened(context, talk)
    links = page.locator("#m-m1 .file")
    expect(links.nth(0)).to_have_attribute("href", f"/api/sessions/{talk.id}/files?path=uploads%2Fa%20b.png")
    expect(links.nth(0).locator("img")).to_have_attribute("alt", "a b.png")
    expect(links.nth(0)).to_contain_text("2.0")
    expect(links.nth(1)).to_contain_text("x⟨U+202E⟩gnp.exe")
    expect(links.nth(1).locator("img")).to_have_count(0)
    expect(page.locator("#m-m1 .bubble")).to_have_count(0)


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_axe_finds_nothing_in_the_thread(context: BrowserContext, talk: Session, scheme: str) -> None:
    said = f"{ODD}\n\nNote[^1].\n\n```\n{LONG_CODE}\n```\n\n[^1]: Here."
    exchange(talk, 1, said, at=timezone.now() - timedelta(days=3))
    files = [{"path": "uploads/a.txt", "name": "a.txt", "size": 5, "media_type": "text/plain"}]
    told(talk, "USER_MESSAGE", message_id="m2", text="a", state="running", attachments=files)
    told(talk, "AGENT_START", "r2", trigger="user")
    told(talk, "THINKING_BLOCK_END", "r2", block_id="k1", text="hm", state="complete")
    told(talk, "TOOL_CALL_END", "r2", tool_call_id="c1", tool_name="x", args={"a": "y" * 3000})
    told(talk, "RUN_FAILED", "r2", code="timeout", detail="late")
    told(talk, "AGENT_END", "r2", reason="FAILED")
    page = opened(context, talk)
    page.emulate_media(color_scheme="light" if scheme == "light" else "dark")
    page.evaluate("for (const details of document.querySelectorAll('details')) details.open = true")
    page.hover("#m-m2")
    found = Axe().run(page).response["violations"]
    assert [(problem["id"], problem["nodes"][0]["html"]) for problem in found] == []
