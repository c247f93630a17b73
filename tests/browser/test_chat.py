"""The page as a person uses it."""

from __future__ import annotations

import re

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import BrowserContext, Page, expect

from tests.browser.conftest import Server

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
    page.click("[data-starter^='Show me']")
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
    live = page.inner_text("#log")
    page.reload()
    assert page.inner_text("#log") == live


def test_a_message_sent_without_a_connection_is_kept_and_goes_out_once(page: Page, server: Server) -> None:
    server.kill()
    expect(page.locator("#link")).to_have_text("reconnecting…")
    send(page, "are you there?")
    expect(page.locator("#text")).to_have_value("are you there?")
    server.start()
    wait_for_rest(page, 1)
    expect(page.locator("#text")).to_have_value("")
    expect(page.locator(".msg.user")).to_have_count(1)


def test_a_message_that_was_refused_stays_in_the_box(page: Page) -> None:
    page.fill("#text", "x" * 199_999)
    page.evaluate("document.getElementById('text').removeAttribute('maxlength')")
    page.evaluate("document.getElementById('text').value += 'yyy'")
    page.press("#text", "Enter")
    expect(page.locator("#problem")).not_to_be_empty()
    assert page.input_value("#text").endswith("yyy")


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
    call = page.locator(".tool")
    expect(call).to_contain_text("list_files")
    expect(call.locator(".word")).to_have_text("done")
    call.locator("summary").click()
    expect(call.locator(".tool-output pre")).to_be_visible()


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
