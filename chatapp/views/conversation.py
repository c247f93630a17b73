"""The conversation page: where it opens, its thread and older parts of it."""

from __future__ import annotations

from dataclasses import dataclass

from django.conf import settings
from django.contrib.auth.decorators import login_required
from django.db.models import Q, QuerySet
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.urls import path
from django.utils.translation import gettext as _
from django.views.decorators.http import require_GET, require_POST

from chatapp import parts, thread, workspaces
from chatapp.models import Event, InboxItem, Session
from chatapp.runtime.toolsets.files import MAX_FILES
from chatapp.store import branches
from chatapp.store.conversations import create_conversation, mark_read
from chatapp.store.feedback import opinions
from chatapp.views.lists import listed, with_door
from chatapp.views.owner import own
from chatapp.views.picker import choice

WINDOW_MESSAGES = 40
# So much between a place and what is shown already is loaded with it.
JUMP_MESSAGES = 200


def _starters() -> list[tuple[str, str]]:
    """What the empty conversation offers: a title, and the text that is sent."""
    return [
        (_("Ask something"), _("Hello! What can you do?")),
        (_("See formatting"), _("Show me a Markdown sample with a table and code.")),
        (_("Look into a folder"), _("List files in the workspace.")),
        (_("Watch a long answer"), _("Give me a slow answer of 120 words.")),
    ]


@dataclass(frozen=True)
class Window:
    """A part of a thread. `older` is where the part before it ends (0 = nowhere); a `gap` follows it where a link led
    so far back that what lies between was left out: from the first number to before the second."""

    thread: thread.Thread
    older: int = 0
    gap: tuple[int, int] | None = None


def _newest(conversation: Session, before: int | None = None) -> Window:
    """The thread's last part, or the part before an event."""
    events = _events(conversation) if before is None else _events(conversation).filter(seq__lt=before)
    starts = list(_asked(events).order_by("-seq").values_list("seq", flat=True)[: WINDOW_MESSAGES + 1])
    first = starts[WINDOW_MESSAGES - 1] if len(starts) > WINDOW_MESSAGES else 0
    return Window(_folded(conversation, events.filter(seq__gte=first), last=before is None), first)


def _around(conversation: Session, before: int, to: int) -> Window:
    """From a place that a link names on, up to an event or to where it becomes too much at once."""
    events = _events(conversation).filter(seq__lt=before)
    reached = list(_asked(events).filter(seq__lte=to).order_by("-seq").values_list("seq", flat=True)[:2])
    first = reached[0] if len(reached) > 1 else 0
    return _forward(conversation, first, before, JUMP_MESSAGES, first)


def _forward(conversation: Session, after: int, before: int, most: int, older: int = 0) -> Window:
    """The messages from one event on, before another; `most` of them, or a window's worth where there are more."""
    events = _events(conversation).filter(seq__gte=after, seq__lt=before)
    starts = list(_asked(events).order_by("seq").values_list("seq", flat=True)[: most + 1])
    end = starts[WINDOW_MESSAGES] if len(starts) > most else before
    gap = (end, before) if end < before else None
    return Window(_folded(conversation, events.filter(seq__lt=end), last=False), older, gap)


def _asked(events: QuerySet[Event]) -> QuerySet[Event]:
    return events.filter(type="USER_MESSAGE", data__state="running", source="")


def _folded(conversation: Session, events: QuerySet[Event], *, last: bool) -> thread.Thread:
    names = (
        "seq", "id", "type", "source", "session_id", "agent_id", "reply_id", "branch", "created_at", "metadata",
    )  # fmt: skip
    rows = events.order_by("seq").values_list(*names, "data")
    whose = {"conversation_id": conversation.pk}
    flat = ({**dict(zip(names, row[:-1], strict=True)), **whose, **row[-1]} for row in rows)
    folded = thread.fold(flat, branches.forks(conversation).at)
    _keep_waiting(conversation, folded)
    _rate(conversation, folded)
    if not last:
        folded.settle()
    return folded


