"""Calls that tell what there is: agents, models, and who is asking."""

from __future__ import annotations

from django.contrib.auth.models import User
from django.http import HttpRequest
from ninja import Router

from chatapp import catalog
from chatapp.agents import registry, roster_of
from chatapp.runtime.declarations import SubagentDeclaration
from chatapp.store import db
from gateway.api.auth import READ, caller
from gateway.api.objects import Agent, Me, OfferedModel, Page

router = Router(auth=READ, tags=["Agents and models"])


@router.get("/agents", response=Page[Agent], summary="Agents you may choose")
async def list_agents(request: HttpRequest) -> Page[Agent]:
    """For a conversation (`mode` primary or all) and to delegate to (subagent or all), with what is wrong with one."""
    who = caller(request)
    items = await db.run(_agents, who.user)
    return Page[Agent](items=items, next=None)


def _agents(user: User) -> list[Agent]:
    entries, roster = registry().agents(), roster_of(user)
    shown = [one for one in roster.agents.values() if roster.mine(one) and not one.hidden]
    problems = {name: "; ".join(p.text for p in one.problems if not p.warning) for name, one in entries.items()}
    return [_agent(one, problems.get(one.agent_id, "")) for one in shown]


def _agent(one: SubagentDeclaration, problem: str) -> Agent:
    return Agent(
        id=one.agent_id, agent_id=one.agent_id, description=one.description, mode=one.mode, model=one.model or None,
        tool_name=one.tool_name or None, session_mode="reuse" if one.reuses_session else "new",
        problem=problem or None,
    )  # fmt: skip


@router.get("/models", response=Page[OfferedModel], summary="Models you may choose")
async def list_models(request: HttpRequest) -> Page[OfferedModel]:
    """The default one first."""
    items = [
        OfferedModel(id=m.name, model=m.name, provider=m.provider, default=m.default, problem=m.problem or None)
        for m in catalog.offered()
    ]
    return Page[OfferedModel](items=items, next=None)


@router.get("/me", response=Me, summary="Who you are here")
async def me(request: HttpRequest) -> Me:
    who = caller(request)
    return Me(username=who.user.get_username(), staff=who.staff, scopes=list(who.scopes))
