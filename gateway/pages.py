"""What a person does with a conversation from its menu: one POST each, answered by a line about it with an Undo."""

from __future__ import annotations

import json
from contextlib import suppress
from typing import Any

from django.contrib.auth.decorators import login_required
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import render
from django.urls import path, reverse
from django.utils.text import Truncator
from django.utils.translation import gettext as _
from django.views.decorators.http import require_POST

from chatapp.models import Session
from chatapp.runtime.errors import NotFound
from chatapp.store import conversations, db
from gateway import commands

TITLE_MOST = 200
SHOWN_MOST = 48
FLAGS = ("pinned", "archived")


async def _title(user_id: int, conversation_id: str) -> str:
    """As the line names it. A deleted one has its title until it is gone for good."""
    rows = Session.objects.filter(pk=conversation_id, owner_id=user_id, parent=None)
    found = await rows.values_list("title", flat=True).afirst()
    if found is None:
        raise Http404
    return Truncator(found).chars(SHOWN_MOST) or _("New conversation")


def _undo(name: str, conversation_id: str, **fields: str) -> dict[str, Any]:
    return {"url": reverse(name, args=[conversation_id]), "fields": fields}


def _told(
    request: HttpRequest, text: str, undo: dict[str, Any] | None = None, *, shown: bool = True, row: str = "",
    status: int = 200,
) -> HttpResponse:  # fmt: skip
    """The line, after which the list is looked at again; a row that is back may take the focus."""
    context = {"toast": {"text": text, "undo": undo}, "shown": shown}
    response = render(request, "chat/change.html", context, status=status)
    response["HX-Reswap"] = "none"
    response["HX-Trigger"] = json.dumps({"refresh": {"target": "#list", "row": row}})
    return response


def _fields(request: HttpRequest) -> dict[str, Any]:
    """What is to change; pinned and archived are on or off."""
    fields: dict[str, Any] = {name: request.POST[name] == "1" for name in FLAGS if name in request.POST}
    if "title" in request.POST:
        fields["title"] = " ".join(request.POST["title"].replace("\x00", "").split())[:TITLE_MOST]
    return fields


@login_required
@require_POST
async def change(request: HttpRequest, conversation_id: str) -> HttpResponse:
    """Only the fields that came; a title of nothing is none."""
    user, fields = await request.auser(), _fields(request)
    if await db.run(conversations.change_conversation, user, conversation_id, fields) is None:
        raise Http404
    text = _done(fields) % {"title": await _title(user.pk or 0, conversation_id)}
    if fields.get("archived"):
        return _told(request, text, _undo("change_conversation", conversation_id, archived="0"))
    return _told(request, text, shown="archived" in fields, row=f"row-{conversation_id}")


def _done(fields: dict[str, Any]) -> str:
    if "archived" in fields:
        return _("Archived “%(title)s”.") if fields["archived"] else _("“%(title)s” is back in the list.")
    if "pinned" in fields:
        return _("Pinned “%(title)s”.") if fields["pinned"] else _("Unpinned “%(title)s”.")
    return _("It is called “%(title)s” now.")


@login_required
@require_POST
async def delete(request: HttpRequest, conversation_id: str) -> HttpResponse:
    """Again is the same answer. Whoever has it open goes to another one and finds the line there."""
    user = await request.auser()
    title = await _title(user.pk or 0, conversation_id)
    with suppress(NotFound):
        await commands.delete_conversation(user.pk or 0, conversation_id)
    is_open = f"/c/{conversation_id}/" in request.headers.get("HX-Current-URL", "")
    undo = _undo("restore_conversation", conversation_id, **({"open": "1"} if is_open else {}))
    text = _("Deleted “%(title)s”.") % {"title": title}
    if not is_open:
        return _told(request, text, undo)
    await request.session.aset("toast", {"text": text, "undo": undo})
    return HttpResponse(status=204, headers={"HX-Redirect": reverse("home")})


@login_required
@require_POST
async def restore(request: HttpRequest, conversation_id: str) -> HttpResponse:
    user = await request.auser()
    try:
        await commands.restore_conversation(user.pk or 0, conversation_id)
    except NotFound:
        return _told(request, _("It is gone for good and cannot be brought back."), status=404)
    if "open" in request.POST:
        return HttpResponse(status=204, headers={"HX-Redirect": reverse("conversation", args=[conversation_id])})
    text = _("“%(title)s” is back.") % {"title": await _title(user.pk or 0, conversation_id)}
    return _told(request, text, row=f"row-{conversation_id}")


urlpatterns = [
    path("c/<str:conversation_id>/change/", change, name="change_conversation"),
    path("c/<str:conversation_id>/delete/", delete, name="delete_conversation"),
    path("c/<str:conversation_id>/restore/", restore, name="restore_conversation"),
]
