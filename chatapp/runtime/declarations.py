"""What an agent is: `SubagentDeclaration`, and the built-in `main` that answers a new conversation."""

from __future__ import annotations

from dataclasses import asdict, dataclass, fields
from typing import Any

MAIN_PROMPT = """\
You are the assistant of Branchline, a chat that people host themselves. Answer in the language you are addressed in,
plainly and to the point, in Markdown where it helps. Use a tool when it gives you facts that you lack; your files are
in this conversation's workspace. For work of several steps keep a short todo list with `todo_write`. Say when you are
not sure, and never claim to have done what a tool did not do."""


@dataclass(frozen=True)
class SubagentDeclaration:
    """One agent as its author declared it; a running session keeps the snapshot it started with.

    `model` empty means the conversation's; `tools` None means all that are offered.
    """

    agent_id: str
    description: str
    prompt: str
    mode: str = "subagent"
    model: str = ""
    steps: int = 10
    temperature: float | None = None
    top_p: float | None = None
    tools: tuple[str, ...] | None = None

    def snapshot(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_snapshot(cls, data: dict[str, Any]) -> SubagentDeclaration:
        """What an earlier version stored reads as well: unknown fields are left out, missing ones have defaults."""
        known = {field.name for field in fields(cls)}
        tools = data.get("tools")
        kept = {name: value for name, value in data.items() if name in known}
        return cls(**{**kept, "tools": None if tools is None else tuple(tools)})


def main_agent(max_steps: int) -> SubagentDeclaration:
    """The conversation's own agent. `max_steps` is BRANCHLINE_MAX_STEPS."""
    return SubagentDeclaration("main", "Answers a new conversation.", MAIN_PROMPT, mode="primary", steps=max_steps)
