"""The conversation list as a person uses it: its menu, undo, search, keys, and what it does when things go wrong."""

from __future__ import annotations

import re
from datetime import timedelta

import pytest
from axe_playwright_python.sync_playwright import Axe
from django.contrib.auth.models import User
from django.utils import timezone
from playwright.sync_api import BrowserContext, Locator, Page, Route, expect

from chatapp.models import Session
from chatapp.store import deletion
from tests.browser.test_chat import send, wait_for_rest
from tests.chatapp.test_pages import asked
from tests.chatapp.test_pages import stored as with_events
from tests.chatapp.test_search import said
from tests.conftest import wait_until
from tests.gateway.replies import conversation_of, sent


@pytest.fixture
def others(alice: User, talk: Session) -> list[Session]:
    """Two more in the list of the page, under the open one."""
    now = timezone.now()
    return [
        conversation_of(alice, title, updated_at=now - timedelta(minutes=n)) for n, title in ((5, "One"), (6, "Two"))
    ]


@pytest.fixture
def page(others: list[Session], page: Page) -> Page:
    return page


def row(page: Page, conversation: Session) -> Locator:
    return page.locator(f"#row-{conversation.pk}")


def menu(page: Page, conversation: Session, item: str) -> None:
    row(page, conversation).hover()
    page.locator(f"#more-{conversation.pk}").click()
    page.get_by_role("menuitem", name=item).click()


def refresh(page: Page) -> None:
    """A refresh, and its end."""
    with page.expect_response(lambda answer: "/list/" in answer.url):
        page.evaluate("htmx.trigger(document.getElementById('list'), 'refresh')")


@pytest.fixture
def may_fail(expected: list[str]) -> None:
    """Calls fail in this test, and the browser says so."""
    expected.append("Failed to load resource")


def stored(conversation: Session) -> Session:
    return Session.objects.get(pk=conversation.pk)


def test_the_menu_is_worked_by_keys(page: Page, others: list[Session]) -> None:
    button = page.locator(f"#more-{others[0].pk}")
    row(page, others[0]).focus()
    page.keyboard.press("Tab")
    expect(button).to_be_focused()
    for key in ("Enter", "Space"):
        page.keyboard.press(key)
        expect(page.get_by_role("menuitem", name="Rename")).to_be_focused()
        page.keyboard.press("Escape")
        expect(page.locator("#menu")).to_be_hidden()
        expect(button).to_be_focused()
    page.keyboard.press("Enter")
    expect(page.get_by_role("menuitem", name="Rename")).to_be_focused()
    for key, item in (
        ("ArrowDown", "Pin"),
        ("End", "Delete"),
        ("ArrowDown", "Delete"),
        ("ArrowUp", "Archive"),
        ("Home", "Rename"),
    ):
        page.keyboard.press(key)
        expect(page.get_by_role("menuitem", name=item)).to_be_focused()
    page.mouse.click(700, 300)
    expect(page.locator("#menu")).to_be_hidden()


def test_an_open_menu_shows_nothing_of_the_one_before(page: Page, others: list[Session]) -> None:
    row(page, others[0]).hover()
    page.locator(f"#more-{others[0].pk}").click()
    expect(page.get_by_role("menuitem", name="Delete")).to_be_visible()
    page.keyboard.press("Escape")
    page.route("**/menu/", lambda _route: None)
    row(page, others[1]).hover()
    page.locator(f"#more-{others[1].pk}").click()
    expect(page.locator("#menu")).to_be_visible()
    expect(page.get_by_role("menuitem")).to_have_count(0)


def test_a_refresh_leaves_an_open_menu_alone(page: Page, others: list[Session]) -> None:
    row(page, others[0]).hover()
    page.locator(f"#more-{others[0].pk}").click()
    Session.objects.filter(pk=others[1].pk).update(title="brought up to date")
    page.evaluate("htmx.trigger(document.getElementById('list'), 'refresh')")
    expect(row(page, others[1])).to_contain_text("brought up to date")
    expect(page.get_by_role("menuitem", name="Rename")).to_be_focused()
    page.keyboard.press("Escape")
    expect(page.locator(f"#more-{others[0].pk}")).to_be_focused()


