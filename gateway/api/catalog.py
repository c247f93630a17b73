"""Calls that tell what there is: agents, models, and who is asking."""

from __future__ import annotations

from django.conf import settings
from django.http import HttpRequest
from ninja import Router

from chatapp import catalog
from chatapp.runtime.declarations import main_agent
from gateway.api.auth import READ, caller
from gateway.api.objects import Agent, Me, OfferedModel, Page

router = Router(auth=READ, tags=["Agents and models"])


@router.get("/agents", response=Page[Agent], summary="Agents you may choose")
async def list_agents(request: HttpRequest) -> Page[Agent]:
    main = main_agent(settings.BRANCHLINE_MAX_STEPS)
    agent = Agent(
        id=main.agent_id, agent_id=main.agent_id, description=main.description, mode=main.mode,
        model=main.model or None, tool_name=None, session_mode="new", problem=None,
    )  # fmt: skip
    return Page[Agent](items=[agent], next=None)


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
