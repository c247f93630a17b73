"""The composer, its files and commands, the model picker and the drawer, as a person uses them."""

from __future__ import annotations

import base64
import json
import re
import struct
import zlib
from collections.abc import Callable
from typing import Any

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import BrowserContext, FilePayload, Page, Route, expect

from chatapp.models import InboxItem, Session
from tests.browser.conftest import Server
from tests.browser.test_chat import SLOW, send, wait_for_rest, wait_for_word

OPEN_HUGE = 5_000_000


def text_file(name: str = "notes.txt", content: bytes = b"some words") -> FilePayload:
    return {"name": name, "mimeType": "text/plain", "buffer": content}


def picture() -> bytes:
    """A PNG of one red point."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    head = struct.pack(">IIBBBBB", 1, 1, 8, 2, 0, 0, 0)
    body = zlib.compress(b"\x00\xff\x00\x00")
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", body) + chunk(b"IEND", b"")


def attach(page: Page, *files: FilePayload) -> None:
    page.set_input_files("#attach", list(files))


def transfer(page: Page, event: str, **given: Any) -> None:
    """Drop or paste, as the browser tells it: `text`, or `name`, `kind` and base64 `data` of a file."""
    page.evaluate(
        """([event, given]) => {
          const data = new DataTransfer();
          if (given.length) data.setData("text/plain", "x".repeat(given.length));
          if (given.text) data.setData("text/plain", given.text);
          const bytes = Uint8Array.from(atob(given.data ?? ""), (char) => char.charCodeAt(0));
          if (given.name) data.items.add(new File([bytes], given.name, { type: given.kind }));
          const options = { bubbles: true, cancelable: true };
          const made = event === "paste"
            ? new ClipboardEvent(event, { ...options, clipboardData: data })
            : new DragEvent(event, { ...options, dataTransfer: data });
          document.getElementById("text").dispatchEvent(made);
        }""",
        [event, given],
    )


def sent_frames(page: Page) -> list[dict[str, Any]]:
    """What goes up by the page's next sockets, in order."""
    frames: list[dict[str, Any]] = []
    page.on("websocket", lambda ws: ws.on("framesent", lambda data: frames.append(json.loads(data))))
    return frames


def reopened(page: Page) -> Page:
    page.reload()
    page.wait_for_selector("#link-dot[data-link=connected]", state="attached")
    return page


def chips(page: Page) -> Any:
    return page.locator("#attached li")


def stored(page: Page, count: int) -> None:
    """Until so many files are uploaded."""
    expect(chips(page)).to_have_count(count)


# Drafts


def test_a_sent_draft_does_not_take_another_tabs_with_it(page: Page, context: BrowserContext) -> None:
    page.fill("#text", "first")
    second = context.new_page()
    second.goto(page.url)
    second.fill("#text", "still writing")
    page.press("#text", "Enter")
    wait_for_rest(page, 1)
    third = context.new_page()
    third.goto(page.url)
    expect(third.locator("#text")).to_have_value("still writing")


def test_the_files_of_a_draft_survive_a_reload_and_go_with_it(page: Page, talk: Session) -> None:
    attach(page, text_file(), text_file("two.txt"))
    stored(page, 2)
    page.fill("#text", "read them")
    reopened(page)
    expect(chips(page).locator(".name")).to_have_text(["notes.txt", "two.txt"])
    page.press("#text", "Enter")
    wait_for_rest(page, 1)
    expect(chips(page)).to_have_count(0)
    item = InboxItem.objects.get(session=talk)
    assert [file["path"] for file in item.attachments] == ["uploads/notes.txt", "uploads/two.txt"]
    reopened(page)
    expect(chips(page)).to_have_count(0)
    expect(page.locator("#text")).to_have_value("")


def test_changing_a_queued_message_keeps_the_draft(page: Page) -> None:
    send(page, SLOW)
    expect(page.locator(".when-running")).to_be_visible()
    send(page, "queued one")
    expect(page.locator(".chip")).to_have_count(1)
    page.fill("#text", "my draft")
    attach(page, text_file())
    stored(page, 1)
    page.click("[data-edit]")
    expect(page.locator("#editing")).to_contain_text("Editing a queued message")
    expect(chips(page)).to_be_hidden()
    page.fill("#text", "queued one, changed")
    page.press("#text", "Enter")
    expect(page.locator(".chip")).to_contain_text("changed")
    expect(page.locator("#text")).to_have_value("my draft")
    expect(chips(page)).to_be_visible()
    page.click(".stop")


