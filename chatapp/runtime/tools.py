"""What a tool is: a function with a schema, told where it runs, answering at once or leaving its call open."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel

from chatapp.runtime.delegation import Delegation
from chatapp.runtime.registry import Roster


@dataclass(frozen=True)
class ToolContext:
    """Who calls, and where its files are. `workspace` exists when the tool runs; the limits are in bytes."""

    session_id: str
    conversation_id: str
    owner_id: int
    tool_call_id: str
    workspace: Path
    file_limit: int = 10 * 1024 * 1024
    workspace_limit: int = 200 * 1024 * 1024
    roster: Roster = field(default_factory=Roster)


@dataclass(frozen=True)
class Answered:
    """A tool's result, as the model will read it."""

    output: str
    state: Literal["success", "error"] = "success"


@dataclass(frozen=True)
class Open:
    """Its call waits for a subagent. Whoever it asks answers it, in whatever process."""

    wish: Delegation


@dataclass(frozen=True)
class Tool:
    """A tool the model sees. `arguments` validates what the model wrote and gives the JSON schema.

    `run` raises `ToolFailed` with a line the model can act on; any other exception is a bug and is reported as one.
    `default` is the permission when no rule speaks: `allow`, or `ask` for what needs a person's OK. One that
    `delegates` is no leaf's; one that `opens` may answer Open, and begins with the transaction that opens its call.
    """

    name: str
    description: str
    arguments: type[BaseModel]
    run: Callable[[ToolContext, Any], Awaitable[Answered | Open]]
    read_only: bool = False
    default: Literal["allow", "ask"] = "ask"
    schema: dict[str, Any] = field(default_factory=dict)
    delegates: bool = False
    opens: bool = False

    def json_schema(self) -> dict[str, Any]:
        return self.schema or self.arguments.model_json_schema()
