"""A conversation's thread: its events folded into messages and replies."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

from chatapp import panels, parts
from chatapp.panels import Panel
from chatapp.parts import Failure, Flat, Reply, Siblings, Thinking, ToolCall, UserMessage


@dataclass
class Thread:
    items: list[UserMessage | Reply] = field(default_factory=list)
    queued: list[UserMessage] = field(default_factory=list)
    running: bool = False
    waiting: bool = False
    failed: bool = False
    last_seq: int = 0

    def settle(self) -> None:
        """It is followed by more: nothing in it can be tried again."""
        for item in self.items:
            if isinstance(item, Reply):
                item.last = False
                for part in item.parts:
                    if isinstance(part, Failure):
                        part.last = False


# By an event's branch and number.
SiblingsAt = Callable[[int, int], Siblings | None]


class _Fold:
    """`panels` are those of all subagents by session, `calls` all calls of all sessions."""

    def __init__(self, siblings: SiblingsAt) -> None:
        self.siblings = siblings
        self.thread = Thread()
        self.replies: dict[str, Reply] = {}
        self.calls: dict[str, ToolCall] = {}
        self.panels: dict[str, Panel] = {}

    def add(self, event: Flat) -> None:
        self.thread.last_seq = event["seq"]
        if not parts.is_own(event):
            self._below(event)
        elif handler := getattr(self, "_on_" + event["type"].lower(), None):
            handler(event)

    def _below(self, event: Flat) -> None:
        """Into the panel of its session. One whose call is not in this part of the thread is not shown."""
        panel = self.panels.get(event["session_id"])
        if panel is None:
            call = self.calls.get(event["metadata"].get("toolCallId") or "")
            if call is None:
                return
            panel = self.panels[event["session_id"]] = panels.panel(event)
            call.panels.append(panel)
        panels.change_panel(panel, event)
        if event["type"] == "USER_MESSAGE":
            if event["state"] != "removed" and all(item.id != event["message_id"] for item in panel.items):
                panel.items.append(panels.asked(event))
        elif event["type"] not in ("AGENT_START", "CUSTOM") and (
            handler := getattr(self, "_on_" + event["type"].lower(), None)
        ):
            handler(event)

    def _reply(self, event: Flat) -> Reply:
        key = event.get("reply_id") or ""
        if key not in self.replies:
            panel = self.panels.get(event["session_id"])
            siblings = None if panel else self.siblings(event["branch"], event["seq"])
            self.replies[key] = parts.reply(event, siblings)
            items: list[Any] = panel.items if panel else self.thread.items
            items.append(self.replies[key])
        return self.replies[key]

    def _on_handoff_end(self, event: Flat) -> None:
        if panel := self.panels.get(event.get("child_session_id") or ""):
            panels.hand_back(panel, event)

    def _on_user_message(self, event: Flat) -> None:
        message = parts.user_message(event, self.siblings(event["branch"], event["seq"]))
        queued = {known.id: known for known in self.thread.queued}
        if event["state"] == "queued":
            queued[message.id] = message
        else:
            queued.pop(message.id, None)
        self.thread.queued = list(queued.values())
        if event["state"] == "steered" and event.get("reply_id"):
            self._reply(event).put(message)
        elif event["state"] in ("running", "steered") and all(item.id != message.id for item in self.thread.items):
            self.thread.items.append(message)

    def _on_agent_start(self, event: Flat) -> None:
        self.thread.running, self.thread.waiting, self.thread.failed = True, False, False
        self.thread.settle()
        self._reply(event).over = False

    def _on_agent_end(self, event: Flat) -> None:
        ended = parts.end(self._reply(event), event)
        ended.drop_unfinished()
        if parts.is_own(event):
            # It goes on by itself when a subagent it waits for is done.
            self.thread.running = event.get("reason") == "WAITING"
            self.thread.waiting = False
            self.thread.failed = event.get("reason") == "FAILED"
        if event.get("reason") == "INTERRUPTED":
            self._reply(event).put(parts.stopped_note(event))

    def _on_text_block_start(self, event: Flat) -> None:
        self._reply(event).put(parts.text_block(event))

    def _on_text_block_end(self, event: Flat) -> None:
        ours = self._reply(event)
        if event.get("state") == "discarded":
            ours.drop(event["block_id"])
            return
        ours.put(parts.text_block(event))
        if event.get("state") == "partial":
            ours.put(parts.stopped_note(event))

    def _on_thinking_block_start(self, event: Flat) -> None:
        self._reply(event).put(parts.thinking_block(event))

    def _on_thinking_block_end(self, event: Flat) -> None:
        ours = self._reply(event)
        if event.get("state") == "discarded":
            ours.drop(event["block_id"])
        else:
            known = next((part for part in ours.parts if part.id == event["block_id"]), None)
            ours.put(parts.thinking_block(event, known.began if isinstance(known, Thinking) else None))

    def _on_tool_call_start(self, event: Flat) -> None:
        self.calls[event["tool_call_id"]] = call = parts.tool_call(event)
        self._reply(event).put(call)

    def _on_tool_call_end(self, event: Flat) -> None:
        if event.get("state") == "discarded":
            self.calls.pop(event["tool_call_id"], None)
            self._reply(event).drop(event["tool_call_id"])
        else:
            self._on_tool_call_start(event)

    def _on_tool_result_start(self, event: Flat) -> None:
        call = self.calls.get(event["tool_call_id"])
        if call is None:
            call = self.calls[event["tool_call_id"]] = parts.new_call(event)
            self._reply(event).put(call)
        parts.tool_result(call, event)

    _on_tool_result_end = _on_tool_result_start

    def _on_model_retry(self, event: Flat) -> None:
        self._reply(event).drop_unfinished()
        self._reply(event).put(parts.retry_note(event))

    def _on_exceed_max_iters(self, event: Flat) -> None:
        self._reply(event).put(parts.limit_note(event))

    def _on_custom(self, event: Flat) -> None:
        if parts.waits(event):
            self.thread.waiting = True
        elif note := parts.custom_note(event):
            self._reply(event).put(note)

    def _on_run_failed(self, event: Flat) -> None:
        failure = parts.failure(event)
        if parts.is_own(event):
            self.thread.failed = True
        else:
            failure.last = False
        self._reply(event).put(failure)


def fold(events: Iterable[Flat], siblings: SiblingsAt = lambda branch, seq: None) -> Thread:
    """The thread after these events, which are in the order of their numbers."""
    state = _Fold(siblings)
    for event in events:
        state.add(event)
    return state.thread
