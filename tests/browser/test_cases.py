"""Public faults of other chats, each as a test that it is none of ours."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Iterable, Iterator, Mapping

import pytest
from django.conf import settings
from playwright.sync_api import BrowserContext, Page, expect

from chatapp.models import Event, Message, Session
from tests.browser.conftest import Provider
from tests.browser.test_chat import SLOW, WORDS, send, send_when_free, wait_for_rest, wait_for_word, words
from tests.runtime.provider_server import ODD_TEXT, answer, bytewise, call, chunk, sse, stream_head, text
from tests.wire import Wire

ANSI = (
    "\x1b[31mred\x1b[0m \x1b]8;;https://evil.example/\x1b\\link\x1b]8;;\x1b\\ \x1b[2K\x1b[1Gcursor\x07 bell\n"
    "10 %\r50 %\r100 %\nlast \x1b[38;5;"
)


def open_by(context: BrowserContext, wire: Wire, talk: Session) -> Page:
    page = context.new_page()
    page.goto(f"{wire.url}/c/{talk.pk}/")
    expect(page.locator("#link")).to_have_text("connected")
    return page


def test_a_reply_that_ended_while_the_line_was_down_is_shown_without_a_reload(
    context: BrowserContext, wire: Wire, talk: Session
) -> None:
    page = open_by(context, wire, talk)
    send(page, "slow 60")
    wait_for_word(page, "w20")
    wire.cut()
    expect(page.locator("#link")).to_have_text("reconnecting…")
    wait_until_ended(talk)
    wire.mend()
    wait_for_rest(page, 1)
    assert words(page) == WORDS[:60]
    expect(page.locator("#link")).to_have_text("connected")
    expect(page.locator(".when-idle")).to_be_visible()
    expect(page.locator("#log[data-caught]")).to_have_count(1)


def wait_until_ended(talk: Session) -> None:
    until = time.monotonic() + 20
    while not Event.objects.filter(conversation=talk, type="AGENT_END").exists():
        assert time.monotonic() < until
        time.sleep(0.05)


def test_a_closed_laptop_goes_on_where_it_was_when_it_is_opened(
    context: BrowserContext, wire: Wire, talk: Session
) -> None:
    page = open_by(context, wire, talk)
    sockets: list[str] = []
    page.on("websocket", lambda socket: sockets.append(socket.url))
    send(page, "slow 60")
    wait_for_word(page, "w20")
    wire.hang()
    wait_until_ended(talk)
    wire.mend()
    # What a browser says when it wakes up; by itself the page would ask a little later.
    page.evaluate("dispatchEvent(new Event('online'))")
    wait_for_rest(page, 1)
    assert words(page) == WORDS[:60]
    assert len(sockets) == 1
    expect(page.locator(".msg.user")).to_have_count(1)


def twice_told(*deltas: dict[str, object]) -> bytes:
    """Deltas, then the whole text once more as some providers send it."""
    whole = {
        "id": "c", "object": "chat.completion", "created": 1, "model": "m",
        "choices": [{"index": 0, "message": {"content": "It says echo."}, "finish_reason": "stop"}],
    }  # fmt: skip
    return sse(*(chunk(delta) for delta in deltas), chunk({}, "stop"), whole, "[DONE]")


def test_an_answer_after_a_tool_round_is_there_once_everywhere(page: Page, provider: Provider, talk: Session) -> None:
    thinking = {"reasoning_content": "I should look."}
    asked = {"tool_calls": [call(0, "c1", "list_files", "{}")]}
    provider.answers = [
        lambda: stream_head() + answer(thinking, asked, finish="tool_calls"),
        lambda: stream_head() + twice_told({"content": "It says "}, {"content": "echo."}),
        lambda: stream_head() + text("Bye."),
    ]
    send(page, "echo")
    wait_for_rest(page, 1)
    for _ in range(2):
        assert page.inner_text("#log").count("It says echo.") == 1
        page.reload()
    assert Message.objects.filter(session=talk, text__contains="It says echo.").count() == 1
    ended = Event.objects.filter(conversation=talk, type="TEXT_BLOCK_END")
    assert [event.data["text"] for event in ended].count("It says echo.") == 1
    send(page, "thanks")
    wait_for_rest(page, 2)
    assert provider.bodies[-1].count("It says echo.") == 1


def test_what_was_queued_is_answered_in_order_and_once_also_over_a_reload(page: Page) -> None:
    send(page, SLOW)
    expect(page.locator(".when-running")).to_be_visible()
    send(page, "second")
    send_when_free(page, "third")
    expect(page.locator(".chip")).to_have_count(2)
    page.reload()
    expect(page.locator(".chip")).to_have_count(2)
    expect(page.locator(".chip").nth(0)).to_contain_text("second")
    page.wait_for_function("() => document.querySelectorAll('.chip').length === 0", timeout=30_000)
    expect(page.locator("#run")).to_have_attribute("data-run", "idle")
    expect(page.locator(".msg.user .bubble")).to_have_text([SLOW, "second", "third"])
    assert Message.objects.filter(session_id=page.url.rstrip("/").rsplit("/", 1)[-1], role="user").count() == 3


HOSTILE = [
    "<script>window.ran = 1</script>",
    "<img src=x onerror='window.ran = 1'>",
    "<svg onload='window.ran = 1'></svg>",
    "<iframe srcdoc='<script>parent.ran = 1</script>'></iframe>",
    "<div hx-get='/accounts/logout/' hx-trigger='load' hx-on:load='window.ran = 1'>x</div>",
    "<div id='composer' hx-swap-oob='true'>gone</div>",
    "<hx-partial hx-target='#composer' hx-swap='outerHTML'>gone</hx-partial>",
    "<form action='https://evil.example/'><button>send</button></form>",
    "<style>body { display: none }</style><link rel=stylesheet href=https://evil.example/a.css>",
]
LINKS = (
    "[a](javascript:window.ran=1) [b](data:text/html,<script>parent.ran=1</script>) ![c](https://evil.example/p.png)"
)
BIDI = "list_files\u202egnp.exe"


def later(*deltas: Mapping[str, object], finish: str = "stop") -> Callable[[], bytes]:
    return lambda: stream_head() + answer(*map(dict, deltas), finish=finish)


@pytest.mark.parametrize("whole", [False, True], ids=["live", "reloaded"])
def test_nothing_that_a_model_or_a_tool_writes_runs_or_reaches_out(
    page: Page, provider: Provider, talk: Session, whole: bool
) -> None:
    folder = settings.WORKSPACES_DIR / talk.pk
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "<img src=x onerror='window.ran = 1'>.txt").write_text("\n".join(HOSTILE))
    Session.objects.filter(pk=talk.pk).update(title=HOSTILE[1])
    outside: list[str] = []
    page.on("request", lambda request: outside.append(request.url))
    path = "<img src=x onerror='window.ran = 1'>.txt"
    calls = [
        call(0, "c1", "read_file", json.dumps({"path": path})),
        call(1, "c2", BIDI, json.dumps({"path": HOSTILE[4]})),
        call(2, "c3", HOSTILE[0], "{}"),
    ]
    mess = "\n\n".join([*HOSTILE, LINKS, "```html\n" + "\n".join(HOSTILE) + "\n```"])
    provider.answers = [
        later({"reasoning_content": HOSTILE[0]}, {"tool_calls": calls}, finish="tool_calls"),
        later(*({"content": piece} for piece in re.findall(r"(?s).{1,7}", mess))),
    ]
    send(page, HOSTILE[5])
    wait_for_rest(page, 1)
    if whole:
        page.reload()
        expect(page.locator("#link")).to_have_text("connected")
    for card in page.locator("details").all():
        card.evaluate("element => element.open = true")
    log = page.locator("#log")
    assert page.evaluate("window.ran") is None
    assert log.locator("script, img, svg[onload], iframe, form:not([hx-ws\\:send]), style, link").count() == 0
    assert log.locator(".md [hx-get], .md [hx-swap-oob], .md hx-partial, .md [id=composer]").count() == 0
    assert log.locator("a[href^=javascript], a[href^=data]").count() == 0
    expect(page.locator("#composer")).to_have_count(1)
    expect(page.locator("#text")).to_be_visible()
    assert "\u202e" not in log.inner_text()
    expect(log).to_contain_text("U+202E")
    own = (page.url.split("/c/")[0], "ws:", "data:")
    assert [url for url in outside if not url.startswith(own)] == []


def test_any_script_arrives_as_the_model_wrote_it(page: Page, provider: Provider, talk: Session) -> None:
    provider.answers = [lambda: [stream_head(), *bytewise(text(ODD_TEXT, " end"))]]
    send(page, "hello")
    wait_for_rest(page, 1)
    written = page.locator(".reply .md").evaluate("it => it.textContent.trim()")
    assert written == f"{ODD_TEXT} end"
    assert Message.objects.get(session=talk, role="assistant").text == f"{ODD_TEXT} end"


def test_characters_caret_and_focus_stay_while_a_reply_streams_into_the_page(page: Page) -> None:
    send(page, SLOW)
    wait_for_word(page, "w5")
    typed = "the quick brown fox jumps over the lazy dog and on it goes.."
    for index, letter in enumerate(typed):
        page.keyboard.type(letter)
        if index == 30:
            page.keyboard.press("ArrowLeft")
            page.keyboard.press("ArrowRight")
    assert page.locator("#run").get_attribute("data-run") == "running"
    assert page.input_value("#text") == typed
    page.evaluate("document.getElementById('text').setSelectionRange(4, 9)")
    wait_for_rest(page, 1)
    assert page.evaluate("[document.activeElement.id, text.selectionStart, text.selectionEnd]") == ["text", 4, 9]


def test_colour_codes_and_progress_bars_of_a_tool_read_as_plain_text(
    page: Page, context: BrowserContext, provider: Provider, talk: Session
) -> None:
    folder = settings.WORKSPACES_DIR / talk.pk
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "log.txt").write_bytes(ANSI.encode())
    provider.answers = [
        later({"tool_calls": [call(0, "c1", "read_file", '{"path": "log.txt"}')]}, finish="tool_calls"),
        later({"content": "Read."}),
    ]
    send(page, "look")
    wait_for_rest(page, 1)
    page.locator(".tool summary").click()
    shown = page.locator(".tool-output pre").inner_text()
    assert shown.splitlines()[0].split() == ["red", "link", "cursor", "bell"]
    assert "last" in shown
    assert not re.search(r"[\x00-\x08\x0b-\x1f\x7f]|\[3|U\+", shown)
    raw = Event.objects.get(conversation=talk, type="TOOL_RESULT_END").data["output"]
    assert "\x1b[31m" in raw


SPEAKERS = """
() => {
  window.said = [];
  for (const region of document.querySelectorAll("[aria-live]:not([aria-live=off]), [role=status], [role=alert]"))
    new MutationObserver(() => region.textContent.trim() && said.push(region.textContent.trim()))
      .observe(region, { childList: true, characterData: true, subtree: true });
}
"""


def test_a_reply_is_announced_once_when_it_starts_and_once_when_it_is_ready(page: Page, provider: Provider) -> None:
    provider.answers = [
        later({"reasoning_content": "hm"}, {"tool_calls": [call(0, "c1", "list_files", "{}")]}, finish="tool_calls"),
        later(*({"content": f"word{n} "} for n in range(80))),
    ]
    page.evaluate(SPEAKERS)
    send(page, "hello")
    wait_for_rest(page, 1)
    expect(page.locator("#say")).to_have_text("Reply ready")
    assert page.evaluate("said") == ["Replying", "Reply ready"]
    expect(page.locator("#log")).to_have_count(1)
    expect(page.locator("#thread")).to_have_attribute("aria-live", "off")
    expect(page.locator("#text")).to_be_focused()


LINES = 3_000
RATE = 500


def long_code() -> Iterator[bytes]:
    """Three thousand lines of code at five hundred deltas a second."""
    yield stream_head() + sse(chunk({"content": "```python\n"}))
    began = time.monotonic()
    for number in range(LINES):
        line = f"def f{number}(x: int) -> int: return x + {number}  # line {number}\n"
        yield sse(chunk({"content": line}))
        ahead = began + (number + 1) / RATE - time.monotonic()
        if ahead > 0.004:
            time.sleep(ahead)
    yield sse(chunk({"content": "```\n"}), chunk({}, "stop"), "[DONE]")


MEASURE = """
() => {
  window.tasks = []; window.typed = [];
  new PerformanceObserver((list) => tasks.push(...list.getEntries().map((entry) => entry.duration)))
    .observe({ entryTypes: ["longtask"] });
  const box = document.getElementById("text");
  let pressed = 0;
  box.addEventListener("keydown", (event) => { pressed = event.timeStamp; });
  box.addEventListener("input", () => { const at = pressed; pressed = 0;
    if (at) requestAnimationFrame(() => setTimeout(() => typed.push(performance.now() - at))); });
}
"""


@pytest.mark.alone
def test_a_long_code_block_at_five_hundred_deltas_a_second_leaves_the_page_quick(
    page: Page, provider: Provider
) -> None:
    def streaming() -> Iterable[bytes]:
        return long_code()

    provider.answers = [streaming]
    page.evaluate(MEASURE)
    send(page, "write a lot of code")
    for wanted in (300, 900, 1500, 2100, 2700):
        wait_for_word(page, f"line {wanted}\n")
        page.keyboard.type("a")
    wait_for_rest(page, 1)
    tasks, typed = page.evaluate("[tasks, typed]")
    assert max(tasks, default=0) < 200
    assert len(typed) >= 5
    assert max(typed) < 100
    assert page.input_value("#text") == "aaaaa"
    page.reload()
    expect(page.locator("#log .code")).to_have_count(1)


@pytest.mark.alone
def test_stop_reacts_at_once_while_code_floods_in(page: Page, provider: Provider) -> None:
    provider.answers = [long_code]
    send(page, "write a lot of code")
    wait_for_word(page, "line 600\n")
    took = page.evaluate(
        """() => new Promise((done) => {
          const began = performance.now();
          const run = () => document.getElementById("run").dataset.run;
          const look = () => run() !== "running" && done(performance.now() - began);
          new MutationObserver(look)
            .observe(document.querySelector(".dock"), { childList: true, subtree: true, attributes: true });
          document.querySelector(".stop").click();
        })"""
    )
    assert took < 1000
    expect(page.locator("#log .note")).to_have_text("stopped by you")