def test_escape_ends_a_change_and_arrow_up_begins_one(page: Page) -> None:
    page.press("#text", "ArrowUp")
    expect(page.locator("#editing")).to_be_hidden()
    send(page, SLOW)
    expect(page.locator(".when-running")).to_be_visible()
    send(page, "first")
    expect(page.locator(".chip")).to_have_count(1)
    send(page, "second")
    expect(page.locator(".chip")).to_have_count(2)
    page.press("#text", "ArrowUp")
    expect(page.locator("#text")).to_have_value("second")
    page.press("#text", "Escape")
    expect(page.locator("#text")).to_have_value("")
    expect(page.locator("#editing")).to_be_hidden()
    page.fill("#text", "words")
    page.press("#text", "ArrowUp")
    expect(page.locator("#text")).to_have_value("words")
    page.click(".stop")


def test_a_past_message_is_written_anew_in_the_box(page: Page) -> None:
    frames = sent_frames(page)
    reopened(page)
    send(page, "hello")
    wait_for_rest(page, 1)
    page.fill("#text", "my draft")
    page.click("[data-branch]")
    expect(page.locator("#editing")).to_contain_text("Writing this message anew: a second branch")
    expect(page.locator("#text")).to_have_value("hello")
    page.click("#cancel-edit")
    expect(page.locator("#text")).to_have_value("my draft")
    page.click("[data-branch]")
    page.fill("#text", "hello again")
    page.press("#text", "Enter")
    expect(page.locator(".msg.user .bubble")).to_have_text(["hello again"])
    expect(page.locator("#text")).to_have_value("my draft")
    expect(page.locator("#editing")).to_be_hidden()
    assert [frame["text"] for frame in frames if frame["kind"] == "message.branch"] == ["hello again"]


# Keys


def test_two_messages_sent_quickly_both_go(page: Page) -> None:
    page.evaluate(
        """() => {
          const box = document.getElementById("text");
          const options = { key: "Enter", bubbles: true, cancelable: true };
          const enter = () => box.dispatchEvent(new KeyboardEvent("keydown", options));
          const write = (text) => { box.value += text; box.dispatchEvent(new Event("input", options)); };
          write("one"); enter(); setTimeout(() => { write(" two"); enter(); }, 0);
        }"""
    )
    wait_for_rest(page, 2)
    expect(page.locator(".msg.user .bubble")).to_have_text(["one", " two"])


# Commands


def test_a_slash_opens_the_commands_and_the_keys_walk_through_them(page: Page) -> None:
    page.type("#text", "/")
    options = page.get_by_role("option")
    expect(options).to_have_count(9)
    expect(page.locator("#text")).to_have_attribute("aria-activedescendant", "cmd-new")
    page.press("#text", "ArrowUp")
    expect(page.locator("#text")).to_have_attribute("aria-activedescendant", "cmd-help")
    page.press("#text", "ArrowDown")
    page.press("#text", "ArrowDown")
    expect(page.locator("[aria-selected=true] b")).to_have_text("/retry")
    page.type("#text", "mo")
    expect(options).to_have_text([re.compile("/model")])
    page.press("#text", "Tab")
    expect(page.locator("#picker")).to_be_visible()
    expect(page.locator("#text")).to_have_value("")
    expect(options).to_have_count(0)


def test_escape_closes_the_commands_and_the_text_is_sent_as_it_is(page: Page) -> None:
    page.type("#text", "/help")
    page.press("#text", "Escape")
    expect(page.locator("#commands")).to_be_hidden()
    page.press("#text", "Enter")
    expect(page.locator(".msg.user .bubble")).to_have_text("/help")