def _events(conversation: Session) -> QuerySet[Event]:
    """Of the branch that goes on, up to where its row was read: what came since, the socket brings."""
    shown = branches.of_events(branches.visible(conversation))
    # Subagents have branches of their own; they are shown below the calls that made them.
    below = Q(session__parent__isnull=False) if shown else Q()
    return Event.objects.filter(shown | below, conversation=conversation, seq__lt=conversation.next_seq)


def _keep_waiting(conversation: Session, folded: thread.Thread) -> None:
    """Another branch may have taken what was queued in the part that both share."""
    if conversation.newest_branch and folded.queued:
        waiting = set(conversation.inbox.filter(state=InboxItem.State.QUEUED).values_list("id", flat=True))
        folded.queued = [message for message in folded.queued if message.id in waiting]


def _rate(conversation: Session, folded: thread.Thread) -> None:
    replies = [item for item in folded.items if isinstance(item, parts.Reply) and item.over]
    values = opinions(conversation.owner_id, conversation.pk, [reply.id for reply in replies])
    for reply in replies:
        reply.value = values.get(reply.id, "")


def _place(conversation: Session, name: str) -> int | None:
    """The event of a message (`m-…`) or where a reply (`r-…`) begins; None when there is none."""
    kind, _dash, key = name.partition("-")
    events = _events(conversation).order_by("seq")
    if kind == "m":
        events = events.filter(type="USER_MESSAGE", data__message_id=key, data__state__in=("running", "steered"))
    elif kind == "r" and key:
        events = events.filter(reply_id=key)
    else:
        return None
    return events.values_list("seq", flat=True).first()


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
    current = own(request, conversation_id)
    window = _newest(current)
    folded = window.thread
    if current.unread:
        mark_read(current.owner_id, current.pk, folded.last_seq)
    context = {
        "conversation": current, "thread": folded, "older": window.older, "starters": _starters(),
        "list": with_door(listed(request), current),
        # What was done on the page before this one.
        "toast": request.session.pop("toast", None),
        "limit": settings.BRANCHLINE_MESSAGE_CHARS, "file_bytes": settings.BRANCHLINE_FILE_BYTES,
        "file_count": len(workspaces.listed(current.pk, MAX_FILES)[0]), **choice(current),
        # The row was read before the events: what they say is newer.
        "waiting": folded.waiting or current.status == Session.Status.QUEUED,
    }  # fmt: skip
    response = render(request, "chat/conversation.html", context)
    # Back must show the thread as it is now.
    response["Cache-Control"] = "no-store"
    return response


@login_required
@require_GET
def older(request: HttpRequest, conversation_id: str) -> HttpResponse:
    """The part before an event: the last of it, from a message or reply named `to`, or from an event `after` on."""
    current = own(request, conversation_id)
    before, after = _number(request, "before"), _number(request, "after", "0")
    to = request.GET.get("to")
    place = _place(current, to) if to else None
    if to and place is None:
        raise Http404
    if after:
        window = _forward(current, after, before, WINDOW_MESSAGES)
    else:
        window = _newest(current, before) if place is None else _around(current, before, place)
    items = window.thread.items
    context = {
        "conversation": current, "thread": window.thread, "older": window.older, "gap": window.gap, "slot": after,
        "day": items[-1].began if items else None,
    }  # fmt: skip
    return render(request, "chat/older.html", context)


def _number(request: HttpRequest, name: str, default: str = "") -> int:
    value = request.GET.get(name, default)
    if not value.isascii() or not value.isdigit() or len(value) > 18:
        raise Http404
    return int(value)


urlpatterns = [
    path("", home, name="home"),
    path("c/new/", new_conversation, name="new_conversation"),
    path("c/<str:conversation_id>/", conversation, name="conversation"),
    path("c/<str:conversation_id>/older/", older, name="older"),
]
