"""The tools that hand work to subagents: `agent_spawn`, `agent_send`, `agent_list`."""

from __future__ import annotations

from typing import Protocol

from pydantic import BaseModel, Field

from chatapp.runtime.declarations import SubagentDeclaration
from chatapp.runtime.delegation import DEFAULT_WAIT, LONGEST_WAIT, Listed, Send, Spawn, wait_of, worded
from chatapp.runtime.tools import Answered, Open, Tool, ToolContext

NAMES = ("agent_spawn", "agent_send", "agent_list")
WAIT = f"Seconds to wait for the answer; {DEFAULT_WAIT} if left out, {LONGEST_WAIT} at most."

GUIDE = """\
## Subagents

You may hand work to these agents with `agent_spawn`:

{agents}

- A subagent sees nothing of this conversation. Put all that it needs into `task`: the aim, the facts, the form of the
  answer.
- Independent work side by side: several calls in one step. What builds on a result comes after it.
- You get the final answer only. Check it before you use it.
- A `label` gives a subagent a name of its own. `agent_send` goes on with one that you have, by its `agent_key` or its
  label; it remembers what it did."""
LEAF = """\
You are a subagent: another agent asked you, and nobody reads along who could answer a question. Work with what you are
given and say what was missing. Your last message is all that is handed back: make it the result itself."""


class AgentSpawn(BaseModel):
    agent_id: str = Field(description="Whom to ask, one of the listed agents.")
    task: str = Field(default="", max_length=200_000, description="All that it needs to know. Empty only makes it.")
    label: str = Field(default="", max_length=100, description="A name of its own in this conversation.")
    timeout_seconds: int | None = Field(default=DEFAULT_WAIT, description=WAIT)
    expose_to_user: bool | None = Field(default=None, description="Whether the person may talk to it.")


class AgentSend(BaseModel):
    agent_key: str = Field(default="", max_length=300, description="The key that `agent_spawn` answered with.")
    label: str = Field(default="", max_length=100, description="Or its label.")
    message: str = Field(max_length=200_000, description="What you have to say to it.")
    timeout_seconds: int | None = Field(default=DEFAULT_WAIT, description=WAIT)


class AgentList(BaseModel):
    pass


class Tree(Protocol):
    async def subagents(self, session_id: str) -> list[Listed]:
        """All below a session, in the order in which they were made."""


async def agent_spawn(context: ToolContext, args: AgentSpawn) -> Answered | Open:
    found = context.roster.spawnable(args.agent_id)
    if not isinstance(found, SubagentDeclaration):
        return Answered(worded("error", error=found), "error")
    return Open(Spawn(found, args.task.strip(), args.label.strip(), wait_of(args.timeout_seconds)))


async def agent_send(context: ToolContext, args: AgentSend) -> Answered | Open:
    key, label = args.agent_key.strip(), args.label.strip()
    problem = ""
    if bool(key) == bool(label):
        problem = "Name the subagent by `agent_key` or by `label`, by one of them."
    elif not args.message.strip():
        problem = "The message is blank."
    if problem:
        return Answered(worded("error", error=problem), "error")
    return Open(Send(key, label, args.message.strip(), wait_of(args.timeout_seconds)))


def agent_tools(tree: Tree) -> list[Tool]:
    async def agent_list(context: ToolContext, args: AgentList) -> Answered:
        found = await tree.subagents(context.session_id)
        if not found:
            return Answered("You have no subagents yet.")
        count = "1 subagent" if len(found) == 1 else f"{len(found)} subagents"
        return Answered("\n".join([f"You have {count}:", *(_line(one) for one in found)]))

    return [
        Tool(
            "agent_spawn",
            "Hand a task to another agent and get its final answer. It starts with an empty conversation.",
            AgentSpawn,
            agent_spawn,
            default="allow",
            delegates=True,
            opens=True,
        ),
        Tool(
            "agent_send",
            "Write to a subagent that you have; it goes on where it was.",
            AgentSend,
            agent_send,
            default="allow",
            delegates=True,
            opens=True,
        ),
        Tool(
            "agent_list",
            "List your subagents with their keys, labels and states.",
            AgentList,
            agent_list,
            read_only=True,
            default="allow",
            delegates=True,
        ),
    ]


def _line(one: Listed) -> str:
    label = f"  label: {one.label}" if one.label else ""
    return f"- agent_key: {one.agent_key}  agent_id: {one.agent_id}{label}  depth: {one.depth}  status: {one.status}"


def guide(agents: list[SubagentDeclaration]) -> str:
    """What a prompt says of the agents that can be asked; nothing when there are none."""
    lines = "\n".join(f"- `{one.agent_id}`: {' '.join(one.description.split())}" for one in agents)
    return GUIDE.format(agents=lines) if agents else ""
