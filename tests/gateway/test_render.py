"""Frames of the page: applied to an empty thread they show what a reload shows."""

from __future__ import annotations

import re
from collections.abc import Callable
from html.parser import HTMLParser
from typing import Any

import pytest
from django.template.loader import render_to_string

from chatapp import thread
from chatapp.templatetags.thread import draw
from gateway.render import PageRenderer
from tests.chatapp.test_thread import Ledger, a_conversation, a_delegation

STORIES = [a_conversation, a_delegation]

VOID = {"br", "hr", "input", "use", "img"}
PARTIAL = re.compile(r'<hx-partial hx-target="#log" hx-swap="(\w+) into:\'([^\']+)\'">(.*?)</hx-partial>', re.DOTALL)


class Node:
    def __init__(self, tag: str, attributes: dict[str, str | None] | None = None) -> None:
        self.tag, self.attributes = tag, attributes or {}
        self.children: list[Node | str] = []

    def walk(self) -> list[Node]:
        below = [node for child in self.children if isinstance(child, Node) for node in child.walk()]
        return [self, *below]

    def find(self, key: str) -> Node | None:
        return next((node for node in self.walk() if node.attributes.get("id") == key), None)

    def text(self) -> str:
        return " ".join(child if isinstance(child, str) else child.text() for child in self.children)