@pytest.mark.parametrize("text", ["/unknown", "/new idea", "and /new", "/New"])
def test_what_is_no_command_is_sent_as_text(page: Page, text: str) -> None:
    page.type("#text", text)
    expect(page.locator("#commands")).to_be_hidden()
    page.press("#text", "Enter")
    expect(page.locator(".msg.user .bubble")).to_have_text(text)


def test_commands_do_what_they_say(page: Page) -> None:
    def say(text: str) -> None:
        page.fill("#text", text)
        page.press("#text", "Enter")

    say("/stop")
    expect(page.locator("#problem")).to_have_text("Nothing is running.")
    say("/retry")
    expect(page.locator("#problem")).to_have_text("There is no reply to try again.")
    say("/copy")
    expect(page.locator("#problem")).to_have_text("There is no reply to copy.")
    say("/help")
    expect(page.locator("#help")).to_be_visible()
    page.keyboard.press("Escape")
    send(page, SLOW)
    wait_for_word(page, "w5")
    say("/stop")
    wait_for_rest(page, 1)
    say("/rename")
    expect(page.get_by_role("textbox", name="Name of the conversation")).to_be_focused()
    page.keyboard.press("Escape")
    expect(page.locator("#text")).to_be_focused()
    say("/files")
    expect(page.locator("#drawer-title")).to_be_focused()
    page.keyboard.press("Escape")
    expect(page.locator("#text")).to_be_focused()
    with page.expect_file_chooser():
        say("/attach")
    before = page.url
    say("/new")
    page.wait_for_url(lambda url: url != before)
    expect(page.locator("#text")).to_have_value("")


def test_a_finger_picks_a_command(chromium: Any, server: Server, context: BrowserContext, talk: Session) -> None:
    phone = chromium.new_context(
        base_url=server.url,
        viewport={"width": 390, "height": 700},
        has_touch=True,
        storage_state=context.storage_state(),
    )
    page = phone.new_page()
    page.goto(f"/c/{talk.id}/")
    page.wait_for_selector("#link-dot[data-link=connected]", state="attached")
    page.tap("#text")
    page.type("#text", "/fi")
    page.locator("#cmd-files").tap()
    expect(page.locator("#drawer")).to_be_visible()
    small = page.evaluate(
        """() => [...document.querySelectorAll("button, summary, label:not(.hidden)")].filter((e) =>
          e.checkVisibility() && e.closest(".dock, .drawer") && e.getBoundingClientRect().height < 44
        ).map((e) => e.outerHTML)"""
    )
    assert small == []
    phone.close()


# Pasting


def test_a_huge_paste_is_offered_as_a_file_and_freezes_nothing(page: Page, talk: Session) -> None:
    page.evaluate(
        """() => { window.longest = 0; new PerformanceObserver((list) => {
          for (const task of list.getEntries()) window.longest = Math.max(window.longest, task.duration);
        }).observe({ type: "longtask" }); }"""
    )
    page.fill("#text", "before ")
    transfer(page, "paste", length=OPEN_HUGE)
    bar = page.locator("#pasted")
    expect(bar).to_contain_text("The pasted text is very long.")
    expect(bar.get_by_role("button", name="Insert anyway")).to_be_hidden()
    bar.get_by_role("button", name="Attach it as a file").click()
    stored(page, 1)
    expect(chips(page)).to_contain_text("pasted.txt")
    expect(chips(page)).to_contain_text("4.8\xa0MB")
    expect(page.locator("#text")).to_have_value("before ")
    expect(page.locator("#text")).to_be_focused()
    assert page.evaluate("window.longest") < 1000


def test_a_long_paste_may_be_inserted_where_the_caret_is(page: Page) -> None:
    page.fill("#text", "ab")
    page.press("#text", "ArrowLeft")
    transfer(page, "paste", text="line\n" * 201)
    expect(page.locator("#text")).to_have_value("ab")
    page.get_by_role("button", name="Insert anyway").click()
    expect(page.locator("#text")).to_have_value("a" + "line\n" * 201 + "b")
    expect(page.locator("#pasted")).to_be_hidden()


