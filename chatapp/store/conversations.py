"""Conversations as a person keeps them: create, change, delete."""

from __future__ import annotations

from typing import Any

from django.conf import settings
from django.db import transaction
from django.utils import timezone

from chatapp.models import Session
from chatapp.runtime.declarations import main_agent
from chatapp.runtime.errors import NotFound
from chatapp.runtime.ids import new_id
from chatapp.store.writer import Written


def create_conversation(user: Any, *, title: str = "", model: str = "") -> Session:
    """A new, empty conversation with the built-in agent; `model` empty means the server's default, whatever
    that is when the model is asked."""
    agent = main_agent(settings.BRANCHLINE_MAX_STEPS)
    session = Session(
        id=new_id(), owner=user, agent_id=agent.agent_id, declaration=agent.snapshot(), title=title,
        model=model, updated_at=timezone.now(),
    )  # fmt: skip
    session.root = session
    with transaction.atomic():
        session.save(force_insert=True)
    return session


def change_conversation(user: Any, conversation_id: str, fields: dict[str, Any]) -> Session | None:
    """Set fields the caller has checked; None for an unknown or foreign conversation."""
    with transaction.atomic():
        row = Session.objects.select_for_update().conversations_of(user).filter(pk=conversation_id).first()
        if row is None:
            return None
        for name, value in fields.items():
            setattr(row, name, value)
        row.save(update_fields=list(fields))
    return row


def delete_conversation(user_id: int, conversation_id: str) -> Written[None]:
    """Mark it deleted; whoever works on it is rung, finds its lease gone and stops. `purge` takes the rows."""
    with transaction.atomic():
        mine = Session.objects.select_for_update().filter(
            pk=conversation_id, owner_id=user_id, parent=None, deleted_at=None
        )
        row = mine.first()
        if row is None:
            raise NotFound("No such conversation.")
        working = tuple(row.tree.exclude(lease_owner="").values_list("pk", flat=True))
        now = timezone.now()
        row.tree.update(deleted_at=now, wake_at=None, lease_owner="", lease_until=None, status=Session.Status.IDLE)
    return Written(None, wake=working)


def deleted_conversations(limit: int = 20) -> list[str]:
    """Those whose rows and files may go."""
    return list(Session.objects.filter(parent=None, deleted_at__isnull=False).values_list("pk", flat=True)[:limit])


def purge(conversation_id: str) -> None:
    """Remove the rows of a deleted conversation; its files are gone already."""
    Session.objects.filter(root_id=conversation_id, root__deleted_at__isnull=False).delete()
