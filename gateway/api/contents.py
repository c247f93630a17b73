"""Calls on what a conversation holds: its events, sessions and transcripts, and messages that still wait."""

from __future__ import annotations

from typing import Annotated

from django.http import HttpRequest, HttpResponse
from django.http.response import HttpResponseBase
from ninja import Query, Router
from ninja.responses import Status

from chatapp.store import db, feedback, reads, search
from gateway import commands, sse
from gateway.api import inputs, objects
from gateway.api.auth import CHAT, READ, caller
from gateway.api.inputs import Limit, MessageChange, Rating
from gateway.api.objects import Event, Found, GivenRating, Page, PostedMessage, SessionNode, TranscriptMessage
from gateway.api.renderer import dumps

router = Router(auth=READ)

EVENT_STREAM = "text/event-stream"


@router.get(
    "/conversations/{id:conversation_id}/events", response=Page[Event], tags=["Events"],
    summary="Events, or follow them",
    openapi_extra={"responses": {200: {"content": {EVENT_STREAM: {"schema": {"type": "string"}}}}}},
)  # fmt: skip
async def list_events(
    request: HttpRequest, conversation_id: str, limit: Limit = inputs.LIMIT,
    after: Annotated[str, Query(description="An event's number: those behind it. `latest`: only new ones.")] = "0",
    source: Annotated[str, Query(description="`main`, or a path below it with all that is under it.")] = "",
    session: Annotated[str, Query(description="Events of one session only.")] = "",
) -> HttpResponseBase:  # fmt: skip
    """In the order of their numbers. With `Accept: text/event-stream` the stored ones, then live: `id` is the number,
    `event` the type; deltas have no `id`. An answer ends after 8 MiB or 10 minutes with `retry: 0`; come back with
    `Last-Event-ID`."""
    who = caller(request)
    inputs.check_source(source)
    inputs.check_session(session)
    if _wants_stream(request):
        begin = inputs.check_after(request.headers.get("Last-Event-ID") or after)
        await db.run(reads.require_conversation, who.user_id, conversation_id)
        return sse.respond(who.credentials(conversation_id), begin, sse.keeper(source, session))
    found = await db.run(
        reads.events, who.user_id, conversation_id, inputs.check_after(after), source, session, inputs.clamped(limit)
    )
    # Straight to the wire: these are stored as they are told, and there may be many.
    page = {"items": found.rows, "next": str(found.rows[-1]["seq"]) if found.more else None}
    return HttpResponse(dumps(page), content_type="application/json; charset=utf-8")


def _wants_stream(request: HttpRequest) -> bool:
    accepted = request.headers.get("Accept", "").split(",")
    return any(kind.split(";")[0].strip().lower() == EVENT_STREAM for kind in accepted)


@router.get(
    "/conversations/{id:conversation_id}/sessions", response=Page[SessionNode], tags=["Sessions"],
    summary="The tree of a conversation",
)  # fmt: skip
async def list_sessions(
    request: HttpRequest, conversation_id: str, cursor: str = "", limit: Limit = inputs.LIMIT
) -> Page[SessionNode]:
    """Parents before children."""
    after = inputs.check_cursor(cursor, int)
    found = await db.run(reads.tree, caller(request).user_id, conversation_id, after, inputs.clamped(limit))
    last = found.rows[-1] if found.more else None
    return Page[SessionNode](
        items=[objects.session_node(row) for row in found.rows],
        next=inputs.cursor(last.depth, last.created_at, last.pk) if last else None,
    )


@router.get(
    "/sessions/{id:session_id}/messages", response=Page[TranscriptMessage], tags=["Sessions"],
    summary="The transcript of a session",
)  # fmt: skip
async def list_messages(
    request: HttpRequest, session_id: str, limit: Limit = inputs.LIMIT,
    after: Annotated[str, Query(description="An event's number, or the `next` of the page before.")] = "0",
    include_archived: bool = False,
) -> Page[TranscriptMessage]:  # fmt: skip
    """What the agent has read and written. Messages that still wait are told by the events only."""
    place = inputs.check_place(after)
    found = await db.run(
        reads.transcript, caller(request).user_id, session_id, place, inputs.clamped(limit), archived=include_archived
    )
    last = found.rows[-1].row if found.more else None
    return Page[TranscriptMessage](
        items=[objects.transcript_message(told) for told in found.rows],
        next=f"{last.seq}.{last.position}" if last else None,
    )


@router.patch(
    "/messages/{id:message_id}", response=PostedMessage, auth=CHAT, tags=["Conversations"],
    summary="Change a queued message",
)  # fmt: skip
async def change_message(request: HttpRequest, message_id: str, payload: MessageChange) -> PostedMessage:
    """409 when the agent has it already."""
    return PostedMessage.of(await commands.edit_message(caller(request).user_id, message_id, payload.text))


@router.post(
    "/messages/{id:message_id}/branch", response={202: PostedMessage}, auth=CHAT, tags=["Conversations"],
    summary="Write a past message anew",
)  # fmt: skip
async def branch_message(request: HttpRequest, message_id: str, payload: MessageChange) -> PostedMessage:
    """The conversation goes on from there in a new branch; nothing is deleted. 409 while the agent works."""
    return PostedMessage.of(await commands.branch_message(caller(request).user_id, message_id, payload.text))


@router.delete(
    "/messages/{id:message_id}", response={204: None}, auth=CHAT, tags=["Conversations"],
    summary="Remove a queued message",
)  # fmt: skip
async def remove_message(request: HttpRequest, message_id: str) -> Status[None]:
    """409 when the agent has it already."""
    await commands.remove_message(caller(request).user_id, message_id)
    return Status(204, None)


@router.post(
    "/messages/{id:message_id}/feedback", response=GivenRating, auth=CHAT, tags=["Conversations"],
    summary="Say what you think of a reply",
)  # fmt: skip
async def rate_reply(request: HttpRequest, message_id: str, payload: Rating) -> GivenRating:
    """By the id of one of its messages. The last word of a person counts; null takes it back."""
    opinion = feedback.Opinion(payload.value, payload.reasons, payload.comment)
    reply_id = await db.run(feedback.rate_message, caller(request).user_id, message_id, opinion)
    return GivenRating.of(message_id, reply_id, opinion)


@router.get("/search", response=Page[Found], tags=["Conversations"], summary="Find messages by their words")
async def search_messages(
    request: HttpRequest, cursor: str = "", limit: Limit = inputs.LIMIT,
    q: Annotated[str, Query(description="Words that must all occur, in any case.")] = "",
) -> Page[Found]:  # fmt: skip
    """What you and your agents said, the newest first; archived conversations too."""
    words = search.words_of(inputs.check_search(q))
    place = inputs.check_cursor(cursor, bool)
    most = inputs.clamped(limit)
    found = await db.run(search.messages, caller(request).user_id, words, place and place[1:], most)
    items = [objects.found(hit.message, hit.conversation.title, hit.snippet) for hit in found[:most] if hit.message]
    more = len(found) > most
    return Page[Found](
        items=items, next=inputs.cursor(True, items[-1].created_at, items[-1].message_id) if more else None
    )
