"""This server's agents: one registry a process over the built-in ones, `SUBAGENTS_DIR` and `BRANCHLINE_SUBAGENTS`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import cache, lru_cache
from typing import Any

from django.conf import settings
from django.contrib.auth.models import User
from django.core.checks import CheckMessage, Error, Warning, register
from django.utils.module_loading import import_string

from chatapp.runtime.declarations import SubagentDeclaration
from chatapp.runtime.registry import Agent, Roster, SubagentRegistry
from chatapp.runtime.tools import Tool
from chatapp.runtime.toolsets.agents import NAMES as AGENT_TOOLS
from chatapp.runtime.toolsets.todo import todo_tools
from chatapp.runtime.toolsets.workspace import workspace_tools

Declared = SubagentDeclaration | Iterable[SubagentDeclaration]
# Of a user; called when a turn starts.
PerOwner = Callable[[User], Declared]


@cache
def registry() -> SubagentRegistry:
    names = {*AGENT_TOOLS, *(tool.name for tool in plain_tools())}
    return SubagentRegistry(settings.SUBAGENTS_DIR, settings.BASE_DIR, declared, names)


def plain_tools() -> tuple[Tool, ...]:
    """The built-in ones but those that hand on work."""
    return (*workspace_tools(), *todo_tools())


@lru_cache(maxsize=1)
def _entries(paths: tuple[str, ...]) -> tuple[Any, ...]:
    return tuple(import_string(path) for path in paths)


def _flat(value: Any) -> Iterator[SubagentDeclaration]:
    if isinstance(value, SubagentDeclaration):
        yield value
    else:
        yield from value


def declared() -> list[SubagentDeclaration]:
    """What code declares for everybody."""
    entries = _entries(tuple(settings.BRANCHLINE_SUBAGENTS))
    return [one for entry in entries if not callable(entry) for one in _flat(entry)]


def _functions() -> list[PerOwner]:
    return [entry for entry in _entries(tuple(settings.BRANCHLINE_SUBAGENTS)) if callable(entry)]


def roster_of(user: User) -> Roster:
    """What this user's turns may work with."""
    functions = _functions()
    more = [one for function in functions for one in _flat(function(user))]
    groups = frozenset(user.groups.values_list("name", flat=True))
    return registry().roster(groups, more)


def roster_of_owner(owner_id: int) -> Roster:
    """The same by the user's id; without a query where nothing depends on who it is."""
    everybodys = registry().roster()
    if not _functions() and not any(one.groups for one in everybodys.agents.values()):
        return everybodys
    return roster_of(User.objects.get(pk=owner_id))


def own_agent(user: User, agent_id: str = "") -> SubagentDeclaration | None:
    """Who answers a new conversation of this user, complete; None for one that they may not choose."""
    name = agent_id or settings.BRANCHLINE_AGENT
    found = roster_of(user).agents.get(name)
    if found is None or found.mode == "subagent" or not roster_of(user).mine(found):
        return None
    return found.model_copy(update={"steps": found.steps or settings.BRANCHLINE_MAX_STEPS})


@register("agents")
def check_agents(**_kwargs: Any) -> list[CheckMessage]:
    """A broken declaration is an error with its file and line, and never stops the others."""
    try:
        agents = registry().agents()
    except ImportError as error:
        return [Error(f"BRANCHLINE_SUBAGENTS: {error}", id="chatapp.E002")]
    messages = [_message(agent, place) for agent in agents.values() for place in range(len(agent.problems))]
    if problem := cannot_answer():
        messages.append(Error(problem, id="chatapp.E003"))
    return messages


def cannot_answer() -> str:
    """Why nobody would answer a new conversation; empty when somebody does."""
    name = settings.BRANCHLINE_AGENT
    try:
        found = registry().roster().agents.get(name)
    except ImportError as error:
        return f"BRANCHLINE_SUBAGENTS: {error}"
    if found is None:
        return f"BRANCHLINE_AGENT is {name!r}; `python manage.py agents` lists those there are"
    return f"BRANCHLINE_AGENT is {name!r}, which only takes work from other agents" if found.mode == "subagent" else ""


def problems() -> list[str]:
    """What is wrong with declarations, each with its place. The others work."""
    return [worded(agent, place) for agent in registry().agents().values() for place in range(len(agent.problems))]


def _message(agent: Agent, place: int) -> CheckMessage:
    problem = agent.problems[place]
    kind, code = (Warning, "chatapp.W001") if problem.warning else (Error, "chatapp.E001")
    return kind(worded(agent, place), id=code)


def worded(agent: Agent, place: int) -> str:
    """A problem with where it is: `subagents/writer.md:4: …`."""
    problem = agent.problems[place]
    if agent.path is None:
        return f"agent {agent.agent_id!r}: {problem.text}"
    path = agent.path
    if path.is_relative_to(settings.BASE_DIR):
        path = path.relative_to(settings.BASE_DIR)
    return f"{path}{f':{problem.line}' if problem.line else ''}: {problem.text}"
