"""What an agent may hand on: `HandoffPolicy`, and `admit`, which every door to a subagent asks."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field
from pydantic.alias_generators import to_camel

HARD_CAP = 3
# Either of these in a list of tools stands for every subagent.
DOORS = frozenset({"agent_spawn", "agent_send"})


def _listed(value: object) -> object:
    """A list, or the same as text: `a, b` or `[a, b]`."""
    if isinstance(value, str):
        return tuple(part for part in (part.strip() for part in value.strip().strip("[]").split(",")) if part)
    return value


Names = Annotated[tuple[str, ...], BeforeValidator(_listed)]
OnFailure = Literal["fail", "fallback_to_primary"]


class HandoffPolicy(BaseModel):
    """The delegating agent's. Depth counts from the conversation's own agent, which is 0; `max_depth` 0 sets none."""

    model_config = ConfigDict(frozen=True, extra="forbid", alias_generator=to_camel, populate_by_name=True)

    enabled: bool = Field(default=True, strict=True)
    max_depth: int = Field(default=1, ge=0, le=1000, strict=True)
    max_retries: int = Field(default=0, ge=0, le=10, strict=True)
    timeout_seconds: float = Field(default=0, ge=0)
    allowed_tools: Names = ()
    denied_tools: Names = ()
    on_denied: OnFailure = "fail"
    on_error: OnFailure = "fail"
    input_filter: str = Field(default="", pattern=r"^$|^[A-Za-z_]\w*(\.[A-Za-z_]\w*)+$")


def depth_limit(chain: Iterable[HandoffPolicy]) -> int:
    """How deep sessions may lie below these callers: the smallest limit among them, and never more than three."""
    return min([HARD_CAP, *(policy.max_depth for policy in chain if policy.enabled and policy.max_depth)])


def admit(policy: HandoffPolicy, handoff_name: str, depth: int, limit: int) -> str:
    """Why a subagent of this name may not run at this depth; empty when it may."""
    if policy.enabled:
        if policy.allowed_tools and not DOORS.union([handoff_name]).intersection(policy.allowed_tools):
            return "tool is not in allowedTools"
        if DOORS.union([handoff_name]).intersection(policy.denied_tools):
            return "tool is in deniedTools"
    return f"handoff depth {depth} exceeds maxDepth {limit}" if depth > limit else ""
