"""Conversations as a person keeps them: create, change, mark as read."""

from __future__ import annotations

from typing import Any

from django.conf import settings
from django.db.models import F, Value
from django.db.models.functions import Least
from django.utils import timezone

from chatapp.models import Session
from chatapp.runtime.declarations import main_agent
from chatapp.runtime.ids import new_id
from chatapp.store.db import writing


def create_conversation(user: Any, *, title: str = "", model: str = "") -> Session:
    """A new, empty conversation with the built-in agent; `model` empty means the server's default, whatever
    that is when the model is asked."""
    agent = main_agent(settings.BRANCHLINE_MAX_STEPS)
    session = Session(
        id=new_id(), owner=user, agent_id=agent.agent_id, declaration=agent.snapshot(), title=title,
        model=model, updated_at=timezone.now(),
    )  # fmt: skip
    session.root = session
    with writing():
        session.save(force_insert=True)
    return session


def change_conversation(user: Any, conversation_id: str, fields: dict[str, Any]) -> Session | None:
    """Set fields the caller has checked; None for an unknown or foreign conversation."""
    with writing():
        row = Session.objects.select_for_update().conversations_of(user).filter(pk=conversation_id).first()
        if row is None:
            return None
        for name, value in fields.items():
            setattr(row, name, value)
        row.save(update_fields=list(fields))
    return row


def mark_read(user_id: int, conversation_id: str, seq: int) -> None:
    """Its owner has looked up to this event; one who looked further stays there. No event tells of it."""
    mine = Session.objects.filter(pk=conversation_id, owner_id=user_id, parent=None, deleted_at=None)
    mine.filter(read_seq__lt=seq).update(read_seq=Least(Value(seq), F("next_seq") - 1))
