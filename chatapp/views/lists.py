"""The conversation list beside an open conversation, and the page of what a search found."""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Sequence
from datetime import UTC, datetime
from itertools import groupby
from typing import Any

from django.contrib.auth.decorators import login_required
from django.db.models import Q, QuerySet
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import render
from django.urls import path
from django.utils import timezone
from django.utils.formats import date_format
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy
from django.views.decorators.http import require_GET

from chatapp.models import Session
from chatapp.store import search
from chatapp.store.search import Hit
from chatapp.views.owner import own

LIST_MAX = 200
SEARCH_MAX = 200
SEARCH_PAGE = 50

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
    today, day = timezone.localdate(), timezone.localdate(updated_at)
    days = (today - day).days
    if days < 8:
        return _("Today") if days < 1 else _("Yesterday") if days == 1 else _("Previous 7 days")
    return date_format(day, "F" if day.year == today.year else "YEAR_MONTH_FORMAT")


# A place in the list: a row is there or above it, or behind it.
Place = tuple[bool, datetime, str]


def _behind(place: Place) -> Q:
    pinned, updated_at, last = place
    behind = Q(pinned=pinned) & (Q(updated_at__lt=updated_at) | Q(updated_at=updated_at, id__lt=last))
    return behind | Q(pinned=False) if pinned else behind


def _cursor(pinned: bool, time: datetime, row_id: str) -> str:
    plain = json.dumps([pinned, time.isoformat(), row_id])
    return base64.urlsafe_b64encode(plain.encode()).decode().rstrip("=")


def _place(cursor: str) -> Place:
    """What `_cursor` made; anything else is not found."""
    try:
        pinned, time, row_id = json.loads(base64.b64decode(cursor + "=" * (-len(cursor) % 4), b"-_", validate=True))
        updated_at = datetime.fromisoformat(time)
        in_utc = updated_at.astimezone(UTC)
    except (binascii.Error, ValueError, TypeError, RecursionError, OverflowError):
        raise Http404 from None
    if not isinstance(pinned, bool) or updated_at.tzinfo is None or not isinstance(row_id, str) or "\x00" in row_id:
        raise Http404
    return pinned, in_utc, row_id


def listed(
    request: HttpRequest, after: Place | None = None, until: str = "", *, archived: bool = False
) -> dict[str, Any]:
    """The conversation list as its template draws it: the archived ones, or all others.

    Without a place its beginning; `after` one the next part; `until` the cursor that an open page has reached, or
    "end", all that page shows.
    """
    kept = Session.objects.conversations_of(request.user)
    needing = [] if archived else list(kept.filter(archived=False, pk__in=_needing(request)))
    rows = kept.filter(archived=archived).exclude(pk__in=[row.pk for row in needing])
    cut, cursor = _part(rows, after, until)
    drawn = _drawn(cut, _group(after[0], after[1]) if after else "")
    return {
        "rows": drawn if after else _needed(needing) + drawn, "cursor": cursor, "first": not after,
        "reached": cursor or ("end" if after or until else ""), "archived": archived,
    }  # fmt: skip


def with_door(found: dict[str, Any], current: Session) -> dict[str, Any]:
    """The row that Tab reaches; from there the arrow keys lead on."""
    ids = [row["id"] for row in found["rows"]]
    first = ids[0] if ids and found["first"] else ""
    return found | {"door": current.pk if current.pk in ids else first}


def _part(rows: QuerySet[Session], after: Place | None, until: str) -> tuple[list[Session], str]:
    """Rows of one part of the list, and where the next one begins."""
    if after:
        rows = rows.filter(_behind(after))
    elif until:
        whole = until == "end"
        return list(rows if whole else rows.exclude(_behind(_place(until)))), "" if whole else until
    found = list(rows[: LIST_MAX + 1])
    if len(found) <= LIST_MAX:
        return found, ""
    last = found[LIST_MAX - 1]
    return found[:LIST_MAX], _cursor(last.pinned, last.updated_at, last.pk)


def _needing(request: HttpRequest) -> Any:
    """Conversations in which somebody, at any depth, waits for a person."""
    waiting = Session.objects.filter(owner=request.user.pk, waiting_for="human", deleted_at=None)
    return waiting.values("root_id")


def _needed(rows: list[Session]) -> list[dict[str, Any]]:
    drawn = [_row(row) | {"dot": "waiting", "word": _("needs your OK")} for row in rows]
    if drawn:
        drawn[0] |= {"heading": _("Needs you"), "count": len(drawn)}
    return drawn


