"""Calls on conversations: make, list, look, change, delete, write to, stop, try again."""

from __future__ import annotations

from typing import Annotated

from django.http import HttpRequest
from ninja import Query, Router
from ninja.responses import Status

from chatapp.runtime.errors import NotFound
from chatapp.store import conversations, db, reads
from chatapp.store.posts import Draft
from gateway import commands
from gateway.api import inputs, objects
from gateway.api.auth import CHAT, READ, caller
from gateway.api.inputs import ConversationChange, Limit, NewConversation, NewMessage, StopWish
from gateway.api.objects import Conversation, Page, PostedMessage, StopAnswer

router = Router(auth=READ, tags=["Conversations"])


@router.post("/conversations", response={201: Conversation}, auth=CHAT, summary="Make a conversation")
async def create_conversation(request: HttpRequest, payload: NewConversation = NewConversation()) -> Conversation:  # noqa: B008
    who = caller(request)
    row = await db.run(conversations.create_conversation, who.user, **payload.model_dump())
    return await _shown(who.user_id, row.pk)


@router.get("/conversations", response=Page[Conversation], summary="List your conversations")
async def list_conversations(
    request: HttpRequest, cursor: str = "", limit: Limit = inputs.LIMIT,
    q: Annotated[str, Query(description="What the title contains, in any case.")] = "",
    state: Annotated[str, Query(description="idle, queued, running, waiting or failed.")] = "",
    archived: Annotated[bool, Query(description="The archived ones instead of the others.")] = False,
) -> Page[Conversation]:  # fmt: skip
    """Pinned ones first, then by newest activity."""
    wanted = reads.Wanted(inputs.check_search(q), inputs.check_state(state), archived)
    after = inputs.check_cursor(cursor, bool)
    found = await db.run(reads.conversations, caller(request).user_id, wanted, after, inputs.clamped(limit))
    last = found.rows[-1].row if found.more else None
    return Page[Conversation](
        items=[objects.conversation(listed.row, listed.used) for listed in found.rows],
        next=inputs.cursor(last.pinned, last.updated_at, last.pk) if last else None,
    )


@router.get("/conversations/{id:conversation_id}", response=Conversation, summary="One conversation")
async def get_conversation(request: HttpRequest, conversation_id: str) -> Conversation:
    return await _shown(caller(request).user_id, conversation_id)


@router.patch("/conversations/{id:conversation_id}", response=Conversation, auth=CHAT, summary="Change a conversation")
async def change_conversation(request: HttpRequest, conversation_id: str, payload: ConversationChange) -> Conversation:
    """Only the fields that are sent change. A new model or agent holds from the next model request on; another branch
    can be taken while nothing runs (else 409)."""
    who = caller(request)
    fields = payload.model_dump(exclude_unset=True)
    if "branch" in fields:
        await commands.switch_branch(who.user_id, conversation_id, fields.pop("branch"))
    if await db.run(conversations.change_conversation, who.user, conversation_id, fields) is None:
        raise NotFound("No such conversation.")
    return await _shown(who.user_id, conversation_id)


@router.delete("/conversations/{id:conversation_id}", response={204: None}, auth=CHAT, summary="Delete a conversation")
async def delete_conversation(request: HttpRequest, conversation_id: str) -> Status[None]:
    """Stops what runs in it and closes its streams and sockets. It can be restored for 30 seconds."""
    await commands.delete_conversation(caller(request).user_id, conversation_id)
    return Status(204, None)


@router.post(
    "/conversations/{id:conversation_id}/restore", response=Conversation, auth=CHAT, summary="Take a deletion back"
)
async def restore_conversation(request: HttpRequest, conversation_id: str) -> Conversation:
    """A reply that was open comes back as stopped. 404 when it is gone for good."""
    user_id = caller(request).user_id
    await commands.restore_conversation(user_id, conversation_id)
    return await _shown(user_id, conversation_id)


async def _shown(user_id: int, conversation_id: str) -> Conversation:
    listed = await db.run(reads.conversation, user_id, conversation_id)
    return objects.conversation(listed.row, listed.used)


@router.post(
    "/conversations/{id:conversation_id}/messages", response={202: PostedMessage}, auth=CHAT, summary="Send a message"
)
async def send_message(request: HttpRequest, conversation_id: str, payload: NewMessage) -> PostedMessage:
    """It is stored before anything else happens. `running` when the agent was at rest, `queued` when it was at work."""
    draft = Draft(payload.text, payload.mode, payload.client_id, payload.overrides())
    user_id = caller(request).user_id
    return PostedMessage.of(await commands.send_message(user_id, conversation_id, draft, payload.attachments))


@router.post("/conversations/{id:conversation_id}/retry", response={202: PostedMessage}, auth=CHAT, summary="Try again")
async def retry(request: HttpRequest, conversation_id: str) -> PostedMessage:
    """The last reply's input once more: in place when it failed, else as a sibling. 409 while the agent works."""
    return PostedMessage.of(await commands.retry(caller(request).user_id, conversation_id))


@router.post("/conversations/{id:conversation_id}/stop", response={202: StopAnswer}, auth=CHAT, summary="Stop a reply")
async def stop(request: HttpRequest, conversation_id: str, payload: StopWish = StopWish()) -> StopAnswer:  # noqa: B008
    """What was written so far is kept. Both lists are empty when nothing runs."""
    user_id = caller(request).user_id
    made = await commands.stop(user_id, conversation_id, payload.scope, payload.session_id)
    return StopAnswer.model_validate(commands.stopped(made))
