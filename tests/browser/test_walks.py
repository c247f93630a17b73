"""Whole visits: one without a mouse, one on a phone, and one that goes back and forth between conversations."""

from __future__ import annotations

import re

from django.contrib.auth.hashers import PBKDF2PasswordHasher
from django.contrib.auth.models import User
from playwright.sync_api import Browser, BrowserContext, Page, expect

from chatapp.models import Session
from tests.browser.conftest import Server
from tests.browser.test_chat import SLOW, wait_for_rest, wait_for_word
from tests.gateway.replies import conversation_of

TABS_MOST = 60
FOCUSED = """
() => { const at = document.activeElement;
  return at.getAttribute("aria-label") || (at.labels?.[0] || at).textContent.trim().replace(/\\s+/g, " ") || at.id; }
"""
# What a thumb hits; the rows under messages are a little lower.
THUMB = 36


def tab_to(page: Page, name: str, back: bool = False) -> None:
    """Press Tab until what has this name is focused, as somebody without a mouse must."""
    for _ in range(TABS_MOST):
        if re.search(name, page.evaluate(FOCUSED)):
            return
        page.keyboard.press("Shift+Tab" if back else "Tab")
    raise AssertionError(f"{name} is not reached by Tab; at {page.evaluate(FOCUSED)!r}")


def write(page: Page, text: str) -> None:
    page.keyboard.type(text)
    page.keyboard.press("Enter")
    expect(page.locator("#text")).to_have_value("")


def test_a_whole_visit_by_keyboard(chromium: Browser, server: Server, alice: User) -> None:
    # The server hashes as in production, the tests do not.
    alice.password = PBKDF2PasswordHasher().encode("a-long-secret-1", "salt", 1000)
    alice.save()
    conversation_of(alice, "An older one")
    context = chromium.new_context(base_url=server.url, viewport={"width": 1200, "height": 800})
    page = context.new_page()
    page.goto("/")
    tab_to(page, "^Username")
    page.keyboard.type("alice")
    page.keyboard.press("Tab")
    page.keyboard.type("a-long-secret-1")
    page.keyboard.press("Enter")
    expect(page.locator("#link")).to_have_text("connected")

    # A new conversation, a message, one more into the running reply, and a stop.
    tab_to(page, "^New$")
    page.keyboard.press("Enter")
    expect(page.locator("#link")).to_have_text("connected")
    page.keyboard.press("c")
    expect(page.locator("#text")).to_be_focused()
    write(page, SLOW)
    wait_for_word(page, "w5")
    page.keyboard.type("and this")
    page.keyboard.press("Control+Enter")
    expect(page.locator(".chip")).to_contain_text("and this")
    page.keyboard.press("ArrowUp")
    expect(page.locator("#text")).to_have_value("and this")
    page.keyboard.type(", please")
    page.keyboard.press("Enter")
    expect(page.locator(".chip")).to_contain_text("and this, please")
    tab_to(page, "^Stop$")
    page.keyboard.press("Enter")
    expect(page.locator("#log .note").first).to_have_text("stopped by you")
    page.wait_for_function("() => document.getElementById('run').dataset.run === 'idle'")

    # A command, the sheet of keys, a tool's card, an answer's actions.
    page.locator("#text").focus()
    page.keyboard.type("/he")
    page.keyboard.press("Enter")
    expect(page.locator("#help")).to_be_visible()
    page.keyboard.press("Escape")
    expect(page.locator("#help")).to_be_hidden()
    expect(page.locator("#text")).to_be_focused()
    replies = page.locator(".reply").count()
    write(page, "list files")
    wait_for_rest(page, replies + 1)
    tab_to(page, "list_files", back=True)
    page.keyboard.press("Enter")
    expect(page.locator(".tool[open] .tool-output pre")).to_be_visible()
    tab_to(page, "^Good answer|^A good answer|good", back=False)
    page.keyboard.press("Space")
    expect(page.locator("[aria-pressed=true]")).to_have_count(1)
    page.keyboard.press("Escape")
    expect(page.locator("#text")).to_be_focused()

    # The list: search, rename, delete and undo.
    page.locator("#thread").focus()
    page.keyboard.press("/")
    page.keyboard.type("older")
    expect(page.locator("#list .row")).to_have_count(1)
    page.keyboard.press("Escape")
    expect(page.locator("#list .row")).to_have_count(2)
    for _ in range(TABS_MOST):
        if page.evaluate("document.activeElement.matches('#list .row')"):
            break
        page.keyboard.press("Tab")
    page.keyboard.press("End")
    expect(page.locator("#list .row").last).to_be_focused()
    page.keyboard.press("F2")
    expect(page.locator("#menu input[name=title]")).to_be_focused()
    page.keyboard.press("Control+A")
    page.keyboard.type("Renamed")
    page.keyboard.press("Enter")
    expect(page.locator("#list .row .t").last).to_have_text("Renamed")
    page.keyboard.press("Delete")
    expect(page.locator("#list .row")).to_have_count(1)
    page.keyboard.press("Control+z")
    expect(page.locator("#list .row")).to_have_count(2)
    page.locator("#list .row", has_text="Renamed").focus()
    page.keyboard.press("Enter")
    expect(page.locator("#title")).to_have_text("Renamed")
    context.close()