def test_it_renames_beside_the_row(page: Page, others: list[Session]) -> None:
    row(page, others[0]).focus()
    page.keyboard.press("F2")
    box = page.get_by_role("textbox", name="Name of the conversation")
    expect(box).to_be_focused()
    expect(box).to_have_value("One")
    box.fill("half a na")
    refresh(page)
    expect(box).to_have_value("half a na")
    expect(box).to_be_focused()
    page.keyboard.press("Escape")
    expect(row(page, others[0])).to_be_focused()
    expect(row(page, others[0])).to_contain_text("One")
    page.keyboard.press("F2")
    expect(box).to_be_focused()
    box.fill("Eins \u05d0 <b>")
    page.keyboard.press("Enter")
    expect(row(page, others[0]).locator(".t")).to_have_text("Eins \u05d0 <b>")
    expect(row(page, others[0])).to_be_focused()
    page.keyboard.press("F2")
    box.fill("")
    page.keyboard.press("Enter")
    expect(row(page, others[0]).locator(".t")).to_have_text("New conversation")
    assert stored(others[0]).title == ""


def test_the_header_renames_the_open_one(page: Page, talk: Session) -> None:
    page.locator(f"#chat-{talk.pk}").click()
    page.get_by_role("menuitem", name="Rename").click()
    expect(page.get_by_role("textbox", name="Name of the conversation")).to_be_focused()
    page.keyboard.type("Ledger")
    page.keyboard.press("Enter")
    expect(page.locator("#title")).to_have_text("Ledger")
    expect(row(page, talk).locator(".t")).to_have_text("Ledger")
    expect(page).to_have_title(re.compile("^Ledger"))
    expect(page.locator(f"#chat-{talk.pk}")).to_be_focused()


def test_a_name_that_could_not_be_stored_stays_in_its_box(may_fail: None, page: Page, others: list[Session]) -> None:
    page.route("**/change/", lambda route: route.abort())
    row(page, others[0]).focus()
    page.keyboard.press("F2")
    box = page.get_by_role("textbox", name="Name of the conversation")
    expect(box).to_be_focused()
    page.keyboard.type("not yet")
    page.keyboard.press("Enter")
    expect(page.locator("#menu-lost")).to_contain_text("did not work")
    expect(box).to_have_value("not yet")
    page.unroute("**/change/")
    box.press("Enter")
    expect(row(page, others[0]).locator(".t")).to_have_text("not yet")


def test_it_pins_and_unpins(page: Page, others: list[Session]) -> None:
    menu(page, others[1], "Pin")
    expect(page.locator("#list h2").first).to_have_text("Pinned")
    expect(page.locator("#list .row").first).to_contain_text("Two")
    expect(page.locator("#say")).to_have_text("Pinned “Two”.")
    menu(page, others[1], "Unpin")
    expect(page.locator("#list h2")).to_have_text(["Today"])


def test_delete_has_an_undo_and_keeps_the_place_of_the_focus(page: Page, others: list[Session]) -> None:
    row(page, others[0]).focus()
    page.keyboard.press("Delete")
    expect(row(page, others[0])).to_have_count(0)
    expect(row(page, others[1])).to_be_focused()
    expect(page.locator("#toast")).to_contain_text("Deleted “One”.")
    expect(page.locator("#say")).to_contain_text("Deleted “One”.")
    assert stored(others[0]).deleted_at
    page.keyboard.press("Control+z")
    expect(row(page, others[0])).to_be_visible()
    expect(page.locator("#toast")).to_contain_text("“One” is back.")
    assert stored(others[0]).deleted_at is None


def test_an_undo_that_comes_too_late_says_so(may_fail: None, page: Page, others: list[Session]) -> None:
    row(page, others[0]).focus()
    page.keyboard.press("Delete")
    expect(page.locator("#undo")).to_be_visible()
    Session.objects.filter(pk=others[0].pk).update(deleted_at=timezone.now() - deletion.RESTORABLE)
    page.click("#undo")
    expect(page.locator("#toast")).to_contain_text("gone for good")


def test_deleting_the_open_one_goes_to_the_newest_other_and_back(
    may_fail: None, page: Page, context: BrowserContext, talk: Session, others: list[Session]
) -> None:
    send(page, "slow 200")
    expect(page.locator("#run")).to_have_attribute("data-run", "running")
    second = context.new_page()
    second.goto(page.url)
    page.locator(f"#chat-{talk.pk}").click()
    page.get_by_role("menuitem", name="Delete").click()
    page.wait_for_url(f"**/c/{others[0].pk}/")
    expect(second.locator("#link")).to_have_text("This conversation is no longer here.", timeout=15_000)
    page.click("#undo")
    page.wait_for_url(f"**/c/{talk.pk}/")
    expect(page.locator("#log .note")).to_have_text("stopped by you")
    send(page, "hello")
    wait_for_rest(page, 2)


