"""What a person may look up: conversations, the tree of one, a session's transcript, pages of its events."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Generic, TypedDict, TypeVar

from django.db import connection
from django.db.models import Count, Q, QuerySet, Sum

from chatapp.models import InboxItem, Message, Session, ToolCall
from chatapp.runtime.errors import NotFound
from chatapp.store import branches, feed

T = TypeVar("T")


@dataclass(frozen=True)
class Slice(Generic[T]):
    """Rows in order; `more` when others follow."""

    rows: list[T]
    more: bool


class Used(TypedDict):
    input_tokens: int
    output_tokens: int
    cached_tokens: int
    requests: int
    estimated: bool


@dataclass(frozen=True)
class Listed:
    row: Session
    used: Used


@dataclass(frozen=True)
class Wanted:
    """What a list of conversations is narrowed to. `title` is found anywhere in it, in any case."""

    title: str = ""
    state: str = ""
    archived: bool = False


def _slice(rows: QuerySet[Any], limit: int) -> Slice[Any]:
    found = list(rows[: limit + 1])
    return Slice(found[:limit], len(found) > limit)


# Conversations


def conversation(user_id: int, conversation_id: str) -> Listed:
    row = Session.objects.conversations_of(user_id).filter(pk=conversation_id).first()
    if row is None:
        raise NotFound("No such conversation.")
    return Listed(row, used_by_trees([row.pk])[row.pk])


def require_conversation(user_id: int, conversation_id: str) -> None:
    if not Session.objects.conversations_of(user_id).filter(pk=conversation_id).exists():
        raise NotFound("No such conversation.")


def conversations(user_id: int, wanted: Wanted, after: tuple[bool, datetime, str] | None, limit: int) -> Slice[Listed]:
    """Pinned first, then newest activity; two queries however many there are."""
    rows = Session.objects.conversations_of(user_id).filter(archived=wanted.archived)
    if wanted.state:
        rows = rows.filter(status=wanted.state)
    if wanted.title:
        rows = rows.filter(_title_has(wanted.title))
    if after is not None:
        pinned, updated_at, last = after
        behind = Q(pinned=pinned) & (Q(updated_at__lt=updated_at) | Q(updated_at=updated_at, id__lt=last))
        rows = rows.filter(behind | Q(pinned=False) if pinned else behind)
    found = _slice(rows, limit)
    used = used_by_trees([row.pk for row in found.rows])
    return Slice([Listed(row, used[row.pk]) for row in found.rows], found.more)


def _title_has(text: str) -> Q:
    """SQLite's LIKE ignores the case of ASCII letters only; its regular expressions are Python's."""
    if connection.vendor == "sqlite":
        return Q(title__iregex=re.escape(text))
    return Q(title__icontains=text)


def used_by_trees(root_ids: Sequence[str]) -> dict[str, Used]:
    """Usage of each conversation with all that is below it."""
    sums = (
        Session.objects.filter(root_id__in=root_ids)
        .order_by()
        .values("root_id")
        .annotate(
            input=Sum("input_tokens"),
            output=Sum("output_tokens"),
            cached=Sum("cached_tokens"),
            asked=Sum("requests"),
            guessed=Count("id", filter=Q(estimated=True)),
        )
    )
    return {
        row["root_id"]: Used(
            input_tokens=row["input"],
            output_tokens=row["output"],
            cached_tokens=row["cached"],
            requests=row["asked"],
            estimated=row["guessed"] > 0,
        )
        for row in sums
    }


def tree(user_id: int, conversation_id: str, after: tuple[int, datetime, str] | None, limit: int) -> Slice[Session]:
    """The conversation's sessions, parents before children."""
    require_conversation(user_id, conversation_id)
    rows = Session.objects.filter(root_id=conversation_id, deleted_at=None).order_by("depth", "created_at", "id")
    if after is not None:
        depth, created_at, last = after
        later = Q(created_at__gt=created_at) | Q(created_at=created_at, id__gt=last)
        rows = rows.filter(Q(depth__gt=depth) | Q(depth=depth) & later)
    return _slice(rows, limit)


def folder(user_id: int, session_id: str) -> str:
    """Where the files of a session are that this person may see."""
    row = Session.objects.filter(pk=session_id, owner_id=user_id, root__deleted_at=None).first()
    if row is None:
        raise NotFound("No such session.")
    return row.folder


# Events


def events(
    user_id: int, conversation_id: str, after: int | None, source: str, session_id: str, limit: int
) -> Slice[dict[str, Any]]:
    """Events after a number as flat envelopes; None is after the last one."""
    require_conversation(user_id, conversation_id)
    if after is None:
        return Slice([], False)
    found = _slice(feed.filtered(conversation_id, after, source, session_id), limit)
    return Slice([feed.flat(event) for event in found.rows], found.more)


