"""Deleting a conversation, taking it back in time, and what goes for good."""

from __future__ import annotations

from datetime import timedelta

import pytest
from django.contrib.auth.models import User
from django.utils import timezone

from chatapp.models import Event, Session
from chatapp.runtime.errors import LeaseLost, NotFound
from chatapp.store import checkpoints, claims
from chatapp.store.deletion import (
    KEPT,
    RESTORABLE,
    delete_conversation,
    deleted_conversations,
    purge,
    restore_conversation,
)
from tests.gateway.replies import answered, claimed, conversation_of, failed, sent

pytestmark = pytest.mark.django_db


@pytest.fixture
def talk(alice: User) -> Session:
    return conversation_of(alice, "Trip")


def deleted_ago(talk: Session, ago: timedelta) -> None:
    delete_conversation(talk.owner_id, talk.pk)
    Session.objects.filter(root=talk).update(deleted_at=timezone.now() - ago)


def types(talk: Session) -> list[str]:
    return list(Event.objects.filter(conversation=talk).values_list("type", flat=True))


def test_it_is_kept_until_it_cannot_be_restored_any_more(talk: Session) -> None:
    deleted_ago(talk, RESTORABLE)
    with pytest.raises(NotFound):
        restore_conversation(talk.owner_id, talk.pk)
    assert deleted_conversations() == []
    Session.objects.filter(pk=talk.pk).update(deleted_at=timezone.now() - KEPT)
    assert deleted_conversations() == [talk.pk]
    purge(talk.pk)
    with pytest.raises(NotFound):
        restore_conversation(talk.owner_id, talk.pk)


def test_restoring_in_time_brings_all_of_it_back(talk: Session) -> None:
    sent(talk)
    answered(talk)
    before = types(talk)
    deleted_ago(talk, RESTORABLE - timedelta(seconds=5))
    restore_conversation(talk.owner_id, talk.pk)
    talk.refresh_from_db()
    assert (talk.deleted_at, talk.status, talk.title) == (None, "idle", "Trip")
    assert types(talk) == before


def test_restoring_twice_or_what_was_never_deleted_changes_nothing(talk: Session) -> None:
    sent(talk)
    hold = claimed(talk)
    restore_conversation(talk.owner_id, talk.pk)
    checkpoints.begin_block(hold, "text", "b")


def test_a_reply_that_was_open_comes_back_as_stopped_and_its_host_stays_out(talk: Session) -> None:
    sent(talk)
    hold = claimed(talk)
    checkpoints.begin_block(hold, "text", "b")
    sent(talk, "and then?")
    delete_conversation(talk.owner_id, talk.pk)
    written = restore_conversation(talk.owner_id, talk.pk)
    talk.refresh_from_db()
    assert [event.type for event in written.events][-1] == types(talk)[-1] == "AGENT_END"
    assert written.events[-1].data["reason"] == "INTERRUPTED"
    assert (talk.status, talk.stretch_open, talk.model_call_open, talk.queue_held) == ("idle", False, False, True)
    with pytest.raises(LeaseLost):
        checkpoints.begin_block(hold, "text", "c")
    assert claims.due("interactive", 10) == []
    sent(talk, "go on")
    answered(talk)
    talk.refresh_from_db()
    assert talk.status == "idle"


def test_a_message_that_nobody_had_taken_comes_back_as_stopped(talk: Session) -> None:
    sent(talk)
    delete_conversation(talk.owner_id, talk.pk)
    restore_conversation(talk.owner_id, talk.pk)
    assert types(talk)[-2:] == ["AGENT_START", "AGENT_END"]
    assert claims.due("interactive", 10) == []


def test_a_failed_reply_comes_back_as_failed(talk: Session) -> None:
    sent(talk)
    failed(talk)
    delete_conversation(talk.owner_id, talk.pk)
    restore_conversation(talk.owner_id, talk.pk)
    talk.refresh_from_db()
    assert talk.status == "failed"


def test_another_person_restores_nothing(talk: Session, bob: User) -> None:
    delete_conversation(talk.owner_id, talk.pk)
    with pytest.raises(NotFound):
        restore_conversation(bob.pk, talk.pk)
    talk.refresh_from_db()
    assert talk.deleted_at