def press_by_thumb(page: Page, name: str) -> None:
    """Tap a button that is there without hovering, large enough, and within the screen."""
    button = page.get_by_role("button", name=name, exact=True).locator("visible=true").last
    box = button.bounding_box()
    assert box is not None, name
    assert min(box["width"], box["height"]) >= THUMB, (name, box)
    assert box["x"] >= 0
    assert box["x"] + box["width"] <= 390, (name, box)
    button.tap()


def test_a_whole_visit_on_a_phone(chromium: Browser, server: Server, context: BrowserContext, talk: Session) -> None:
    phone = chromium.new_context(
        base_url=server.url, viewport={"width": 390, "height": 844}, has_touch=True, is_mobile=True,
        storage_state=context.storage_state(),
    )  # fmt: skip
    page = phone.new_page()
    page.goto(f"/c/{talk.pk}/")
    expect(page.locator("#link")).to_have_text("connected")
    page.locator(".starter").first.tap()
    wait_for_rest(page, 1)
    page.fill("#text", SLOW)
    press_by_thumb(page, "Send")
    wait_for_word(page, "w5")
    press_by_thumb(page, "Stop")
    wait_for_rest(page, 2)
    # The keyboard takes half of the screen: the box stays above it.
    page.set_viewport_size({"width": 390, "height": 420})
    page.locator("#text").tap()
    box = page.locator("#composer").bounding_box()
    assert box is not None
    assert box["y"] + box["height"] <= 420
    page.set_viewport_size({"width": 390, "height": 844})
    press_by_thumb(page, "Copy this answer")
    press_by_thumb(page, "Conversations")
    expect(page.locator("#sidebar")).to_be_visible()
    page.locator("#list .more").first.tap()
    page.get_by_role("menuitem", name="Pin").tap()
    expect(page.locator("#list h2").first).to_have_text("Pinned")
    press_by_thumb(page, "Close the list")
    expect(page.locator("#sidebar")).to_be_hidden()
    page.get_by_role("button", name=re.compile("^Files")).tap()
    expect(page.locator("#drawer")).to_be_visible()
    drawer = page.locator("#drawer").bounding_box()
    assert drawer is not None
    assert drawer["width"] == 390
    press_by_thumb(page, "Back")
    expect(page.locator("#drawer")).to_be_hidden()
    assert page.evaluate("document.documentElement.scrollWidth") == 390
    phone.close()


def test_back_and_forward_show_the_right_conversation_with_one_socket(
    page: Page, context: BrowserContext, alice: User
) -> None:
    other = conversation_of(alice, "The other one")
    sockets: list[str] = []
    page.on("websocket", lambda socket: sockets.append(socket.url))
    first = page.url
    page.fill("#text", "hello here")
    page.press("#text", "Enter")
    wait_for_rest(page, 1)
    page.goto(f"/c/{other.pk}/")
    expect(page.locator("#title")).to_have_text("The other one")
    for go, path, title in (
        (page.go_back, first, "hello here"),
        (page.go_forward, other.pk, "The other one"),
        (page.go_back, first, "hello here"),
    ):
        go()
        expect(page.locator("#title")).to_have_text(title)
        expect(page.locator("#link")).to_have_text("connected")
        assert path in page.url
    page.fill("#text", "and again")
    page.press("#text", "Enter")
    wait_for_rest(page, 2)
    assert "/c/" in sockets[-1]
    assert sockets[-1].split("?")[0].rstrip("/").endswith(first.rstrip("/").rsplit("/", 1)[-1])
    expect(page.locator(".msg.user .bubble")).to_have_text(["hello here", "and again"])
