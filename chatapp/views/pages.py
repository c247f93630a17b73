"""The pages: a conversation, its list, older parts of its thread, and a person's settings."""

from __future__ import annotations

import base64
import binascii
import json
from datetime import datetime
from typing import Any

from django.conf import settings
from django.contrib import messages
from django.contrib.auth.decorators import login_required
from django.db.models import Q
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.urls import path
from django.utils import timezone
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy
from django.views.decorators.http import require_GET, require_POST

from chatapp import accounts, thread
from chatapp.models import ApiToken, Event, Session
from chatapp.store.conversations import create_conversation

LIST_MAX = 200
WINDOW_MESSAGES = 40

# Words of a state; idle needs none.
STATES = {
    Session.Status.QUEUED: gettext_lazy("queued"),
    Session.Status.RUNNING: gettext_lazy("replying"),
    Session.Status.WAITING: gettext_lazy("waiting"),
    Session.Status.FAILED: gettext_lazy("failed"),
}


def _starters() -> list[tuple[str, str]]:
    """What the empty conversation offers: a title, and the text that is sent."""
    return [
        (_("Ask something"), _("Hello! What can you do?")),
        (_("See formatting"), _("Show me a Markdown sample with a table and code.")),
        (_("Look into a folder"), _("List files in the workspace.")),
        (_("Watch a long answer"), _("Give me a slow answer of 120 words.")),
    ]


def _own(request: HttpRequest, conversation_id: str) -> Session:
    """The person's conversation; another's answers as an unknown one."""
    return get_object_or_404(Session.objects.conversations_of(request.user), pk=conversation_id)


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


def _list(request: HttpRequest, after: Place | None = None, until: str = "") -> dict[str, Any]:
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


def _window(conversation: Session, before: int | None = None) -> tuple[thread.Thread, int]:
    """The thread's last part, or the part before an event; and where the next older one ends (0 = nowhere)."""
    events = Event.objects.filter(conversation=conversation)
    if before is not None:
        events = events.filter(seq__lt=before)
    asked = events.filter(type="USER_MESSAGE", data__state="running").order_by("-seq")
    starts = list(asked.values_list("seq", flat=True)[: WINDOW_MESSAGES + 1])
    first = starts[WINDOW_MESSAGES - 1] if len(starts) > WINDOW_MESSAGES else 0
    rows = events.filter(seq__gte=first).order_by("seq").values_list(
        "seq", "id", "type", "source", "session_id", "reply_id", "created_at", "data"
    )  # fmt: skip
    names = ("seq", "id", "type", "source", "session_id", "reply_id", "created_at")
    folded = thread.fold({**dict(zip(names, row[:-1], strict=True)), **row[-1]} for row in rows)
    return folded, first


@login_required
@require_GET
def home(request: HttpRequest) -> HttpResponse:
    kept = Session.objects.conversations_of(request.user).filter(archived=False)
    newest = kept.order_by("-updated_at", "-id").first()
    return redirect("conversation", (newest or create_conversation(request.user)).pk)


@login_required
@require_POST
def new_conversation(request: HttpRequest) -> HttpResponse:
    """An empty one is taken again: pressing the button twice leaves one."""
    fresh = Session.objects.conversations_of(request.user).filter(next_seq=1, title="", archived=False).first()
    return redirect("conversation", (fresh or create_conversation(request.user)).pk)


@login_required
@require_GET
def conversation(request: HttpRequest, conversation_id: str) -> HttpResponse:
    current = _own(request, conversation_id)
    folded, first = _window(current)
    context = {
        "conversation": current, "thread": folded, "older": first, "list": _list(request), "starters": _starters(),
        "model": current.model or settings.BRANCHLINE_MODEL, "limit": settings.BRANCHLINE_MESSAGE_CHARS,
        # The row was read before the events: what they say is newer.
        "waiting": folded.waiting or current.status == Session.Status.QUEUED,
    }  # fmt: skip
    context["scripted"] = context["model"] == "demo"
    response = render(request, "chat/conversation.html", context)
    # Back must show the thread as it is now.
    response["Cache-Control"] = "no-store"
    return response


@login_required
@require_GET
def conversation_list(request: HttpRequest, conversation_id: str) -> HttpResponse:
    """The list beside an open conversation as far as that page shows it, and that conversation's title."""
    current = _own(request, conversation_id)
    context = {"conversation": current, "list": _list(request, until=request.GET.get("until", ""))}
    return render(request, "chat/list_update.html", context)


@login_required
@require_GET
def older_conversations(request: HttpRequest, conversation_id: str) -> HttpResponse:
    """The next part of the list beside an open conversation."""
    current = _own(request, conversation_id)
    context = {"conversation": current, "list": _list(request, _place(request.GET.get("after", ""))), "asked": True}
    return render(request, "chat/list.html", context)


@login_required
@require_GET
def older(request: HttpRequest, conversation_id: str) -> HttpResponse:
    current = _own(request, conversation_id)
    before = request.GET.get("before", "")
    if not before.isascii() or not before.isdigit() or len(before) > 18:
        raise Http404
    folded, first = _window(current, int(before))
    return render(request, "chat/older.html", {"conversation": current, "thread": folded, "older": first})


@login_required
@require_GET
def settings_page(request: HttpRequest) -> HttpResponse:
    # The person's own session carries the token from the form to this one page.
    fresh = request.session.pop("fresh_token", None)
    tokens = ApiToken.objects.filter(user=request.user.pk).order_by("-created_at")
    response = render(request, "chat/settings.html", {"tokens": tokens, "fresh": fresh})
    response["Cache-Control"] = "no-store"
    return response


@login_required
@require_POST
def create_token(request: HttpRequest) -> HttpResponse:
    name = request.POST.get("name", "").replace("\x00", "").strip()
    if not name or len(name) > 100:
        messages.error(request, _("A token needs a name of at most 100 characters."))
    else:
        assert request.user.is_authenticated
        _row, raw = accounts.create_token(request.user, name)
        request.session["fresh_token"] = raw
    return redirect("settings")


@login_required
@require_POST
def revoke_token(request: HttpRequest, token_id: int) -> HttpResponse:
    get_object_or_404(ApiToken, pk=token_id, user=request.user.pk).delete()
    messages.success(request, _("The token is revoked."))
    return redirect("settings")


urlpatterns = [
    path("", home, name="home"),
    path("c/new/", new_conversation, name="new_conversation"),
    path("c/<str:conversation_id>/", conversation, name="conversation"),
    path("c/<str:conversation_id>/list/", conversation_list, name="conversation_list"),
    path("c/<str:conversation_id>/list/older/", older_conversations, name="older_conversations"),
    path("c/<str:conversation_id>/older/", older, name="older"),
    path("settings/", settings_page, name="settings"),
    path("settings/tokens/", create_token, name="create_token"),
    path("settings/tokens/<int:token_id>/revoke/", revoke_token, name="revoke_token"),
]
