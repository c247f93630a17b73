"""What a call to a subagent asks for, and how its answer reads to the model."""

from __future__ import annotations

from dataclasses import dataclass

from chatapp.runtime.declarations import SubagentDeclaration

DEFAULT_WAIT, LONGEST_WAIT = 30, 600


@dataclass(frozen=True)
class Spawn:
    """A new subagent, or the one that its declaration goes on with. No task only makes it. `wait` in seconds."""

    declaration: SubagentDeclaration
    task: str
    label: str
    wait: float


@dataclass(frozen=True)
class Send:
    """Another message to a subagent that the caller has, by its key or its label. `wait` in seconds."""

    agent_key: str
    label: str
    message: str
    wait: float


Delegation = Spawn | Send


@dataclass(frozen=True)
class Listed:
    """A subagent as `agent_list` names it. `depth` counts from the conversation's own agent."""

    agent_key: str
    agent_id: str
    label: str
    depth: int
    status: str


def wait_of(timeout_seconds: int | None) -> float:
    """How long a call stays open."""
    if timeout_seconds is None or timeout_seconds <= 0:
        return DEFAULT_WAIT
    return min(timeout_seconds, LONGEST_WAIT)


def worded(
    status: str, agent_key: str = "", agent_id: str = "", session_id: str = "", *, reply: str = "", error: str = ""
) -> str:
    """The lines of a reply to the model, each once and in this order; without a child only what went wrong."""
    named = {"agent_key": agent_key, "agent_id": agent_id, "session_id": session_id, "status": status, "error": error}
    lines = [f"{name}: {value}" for name, value in named.items() if value]
    return "\n".join(lines + (["reply:", reply] if reply else []))
