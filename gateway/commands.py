"""One function for each thing a person can do, whatever the door: owner check, then post, change or stop."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from functools import wraps
from typing import Any, ParamSpec, TypeVar

from django.db import InterfaceError, OperationalError

from chatapp import workspaces
from chatapp.models import Session
from chatapp.runtime.errors import NotFound, Unavailable
from chatapp.store import conversations, db, deletion, posts
from chatapp.store.posts import Draft, Posted, Stopped
from gateway.protocol import (
    BranchMessage,
    ClientFrame,
    DeleteMessage,
    EditMessage,
    MarkRead,
    Ping,
    Retry,
    Seen,
    SendMessage,
    StopRun,
    SwitchBranch,
)
from gateway.wiring import gateway

P = ParamSpec("P")
T = TypeVar("T")


def _reports_outage(function: Callable[P, Awaitable[T]]) -> Callable[P, Awaitable[T]]:
    @wraps(function)
    async def wrapped(*args: P.args, **kwargs: P.kwargs) -> T:
        try:
            return await function(*args, **kwargs)
        except (OperationalError, InterfaceError) as error:
            raise Unavailable("The database is away; nothing was stored. Try again in a moment.") from error

    return wrapped


@_reports_outage
async def send_message(user_id: int, session_id: str, draft: Draft, paths: Sequence[str] = ()) -> Posted:
    """`paths` name files of the workspace that come along."""
    if paths:
        root_id = await db.run(posts.root_of, user_id, session_id)
        draft = replace(draft, attachments=await asyncio.to_thread(workspaces.attachments, root_id, paths))
    return await gateway().ledger.write(posts.post_message, user_id, session_id, draft)


@_reports_outage
async def edit_message(user_id: int, message_id: str, text: str) -> Posted:
    return await gateway().ledger.write(posts.edit_message, user_id, message_id, text)


@_reports_outage
async def remove_message(user_id: int, message_id: str) -> Posted:
    return await gateway().ledger.write(posts.remove_message, user_id, message_id)


@_reports_outage
async def branch_message(user_id: int, message_id: str, text: str) -> Posted:
    return await gateway().ledger.write(posts.branch_message, user_id, message_id, text)


@_reports_outage
async def switch_branch(user_id: int, conversation_id: str, branch: int) -> None:
    await gateway().ledger.write(posts.switch_branch, user_id, conversation_id, branch)


@_reports_outage
async def retry(user_id: int, conversation_id: str) -> Posted:
    return await gateway().ledger.write(posts.retry, user_id, conversation_id)


@_reports_outage
async def stop(user_id: int, conversation_id: str, scope: str, session_id: str = "") -> Stopped:
    """Stop a reply; after the wider scopes the queue waits too. A session must be of this conversation."""
    target = session_id or conversation_id
    if target != conversation_id and not await db.run(_is_below, target, conversation_id):
        raise NotFound("No such session.")
    return await gateway().ledger.write(posts.stop, user_id, target, scope)


@_reports_outage
async def delete_conversation(user_id: int, conversation_id: str) -> None:
    await gateway().ledger.write(deletion.delete_conversation, user_id, conversation_id)


@_reports_outage
async def restore_conversation(user_id: int, conversation_id: str) -> None:
    await gateway().ledger.write(deletion.restore_conversation, user_id, conversation_id)


@_reports_outage
async def mark_read(user_id: int, conversation_id: str, seq: int) -> None:
    await db.run(conversations.mark_read, user_id, conversation_id, seq)


def _is_below(session_id: str, conversation_id: str) -> bool:
    return Session.objects.filter(pk=session_id, root_id=conversation_id).exists()


async def dispatch(user_id: int, conversation_id: str, frame: ClientFrame) -> dict[str, Any]:
    """Carry out a client's frame; what was made goes into its ack."""
    match frame:
        case SendMessage():
            draft = Draft(frame.text, frame.mode, frame.client_id, frame.overrides)
            return _posted(await send_message(user_id, conversation_id, draft, frame.attachments))
        case EditMessage():
            return _posted(await edit_message(user_id, frame.message_id, frame.text))
        case DeleteMessage():
            return _posted(await remove_message(user_id, frame.message_id))
        case BranchMessage():
            return _posted(await branch_message(user_id, frame.message_id, frame.text))
        case SwitchBranch():
            await switch_branch(user_id, conversation_id, frame.branch)
            return {}
        case Retry():
            return _posted(await retry(user_id, conversation_id))
        case StopRun():
            return stopped(await stop(user_id, conversation_id, frame.scope, frame.session_id))
        case MarkRead():
            await mark_read(user_id, conversation_id, frame.seq)
            return {}
        case Ping() | Seen():
            return {}


def _posted(made: Posted) -> dict[str, Any]:
    return {"message_id": made.message_id, "seq": made.seq, "state": made.state}


def stopped(made: Stopped) -> dict[str, Any]:
    return {"stopped": [_named(s) for s in made.stopped], "continues": [_named(s) for s in made.continues]}


def _named(session: Session) -> dict[str, Any]:
    return {"session_id": session.pk, "agent_id": session.agent_id, "label": session.label or None, "task_id": None}