def test_a_short_paste_and_one_that_is_dropped_leave_no_bar(page: Page) -> None:
    transfer(page, "paste", text="short")
    expect(page.locator("#pasted")).to_be_hidden()
    transfer(page, "paste", text="line\n" * 201)
    page.get_by_role("button", name="Drop the pasted text").click()
    expect(page.locator("#pasted")).to_be_hidden()
    expect(page.locator("#text")).to_have_value("")


# Files


@pytest.mark.parametrize("way", ["paste", "drop"])
def test_a_picture_is_pasted_or_dropped_and_seen(page: Page, way: str) -> None:
    transfer(page, way, name="dot.png", kind="image/png", data=base64.b64encode(picture()).decode())
    expect(chips(page).locator("img")).to_be_visible()
    expect(chips(page)).to_contain_text("dot.png")


def test_dragging_files_over_the_page_says_where_they_go(page: Page) -> None:
    transfer(page, "dragover", name="a.txt", kind="text/plain", data="eHg=")
    expect(page.get_by_text("Drop files to attach them")).to_be_visible()
    transfer(page, "dragleave", name="a.txt", kind="text/plain", data="eHg=")
    expect(page.locator("#drop")).to_be_hidden()


def test_what_cannot_be_attached_is_refused_with_the_reason(page: Page) -> None:
    attach(page, text_file("none.txt", b""), text_file("good.txt"))
    expect(page.locator("#problem")).to_have_text("“none.txt” is empty.")
    expect(chips(page).locator(".name")).to_have_text(["good.txt"])
    attach(page, text_file("big.bin", b"x" * (10 * 1024 * 1024 + 1)), text_file("two.txt"))
    stored(page, 2)
    attach(page, text_file("big.bin", b"x" * (10 * 1024 * 1024 + 1)))
    expect(page.locator("#problem")).to_have_text("A file has at most 10.0\xa0MB.")
    attach(page, *[text_file(f"{n}.txt") for n in range(9)])
    expect(page.locator("#problem")).to_have_text("At most 10 files go with a message.")
    stored(page, 10)


def test_a_removed_file_leaves_the_conversation_too(page: Page) -> None:
    attach(page, text_file())
    stored(page, 1)
    page.get_by_role("button", name="Remove notes.txt").click()
    expect(chips(page)).to_have_count(0)
    page.click("#files-button")
    expect(page.locator("#drawer")).to_contain_text("Nothing here yet")


def held_uploads(page: Page) -> list[Route]:
    """Uploads wait here until the test lets them go on."""
    routes: list[Route] = []
    page.route("**/attachments/", lambda route: routes.append(route))
    return routes


def test_send_is_refused_during_an_upload_and_typing_goes_on(page: Page, talk: Session) -> None:
    routes = held_uploads(page)
    attach(page, text_file())
    expect(page.locator("#uploading")).to_be_visible()
    page.fill("#text", "with a file")
    page.press("#text", "Enter")
    expect(page.locator("#problem")).to_contain_text("Still uploading.")
    page.type("#text", "!")
    assert not InboxItem.objects.exists()
    routes[0].continue_()
    stored(page, 1)
    expect(page.locator("#uploading")).to_be_hidden()
    page.press("#text", "Enter")
    wait_for_rest(page, 1)
    item = InboxItem.objects.get(session=talk)
    assert (item.text, [file["name"] for file in item.attachments]) == ("with a file!", ["notes.txt"])


def failed_upload(page: Page) -> None:
    routes = held_uploads(page)
    attach(page, text_file())
    expect(page.locator("#uploading")).to_be_visible()
    page.fill("#text", "with a file")
    routes[0].abort("connectionrefused")
    expect(page.locator("#upload-lost")).to_have_text("The upload failed: the server did not answer.")
    page.press("#text", "Enter")
    expect(page.locator("#problem")).to_contain_text("A file is not uploaded.")
    expect(page.locator("#text")).to_have_value("with a file")
    page.unroute("**/attachments/")


def test_an_upload_that_failed_says_why_keeps_the_message_and_is_tried_again(page: Page, talk: Session) -> None:
    failed_upload(page)
    page.get_by_role("button", name="Retry").click()
    stored(page, 1)
    expect(page.locator("#upload-lost")).to_be_empty()
    page.press("#text", "Enter")
    wait_for_rest(page, 1)
    assert len(InboxItem.objects.get(session=talk).attachments) == 1


