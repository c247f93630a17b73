"""What an agent is: `SubagentDeclaration`, and the built-in ones `main` and `general-purpose`."""

from __future__ import annotations

import re
from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, model_validator
from pydantic.alias_generators import to_camel

from chatapp.runtime.policy import HandoffPolicy, Names

MAIN_PROMPT = """\
You are the assistant of Branchline, a chat that people host themselves. Answer in the language you are addressed in,
plainly and to the point, in Markdown where it helps. Use a tool when it gives you facts that you lack; your files are
in this conversation's workspace. For work of several steps keep a short todo list with `todo_write`. Say when you are
not sure, and never claim to have done what a tool did not do."""
GENERAL_PROMPT = """\
You take a task off the hands of another agent. Work it out with the tools you have, check what you found, and answer
with the result itself."""

GENERAL_PURPOSE = "general-purpose"
CHILD_STEPS = 10
COUNT = r"\(\s*\d+\s*\)"


def _rule(value: object) -> object:
    """`tool`, `tool: pattern`, or what YAML makes of the latter when nobody quotes it."""
    if isinstance(value, dict) and len(value) == 1:
        [(tool, pattern)] = value.items()
        return f"{tool}: {pattern}"
    return value


Rule = Annotated[str, BeforeValidator(_rule), Field(pattern=r"^[A-Za-z0-9_-]{1,64}(: .+)?$")]


class _Part(BaseModel):
    """Snake case or camel case; what nobody knows is an error."""

    model_config = ConfigDict(frozen=True, extra="forbid", alias_generator=to_camel, populate_by_name=True)


class WorkspaceChoice(_Part):
    """Where a subagent's files are: its own folder, or its parent's. `path` holds its AGENTS.md, below the project."""

    mode: Literal["isolated", "shared"] = "isolated"
    path: str = ""


class Rules(_Part):
    """Permission rules of the agent itself, as `tool` or `tool: pattern`."""

    deny: tuple[Rule, ...] = ()
    ask: tuple[Rule, ...] = ()
    allow: tuple[Rule, ...] = ()


class Compaction(_Part):
    """When an agent's history is made shorter, and how."""

    trigger: str = Field(default="", pattern=rf"^$|^(turns|tokens){COUNT}(\s*,\s*(turns|tokens){COUNT})*$")
    strategy: str = Field(
        default="", pattern=rf"^$|^(sliding_window|turn_window|token_window){COUNT}$|^summary\(\s*\d+\s*,\s*\d+\s*\)$"
    )


class SubagentDeclaration(_Part):
    """One agent as its author declared it; a running session keeps the snapshot it started with.

    An empty `model`, no `temperature` and no `top_p` mean the parent's; `tools` None means all that the parent has.
    Without `steps` a subagent has ten, `general-purpose` its parent's, a conversation's own agent the server's.
    """

    agent_id: str = Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]{0,62}$")
    description: str = Field(min_length=1, max_length=2000)
    prompt: str = ""
    mode: Literal["primary", "subagent", "all"] = "all"
    hidden: bool = Field(default=False, strict=True)
    tools: Names | None = None
    model: str = ""
    steps: int | None = Field(default=None, ge=1, le=1000, strict=True)
    temperature: float | None = Field(default=None, ge=0, le=2)
    top_p: float | None = Field(default=None, gt=0, le=1)
    variant: str = ""
    workspace: WorkspaceChoice = WorkspaceChoice()
    expose_to_user: bool | None = Field(default=None, strict=True)
    tool: bool = Field(default=False, strict=True)
    tool_name: str = Field(default="", pattern=r"^[a-zA-Z0-9_-]{0,64}$")
    session_mode: Literal["new", "reuse"] | None = None
    persist_session: bool | None = Field(default=None, strict=True)
    inherit_parent_permissions: bool = Field(default=True, strict=True)
    permission_mode: Literal["", "default", "accept_edits", "explore", "dont_ask"] = ""
    permissions: Rules = Rules()
    handoff: HandoffPolicy = HandoffPolicy()
    parallel_tools: int | None = Field(default=None, ge=1, le=64, strict=True)
    groups: Names = ()
    recall: Literal["", "user"] = ""
    compaction: Compaction = Compaction()
    token_cap: int | None = Field(default=None, ge=1, strict=True)
    url: str = Field(default="", pattern=r"^$|^https?://\S+$")
    headers: dict[str, Annotated[str, Field(pattern=r"^env:BRANCHLINE_REMOTE_[A-Z0-9_]+$")]] = {}
    protocol: Literal["agent-protocol", "a2a"] = "agent-protocol"
    remote_streaming: bool = Field(default=True, strict=True)
    remote_stream_detail: Literal["STATUS", "FULL", "VERBOSE"] = "FULL"
    remote_ask_policy: Literal["DENY", "PROPAGATE"] = "DENY"
    remote_context_attributes: dict[str, Any] = {}
    remote_plan_mode: bool = Field(default=False, strict=True)

    @model_validator(mode="after")
    def _fits_together(self) -> Self:
        if self.session_mode == "new" and self.persist_session:
            raise ValueError("`session_mode: new` and `persist_session: true` contradict each other")
        if self.session_mode == "reuse" and self.persist_session is False:
            raise ValueError("`session_mode: reuse` and `persist_session: false` contradict each other")
        if self.url and (self.workspace.path or self.prompt):
            raise ValueError("a remote agent has its prompt at its `url`: leave out the body and `workspace.path`")
        if not self.description.strip():
            raise ValueError("`description` is blank")
        return self

    @property
    def reuses_session(self) -> bool:
        return self.session_mode == "reuse" or bool(self.persist_session)

    @property
    def handoff_name(self) -> str:
        """What policies and function tools call it."""
        return self.tool_name or f"subagent_{normalised(self.agent_id)}"

    def snapshot(self) -> dict[str, Any]:
        """Only what differs from the defaults, so that a later version's defaults reach old sessions too."""
        return self.model_dump(mode="json", exclude_defaults=True)

    @classmethod
    def from_snapshot(cls, data: dict[str, Any]) -> SubagentDeclaration:
        """What an earlier version stored reads as well: unknown fields are left out, missing ones have defaults."""
        return cls.model_validate({name: value for name, value in data.items() if name in cls.model_fields})


def normalised(name: str) -> str:
    """A name as a part of a tool's: small letters, digits and single underscores, not beginning with a digit."""
    plain = re.sub(r"[^a-z0-9]+", "_", name.lower()).strip("_") or "agent"
    return f"agent_{plain}" if plain[0].isdigit() else plain


def built_in() -> tuple[SubagentDeclaration, ...]:
    """The conversation's own agent, and the one that is always there to delegate to."""
    main = SubagentDeclaration(
        agent_id="main", description="Answers a new conversation.", prompt=MAIN_PROMPT, mode="primary"
    )
    general = SubagentDeclaration(
        agent_id=GENERAL_PURPOSE,
        description="Takes any task: research, several steps, work that would fill your own conversation.",
        prompt=GENERAL_PROMPT,
        mode="subagent",
        workspace=WorkspaceChoice(mode="shared"),
    )
    return main, general
