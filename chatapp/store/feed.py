"""Reading the event ledger: pages by number, and which blocks have ended."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import orjson
from django.db.models import Q, QuerySet

from chatapp.models import Event, Session
from chatapp.runtime.events import Envelope

PAGE = 500
PAGE_BYTES = 256 * 1024
FIRST_STEP = 8
ENDS = ("TEXT_BLOCK_END", "THINKING_BLOCK_END", "TOOL_CALL_END")


def flat(event: Event) -> dict[str, Any]:
    return Envelope(
        event.seq, event.id, event.type, event.source, event.conversation_id, event.session_id, event.agent_id,
        event.reply_id, event.branch, event.created_at, event.data, event.metadata,
    ).flat()  # fmt: skip


def events_after(conversation_id: str, seq: int, limit: int = PAGE, upto: int | None = None) -> list[dict[str, Any]]:
    """Events n+1 and on, in order, as flat envelopes; fewer than there are once they are `PAGE_BYTES` together.

    Asked for in growing bits: a reader that stalls must not hold a page of large events in memory.
    """
    rows = Event.objects.filter(conversation_id=conversation_id, seq__gt=seq).order_by("seq")
    if upto is not None:
        rows = rows.filter(seq__lte=upto)
    events: list[dict[str, Any]] = []
    size, step = 0, FIRST_STEP
    while size < PAGE_BYTES and len(events) < limit:
        step = min(step, limit - len(events))
        found = [flat(event) for event in rows.filter(seq__gt=events[-1]["seq"] if events else seq)[:step]]
        events += found
        if len(found) < step:
            break
        size += sum(len(orjson.dumps(event)) for event in found)
        step *= 4
    return events


def filtered(conversation_id: str, seq: int, source: str, session_id: str) -> QuerySet[Event]:
    """`source=main` is the conversation's own agent; a longer path is that agent and all below it."""
    rows = Event.objects.filter(conversation_id=conversation_id, seq__gt=seq).order_by("seq")
    if session_id:
        rows = rows.filter(session_id=session_id)
    if source == "main":
        rows = rows.filter(source="")
    elif source:
        rows = rows.filter(Q(source=source) | Q(source__startswith=source + "/"))
    return rows


def last_seq(conversation_id: str) -> int | None:
    """Of the newest event; None when the conversation is gone."""
    row = Session.objects.filter(pk=conversation_id, deleted_at=None).values_list("next_seq", flat=True).first()
    return None if row is None else row - 1


def ended_blocks(conversation_id: str, after: int) -> set[str]:
    """Blocks and calls whose END has a number above `after`."""
    rows = Event.objects.filter(conversation_id=conversation_id, seq__gt=after, type__in=ENDS)
    return {_block_id(data) for data in rows.values_list("data", flat=True)}


def _block_id(data: dict[str, Any]) -> str:
    return str(data.get("block_id") or data.get("tool_call_id"))


def block_ids(events: Iterable[dict[str, Any]]) -> set[str]:
    """The blocks that these events end."""
    return {_block_id(event) for event in events if event["type"] in ENDS}