def test_an_upload_that_failed_is_left_out(page: Page, talk: Session) -> None:
    failed_upload(page)
    page.get_by_role("button", name="Leave it out").click()
    expect(page.get_by_role("button", name="Retry")).to_be_hidden()
    page.press("#text", "Enter")
    wait_for_rest(page, 1)
    assert InboxItem.objects.get(session=talk).attachments == []


def test_files_alone_are_a_message(page: Page) -> None:
    attach(page, text_file())
    stored(page, 1)
    page.press("#text", "Enter")
    wait_for_rest(page, 1)
    expect(page.locator(".msg.user .bubble")).to_contain_text("See the attached files.")
    expect(chips(page)).to_have_count(0)


def test_a_message_with_files_outlives_the_connection_and_goes_once(
    page: Page, server: Server, expected: list[str]
) -> None:
    expected.append("ERR_CONNECTION_RESET")
    attach(page, text_file())
    stored(page, 1)
    server.kill()
    expect(page.locator("#link")).to_have_text("reconnecting…")
    send(page, "are you there?")
    expect(page.locator("#problem")).to_contain_text("Not sent yet")
    server.start()
    wait_for_rest(page, 1)
    expect(chips(page)).to_have_count(0)
    item = InboxItem.objects.get()
    assert len(item.attachments) == 1


# The model


def test_the_model_is_chosen_by_keyboard_and_the_label_follows(page: Page, talk: Session) -> None:
    page.focus("#picker-button")
    page.keyboard.press("Enter")
    expect(page.locator("#picker")).to_be_visible()
    expect(page.get_by_role("button", name="demo scripted answers")).to_be_focused()
    page.keyboard.press("Tab")
    page.keyboard.press("Enter")
    expect(page.locator("#picker")).to_be_hidden()
    expect(page.locator("#picker-button")).to_contain_text("main · openai:fake")
    expect(page.locator("#picker-button")).to_be_focused()
    expect(page.get_by_text("scripted answers")).to_be_hidden()
    talk.refresh_from_db()
    assert talk.model == "openai:fake"
    page.keyboard.press("Enter")
    page.keyboard.press("Escape")
    expect(page.locator("#picker-button")).to_be_focused()


def test_a_model_without_its_key_is_shown_with_the_reason_and_not_chosen(page: Page) -> None:
    page.click("#picker-button")
    without = page.locator("#models button", has_text="anthropic:claude")
    expect(without).to_be_disabled()
    expect(without).to_contain_text("ANTHROPIC_API_KEY")


def test_a_model_that_could_not_be_changed_says_so_in_the_picker(page: Page) -> None:
    page.route("**/model/", lambda route: route.abort("connectionrefused"))
    page.click("#picker-button")
    page.locator("#models button", has_text="openai:fake").click()
    expect(page.locator("#picker-lost")).to_contain_text("The model could not be changed")
    expect(page.locator("#picker-button")).to_contain_text("main · demo")


# The drawer


def put(page: Page, *files: FilePayload) -> None:
    page.set_input_files("#drawer-input", list(files))


def test_the_drawer_opens_beside_and_is_left_by_escape(page: Page) -> None:
    opener = page.locator("#files-button")
    opener.click()
    expect(page.locator("#drawer-title")).to_be_focused()
    expect(opener).to_have_attribute("aria-expanded", "true")
    expect(page.locator("#drawer")).to_contain_text("Nothing here yet")
    page.focus("#text")
    page.keyboard.press("Escape")
    expect(page.locator("#drawer")).to_be_visible()
    page.focus("#drawer-title")
    page.keyboard.press("Escape")
    expect(page.locator("#drawer")).to_be_hidden()
    expect(opener).to_be_focused()
    expect(opener).to_have_attribute("aria-expanded", "false")


