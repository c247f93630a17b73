"""Subagents on the page: each in its own panel, live, over a reload, with keys and on a phone."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from playwright.sync_api import BrowserContext, Locator, Page, expect

from chatapp.models import Session
from tests.browser.test_access import violations
from tests.browser.test_chat import send, wait_for_word
from tests.browser.test_walks import tab_to

NESTING = "---\ndescription: Nests.\nmode: subagent\nhandoff: {max_depth: 3}\n---\nNest.\n"


def panel(page: Page, name: str) -> Locator:
    return page.locator(".panel", has=page.locator(f".panel-head b:text-is('{name}')"))


def head(page: Page, name: str) -> Locator:
    return panel(page, name).first.locator("> details > summary .panel-head")


def words(panel: Locator) -> list[str]:
    """Of its log, not of what was handed back."""
    said = panel.first.locator("> details > .panel-body > .panel-log > .reply > .md").all_text_contents()
    return re.findall(r"\bw\d+\b", " ".join(said))


def rest(page: Page) -> None:
    page.wait_for_function(
        "() => document.getElementById('run').dataset.run === 'idle' && document.querySelector('.msg.reply .actions')"
    )


def test_four_work_side_by_side_each_in_its_panel(page: Page) -> None:
    send(page, "delegate to four")
    for name in ("researcher", "reviewer", "writer", "planner"):
        expect(head(page, name)).to_have_attribute("data-state", "running")
    # Closed, a running one shows its last lines.
    box = panel(page, "planner").bounding_box()
    assert box
    assert box["height"] > 80
    rest(page)
    for name in ("researcher", "reviewer", "writer", "planner"):
        expect(head(page, name)).to_have_attribute("data-state", "done")
        expect(head(page, name)).to_contain_text("tokens")
    assert words(panel(page, "researcher")) == [f"w{n}" for n in range(1, 61)]
    assert words(panel(page, "reviewer")) == [f"w{n}" for n in range(1, 41)]
    assert words(panel(page, "planner")) == [f"w{n}" for n in range(1, 81)]
    shown = page.locator("#log").inner_text()
    panel(page, "writer").locator("summary").first.click()
    expect(panel(page, "writer").locator("table")).to_be_visible()
    expect(panel(page, "writer").locator(".handed")).to_contain_text("Handed back")
    page.reload()
    expect(page.locator("#link")).to_have_text("connected")
    assert page.locator("#log").inner_text() == shown


def test_a_reload_in_the_middle_misses_and_mixes_nothing(page: Page) -> None:
    send(page, "delegate to four")
    wait_for_word(page, "w12")
    page.reload()
    expect(page.locator("#link")).to_have_text("connected")
    rest(page)
    assert words(panel(page, "researcher")) == [f"w{n}" for n in range(1, 61)]
    assert words(panel(page, "planner")) == [f"w{n}" for n in range(1, 81)]
    expect(page.locator(".panel")).to_have_count(4)


def test_one_that_fails_says_why_and_the_others_go_on(page: Page) -> None:
    send(page, "delegate and fail")
    rest(page)
    expect(head(page, "writer")).to_have_attribute("data-state", "failed")
    expect(head(page, "researcher")).to_have_attribute("data-state", "done")
    panel(page, "writer").locator("summary").first.click()
    expect(panel(page, "writer").locator(".failure")).to_be_visible()
    expect(panel(page, "writer").locator(".handed")).to_contain_text("it failed")
    # It is the parent's to try again, not the person's.
    expect(panel(page, "writer").get_by_role("button", name="Retry")).to_have_count(0)
    expect(page.locator(".msg.reply > .md").last).to_contain_text("did not manage")


def test_one_is_stopped_and_its_siblings_go_on(page: Page) -> None:
    send(page, "delegate to four")
    wait_for_word(page, "w5")
    page.get_by_role("button", name="Stop planner").click()
    expect(head(page, "planner")).to_have_attribute("data-state", "stopped")
    rest(page)
    assert 0 < len(words(panel(page, "planner"))) < 80
    assert words(panel(page, "researcher")) == [f"w{n}" for n in range(1, 61)]
    expect(page.get_by_role("button", name=re.compile("^Stop "))).to_have_count(0)


def test_one_below_another_is_nested_and_says_whose_it_is(page: Page, talk: Session, agents_folder: Path) -> None:
    kept = (agents_folder / "researcher.md").read_text()
    (agents_folder / "researcher.md").write_text(NESTING)
    declaration = {**talk.declaration, "handoff": {"max_depth": 3}}
    Session.objects.filter(pk=talk.pk).update(declaration=declaration)
    try:
        send(page, "delegate deeply")
        rest(page)
    finally:
        (agents_folder / "researcher.md").write_text(kept)
    outer = page.locator(".panel").first
    outer.locator("summary").first.click()
    inner = outer.locator(".panel")
    expect(inner).to_have_count(1)
    inner.locator("summary").first.click()
    expect(inner.locator(".crumbs")).to_have_text("main › researcher › researcher")
    assert words(inner) == [f"w{n}" for n in range(1, 61)]


def test_it_is_worked_by_keys(page: Page) -> None:
    send(page, "delegate to a researcher")
    wait_for_word(page, "w5")
    tab_to(page, "researcher.*running", back=True)
    page.keyboard.press("Enter")
    expect(page.locator(".panel details").first).to_have_attribute("open", "")
    tab_to(page, "^Stop researcher$")
    page.keyboard.press("Enter")
    expect(head(page, "researcher")).to_have_attribute("data-state", "stopped")


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_it_fits_a_phone_and_axe_finds_nothing(context: BrowserContext, talk: Session, scheme: str) -> None:
    page = context.new_page()
    page.set_viewport_size({"width": 390, "height": 800})
    page.emulate_media(color_scheme="light" if scheme == "light" else "dark", reduced_motion="reduce")
    page.goto(f"/c/{talk.pk}/")
    expect(page.locator("#link")).to_have_text("connected")
    send(page, "delegate and fail")
    wait_for_word(page, "w5")
    assert violations(page) == []
    rest(page)
    for summary in page.locator(".panel > details > summary").all():
        summary.click()
    assert page.evaluate("document.documentElement.scrollWidth <= 390")
    assert violations(page) == []