class Tree(HTMLParser):
    def __init__(self, html: str) -> None:
        super().__init__()
        self.root = Node("root")
        self._open = [self.root]
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        node = Node(tag, dict(attrs))
        self._open[-1].children.append(node)
        if tag not in VOID:
            self._open.append(node)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self._open[-1].children.append(Node(tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self._open[-1].tag == tag, (tag, self._open[-1].tag)
        self._open.pop()

    def handle_data(self, data: str) -> None:
        self._open[-1].children.append(data)


class Page:
    """As much of the page and its swaps as the frames need."""

    def __init__(self) -> None:
        self.root = Tree('<div id="log"></div><ul id="queued"></ul><p id="status"></p><p id="say"></p>').root

    def frame(self, html: str) -> None:
        rest = PARTIAL.sub("", html)
        assert rest == "", rest
        for swap, into, content in PARTIAL.findall(html):
            self._swap(swap, into, Tree(content).root.children)

    def select(self, selector: str) -> list[Node]:
        found = [self.root]
        for step in re.split(r"[ >]", selector):
            below = [node for top in found for node in top.walk()[1:]]
            found = [node for node in below if self._matches(node, step)]
        return found

    @staticmethod
    def _matches(node: Node, step: str) -> bool:
        if step == ".tool:has([data-state=preparing])":
            return node.attributes.get("class") == "tool" and any(
                below.attributes.get("data-state") == "preparing" for below in node.walk()
            )
        if step.startswith("#"):
            return node.attributes.get("id") == step[1:]
        if step.startswith("."):
            return step[1:] in (node.attributes.get("class") or "").split()
        return node.tag == step

    def _swap(self, swap: str, into: str, content: list[Node | str]) -> None:
        targets = self.select(into)
        if swap == "drop":
            for target in targets:
                self._parent(target).children.remove(target)
        elif targets and swap in ("put", "ensure"):
            self._put(targets[0], [node for node in content if isinstance(node, Node)], replace=swap == "put")
        elif targets and swap in ("innerHTML", "innerMorph"):
            targets[0].children = content
        elif targets and swap == "beforeend":
            targets[0].children += content
        elif targets:
            assert swap == "beforebegin"
            siblings = self._parent(targets[0]).children
            place = siblings.index(targets[0])
            siblings[place:place] = content

    def _put(self, target: Node, nodes: list[Node], replace: bool) -> None:
        for node in nodes:
            known = self.root.find(node.attributes["id"] or "")
            if known is None:
                target.children.append(node)
            elif replace:
                siblings = self._parent(known).children
                siblings[siblings.index(known)] = node

    def _parent(self, node: Node) -> Node:
        return next(above for above in self.root.walk() if any(child is node for child in above.children))

    def text(self, key: str) -> str:
        node = self.root.find(key)
        assert node is not None, key
        return " ".join(node.text().split())


def reloaded(events: list[dict[str, Any]]) -> Page:
    folded = thread.fold(events)
    page = Page()
    log, queued = page.root.find("log"), page.root.find("queued")
    assert log
    assert queued
    log.children = Tree(render_to_string("chat/items.html", {"thread": folded})).root.children
    queued.children = Tree("".join(draw("chat/parts/queued.html", part=item) for item in folded.queued)).root.children
    return page


def live(events: list[dict[str, Any]], renderer: PageRenderer | None = None, page: Page | None = None) -> Page:
    page, renderer = page or Page(), renderer or PageRenderer("c1")
    for event in events:
        page.frame(renderer.event(event))
    return page


def timeless(page: Page) -> str:
    """Without how long calls, thoughts and subagents took: who comes in meanwhile learns it at the next reload."""
    return re.sub(r" [\d.]+ m?s\b", "", page.text("log")).replace("Thought for", "Thought about it")


def delta(text: str, offset: int, block_id: str = "b1", kind: str = "TEXT_BLOCK_DELTA") -> dict[str, Any]:
    return {"type": kind, "source": None, "reply_id": "r1", "block_id": block_id, "offset": offset, "text": text}


@pytest.mark.parametrize("story", STORIES)
def test_the_live_page_shows_what_a_reload_shows(story: Callable[[], list[dict[str, Any]]]) -> None:
    events = story()
    for count in range(1, len(events) + 1):
        now, again = live(events[:count]), reloaded(events[:count])
        assert now.text("log") == again.text("log"), events[count - 1]["type"]
        assert now.text("queued") == again.text("queued"), events[count - 1]["type"]


@pytest.mark.parametrize("story", STORIES)
def test_a_reload_anywhere_goes_on_to_the_same_page(story: Callable[[], list[dict[str, Any]]]) -> None:
    events = story()
    whole = reloaded(events)
    for count in range(len(events)):
        page = live(events[count:], page=reloaded(events[:count]))
        assert timeless(page) == timeless(whole), count
        assert page.text("queued") == whole.text("queued"), count


@pytest.mark.parametrize("story", STORIES)
def test_an_event_shown_twice_changes_nothing(story: Callable[[], list[dict[str, Any]]]) -> None:
    page, renderer = Page(), PageRenderer("c1")
    for event in story():
        page.frame(renderer.event(event))
        before = page.text("log")
        page.frame(renderer.event(event))
        assert page.text("log") == before, event["type"]


@pytest.mark.parametrize("story", STORIES)
def test_many_changes_in_one_frame_find_what_the_frame_made(story: Callable[[], list[dict[str, Any]]]) -> None:
    page, renderer = Page(), PageRenderer("c1")
    page.frame("".join(renderer.event(event) for event in story()))
    assert page.text("log") == reloaded(story()).text("log")


def test_deltas_show_a_text_as_it_comes() -> None:
    page, renderer = Page(), PageRenderer("c1")
    log = Ledger()
    page.frame(renderer.event(log.add("TEXT_BLOCK_START", block_id="b1")))
    page.frame(renderer.delta(delta("# Title\n\nhello ", 0)))
    page.frame(renderer.delta(delta("**wor", 15)))
    assert page.text("b-b1") == "Title hello **wor"
    page.frame(renderer.delta(delta("ld**", 20)))
    assert page.text("b-b1") == "Title hello world"
    page.frame(
        renderer.event(log.add("TEXT_BLOCK_END", block_id="b1", text="# Title\n\nhello **world**", state="complete"))
    )
    assert page.text("b-b1") == "Title hello world"


def test_the_first_delta_of_a_connection_replaces_what_was_there() -> None:
    page, first = Page(), PageRenderer("c1")
    page.frame(first.delta(delta("one two", 0)))
    page.frame(PageRenderer("c1").delta(delta("one two three", 0)))
    assert page.text("log") == "Assistant one two three"


def test_a_delta_in_a_code_fence_appends_only_its_lines() -> None:
    page, renderer = Page(), PageRenderer("c1")
    page.frame(renderer.delta(delta("```\n" + "x = 1\n" * 500, 0)))
    frame = renderer.delta(delta("y = <2>\n", 3004))
    page.frame(frame)
    assert len(frame) < 200
    assert page.text("b-b1").endswith("x = 1 y = <2>")


def test_deltas_of_other_blocks_show_nothing_and_those_of_subagents_go_to_their_panel() -> None:
    renderer = PageRenderer("c1")
    assert renderer.delta(delta("hm", 0, kind="THINKING_BLOCK_DELTA")) == ""
    assert (
        renderer.delta({"type": "TOOL_CALL_DELTA", "tool_call_id": "c", "source": None, "offset": 0, "text": "{"}) == ""
    )
    below = renderer.delta(delta("x", 0) | {"source": "main/researcher", "session_id": "s1"})
    assert "into:'#s-s1-log'" in below
    assert "into:'#log'" not in below


@pytest.mark.parametrize(
    "hostile", ["</hx-partial><b id='chat'>", "<hx-partial hx-target='body'>x", "<script>x</script>"]
)
def test_hostile_text_stays_text_in_every_part(hostile: str) -> None:
    log = Ledger()
    log.message("u1", hostile, "queued")
    log.message("u1", hostile, "running")
    log.add("THINKING_BLOCK_END", block_id="k1", text=hostile)
    log.add("TEXT_BLOCK_END", block_id="b1", text=hostile, state="complete")
    log.add("TOOL_CALL_START", tool_call_id="c1", tool_name=hostile)
    log.add("TOOL_CALL_END", tool_call_id="c1", tool_name=hostile, args={"a": hostile})
    log.add("TOOL_RESULT_END", tool_call_id="c1", tool_name=hostile, state="error", output=hostile)
    log.add("RUN_FAILED", code=hostile, detail=hostile)
    html = "".join(PageRenderer("c1").event(event) for event in log.events)
    html += PageRenderer("c1").delta(delta(hostile, 0))
    inner = PARTIAL.sub(lambda match: match[3], html)
    assert not re.search(r"</?(hx-|script)|<b id", inner)


def test_the_status_line_and_the_voice_follow_the_run() -> None:
    page, renderer = Page(), PageRenderer("c1")
    log = Ledger()
    page.frame(renderer.event(log.add("AGENT_START", trigger="user")))
    run = page.root.find("run")
    assert run
    assert run.attributes["data-run"] == "running"
    assert page.text("say") == "Replying"
    page.frame(renderer.event(log.add("AGENT_END", reason="MODEL_STOP")))
    assert page.text("say") == "Reply ready"
    page.frame(renderer.event(log.add("RUN_FAILED", code="timeout", detail="It took too long.")))
    page.frame(renderer.event(log.add("AGENT_END", reason="FAILED")))
    assert "The model sent nothing for too long." in page.text("say")
    run = page.root.find("run")
    assert run
    assert run.attributes["data-run"] == "failed"


def test_a_failed_reply_offers_retry_until_the_next_one_starts() -> None:
    log = Ledger()
    page, renderer = Page(), PageRenderer("c1")
    page.frame(renderer.event(log.add("RUN_FAILED", code="timeout", detail="late")))
    assert "Retry" in page.text("log")
    page.frame(renderer.event(log.add("AGENT_START", "r2", trigger="user")))
    assert "Retry" not in page.text("log")


def test_waiting_for_a_slot_shows_in_the_status_line_until_the_agent_starts() -> None:
    log = Ledger()
    page, renderer = Page(), PageRenderer("c1")
    page.frame(renderer.event(log.add("CUSTOM", None, name="queued", value={"reason": "user_limit"})))
    assert page.text("status") == "· waiting for a free slot"
    page.frame(renderer.event(log.add("AGENT_START", trigger="user")))
    assert page.text("status") == "· replying…"


def test_a_custom_event_of_an_unknown_name_shows_nothing() -> None:
    assert PageRenderer("c1").event(Ledger().add("CUSTOM", name="unheard_of", value={})) == ""


def test_a_discarded_call_goes_from_the_open_page() -> None:
    log = Ledger()
    log.add("TOOL_CALL_START", tool_call_id="c1", tool_name="x")
    log.add("TOOL_CALL_END", tool_call_id="c1", tool_name="x", args=None, args_text="", state="discarded")
    assert live(log.events).root.find("t-c1") is None


def test_a_call_shows_how_long_it_took() -> None:
    log = Ledger()
    log.add("TOOL_RESULT_START", tool_call_id="c1", tool_name="x")
    log.add("TOOL_RESULT_END", tool_call_id="c1", tool_name="x", state="success", output="")
    assert "done 400 ms" in live(log.events).text("log")


def test_what_can_be_done_with_a_reply_comes_at_its_end_and_retry_goes_with_the_next() -> None:
    log = Ledger()
    page, renderer = Page(), PageRenderer("c1")
    page.frame(renderer.event(log.add("AGENT_START", trigger="user")))
    assert page.root.find("r-r1-actions") is None
    page.frame(renderer.event(log.add("AGENT_END", reason="WAITING")))
    assert page.root.find("r-r1-actions") is None
    assert page.text("say") == "Replying"
    page.frame(renderer.event(log.add("AGENT_END", reason="MODEL_STOP")))
    actions = page.root.find("r-r1-actions")
    assert actions
    assert any(node.attributes.get("aria-label") == "Retry" for node in actions.walk())
    page.frame(renderer.event(log.add("AGENT_START", "r2", trigger="user")))
    assert not any(node.attributes.get("aria-label") == "Retry" for node in page.root.walk())
    assert page.root.find("r-r1-actions") is not None


def test_terminal_colours_and_hidden_characters_never_reach_the_page() -> None:
    log = Ledger()
    dirty = "\x1b[31mred\x1b[0m \u202e"
    log.add("THINKING_BLOCK_END", block_id="k1", text=dirty)
    log.add("TOOL_CALL_END", tool_call_id="c1", tool_name=dirty, args={"a": dirty})
    log.add("TOOL_RESULT_END", tool_call_id="c1", tool_name=dirty, state="success", output=dirty)
    log.add("RUN_FAILED", code="wrong_key", detail=dirty)
    html = "".join(PageRenderer("c1").event(event) for event in log.events)
    assert not re.search("[\x1b\u202e]", html)
    assert "red \u27e8U+202E\u27e9" in html
