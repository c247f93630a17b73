"""The page as a person uses it."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable
from datetime import timedelta

import pytest
from axe_playwright_python.sync_playwright import Axe
from django.contrib.auth.models import User
from django.utils import timezone
from playwright.sync_api import BrowserContext, Page, WebSocketRoute, expect

from chatapp.models import Session
from tests.browser.conftest import Provider, Server
from tests.runtime.provider_server import answer, call, failure, stream_head, text

# Streams its words at forty a second.
SLOW = "slow 200"
WORDS = [f"w{n}" for n in range(1, 201)]


def send(page: Page, text: str) -> None:
    page.fill("#text", text)
    page.press("#text", "Enter")


def words(page: Page) -> list[str]:
    """The numbered words of the slow answer, in the order of the page."""
    return re.findall(r"\bw\d+\b", page.inner_text("#log"))


def wait_for_word(page: Page, word: str) -> None:
    page.wait_for_function("word => document.getElementById('log').textContent.includes(word)", arg=word)


def wait_for_rest(page: Page, count: int) -> None:
    """Until so many replies have ended."""
    page.wait_for_function(
        "count => document.querySelectorAll('.reply').length === count"
        " && document.getElementById('run').dataset.run !== 'running'",
        arg=count,
    )


def test_a_first_visit_offers_starters_and_streams_the_answer(page: Page) -> None:
    expect(page.locator("#empty")).to_be_visible()
    expect(page.locator("#empty")).to_contain_text("scripted")
    page.get_by_role("button", name="See formatting").click()
    expect(page.locator("#empty")).to_be_hidden()
    wait_for_rest(page, 1)
    expect(page.locator("#log .md table")).to_be_visible()
    expect(page.locator("#log .code .k").first).to_be_visible()
    expect(page.locator("#say")).to_have_text("Reply ready")
    expect(page).to_have_title(re.compile("^Show me"))
    expect(page.locator(".row.current .t")).to_contain_text("Show me")


def test_a_reload_in_mid_reply_misses_and_doubles_nothing(page: Page) -> None:
    send(page, SLOW)
    wait_for_word(page, "w80")
    page.reload()
    wait_for_rest(page, 1)
    assert words(page) == WORDS
    live = page.inner_text("#log")
    page.reload()
    assert page.inner_text("#log") == live


def test_a_second_tab_follows(page: Page, context: BrowserContext) -> None:
    send(page, SLOW)
    wait_for_word(page, "w20")
    second = context.new_page()
    second.goto(page.url)
    wait_for_rest(second, 1)
    wait_for_rest(page, 1)
    assert words(second) == words(page) == WORDS


def test_stop_keeps_what_was_said_and_the_next_message_works(page: Page) -> None:
    send(page, SLOW)
    wait_for_word(page, "w20")
    page.click(".stop")
    wait_for_rest(page, 1)
    said = words(page)
    assert said == WORDS[: len(said)]
    assert 20 <= len(said) < 200
    expect(page.locator("#log .note")).to_have_text("stopped by you")
    send(page, "thanks")
    wait_for_rest(page, 2)
    expect(page.locator(".reply").last).to_contain_text("thanks")


def test_a_message_sent_meanwhile_waits_and_can_be_changed_and_removed(page: Page) -> None:
    send(page, SLOW)
    expect(page.locator(".when-running")).to_be_visible()
    send(page, "first")
    send_when_free(page, "second")
    expect(page.locator(".chip")).to_have_count(2)
    page.locator(".chip").nth(0).locator("[data-edit]").click()
    expect(page.locator("#text")).to_have_value("first")
    page.fill("#text", "first, changed")
    page.press("#text", "Enter")
    expect(page.locator(".chip").nth(0)).to_contain_text("first, changed")
    page.locator(".chip").nth(1).get_by_role("button", name="Remove").click()
    expect(page.locator(".chip")).to_have_count(1)
    page.click(".stop")
    wait_for_rest(page, 2)
    expect(page.locator(".chip")).to_have_count(0)
    expect(page.locator(".msg.user .bubble")).to_have_text([SLOW, "first, changed"])


def send_when_free(page: Page, text: str) -> None:
    """The next message, once the server has taken the one before."""
    expect(page.locator("#text")).to_have_value("")
    send(page, text)


def test_a_server_that_dies_and_comes_back_loses_nothing(page: Page, server: Server) -> None:
    send(page, SLOW)
    wait_for_word(page, "w40")
    server.kill()
    expect(page.locator("#link")).to_have_text("reconnecting…")
    server.start()
    wait_for_rest(page, 1)
    expect(page.locator("#link")).to_have_text("connected")
    assert words(page) == WORDS
    live = page.inner_text("#log").removesuffix("\n\ncaught up")
    page.reload()
    assert page.inner_text("#log") == live


def test_a_message_sent_without_a_connection_is_kept_and_goes_out_once(page: Page, server: Server) -> None:
    server.kill()
    expect(page.locator("#link")).to_have_text("reconnecting…")
    send(page, "are you there?")
    expect(page.locator("#text")).to_have_value("are you there?")
    expect(page.locator("#problem")).to_contain_text("Not sent yet")
    server.start()
    wait_for_rest(page, 1)
    expect(page.locator("#problem")).to_be_empty()
    expect(page.locator("#text")).to_have_value("")
    expect(page.locator(".msg.user")).to_have_count(1)


def test_a_message_that_is_too_long_stays_in_the_box_and_says_so(page: Page) -> None:
    page.fill("#text", "x" * 200_001)
    page.press("#text", "Enter")
    expect(page.locator("#problem")).to_contain_text("The message is too long: at most")
    assert page.input_value("#text") == "x" * 200_001
    page.fill("#text", "short")
    expect(page.locator("#problem")).to_be_empty()
    page.press("#text", "Enter")
    expect(page.locator(".msg.user .bubble")).to_have_text("short")


def test_a_message_too_large_for_the_socket_stays_in_the_box_too(page: Page) -> None:
    page.fill("#text", "\x01" * 750_000)
    page.press("#text", "Enter")
    expect(page.locator("#problem")).to_contain_text("The message is too long: at most")
    page.fill("#text", "short")
    page.press("#text", "Enter")
    expect(page.locator(".msg.user .bubble")).to_have_text("short")


def test_a_message_that_a_proxy_finds_too_large_is_not_sent_again(context: BrowserContext, talk: Session) -> None:
    page = context.new_page()
    sent: list[str] = []

    def pass_on(route: WebSocketRoute) -> None:
        server = route.connect_to_server()

        def up(message: str | bytes) -> None:
            if "large" in str(message):
                sent.append(str(message))
                route.close(code=1009)
            else:
                server.send(message)

        route.on_message(up)

    page.route_web_socket(re.compile("/ws/"), pass_on)
    page.goto(f"/c/{talk.id}/")
    expect(page.locator("#link")).to_have_text("connected")
    send(page, "large")
    expect(page.locator("#problem")).to_contain_text("The message is too long")
    expect(page.locator("#text")).to_have_value("large")
    page.get_by_role("button", name="Reconnect").click()
    expect(page.locator("#link")).to_have_text("connected")
    send(page, "short")
    expect(page.locator(".msg.user .bubble")).to_have_text("short")
    assert len(sent) == 1


@pytest.mark.parametrize("code", [1000, 1002, 4400])
def test_a_connection_that_ended_says_so_and_is_made_again_when_asked(
    context: BrowserContext, talk: Session, code: int
) -> None:
    page = context.new_page()
    routes: list[WebSocketRoute] = []

    def pass_on(route: WebSocketRoute) -> None:
        routes.append(route)
        route.connect_to_server()

    page.route_web_socket(re.compile("/ws/"), pass_on)
    page.goto(f"/c/{talk.id}/")
    expect(page.locator("#link")).to_have_text("connected")
    send(page, "hello")
    wait_for_rest(page, 1)
    routes[0].close(code=code)
    expect(page.locator("#link")).to_have_text("The connection ended.")
    send(page, "lost?")
    expect(page.locator("#problem")).to_have_text("The connection ended.")
    expect(page.locator("#text")).to_have_value("lost?")
    page.get_by_role("button", name="Reconnect").click()
    expect(page.locator("#link")).to_have_text("connected")
    expect(page.get_by_role("button", name="Reconnect")).to_be_hidden()
    expect(page.locator("#text")).to_be_focused()
    send(page, "and again")
    wait_for_rest(page, 2)
    assert "after=0" not in routes[1].url
    expect(page.locator("#problem")).to_be_empty()
    expect(page.locator(".msg.user .bubble")).to_have_text(["hello", "and again"])


def test_a_person_who_logged_out_elsewhere_is_told_and_keeps_the_text(page: Page, context: BrowserContext) -> None:
    other = context.new_page()
    other.goto("/settings/")
    other.get_by_role("button", name="Log out").click()
    expect(page.locator("#link")).to_have_text("You are logged out.", timeout=15_000)
    expect(page.locator("#log-in")).to_be_visible()
    send(page, "hello?")
    expect(page.locator("#problem")).to_have_text("You are logged out.")
    expect(page.locator("#text")).to_have_value("hello?")


def test_enter_sends_and_shift_enter_breaks_the_line(page: Page) -> None:
    page.type("#text", "one")
    page.press("#text", "Shift+Enter")
    page.type("#text", "two")
    page.press("#text", "Enter")
    expect(page.locator(".msg.user .bubble")).to_have_text("one\ntwo", use_inner_text=True)


@pytest.mark.parametrize("mark", [{"isComposing": True}, {"keyCode": 229}])
def test_enter_that_ends_an_input_methods_word_sends_nothing(page: Page, mark: dict[str, object]) -> None:
    page.fill("#text", "にほん")
    page.evaluate(
        "mark => document.getElementById('text').dispatchEvent("
        "new KeyboardEvent('keydown', {key: 'Enter', bubbles: true, cancelable: true, ...mark}))",
        mark,
    )
    send(page, "にほんご")
    expect(page.locator(".msg.user .bubble")).to_have_text(["にほんご"])


def test_a_draft_survives_a_reload(page: Page) -> None:
    page.fill("#text", "half a thought")
    page.reload()
    expect(page.locator("#text")).to_have_value("half a thought")


def test_it_follows_the_end_only_while_the_reader_is_there(page: Page) -> None:
    page.set_viewport_size({"width": 500, "height": 420})
    send(page, SLOW)
    wait_for_word(page, "w80")
    gap = "t => t.scrollHeight - t.scrollTop - t.clientHeight"
    thread = page.locator("#thread")
    assert thread.evaluate(gap) < 48
    page.mouse.move(250, 150)
    page.mouse.wheel(0, -2000)
    expect(page.locator("#newer")).to_be_visible()
    wait_for_rest(page, 1)
    assert page.evaluate("document.getElementById('thread').scrollTop") == 0
    page.click("#newer")
    assert thread.evaluate(gap) < 48


def test_a_tool_call_shows_what_was_asked_and_answered(page: Page) -> None:
    send(page, "list files")
    wait_for_rest(page, 1)
    card = page.locator(".tool")
    expect(card).to_contain_text("list_files")
    expect(card.locator(".word")).to_have_text("done")
    expect(card.locator(".took")).to_have_text(re.compile(r"^\d+ ms$|^\d+\.\d s$"))
    took = card.locator(".took").inner_text()
    page.reload()
    expect(card.locator(".took")).to_have_text(took)
    card.locator("summary").click()
    expect(card.locator(".tool-output pre")).to_be_visible()


def later(data: bytes) -> Callable[[], bytes]:
    return lambda: stream_head() + data


def test_a_failed_reply_says_why_and_retry_answers_it(page: Page, provider: Provider) -> None:
    refusal = failure("401 Unauthorized", {"error": {"message": "no such key", "code": "invalid_api_key"}})
    provider.answers = [lambda: refusal, later(text("Here ", "it is."))]
    send(page, "what is new?")
    card = page.locator(".failure")
    expect(card).to_contain_text("The model's provider refused the key.")
    expect(card.locator(".detail")).to_contain_text("OPENAI_API_KEY")
    expect(page.locator("#run")).to_contain_text("the last reply failed")
    card.get_by_role("button", name="Retry").click()
    expect(page.locator(".reply").last).to_contain_text("Here it is.")
    expect(page.locator(".failure").get_by_role("button", name="Retry")).to_have_count(0)
    expect(page.locator("#run")).to_have_attribute("data-run", "idle")
    expect(page.locator(".msg.user")).to_have_count(1)
    shown = page.inner_text("#log")
    page.reload()
    assert page.inner_text("#log") == shown


@pytest.mark.parametrize("by", ["button", "key"])
def test_a_steer_joins_the_running_reply(page: Page, provider: Provider, by: str) -> None:
    go_on = threading.Event()

    def waits() -> bytes:
        go_on.wait(20)
        return stream_head() + answer({"tool_calls": [call(0, "c1", "list_files", "{}")]}, finish="tool_calls")

    provider.answers = [waits, later(text("In short: nothing."))]
    expect(page.get_by_role("button", name="Steer")).to_be_hidden()
    send(page, "what is there?")
    expect(page.get_by_role("button", name="Steer")).to_be_visible()
    page.fill("#text", "be brief")
    if by == "button":
        page.get_by_role("button", name="Steer").click()
    else:
        page.press("#text", "Control+Enter")
    expect(page.locator(".chip")).to_contain_text("be brief")
    expect(page.locator("#text")).to_have_value("")
    go_on.set()
    expect(page.locator(".reply")).to_contain_text("In short: nothing.")
    expect(page.locator(".reply .msg.user .bubble")).to_have_text("be brief")
    expect(page.locator(".chip")).to_have_count(0)
    expect(page.get_by_role("button", name="Steer")).to_be_hidden()
    assert "be brief" in provider.bodies[1]


def test_ctrl_enter_sends_where_nothing_runs(page: Page) -> None:
    page.fill("#text", "hello")
    page.press("#text", "Control+Enter")
    wait_for_rest(page, 1)


def test_older_conversations_are_reached_by_keyboard(page: Page, alice: User) -> None:
    now = timezone.now()
    Session.objects.bulk_create(
        Session(
            id=f"c{n:04}", owner=alice, root_id=f"c{n:04}", agent_id="main", title=f"talk {n}.",
            updated_at=now - timedelta(days=1, minutes=n),
        )
        for n in range(299)
    )  # fmt: skip
    page.reload()
    expect(page.locator("#list .row")).to_have_count(200)
    page.locator("#list .row").last.focus()
    # Past the row's own menu.
    page.keyboard.press("Tab")
    page.keyboard.press("Tab")
    expect(page.get_by_role("button", name="Older conversations")).to_be_focused()
    page.keyboard.press("Enter")
    expect(page.locator("#list .row")).to_have_count(300)
    expect(page.locator("#list .row").nth(200)).to_be_focused()
    Session.objects.filter(pk="c0298").update(title="brought up to date")
    page.evaluate("htmx.trigger(document.getElementById('list'), 'refresh')")
    expect(page.locator("#list .row").last).to_contain_text("brought up to date")
    expect(page.locator("#list .row")).to_have_count(300)
    expect(page.locator("#list .row").nth(200)).to_be_focused()


def test_the_list_is_a_sheet_on_a_phone(page: Page) -> None:
    page.set_viewport_size({"width": 390, "height": 844})
    expect(page.locator("#sidebar")).to_be_hidden()
    page.get_by_role("button", name="Conversations").click()
    expect(page.locator("#sidebar")).to_be_visible()
    page.keyboard.press("Escape")
    expect(page.locator("#sidebar")).to_be_hidden()
    assert page.evaluate("document.documentElement.scrollWidth") == 390


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_axe_finds_nothing(page: Page, scheme: str) -> None:
    page.emulate_media(color_scheme="light" if scheme == "light" else "dark")
    found = list(Axe().run(page).response["violations"])
    send(page, "show me markdown")
    wait_for_rest(page, 1)
    found += Axe().run(page).response["violations"]
    page.goto("/settings/")
    found += Axe().run(page).response["violations"]
    assert [(problem["id"], problem["nodes"][0]["html"]) for problem in found] == []
