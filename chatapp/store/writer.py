"""One transaction on one conversation: its lock, its event numbers, and the fields that changed."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Generic, TypeVar

from chatapp.models import Event, Session
from chatapp.runtime.errors import LeaseLost, NotFound
from chatapp.runtime.events import Envelope, EventType
from chatapp.runtime.ids import new_id
from chatapp.runtime.ports import Hold
from chatapp.store.db import database_now, writing

T = TypeVar("T")


@dataclass(frozen=True)
class Written(Generic[T]):
    """What a transaction made, and what to tell now that it is committed: events, sessions to ring for, blocks that
    will get no more deltas, replies whose deltas nobody is to see any more."""

    value: T
    events: tuple[Envelope, ...] = ()
    wake: tuple[str, ...] = ()
    closed: tuple[str, ...] = ()
    hushed: tuple[str, ...] = ()
    conversation_id: str = ""


class Writer:
    """Collects events and changed fields; `conversation()` writes them in one go before the commit."""

    def __init__(self, root: Session, now: datetime) -> None:
        self.root = root
        self.now = now
        self.events: list[Envelope] = []
        self.wakes: list[str] = []
        self.closed: list[str] = []
        self.hushed: list[str] = []
        self._sessions = {root.pk: root}
        self._changed: dict[str, set[str]] = {}

    def session(self, session_id: str) -> Session:
        if session_id not in self._sessions:
            self._sessions[session_id] = Session.objects.get(pk=session_id, root=self.root)
        return self._sessions[session_id]

    def add(self, session: Session) -> None:
        """A session that this transaction made."""
        self._sessions[session.pk] = session

    def held(self, hold: Hold) -> Session:
        """The session, if `hold` is still the latest claim on it."""
        session = self.session(hold.session_id)
        if session.generation != hold.generation or session.lease_owner != hold.owner:
            raise LeaseLost("Another process took this session over.")
        return session

    def set(self, session: Session, **fields: Any) -> None:
        for name, value in fields.items():
            setattr(session, name, value)
        self._changed.setdefault(session.pk, set()).update(fields)

    def event(self, session: Session, type_: EventType, **data: Any) -> Envelope:
        envelope = Envelope(
            seq=self.root.next_seq,
            id=new_id(),
            type=type_.value,
            source=session.source,
            conversation_id=self.root.pk,
            session_id=session.pk,
            agent_id=session.agent_id,
            reply_id=session.reply_id,
            branch=session.branch,
            created_at=self.now,
            data=data,
            metadata=_metadata(session),
        )
        _ = envelope.encoded
        self.set(self.root, next_seq=self.root.next_seq + 1, updated_at=self.now)
        self.events.append(envelope)
        return envelope

    def wake(self, session: Session) -> None:
        """Ring the doorbell of record, and the quick one after the commit."""
        self.set(session, wake_at=self.now)
        self.wakes.append(session.pk)

    def flush(self) -> None:
        Event.objects.bulk_create(
            Event(
                id=e.id, conversation_id=e.conversation_id, session_id=e.session_id, seq=e.seq, type=e.type,
                source=e.source, agent_id=e.agent_id, reply_id=e.reply_id, branch=e.branch,
                created_at=e.created_at, metadata=e.metadata, data=e.data,
            )
            for e in self.events
        )  # fmt: skip
        for pk, fields in self._changed.items():
            self._sessions[pk].save(update_fields=fields)

    def written(self, value: T) -> Written[T]:
        return Written(
            value, tuple(self.events), tuple(self.wakes), tuple(self.closed), tuple(self.hushed), self.root.pk
        )


def _metadata(session: Session) -> dict[str, Any]:
    """Where a subagent's event belongs."""
    if session.parent_id is None:
        return {}
    named = {"toolCallId": session.call_id, "label": session.label}
    return {"parentSessionId": session.parent_id, **{key: value for key, value in named.items() if value}}


@contextmanager
def conversation(conversation_id: str) -> Iterator[Writer]:
    """Lock the conversation, let the caller write, number and store its events, commit."""
    with writing():
        try:
            root = Session.objects.select_for_update().get(pk=conversation_id, deleted_at=None)
        except Session.DoesNotExist:
            raise NotFound("No such conversation.") from None
        writer = Writer(root, database_now())
        yield writer
        writer.flush()


@contextmanager
def held(hold: Hold) -> Iterator[tuple[Writer, Session]]:
    """A host's checkpoint: the conversation's lock, and the fence."""
    try:
        with conversation(hold.conversation_id) as writer:
            yield writer, writer.held(hold)
    except NotFound as gone:
        raise LeaseLost("The conversation is gone.") from gone
