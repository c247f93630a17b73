"""Events and deltas as htmx partials: what the page's websocket carries."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from html import escape
from typing import Any

from django.utils.translation import gettext as _

from chatapp import markdown, panels, parts
from chatapp.templatetags.thread import draw

Flat = dict[str, Any]


def partial(swap: str, into: str, html: str = "") -> str:
    """One change. Its place is looked up when it is made: an earlier partial of the same frame may have created it.

    Swaps beside htmx's own: `put` replaces the elements whose ids exist and appends the others, `ensure` only appends
    what is missing, `drop` removes all that match.
    """
    return f'<hx-partial hx-target="#log" hx-swap="{swap} into:\'{into}\'">{html}</hx-partial>'


def _say(text: str) -> str:
    """Spoken by a screen reader, once."""
    return partial("innerHTML", "#say", escape(text))


def _panel_part(panel: panels.Panel, name: str) -> str:
    return partial("put", f"#s-{panel.id}", draw(f"chat/parts/panel_{name}.html", part=panel))


def _status(**state: bool) -> str:
    return partial("put", "#status", draw("chat/parts/run.html", **state))


class PageRenderer:
    """Renders one connection's frames. It knows only what it has sent: any block may have begun before it."""

    def __init__(self, conversation_id: str) -> None:
        self.conversation_id = conversation_id
        # By message or reply: who draws one of several ways on is told before.
        self.siblings: dict[str, parts.Siblings] = {}
        self._replies: set[str] = set()
        self._growing: dict[str, markdown.GrowingText] = {}
        # When the calls and thoughts began that are open now. Who came later learns how long they took at a reload.
        self._began: dict[str, datetime | None] = {}
        self._panels: dict[str, panels.Panel] = {}
        self._on: dict[str, Callable[[Flat], str]] = {
            "USER_MESSAGE": self._user_message,
            "AGENT_START": self._agent_start,
            "AGENT_END": self._agent_end,
            "TEXT_BLOCK_START": self._text_start,
            "TEXT_BLOCK_END": self._text_end,
            "THINKING_BLOCK_START": self._thinking,
            "THINKING_BLOCK_END": self._thinking,
            "TOOL_CALL_START": self._tool_call,
            "TOOL_CALL_END": self._tool_call,
            "TOOL_RESULT_START": self._tool_result,
            "TOOL_RESULT_END": self._tool_result,
            "MODEL_RETRY": self._model_retry,
            "EXCEED_MAX_ITERS": lambda event: self._put(event, parts.limit_note(event)),
            "RUN_FAILED": self._run_failed,
            "CUSTOM": self._custom,
            "HANDOFF_END": self._handed,
        }

    def event(self, event: Flat) -> str:
        if not parts.is_own(event):
            return self._below(event)
        handler = self._on.get(event["type"])
        return handler(event) if handler else ""

    # Subagents, each in the panel below the call that made it

    def _below(self, event: Flat) -> str:
        html, panel = self._panel(event)
        if panels.change_panel(panel, event):
            html += _panel_part(panel, "head") + _panel_part(panel, "stop") + _panel_part(panel, "handed")
        kind = event["type"]
        if kind == "USER_MESSAGE":
            asked = panels.asked(event)
            removed = event["state"] == "removed"
            return html + (
                partial("drop", f"#m-{asked.id}")
                if removed
                else partial("put", self._log(event), draw(asked.template, part=asked))
            )
        if kind == "AGENT_END":
            html += self._drop_unfinished(event)
            return html + (self._put(event, parts.stopped_note(event)) if event.get("reason") == "INTERRUPTED" else "")
        if kind == "RUN_FAILED":
            failure = parts.failure(event)
            failure.last = False
            return html + self._put(event, failure)
        handler = None if kind in ("AGENT_START", "CUSTOM") else self._on.get(kind)
        return html + (handler(event) if handler else "")

    def _panel(self, event: Flat) -> tuple[str, panels.Panel]:
        """What makes sure that it is there, once a connection."""
        session_id = event["session_id"]
        if session_id in self._panels:
            return "", self._panels[session_id]
        panel = self._panels[session_id] = panels.panel(event)
        call = event["metadata"].get("toolCallId") or ""
        return partial("ensure", f"#k-{call}", draw(panel.template, part=panel)), panel

    def _handed(self, event: Flat) -> str:
        session_id = event.get("child_session_id") or ""
        panel = self._panels.get(session_id) or panels.Panel(session_id)
        panels.hand_back(panel, event)
        return _panel_part(panel, "handed")

    @staticmethod
    def _log(event: Flat) -> str:
        """Where its session's messages and replies are."""
        return "#log" if parts.is_own(event) else f"#s-{event['session_id']}-log"

    def delta(self, delta: Flat) -> str:
        """A piece of an open text. Other blocks show that they are open, which their START has said."""
        if delta["type"] != "TEXT_BLOCK_DELTA":
            return ""
        block_id = delta["block_id"]
        head = ""
        if delta["offset"] == 0 or block_id not in self._growing:
            self._growing[block_id] = markdown.GrowingText()
            head = self._reply(delta) + partial("put", self._reply_place(delta), _open_block(block_id))
        return head + "".join(_op(block_id, op) for op in self._growing[block_id].feed(delta["text"]))

    @staticmethod
    def _reply_place(event: Flat) -> str:
        return f"#r-{event.get('reply_id') or ''}"

    def _reply(self, event: Flat) -> str:
        """The reply's article, where this connection has not made sure of it yet."""
        reply_id = event.get("reply_id") or ""
        if reply_id in self._replies:
            return ""
        self._replies.add(reply_id)
        reply = self._new_reply(event)
        day = "" if reply.agent else self._day(reply)
        return day + partial("ensure", self._log(event), draw(reply.template, part=reply))

    @staticmethod
    def _day(item: parts.Reply | parts.UserMessage) -> str:
        """The line between the days, unless it is there."""
        return partial("ensure", "#log", draw("chat/parts/day.html", moment=item.began)) if item.began else ""

    def _new_reply(self, event: Flat) -> parts.Reply:
        return parts.reply(event, self.siblings.get(event.get("reply_id") or ""))

    def _put(self, event: Flat, part: Any) -> str:
        return self._reply(event) + partial("put", self._reply_place(event), draw(part.template, part=part))

    def _user_message(self, event: Flat) -> str:
        message = parts.user_message(event, self.siblings.get(event["message_id"]))
        if event["state"] == "queued":
            return partial("put", "#queued", draw("chat/parts/queued.html", part=message))
        gone = partial("drop", f"#q-{message.id}")
        if event["state"] == "removed":
            return gone
        if message.steered and event.get("reply_id"):
            return gone + self._put(event, message)
        return gone + self._day(message) + partial("put", "#log", draw(message.template, part=message))

    def _agent_start(self, event: Flat) -> str:
        if event.get("trigger") in panels.BEGINS:
            self._began.clear()
        return self._reply(event) + partial("drop", "#log .retry") + _status(running=True) + _say(_("Replying"))

    def _agent_end(self, event: Flat) -> str:
        reason = event.get("reason")
        html = self._drop_unfinished(event)
        if reason == "INTERRUPTED":
            html += self._put(event, parts.stopped_note(event)) + _say(_("Stopped"))
        ended = parts.end(self._new_reply(event), event)
        if ended.over:
            html += self._reply(event)
            html += partial("put", self._reply_place(event), draw("chat/parts/reply_actions.html", part=ended))
        if ended.over and reason not in ("INTERRUPTED", "FAILED"):
            html += _say(_("Reply ready"))
        return html + _status(failed=reason == "FAILED", running=reason == "WAITING")

    def _drop_unfinished(self, event: Flat) -> str:
        return partial("drop", f"{self._reply_place(event)} .tool:has([data-state=preparing])")

    def _text_start(self, event: Flat) -> str:
        self._growing[event["block_id"]] = markdown.GrowingText()
        return self._reply(event) + partial("put", self._reply_place(event), _open_block(event["block_id"]))

    def _text_end(self, event: Flat) -> str:
        """The whole text once more: late definitions and footnotes change what stood before them."""
        block_id = event["block_id"]
        self._growing.pop(block_id, None)
        if event.get("state") == "discarded":
            return partial("drop", f"#b-{block_id}")
        html = self._reply(event) + partial("ensure", self._reply_place(event), _open_block(block_id))
        html += partial("innerMorph", f"#b-{block_id}", markdown.render(event.get("text") or "", block_id))
        if event.get("state") == "partial":
            html += self._put(event, parts.stopped_note(event))
        return html

    def _thinking(self, event: Flat) -> str:
        if event.get("state") == "discarded":
            return partial("drop", f"#b-{event['block_id']}")
        block = parts.thinking_block(event, self._began.get(event["block_id"]))
        self._began[block.id] = block.began
        html = self._reply(event) + partial("ensure", self._reply_place(event), draw(block.template, part=block))
        drawn = "".join(draw(f"chat/parts/thinking_{name}.html", part=block) for name in ("word", "text"))
        return html + partial("put", f"#b-{block.id}", drawn)

    def _tool_call(self, event: Flat) -> str:
        if event.get("state") == "discarded":
            return partial("drop", f"#t-{event['tool_call_id']}")
        return self._tool_card(event, parts.tool_call(event), "state", "brief", "args")

    def _tool_result(self, event: Flat) -> str:
        call = parts.new_call(event)
        call.began = self._began.get(call.id)
        call = parts.tool_result(call, event)
        self._began[call.id] = call.began
        return self._tool_card(event, call, "state", *(["output"] if event["type"] == "TOOL_RESULT_END" else []))

    def _tool_card(self, event: Flat, call: parts.ToolCall, *changed: str) -> str:
        """Only the parts that the event tells of: the card may be older than this connection."""
        html = self._reply(event) + partial("ensure", self._reply_place(event), draw(call.template, part=call))
        drawn = "".join(draw(f"chat/parts/tool_{name}.html", part=call) for name in changed)
        return html + partial("put", f"#t-{call.id}", drawn)

    def _model_retry(self, event: Flat) -> str:
        return self._drop_unfinished(event) + self._put(event, parts.retry_note(event))

    def _run_failed(self, event: Flat) -> str:
        failure = parts.failure(event)
        return self._put(event, failure) + _say(_("The reply failed: %s") % failure.line)

    def _custom(self, event: Flat) -> str:
        if parts.waits(event):
            return _status(waiting=True) + _say(_("Waiting for a free slot"))
        note = parts.custom_note(event)
        return self._put(event, note) if note else ""


def _open_block(block_id: str) -> str:
    """The text part's frame with a place for what is not finished; the same frame as the part's template."""
    return f'<div class="md" id="b-{block_id}" hx-ignore><div class="open"></div></div>'


def _op(block_id: str, op: markdown.Op) -> str:
    open_part = f"#b-{block_id}>.open"
    if op.kind == "freeze":
        return partial("beforebegin", open_part, op.html)
    if op.kind == "line":
        return partial("beforeend", f"{open_part} code", op.html)
    return partial("beforeend" if op.kind == "tail" else "innerHTML", open_part, op.html)