def _drawn(rows: list[Session], group: str) -> list[dict[str, Any]]:
    """Each row, with its group's name where another group, or none, stands before it."""
    drawn = []
    for row in rows:
        before, group = group, _group(row.pinned, row.updated_at)
        drawn.append(_row(row) | {"heading": group if group != before else ""})
    return drawn


def _row(row: Session) -> dict[str, Any]:
    return {
        "id": row.id, "title": row.title, "pinned": row.pinned, "archived": row.archived, "unread": row.unread,
        "dot": row.shown_status, "word": STATES.get(Session.Status(row.shown_status), ""), "updated_at": row.updated_at,
    }  # fmt: skip


def _asked(request: HttpRequest) -> str:
    return request.GET.get("q", "").replace("\x00", "").strip()[:SEARCH_MAX]


def _matching(request: HttpRequest, asked: str) -> dict[str, Any]:
    """The list narrowed to what a search found; the whole answer, so that nothing follows."""
    hits = search.conversations(request.user.pk or 0, search.words_of(asked))
    rows = [_row(hit.conversation) | {"pieces": hit.pieces, "anchor": _anchor(hit)} for hit in hits]
    return {"rows": rows, "asked": asked, "first": True}


def _anchor(hit: Hit) -> str:
    """Where its message stands in the thread."""
    message = hit.message
    if message is None:
        return ""
    return f"#m-{message.pk}" if message.role == "user" else f"#r-{message.reply_id}"


@login_required
@require_GET
def conversation_list(request: HttpRequest, conversation_id: str) -> HttpResponse:
    """The list beside an open conversation as far as that page shows it, and that conversation's title."""
    current = own(request, conversation_id)
    if asked := _asked(request):
        found = _matching(request, asked)
    else:
        found = listed(request, until=request.GET.get("until", ""), archived="archived" in request.GET)
    return render(request, "chat/list_update.html", {"conversation": current, "list": with_door(found, current)})


@login_required
@require_GET
def older_conversations(request: HttpRequest, conversation_id: str) -> HttpResponse:
    """The next part of the list beside an open conversation."""
    current = own(request, conversation_id)
    found = listed(request, _place(request.GET.get("after", "")), archived="archived" in request.GET)
    return render(request, "chat/list.html", {"conversation": current, "list": found})


@login_required
@require_GET
def menu(request: HttpRequest, conversation_id: str) -> HttpResponse:
    """What can be done with a conversation, or the field for its new name."""
    current = own(request, conversation_id)
    return render(request, "chat/menu.html", {"conversation": current, "rename": "rename" in request.GET})


@login_required
@require_GET
def search_page(request: HttpRequest) -> HttpResponse:
    """Every message with the words, by conversation, a page at a time; titles with them on the first page."""
    asked, after = _asked(request), request.GET.get("after", "")
    place = _place(after) if after else None
    words = search.words_of(asked)
    hits = search.messages(request.user.pk or 0, words, place and place[1:], SEARCH_PAGE)
    last = hits[SEARCH_PAGE - 1].message if len(hits) > SEARCH_PAGE else None
    context = {
        "asked": asked, "groups": _by_conversation(hits[:SEARCH_PAGE]), "after": after,
        "titled": [] if after else [hit.conversation for hit in search.titled(request.user.pk or 0, words)],
        "next": _cursor(True, last.created_at, last.pk) if last else "",
    }  # fmt: skip
    return render(request, "chat/search.html", context)


def _by_conversation(hits: Sequence[Hit]) -> list[dict[str, Any]]:
    """In the order of each conversation's newest hit."""
    order: dict[str, int] = {}
    for hit in hits:
        order.setdefault(hit.conversation.pk, len(order))
    grouped = groupby(sorted(hits, key=lambda hit: order[hit.conversation.pk]), lambda hit: hit.conversation)
    return [
        {"conversation": row, "hits": [{"hit": hit, "anchor": _anchor(hit)} for hit in found]} for row, found in grouped
    ]


urlpatterns = [
    path("search/", search_page, name="search"),
    path("c/<str:conversation_id>/menu/", menu, name="conversation_menu"),
    path("c/<str:conversation_id>/list/", conversation_list, name="conversation_list"),
    path("c/<str:conversation_id>/list/older/", older_conversations, name="older_conversations"),
]
