"""The choice of a conversation's model."""

from __future__ import annotations

from typing import Any

from django.conf import settings
from django.contrib.auth.decorators import login_required
from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.urls import path
from django.utils.translation import gettext as _
from django.views.decorators.http import require_POST

from chatapp import catalog
from chatapp.models import Session
from chatapp.runtime.provider_catalog import DEMO
from chatapp.store.conversations import change_conversation
from chatapp.views.owner import own


def choice(conversation: Session) -> dict[str, Any]:
    """What the picker shows: the model in use and those there are."""
    model = conversation.model or settings.BRANCHLINE_MODEL
    return {"model": model, "models": catalog.offered(), "scripted": model == DEMO}


@login_required
@require_POST
def choose_model(request: HttpRequest, conversation_id: str) -> HttpResponse:
    """Holds from the next model request on. Refused with a reason, the picker stays open and says it."""
    current = own(request, conversation_id)
    wanted = request.POST.get("model", "")
    found = next((model for model in catalog.offered() if model.name == wanted), None)
    refusal = _("This model is not offered any more.") if found is None else found.problem
    if not refusal:
        changed = change_conversation(request.user, current.pk, {"model": wanted})
        current = changed or current
    context = {"conversation": current, "refusal": refusal, **choice(current)}
    response = render(request, "chat/picker_update.html", context, status=409 if refusal else 200)
    # It is shown although it is a refusal.
    response["HX-Reswap"] = "innerMorph"
    return response


urlpatterns = [path("c/<str:conversation_id>/model/", choose_model, name="choose_model")]
