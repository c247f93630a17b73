"""A subagent's panel: what it was asked, what it does and what it handed back, from its events."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import ClassVar

from chatapp import parts
from chatapp.parts import Flat, between
from chatapp.plain import excerpt, plain

HANDED_MAX = 600


@dataclass
class Panel:
    """A subagent: what it was asked, what it does, what it handed back. `state`: queued, running, waiting, done, failed
    or stopped; `began` and `took` are of its last reply; `tokens` of all."""

    template: ClassVar[str] = "chat/parts/panel.html"
    id: str
    conversation_id: str = ""
    agent_id: str = ""
    source: str = ""
    label: str = ""
    state: str = "queued"
    items: list[Asked | parts.Reply] = field(default_factory=list)
    began: datetime | None = None
    took: timedelta | None = None
    tokens: int = 0
    handed: str = ""
    error: str = ""

    @property
    def crumbs(self) -> list[str]:
        """Who asked whom down to it; nothing where the conversation's own agent did."""
        path = self.source.split("/")
        return path if len(path) > 2 else []

    @property
    def is_busy(self) -> bool:
        return self.state in ("queued", "running", "waiting")

    @property
    def icon(self) -> str:
        return {"done": "success", "failed": "error", "stopped": "interrupted", "queued": "ready"}.get(
            self.state, "running"
        )

    @property
    def shown_handed(self) -> str:
        return plain(excerpt(self.handed, HANDED_MAX))

    @property
    def level(self) -> int:
        return min(self.source.count("/"), 3)


@dataclass
class Asked:
    """What another agent, or the person, told a subagent."""

    template: ClassVar[str] = "chat/parts/asked.html"
    id: str
    text: str
    by_person: bool = False


# Triggers of a new reply; the others go on with one.
BEGINS = ("user", "agent", "task")
# How a subagent's reply ended, in a word.
ENDED = {"FAILED": "failed", "INTERRUPTED": "stopped", "WAITING": "waiting", "PERMISSION_ASKING": "waiting"}


def panel(event: Flat) -> Panel:
    """A subagent's, from any of its events."""
    return Panel(
        event.get("session_id") or "", event.get("conversation_id") or "", event.get("agent_id") or "",
        event.get("source") or "", (event.get("metadata") or {}).get("label") or "",
    )  # fmt: skip


def change_panel(panel: Panel, event: Flat) -> bool:
    """`panel` as one of its own events leaves it. Whether that changes its head."""
    kind = event["type"]
    if kind == "AGENT_START":
        panel.state, panel.took, panel.handed, panel.error = "running", None, "", ""
        if event.get("trigger") in BEGINS:
            panel.began = parts.moment(event)
    elif kind == "AGENT_END":
        panel.state = ENDED.get(event.get("reason") or "", "done")
        panel.took = between(panel.began, event)
    elif kind == "MODEL_CALL_END":
        panel.state = "running"
    panel.tokens = event.get("session_tokens") or panel.tokens
    return kind in ("AGENT_START", "AGENT_END", "MODEL_CALL_END")


def hand_back(panel: Panel, event: Flat) -> None:
    """`panel` as its caller's HANDOFF_END leaves it."""
    panel.handed, panel.error = event.get("output") or "", event.get("error") or ""


def asked(event: Flat) -> Asked:
    return Asked(event["message_id"], event.get("text") or "", event.get("author") != "agent")
