"""Calls that tell what there is: agents, models, and who is asking."""

from __future__ import annotations

from django.conf import settings
from django.http import HttpRequest
from ninja import Router

from chatapp.runtime.declarations import main_agent
from chatapp.runtime.errors import ProviderError
from chatapp.runtime.provider_catalog import PROVIDERS
from chatapp.runtime.providers import Models, ProviderSettings
from gateway.api.auth import READ, caller
from gateway.api.inputs import offered_models
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
    models = Models(ProviderSettings(settings.PROVIDERS))
    return Page[OfferedModel](items=[_offered(models, name) for name in offered_models()], next=None)


def _offered(models: Models, name: str) -> OfferedModel:
    problem = None
    try:
        models.check(name)
    except ProviderError as error:
        problem = error.detail
    kind = name.partition(":")[0]
    title = PROVIDERS[kind].title if kind in PROVIDERS else kind
    return OfferedModel(id=name, model=name, provider=title, default=name == settings.BRANCHLINE_MODEL, problem=problem)


@router.get("/me", response=Me, summary="Who you are here")
async def me(request: HttpRequest) -> Me:
    who = caller(request)
    return Me(username=who.user.get_username(), staff=who.staff, scopes=list(who.scopes))