def test_the_drawer_is_a_sheet_on_a_narrow_screen(page: Page) -> None:
    modal = "document.getElementById('drawer').matches(':modal')"
    page.set_viewport_size({"width": 390, "height": 844})
    page.click("#files-button")
    expect(page.locator("#drawer-title")).to_be_focused()
    assert page.evaluate(modal)
    assert page.evaluate("document.documentElement.scrollWidth") == 390
    page.get_by_role("button", name="Back").click()
    expect(page.locator("#drawer")).to_be_hidden()
    page.set_viewport_size({"width": 1000, "height": 700})
    page.click("#files-button")
    page.mouse.click(100, 300)
    expect(page.locator("#drawer")).to_be_hidden()
    page.click("#files-button")
    page.keyboard.press("Escape")
    expect(page.locator("#files-button")).to_be_focused()
    page.click("#files-button")
    page.set_viewport_size({"width": 1300, "height": 700})
    page.wait_for_function(f"() => !{modal}")
    expect(page.locator("#drawer")).to_be_visible()


def test_files_are_uploaded_downloaded_and_deleted_in_the_drawer(page: Page) -> None:
    page.click("#files-button")
    put(page, text_file("a.txt", b"its words"), text_file("none.txt", b""))
    expect(page.locator("#drawer .problem", has_text="is empty")).to_have_text("“none.txt” is empty.")
    expect(page.locator("#files-count")).to_have_text("1")
    row = page.locator("#drawer .stored")
    with page.expect_download() as download:
        row.get_by_role("link", name="a.txt").click()
    assert download.value.path().read_bytes() == b"its words"
    row.get_by_label("Delete a.txt").click()
    row.get_by_role("button", name="Delete", exact=True).click()
    expect(page.locator("#drawer")).to_contain_text("Nothing here yet")
    expect(page.locator("#files-count")).to_be_hidden()
    expect(page.locator("#drawer-input")).to_be_focused()


def test_the_drawer_looks_again_when_a_tool_ran_and_keeps_an_open_question(page: Page, talk: Session) -> None:
    page.click("#files-button")
    put(page, text_file("a.txt"))
    expect(page.locator("#drawer .stored")).to_have_count(1)
    page.evaluate(
        """async (id) => {
          const body = new FormData();
          body.append("file", new File(["xx"], "b.txt"));
          const token = document.querySelector("[name=csrfmiddlewaretoken]").value;
          await fetch(`/api/conversations/${id}/files`, { method: "POST", body, headers: { "X-CSRFToken": token } });
        }""",
        talk.id,
    )
    page.get_by_label("Delete a.txt").click()
    send(page, "list files")
    wait_for_rest(page, 1)
    expect(page.get_by_role("button", name="Delete", exact=True)).to_be_visible()
    expect(page.locator("#drawer .stored")).to_have_count(1)
    page.get_by_label("Delete a.txt").click()
    expect(page.locator("#drawer .stored")).to_have_count(2)
    expect(page.locator("#files-count")).to_have_text("2")


def test_a_drawer_that_cannot_look_keeps_what_it_shows_and_says_so(page: Page) -> None:
    page.click("#files-button")
    put(page, text_file("a.txt"))
    expect(page.locator("#drawer .stored")).to_have_count(1)
    page.route("**/drawer/files/", lambda route: route.abort("connectionrefused"))
    page.click("#files-button")
    page.click("#files-button")
    expect(page.locator("#drawer-lost")).to_contain_text("The files could not be looked up")
    expect(page.locator("#drawer .stored")).to_have_count(1)


# The whole


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [1300, 390])
def test_axe_finds_nothing_with_everything_open(page: Page, scheme: Any, width: int) -> None:
    page.emulate_media(color_scheme=scheme)
    page.set_viewport_size({"width": width, "height": 844})
    attach(page, text_file("a rather long name that goes on " * 5 + ".txt"), text_file("b.txt"))
    stored(page, 2)
    transfer(page, "paste", text="line\n" * 201)
    checks: list[Callable[[], None]] = [
        lambda: page.type("#text", "/"),
        lambda: page.click("#picker-button"),
        lambda: page.keyboard.press("Escape"),
        lambda: page.click("#files-button"),
    ]
    found = []
    for check in checks:
        check()
        found += Axe().run(page).response["violations"]
    assert [(problem["id"], problem["nodes"][0]["html"]) for problem in found] == []
    assert page.evaluate("document.documentElement.scrollWidth") == width