def test_archived_ones_are_out_of_the_way_and_found_again(page: Page, others: list[Session]) -> None:
    menu(page, others[0], "Archive")
    expect(row(page, others[0])).to_have_count(0)
    page.get_by_role("button", name="Archived", exact=True).click()
    expect(page.locator("#list .row .t")).to_have_text(["One"])
    expect(page.locator("#unarchived")).to_be_focused()
    refresh(page)
    expect(page.locator("#list .row")).to_have_count(1)
    menu(page, others[0], "Unarchive")
    expect(page.locator("#list")).to_contain_text("Nothing is archived.")
    page.locator("#unarchived").click()
    expect(page.locator("#list .row")).to_have_count(3)


def test_search_finds_as_one_types_and_leads_to_the_message(page: Page, others: list[Session]) -> None:
    for number in range(120):
        message = said(others[1], f"needle {number}.")
    page.locator("#thread").focus()
    page.keyboard.press("/")
    expect(page.locator("#find-words")).to_be_focused()
    page.keyboard.type("NEEDLE")
    expect(page.locator("#list .row")).to_have_count(1)
    expect(page.locator("#list mark")).to_have_text("needle")
    expect(page.locator("#say")).to_have_text("Found: 1")
    expect(page.locator("#find-words")).to_be_focused()
    assert row(page, others[1]).get_attribute("href") == f"/c/{others[1].pk}/#m-{message.pk}"
    page.keyboard.type("x")
    expect(page.locator("#list")).to_contain_text("Nothing found for “NEEDLEx”")
    page.keyboard.press("Escape")
    expect(page.locator("#list .row")).to_have_count(3)
    page.keyboard.type("needle")
    page.keyboard.press("Enter")
    page.wait_for_url("**/search/?q=needle")
    expect(page.locator(".hit")).to_have_count(50)


def test_a_link_to_an_old_message_loads_it_and_goes_there(page: Page, talk: Session) -> None:
    with_events(talk, asked(100))
    page.goto("/settings/")
    page.goto(f"/c/{talk.pk}/#m-u3")
    expect(page.locator("#m-u3")).to_be_focused()
    expect(page.locator("#m-u3")).to_be_in_viewport()


def test_a_finished_reply_elsewhere_is_new_and_one_that_is_seen_is_not(
    page: Page, context: BrowserContext, talk: Session, others: list[Session]
) -> None:
    send(page, "hello")
    wait_for_rest(page, 1)
    wait_until(lambda: not stored(talk).unread and stored(talk).read_seq)
    sent(others[0])
    wait_until(lambda: stored(others[0]).unread)
    refresh(page)
    expect(row(page, others[0]).locator(".new")).to_have_text("new")
    row(page, others[0]).click()
    page.wait_for_url(f"**/c/{others[0].pk}/")
    assert not stored(others[0]).unread


def test_the_list_is_walked_by_keys_and_left_by_tab(page: Page, talk: Session, others: list[Session]) -> None:
    page.locator("#find-words").focus()
    page.keyboard.press("Tab")
    expect(row(page, talk)).to_be_focused()
    for key, at in (
        ("ArrowDown", others[0]),
        ("End", others[1]),
        ("ArrowDown", others[1]),
        ("ArrowUp", others[0]),
        ("Home", talk),
    ):
        page.keyboard.press(key)
        expect(row(page, at)).to_be_focused()
    page.keyboard.press("ArrowDown")
    refresh(page)
    expect(row(page, others[0])).to_be_focused()
    Session.objects.filter(pk=others[0].pk).update(pinned=True)
    refresh(page)
    expect(page.locator("#list h2").first).to_have_text("Pinned")
    expect(row(page, others[0])).to_be_focused()
    page.keyboard.press("End")
    page.keyboard.press("Tab")
    expect(page.locator(f"#more-{others[1].pk}")).to_be_focused()
    page.keyboard.press("Tab")
    expect(page.get_by_role("button", name="Archived")).to_be_focused()
    page.goto(f"/c/{others[0].pk}/")
    page.keyboard.press("Control+Shift+O")
    # The open one was empty: it is taken again.
    page.wait_for_url(f"**/c/{talk.pk}/")