# Transcripts


@dataclass(frozen=True)
class Told:
    """A message with its parts spelled out; calls bear our ids, the provider's stay inside."""

    row: Message
    parts: list[dict[str, Any]]
    tool_call_id: str | None
    reply_id: str


@dataclass(frozen=True)
class Place:
    """After which message a page begins: an event's number, or a position where pages follow each other."""

    seq: int = 0
    position: int | None = None


Step = tuple[str, int]


def transcript(user_id: int, session_id: str, after: Place, limit: int, *, archived: bool) -> Slice[Told]:
    """The messages of the branch that goes on, in order. At most six queries however many there are."""
    session = Session.objects.filter(pk=session_id, owner_id=user_id, root__deleted_at=None).first()
    if session is None:
        raise NotFound("No such session.")
    shown = branches.of_messages(branches.visible(session))
    rows = Message.objects.filter(shown, session_id=session_id).order_by("position")
    rows = rows.filter(seq__gt=after.seq) if after.position is None else rows.filter(position__gt=after.position)
    found = _slice(rows if archived else rows.filter(archived=False), limit)
    steps = _steps(session_id, found.rows)
    calls = _calls(session_id, set(steps.values()))
    files = _attached(found.rows)
    return Slice([_told(row, steps.get(row.position), calls, files) for row in found.rows], found.more)


def _attached(rows: Iterable[Message]) -> dict[str, list[dict[str, Any]]]:
    """Files that came with people's messages, by message."""
    asked = InboxItem.objects.filter(id__in=[row.pk for row in rows if row.role == "user"]).exclude(attachments=[])
    return dict(asked.values_list("id", "attachments"))


def _steps(session_id: str, rows: Iterable[Message]) -> dict[int, Step]:
    """The step whose calls a message holds. Results stand right behind the message that asked for them, and may come
    when the reply is over, so its row tells and not theirs."""
    asking = {row.position: (row.reply_id, row.step) for row in rows if row.role == "assistant"}
    results = [row.position for row in rows if row.role == "tool"]
    missing = [position - 1 for position in results if position - 1 not in asking]
    if missing:
        found = Message.objects.filter(session_id=session_id, position__in=missing)
        asking |= {
            position: (reply, step) for position, reply, step in found.values_list("position", "reply_id", "step")
        }
    return asking | {position: asking[position - 1] for position in results if position - 1 in asking}


def _calls(session_id: str, steps: set[Step]) -> dict[Step, list[ToolCall]]:
    if not steps:
        return {}
    calls: dict[Step, list[ToolCall]] = {}
    replies = {reply_id for reply_id, _ in steps}
    for call in ToolCall.objects.filter(session_id=session_id, reply_id__in=replies).order_by("step", "index"):
        calls.setdefault((call.reply_id, call.step), []).append(call)
    return calls


def _told(
    row: Message, step: Step | None, all_calls: dict[Step, list[ToolCall]], files: dict[str, list[dict[str, Any]]]
) -> Told:
    calls = all_calls.get(step, []) if step else []
    reply_id = row.reply_id or (step[0] if step else "")
    if row.role == "tool":
        only = calls[0].pk if len(calls) == 1 else None
        return Told(row, [_result(call) for call in calls], only, reply_id)
    parts = [_part(part, calls) for part in row.payload.get("parts", ())]
    attached = [{"type": "attachment", **file} for file in files.get(row.pk, ())]
    return Told(row, [part for part in parts if part] + attached, None, reply_id)


def _result(call: ToolCall) -> dict[str, Any]:
    return {
        "type": "tool_result",
        "tool_call_id": call.pk,
        "tool_name": call.name,
        "state": call.state,
        "output": call.result,
        "truncated": call.truncated,
    }


def _part(part: dict[str, Any], calls: Sequence[ToolCall]) -> dict[str, Any] | None:
    """One part of a stored message; what a provider keeps for itself is left out."""
    kind = part.get("part_kind")
    if kind in ("text", "user-prompt"):
        content = part["content"]
        return {"type": "text", "text": content if isinstance(content, str) else content[0]}
    if kind == "thinking":
        return {"type": "thinking", "text": part["content"]}
    if kind == "tool-call":
        call = next((call for call in calls if call.provider_call_id == part["tool_call_id"]), None)
        if call is not None:
            own = {"args": call.args} if call.args is not None else {"args": None, "args_text": call.args_text}
            return {"type": "tool_call", "tool_call_id": call.pk, "tool_name": call.name, **own}
    return None
