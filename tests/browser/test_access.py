"""Access: every page for every eye, hand and language; settings, keys, title and notifications."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from axe_playwright_python.sync_playwright import Axe
from django.conf import settings
from django.contrib.auth.models import User
from django.template.loader import render_to_string
from django.test import Client, RequestFactory
from django.utils import translation
from playwright.sync_api import Browser, BrowserContext, Locator, Page, expect

from chatapp.accounts import create_token
from chatapp.forms import FirstPasswordForm, SignupForm
from chatapp.models import Session
from tests.browser.conftest import Provider, Server
from tests.browser.test_chat import SLOW, send, wait_for_rest, wait_for_word
from tests.runtime.provider_server import failure

LONG = "Donaudampfschifffahrtselektrizitätenhauptbetriebswerkbauunterbeamtengesellschaft " * 3

# A tab that can be hidden, and notifications that are only written down.
STAGE = """
let hidden = false;
let answer = "granted";
Object.defineProperty(document, "hidden", { get: () => hidden });
window.hide = (now) => { hidden = now; document.dispatchEvent(new Event("visibilitychange")); };
window.shown = [];
window.Notification = class extends EventTarget {
  static permission = answer;
  static async requestPermission() { return Notification.permission = answer; }
  constructor(title, { body }) { super(); shown.push(title + ": " + body); }
  close() {}
};
"""

AT_END = "(({ scrollHeight, scrollTop, clientHeight }) => scrollHeight - scrollTop - clientHeight < 2)(thread)"


def drawn(template: str, **context: Any) -> Callable[[], str]:
    """A page that the server shows only in trouble, or with another setting."""
    return lambda: render_to_string(template, context, RequestFactory().get("/"))


PAGES: dict[str, str | Callable[[], str]] = {
    "login": "/accounts/login/",
    "signup": lambda: drawn("accounts/signup.html", form=SignupForm({"username": "x"}))(),
    "first password": lambda: drawn("accounts/password.html", first=True, form=FirstPasswordForm(User()))(),
    "password": "/accounts/password/",
    "link over": "/accounts/once/nothing",
    "locked": drawn("accounts/locked.html", minutes=15),
    "400": drawn("400.html"),
    "403": drawn("403.html"),
    "stale form": drawn("403.html", stale_form=True),
    "404": "/nowhere/",
    "500": drawn("500.html"),
    "settings": "/settings/",
    "chat": "/",
    "api docs": "/api/docs",
}
LOGGED_OUT = {"login"}


@pytest.fixture
def visitor(chromium: Browser, server: Server, sue: User) -> Iterator[Callable[..., Page]]:
    """Opens a page of the table as sue, who may see all of them; what the browser says of a 404 is no complaint."""
    create_token(sue, LONG[:100], ["read"])
    login = Client()
    login.force_login(sue)
    cookie = login.cookies[settings.SESSION_COOKIE_NAME].value
    contexts: list[BrowserContext] = []

    def show(name: str, language: str = "en", **options: Any) -> Page:
        context = chromium.new_context(base_url=server.url, locale=language, **options)
        contexts.append(context)
        if name not in LOGGED_OUT:
            context.add_cookies([{"name": settings.SESSION_COOKIE_NAME, "value": cookie, "url": server.url}])
        page, where = context.new_page(), PAGES[name]
        if callable(where):
            with translation.override(language):
                html = where()
            page.route("**/drawn/", lambda route: route.fulfill(body=html, content_type="text/html; charset=utf-8"))
            where = "/drawn/"
        page.goto(where)
        expect(page.locator("h1")).to_have_count(1)
        return page

    yield show
    for context in contexts:
        context.close()


def violations(page: Page) -> list[tuple[str, str]]:
    found = Axe().run(page).response["violations"]
    return [(problem["id"], node["html"]) for problem in found for node in problem["nodes"]]


def overflow(page: Page) -> int:
    """How many pixels a page is wider than its window; 0 or less is fine."""
    return int(page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth"))


@pytest.mark.parametrize(("scheme", "language"), [("light", "en"), ("dark", "de")])
@pytest.mark.parametrize("name", PAGES)
def test_axe_finds_nothing(visitor: Callable[..., Page], name: str, scheme: str, language: str) -> None:
    page = visitor(name, language, color_scheme=scheme)
    assert violations(page) == []
    if name != "500":
        expect(page.locator("html")).to_have_attribute("lang", language)


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_axe_finds_nothing_in_a_full_thread_and_the_sheet_of_keys(page: Page, scheme: Any) -> None:
    page.emulate_media(color_scheme=scheme)
    send(page, "show me markdown")
    wait_for_rest(page, 1)
    send(page, "list files")
    wait_for_rest(page, 2)
    found = violations(page)
    page.evaluate("document.documentElement.dataset.density = 'compact'")
    found += violations(page)
    page.locator("[data-help]").click()
    expect(page.locator("#help")).to_be_visible()
    assert found + violations(page) == []


@pytest.mark.parametrize("name", PAGES)
def test_it_fits_a_narrow_window_and_letters_of_twice_the_size(visitor: Callable[..., Page], name: str) -> None:
    page = visitor(name, "de", viewport={"width": 320, "height": 568})
    assert overflow(page) <= 0
    page.set_viewport_size({"width": 1280, "height": 800})
    page.evaluate("document.documentElement.style.fontSize = '200%'")
    assert overflow(page) <= 0
    page.set_viewport_size({"width": 390, "height": 800})
    assert overflow(page) <= 0


@pytest.mark.parametrize("width", [1200, 390])
@pytest.mark.parametrize("name", ["chat", "settings", "login"])
def test_a_right_to_left_page_is_mirrored(visitor: Callable[..., Page], name: str, width: int) -> None:
    page = visitor(name, viewport={"width": width, "height": 800})
    page.evaluate("document.documentElement.dir = 'rtl'")
    assert overflow(page) <= 0
    if name == "chat" and width == 1200:
        sidebar, thread = page.locator("#sidebar").bounding_box(), page.locator("#thread").bounding_box()
        assert sidebar is not None
        assert thread is not None
        assert sidebar["x"] >= thread["x"] + thread["width"] - 1


@pytest.mark.parametrize("name", ["login", "settings", "404", "chat"])
def test_the_focus_is_always_seen(visitor: Callable[..., Page], name: str) -> None:
    page = visitor(name)
    seen = """() => {
      const place = document.activeElement, style = getComputedStyle(place);
      const framed = place.id === "text" && getComputedStyle(place.form).borderColor !== getComputedStyle(document.querySelector(".bar")).borderColor;
      return place === document.body || style.outlineStyle !== "none" || framed ? "" : place.outerHTML.slice(0, 200);
    }"""  # noqa: E501
    unseen = []
    for _ in range(13):
        page.keyboard.press("Tab")
        unseen.append(page.evaluate(seen))
    assert unseen == [""] * 13


def test_nothing_moves_for_those_who_asked_for_calm(page: Page) -> None:
    page.evaluate("document.getElementById('log').innerHTML = '<p><span class=\"spin\"></span></p>'")
    spinning = page.locator("#log .spin")
    expect(spinning).to_have_css("animation-name", "turn")
    page.emulate_media(reduced_motion="reduce")
    expect(spinning).to_have_css("animation-name", "none")


def test_more_contrast_is_given_to_those_who_asked(page: Page) -> None:
    ratio = """selector => {
      const light = (colour) => {
        const part = colour.match(/[\\d.]+/g).slice(0, 3).map((c) => c / 255).map((c) => (c <= 0.04 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4));
        return 0.2126 * part[0] + 0.7152 * part[1] + 0.0722 * part[2] + 0.05;
      };
      const all = [getComputedStyle(document.querySelector(selector)).color, getComputedStyle(document.body).backgroundColor].map(light);
      return Math.max(...all) / Math.min(...all);
    }"""  # noqa: E501
    assert page.evaluate(ratio, ".sub") >= 4.5
    for scheme in ("light", "dark"):
        page.emulate_media(contrast="more", color_scheme="light" if scheme == "light" else "dark")
        assert page.evaluate(ratio, ".sub") >= 7


def test_the_systems_own_colours_still_show_what_is_current(page: Page) -> None:
    page.emulate_media(forced_colors="active")
    expect(page.locator(".row.current")).to_have_css("outline-style", "solid")
    expect(page.locator("#link-dot")).to_have_css("border-top-style", "solid")


def style(place: Locator, name: str) -> str:
    return str(place.evaluate("(place, name) => getComputedStyle(place)[name]", name))


def test_the_chosen_look_holds_from_the_first_line_of_a_page_on(page: Page) -> None:
    height = style(page.locator(".row").first, "height")
    page.goto("/settings/")
    look = page.get_by_role("region", name="Look")
    look.get_by_label("Dark").check()
    look.get_by_label("Compact").check()
    look.get_by_role("button", name="Save").click()
    expect(page.locator(".form-done")).to_have_text("The look is saved.")
    assert style(page.locator("html"), "colorScheme") == "dark"
    page.goto("/")
    html = page.locator("html")
    assert [html.get_attribute("data-theme"), html.get_attribute("data-density")] == ["dark", "compact"]
    assert float(style(page.locator(".row").first, "height")[:-2]) < float(height[:-2])
    page.goto("/settings/")
    expect(look.get_by_label("Compact")).to_be_checked()
    look.get_by_label("As the system").check()
    look.get_by_role("button", name="Save").click()
    expect(page.locator(".form-done")).to_have_text("The look is saved.")
    assert style(page.locator("html"), "colorScheme") == "light dark"


def test_a_chosen_language_holds_for_the_page_and_for_what_comes_live(page: Page, talk: Session) -> None:
    page.goto("/settings/")
    page.get_by_label("Language of the page").select_option("Deutsch")
    page.get_by_role("region", name="Language").get_by_role("button").click()
    expect(page.locator(".form-done")).to_have_text("Die Sprache ist gespeichert.")
    page.goto(f"/c/{talk.id}/")
    expect(page.locator("#link")).to_have_text("verbunden")
    send(page, SLOW)
    expect(page.locator("#run")).to_contain_text("antwortet…")
    page.click(".stop")
    expect(page.locator("#log .note")).to_have_text("von Hand gestoppt")
    expect(page.locator("#say")).to_have_text("Gestoppt")
    live = page.inner_text("#log")
    page.reload()
    assert page.inner_text("#log") == live


@pytest.fixture
def staged(context: BrowserContext, talk: Session) -> Page:
    """A tab that the test can hide."""
    context.add_init_script(STAGE)
    return context.new_page()


def opt_in(page: Page, *kinds: str, talk: Session) -> None:
    page.goto("/settings/")
    for kind in kinds:
        page.get_by_label(kind).check()
        expect(page.locator("#notify .said")).to_have_text("Saved in this browser.")
    page.goto(f"/c/{talk.id}/")
    expect(page.locator("#link")).to_have_text("connected")


def test_a_hidden_tab_tells_of_a_reply_in_title_icon_and_notification(staged: Page, talk: Session) -> None:
    opt_in(staged, "A reply is ready", talk=talk)
    send(staged, "slow 30")
    expect(staged).to_have_title(re.compile("^● replying – "))
    staged.evaluate("hide(true)")
    expect(staged).to_have_title(re.compile(r"^\(1\) slow 30 – Branchline$"))
    expect(staged.locator("#icon")).to_have_attribute("href", re.compile("favicon-dot.svg$"))
    assert staged.evaluate("shown") == ["slow 30: A reply is ready"]
    staged.evaluate("hide(false)")
    expect(staged).to_have_title("slow 30 – Branchline")
    expect(staged.locator("#icon")).to_have_attribute("href", re.compile("favicon.svg$"))


def test_a_tab_in_sight_and_a_kind_not_asked_for_tell_nothing(staged: Page, talk: Session, provider: Provider) -> None:
    opt_in(staged, "A reply is ready", talk=talk)
    Session.objects.filter(pk=talk.pk).update(model="demo")
    send(staged, "hello")
    wait_for_rest(staged, 1)
    expect(staged).to_have_title("hello – Branchline")
    Session.objects.filter(pk=talk.pk).update(model="openai:fake")
    provider.answers = [lambda: failure("401 Unauthorized", {"error": {"message": "no", "code": "invalid_api_key"}})]
    send(staged, "again")
    staged.evaluate("hide(true)")
    expect(staged).to_have_title("(1) hello – Branchline")
    assert staged.evaluate("shown") == []


def test_a_failed_reply_is_told_in_plain_text(staged: Page, talk: Session, provider: Provider) -> None:
    Session.objects.filter(pk=talk.pk).update(title="<b>\u202egnp.exe\u2066 &amp;")
    opt_in(staged, "A reply failed", talk=talk)
    provider.answers = [lambda: failure("401 Unauthorized", {"error": {"message": "no", "code": "invalid_api_key"}})]
    staged.evaluate("hide(true)")
    send(staged, "what is new?")
    expect(staged.locator("#run")).to_have_attribute("data-run", "failed")
    expect(staged).to_have_title(re.compile(r"^\(1\) "))
    assert staged.evaluate("shown") == ["<b>⟨U+202E⟩gnp.exe⟨U+2066⟩ &amp;: A reply failed"]


def test_what_the_person_stopped_is_no_news(staged: Page, talk: Session) -> None:
    opt_in(staged, "A reply is ready", talk=talk)
    send(staged, SLOW)
    wait_for_word(staged, "w5")
    staged.evaluate("hide(true)")
    staged.click(".stop")
    expect(staged.locator("#run")).to_have_attribute("data-run", "idle")
    expect(staged).to_have_title("slow 200 – Branchline")
    assert staged.evaluate("shown") == []


def test_a_browser_that_refuses_notifications_is_said_plainly(context: BrowserContext, talk: Session) -> None:
    context.add_init_script(STAGE.replace('"granted"', '"denied"'))
    staged = context.new_page()
    staged.goto("/settings/")
    expect(staged.locator("#notify .said")).to_contain_text("The browser refuses notifications")
    staged.evaluate("document.querySelector('#notify .said').textContent = ''")
    staged.get_by_label("A reply is ready").click()
    expect(staged.locator("#notify .said")).to_contain_text("The browser refuses notifications")
    expect(staged.get_by_label("A reply is ready")).not_to_be_checked()


def test_a_browser_without_notifications_offers_none(context: BrowserContext, talk: Session) -> None:
    context.add_init_script("delete window.Notification")
    page = context.new_page()
    page.goto("/settings/")
    expect(page.get_by_label("A reply is ready")).to_be_disabled()
    expect(page.locator("#notify .said")).to_contain_text("cannot show notifications here")


def test_the_sheet_of_keys_opens_and_gives_the_focus_back(page: Page) -> None:
    sheet = page.locator("#help")
    page.locator(".row.current").focus()
    page.keyboard.press("?")
    expect(sheet).to_be_visible()
    expect(sheet).to_have_attribute("aria-labelledby", "help-title")
    page.keyboard.press("Escape")
    expect(sheet).to_be_hidden()
    expect(page.locator(".row.current")).to_be_focused()
    page.locator("[data-help]").press("Enter")
    expect(sheet).to_be_visible()
    page.get_by_role("button", name="Close", exact=True).click()
    expect(page.locator("[data-help]")).to_be_focused()
    page.locator("[data-help]").click()
    expect(sheet).to_be_visible()
    page.mouse.click(5, 5)
    expect(sheet).to_be_hidden()


def test_single_keys_do_nothing_while_typing_or_with_a_modifier(page: Page) -> None:
    page.locator("#text").press_sequentially("c?c")
    expect(page.locator("#text")).to_have_value("c?c")
    expect(page.locator("#help")).to_be_hidden()
    page.locator("#thread").focus()
    page.keyboard.press("Control+c")
    page.keyboard.press("Control+Shift+?")
    expect(page.locator("#thread")).to_be_focused()
    expect(page.locator("#help")).to_be_hidden()


def test_keys_lead_through_the_conversation(page: Page) -> None:
    send(page, "hello")
    wait_for_rest(page, 1)
    send(page, "show me markdown")
    wait_for_rest(page, 2)
    page.focus("#thread")
    page.keyboard.press("End")
    page.wait_for_function(AT_END)
    page.keyboard.press("Escape")
    expect(page.locator("#text")).to_be_focused()
    page.locator(".row.current").focus()
    page.keyboard.press("c")
    expect(page.locator("#text")).to_be_focused()
    expect(page.locator("#text")).to_have_value("")
