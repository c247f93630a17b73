"""The conversation list beside an open conversation."""

from __future__ import annotations

import base64
import binascii
import json
from datetime import datetime
from typing import Any

from django.contrib.auth.decorators import login_required
from django.db.models import Q
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import render
from django.urls import path
from django.utils import timezone
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy
from django.views.decorators.http import require_GET

from chatapp.models import Session
from chatapp.views.owner import own

LIST_MAX = 200

# Words of a state; idle needs none.
STATES = {
    Session.Status.QUEUED: gettext_lazy("queued"),
    Session.Status.RUNNING: gettext_lazy("replying"),
    Session.Status.WAITING: gettext_lazy("waiting"),
    Session.Status.FAILED: gettext_lazy("failed"),
}


def _group(pinned: bool, updated_at: datetime) -> str:
    if pinned:
        return _("Pinned")
    days = (timezone.localdate() - timezone.localdate(updated_at)).days
    return _("Today") if days < 1 else _("Yesterday") if days == 1 else _("Earlier")


# A place in the list: a row is there or above it, or behind it.
Place = tuple[bool, datetime, str]


def _behind(place: Place) -> Q:
    pinned, updated_at, last = place
    behind = Q(pinned=pinned) & (Q(updated_at__lt=updated_at) | Q(updated_at=updated_at, id__lt=last))
    return behind | Q(pinned=False) if pinned else behind


def _cursor(row: Session) -> str:
    plain = json.dumps([row.pinned, row.updated_at.isoformat(), row.pk])
    return base64.urlsafe_b64encode(plain.encode()).decode().rstrip("=")


def _place(cursor: str) -> Place:
    """What `_cursor` made; anything else is not found."""
    try:
        pinned, time, row_id = json.loads(base64.b64decode(cursor + "=" * (-len(cursor) % 4), b"-_", validate=True))
        updated_at = datetime.fromisoformat(time)
    except (binascii.Error, ValueError, TypeError, RecursionError):
        raise Http404 from None
    if not isinstance(pinned, bool) or updated_at.tzinfo is None or not isinstance(row_id, str) or "\x00" in row_id:
        raise Http404
    return pinned, updated_at, row_id


def listed(request: HttpRequest, after: Place | None = None, until: str = "") -> dict[str, Any]:
    """The conversation list as its template draws it. Archived ones are left out.

    Without a place its beginning; `after` one the next part; `until` the cursor that an open page has reached, or
    "end", all that page shows.
    """
    rows = Session.objects.conversations_of(request.user).filter(archived=False)
    if after:
        rows = rows.filter(_behind(after))
    elif until and until != "end":
        rows = rows.exclude(_behind(_place(until)))
    found = list(rows if until else rows[: LIST_MAX + 1])
    cut = found[:LIST_MAX] if not until else found
    cursor = until if until != "end" else ""
    if len(found) > len(cut):
        cursor = _cursor(cut[-1])
    reached = cursor or ("end" if after or until else "")
    return {"rows": _drawn(cut, _group(after[0], after[1]) if after else ""), "cursor": cursor, "reached": reached}


def _drawn(rows: list[Session], group: str) -> list[dict[str, Any]]:
    """Each row with its state's word, and its group's name where another group, or none, stands before it."""
    drawn = []
    for row in rows:
        before, group = group, _group(row.pinned, row.updated_at)
        drawn.append(
            {"id": row.id, "title": row.title, "status": row.status, "word": STATES.get(Session.Status(row.status), ""),
             "updated_at": row.updated_at, "heading": group if group != before else ""}
        )  # fmt: skip
    return drawn


@login_required
@require_GET
def conversation_list(request: HttpRequest, conversation_id: str) -> HttpResponse:
    """The list beside an open conversation as far as that page shows it, and that conversation's title."""
    current = own(request, conversation_id)
    context = {"conversation": current, "list": listed(request, until=request.GET.get("until", ""))}
    return render(request, "chat/list_update.html", context)


@login_required
@require_GET
def older_conversations(request: HttpRequest, conversation_id: str) -> HttpResponse:
    """The next part of the list beside an open conversation."""
    current = own(request, conversation_id)
    context = {"conversation": current, "list": listed(request, _place(request.GET.get("after", ""))), "asked": True}
    return render(request, "chat/list.html", context)


urlpatterns = [
    path("c/<str:conversation_id>/list/", conversation_list, name="conversation_list"),
    path("c/<str:conversation_id>/list/older/", older_conversations, name="older_conversations"),
]
