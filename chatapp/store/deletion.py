"""Deleting a conversation: marked at once, taken back for a while, then gone for good."""

from __future__ import annotations

from datetime import timedelta

from chatapp.models import InboxItem, Session
from chatapp.runtime.errors import NotFound
from chatapp.store.db import database_now, writing
from chatapp.store.recovery import recover
from chatapp.store.turns import rest
from chatapp.store.writer import Writer, Written, conversation

RESTORABLE = timedelta(seconds=30)
# Later than the last restore can begin: files go before rows, and neither may go under somebody who takes it back.
KEPT = RESTORABLE + timedelta(seconds=5)


def delete_conversation(user_id: int, conversation_id: str) -> Written[None]:
    """Mark it deleted; whoever works on it is rung, finds its lease gone and stops. `purge` takes the rows."""
    with writing():
        row = _mine(user_id, conversation_id)
        if row is None or row.deleted_at:
            raise NotFound("No such conversation.")
        working = tuple(row.tree.exclude(lease_owner="").values_list("pk", flat=True))
        row.tree.update(
            deleted_at=database_now(), wake_at=None, lease_owner="", lease_until=None, status=Session.Status.IDLE
        )
    return Written(None, wake=working)


def restore_conversation(user_id: int, conversation_id: str) -> Written[None]:
    """Take a deletion back while that can be; what was open comes back as stopped. Again changes nothing."""
    with writing():
        row = _mine(user_id, conversation_id)
        if row is None:
            raise NotFound("No such conversation.")
        if row.deleted_at is None:
            return Written(None)
        if row.deleted_at <= database_now() - RESTORABLE:
            raise NotFound("This conversation is gone.")
        row.tree.update(deleted_at=None)
        with conversation(conversation_id) as writer:
            for session_id in row.tree.order_by("-depth").values_list("pk", flat=True):
                _settle(writer, writer.session(session_id))
    return writer.written(None)


def _mine(user_id: int, conversation_id: str) -> Session | None:
    return Session.objects.select_for_update().filter(pk=conversation_id, owner_id=user_id, parent=None).first()


def _settle(writer: Writer, session: Session) -> None:
    """Its host is fenced and lost the lease with the deletion."""
    writer.set(session, generation=session.generation + 1)
    if session.reply_id or session.inbox.filter(state=InboxItem.State.QUEUED).exists():
        writer.set(session, stop="all")
        recover(writer, session)
    rest(writer, session)


def deleted_conversations(limit: int = 20) -> list[str]:
    """Those whose rows and files may go."""
    rows = Session.objects.filter(parent=None, deleted_at__lte=database_now() - KEPT)
    return list(rows.values_list("pk", flat=True)[:limit])


def purge(conversation_id: str) -> None:
    """Remove the rows of a deleted conversation; its files are gone already."""
    Session.objects.filter(root_id=conversation_id, root__deleted_at__isnull=False).delete()
