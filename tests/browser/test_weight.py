"""What the page weighs: its own scripts, and the first view as sent."""

from __future__ import annotations

from playwright.sync_api import BrowserContext, expect

from chatapp.models import Session
from tests.browser.conftest import ROOT
from tests.browser.test_chat import send, wait_for_rest

OWN_SCRIPTS = 35 * 1024
FIRST_VIEW = 250 * 1024


def test_our_own_scripts_are_small_modules() -> None:
    scripts = sorted((ROOT / "static" / "js").glob("*.js"))
    assert sum(script.stat().st_size for script in scripts) < OWN_SCRIPTS
    assert max(script.read_text().count("\n") for script in scripts) <= 250
    for script in scripts:
        assert script.read_text().startswith("// ")


def test_the_first_view_is_light(context: BrowserContext, talk: Session) -> None:
    page = context.new_page()
    page.goto(f"/c/{talk.pk}/")
    expect(page.locator("#link")).to_have_text("connected")
    send(page, "show me markdown")
    wait_for_rest(page, 1)
    fresh = context.new_page()
    wire = context.new_cdp_session(fresh)
    wire.send("Network.enable")
    wire.send("Network.setCacheDisabled", {"cacheDisabled": True})
    sent: list[float] = []
    wire.on("Network.loadingFinished", lambda event: sent.append(event["encodedDataLength"]))
    fresh.goto(f"/c/{talk.pk}/")
    expect(fresh.locator("#link")).to_have_text("connected")
    fresh.wait_for_load_state("networkidle")
    assert len(sent) > 5
    assert sum(sent) < FIRST_VIEW, f"{sum(sent):,.0f} bytes in {len(sent)} answers"