@pytest.mark.parametrize("how", ["500", "none", "login"])
def test_a_list_that_could_not_be_refreshed_stays_and_says_so(
    may_fail: None, page: Page, context: BrowserContext, how: str
) -> None:
    broken = {
        "500": lambda route: route.fulfill(status=500, body="<h1>Broken</h1>"),
        "none": lambda route: route.abort(),
    }
    if how == "login":
        context.clear_cookies()
    else:
        page.route(re.compile("/list/"), broken[how])
    page.evaluate("htmx.trigger(document.getElementById('list'), 'refresh')")
    expect(page.locator("#stale")).to_be_visible()
    expect(page.locator("#list .row")).to_have_count(3)
    if how != "login":
        page.unroute(re.compile("/list/"))
        page.locator("#stale").get_by_role("button", name="Retry").click()
        expect(page.locator("#stale")).to_be_hidden()


def test_on_a_phone_the_menu_needs_no_hover_and_the_toast_is_in_reach(page: Page, others: list[Session]) -> None:
    page.set_viewport_size({"width": 390, "height": 844})
    page.get_by_role("button", name="Conversations").click()
    page.locator(f"#more-{others[0].pk}").click()
    page.keyboard.press("Escape")
    expect(page.locator("#menu")).to_be_hidden()
    expect(page.locator("#sidebar")).to_be_visible()
    page.locator(f"#more-{others[0].pk}").click()
    page.get_by_role("menuitem", name="Delete").click()
    page.get_by_role("button", name="Undo").click()
    expect(page.locator("#toast")).to_contain_text("“One” is back.")
    page.get_by_role("button", name="Conversations").click()
    expect(row(page, others[0])).to_be_visible()
    assert page.evaluate("document.documentElement.scrollWidth") == 390


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_axe_finds_nothing_in_list_menu_toast_and_search(page: Page, others: list[Session], scheme: str) -> None:
    page.emulate_media(color_scheme="light" if scheme == "light" else "dark")
    Session.objects.filter(pk=others[0].pk).update(news_seq=1, waiting_for="human")
    Session.objects.filter(pk=others[1].pk).update(status="failed")
    said(others[1], "needle")
    refresh(page)
    menu(page, others[1], "Archive")
    expect(page.locator("#undo")).to_be_visible()
    row(page, others[0]).hover()
    page.locator(f"#more-{others[0].pk}").click()
    expect(page.get_by_role("menuitem", name="Rename")).to_be_focused()
    found = list(Axe().run(page).response["violations"])
    page.keyboard.press("Escape")
    page.fill("#find-words", "needle")
    expect(page.locator("#list mark")).to_be_visible()
    found += Axe().run(page).response["violations"]
    page.goto("/search/?q=needle")
    found += Axe().run(page).response["violations"]
    assert [(problem["id"], problem["nodes"][0]["html"], problem["nodes"][0]["any"][:1]) for problem in found] == []


def test_a_refresh_that_was_asked_before_older_ones_came_does_not_take_them_away(page: Page, alice: User) -> None:
    now = timezone.now()
    Session.objects.bulk_create(
        Session(
            id=f"c{n:04}", owner=alice, root_id=f"c{n:04}", agent_id="main", title=f"talk {n}.",
            updated_at=now - timedelta(days=1, minutes=n),
        )
        for n in range(250)
    )  # fmt: skip
    refresh(page)
    expect(page.locator("#list .row")).to_have_count(200)
    held: list[Route] = []

    def hold_the_first(route: Route) -> None:
        held.append(route)
        if len(held) > 1:
            route.continue_()

    page.route(re.compile(r"/list/\?"), hold_the_first)
    with page.expect_request(re.compile(r"/list/\?")):
        page.evaluate("htmx.trigger(document.getElementById('list'), 'refresh')")
    page.get_by_role("button", name="Older conversations").click()
    expect(page.locator("#list .row")).to_have_count(253)
    with page.expect_response(re.compile(r"/list/\?.*until=end")):
        held[0].continue_()
    expect(page.locator("#list .row")).to_have_count(253)
