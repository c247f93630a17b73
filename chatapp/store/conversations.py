"""Conversations as a person keeps them: create, change, mark as read."""

from __future__ import annotations

from typing import Any

from django.db.models import F, Value
from django.db.models.functions import Least
from django.utils import timezone

from chatapp.agents import own_agent
from chatapp.models import Session
from chatapp.runtime.declarations import SubagentDeclaration
from chatapp.runtime.errors import InvalidField
from chatapp.runtime.ids import new_id
from chatapp.store.db import writing


def create_conversation(user: Any, *, title: str = "", model: str = "", agent_id: str = "") -> Session:
    """A new, empty conversation. `agent_id` and `model` empty mean the server's defaults, the model whatever that is
    when it is asked. InvalidField for an agent that this person may not choose."""
    agent = _chosen(user, agent_id)
    session = Session(
        id=new_id(), owner=user, agent_id=agent.agent_id, declaration=agent.snapshot(), title=title,
        model=model, updated_at=timezone.now(),
    )  # fmt: skip
    session.root = session
    with writing():
        session.save(force_insert=True)
    return session


def _chosen(user: Any, agent_id: str) -> SubagentDeclaration:
    agent = own_agent(user, agent_id)
    if agent is None:
        raise InvalidField("agent_id", "No agent of that id answers conversations. /api/agents lists those that do.")
    return agent


def change_conversation(user: Any, conversation_id: str, fields: dict[str, Any]) -> Session | None:
    """Set fields the caller has checked; None for an unknown or foreign conversation. Another agent comes with its
    declaration as it is now."""
    if "agent_id" in fields:
        agent = _chosen(user, fields["agent_id"])
        fields = {**fields, "agent_id": agent.agent_id, "declaration": agent.snapshot()}
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
