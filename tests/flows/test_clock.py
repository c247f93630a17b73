"""The clock jumps: an hour ahead, an hour back, in mid-reply and at rest."""

from __future__ import annotations

from datetime import timedelta

import pytest
from django.contrib.auth.models import User
from django.db.models import F
from django.utils import timezone

from chatapp.models import Session
from chatapp.store import claims, db, posts
from chatapp.store.posts import Draft
from tests.fakes import Gate
from tests.flows.conftest import Server

pytestmark = pytest.mark.django_db(transaction=True)

HOUR = timedelta(hours=1)


class Clock:
    """This process's clock; the database's too, where it is SQLite."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.ahead = timedelta(0)
        real = timezone.now
        monkeypatch.setattr(timezone, "now", lambda: real() + self.ahead)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    return Clock(monkeypatch)


@pytest.mark.parametrize("jump", [HOUR, -HOUR], ids=["ahead", "back"])
async def test_a_jump_in_mid_reply_ends_it_once_and_the_next_is_answered(
    server: Server, conversation: Session, clock: Clock, jump: timedelta
) -> None:
    gate = Gate()
    server.models.then("half", gate, " and half")
    await server.send(conversation, "Hi")
    await gate.reached.wait()
    clock.ahead += jump
    engine = server.gateway.engine
    assert engine is not None
    await engine.sweep()
    gate.opened.set()
    assert (await server.rest(conversation)).status == "idle"
    server.models.then("second")
    await server.send(conversation, "And?")
    assert (await server.rest(conversation)).status == "idle"
    events = await server.events(conversation)
    assert [e["reason"] for e in events if e["type"] == "AGENT_END"] == ["MODEL_STOP", "MODEL_STOP"]
    assert [e["text"] for e in events if e["type"] == "TEXT_BLOCK_END"] == ["half and half", "second"]
    assert [e["seq"] for e in events] == list(range(1, len(events) + 1))


@pytest.mark.parametrize("jump", [HOUR, -HOUR], ids=["ahead", "back"])
async def test_a_jump_under_a_dead_host_keeps_nobody_waiting(
    server: Server, conversation: Session, clock: Clock, alice: User, jump: timedelta
) -> None:
    engine = server.gateway.engine
    assert engine is not None
    engine.turns = 0
    await db.run(posts.post_message, alice.pk, conversation.pk, Draft("Hi"))
    await db.run(claims.claim, conversation.pk, "dead", "interactive")
    clock.ahead += jump
    engine.dead_owners = lambda: ["dead"]
    engine.turns = 8
    assert (await server.rest(conversation)).status == "idle"


async def test_a_message_told_before_the_clock_went_back_is_answered(
    server: Server, conversation: Session, clock: Clock, alice: User
) -> None:
    engine = server.gateway.engine
    assert engine is not None
    engine.turns = 0
    await db.run(posts.post_message, alice.pk, conversation.pk, Draft("Hi"))
    clock.ahead -= HOUR
    engine.turns = 8
    assert (await server.rest(conversation)).status == "idle"


def test_a_lease_that_nobody_renews_is_over_also_when_the_clock_went_back(conversation: Session, alice: User) -> None:
    posts.post_message(alice.pk, conversation.pk, Draft("Hi"))
    assert claims.claim(conversation.pk, "of another machine", "interactive").value
    assert claims.due("interactive", 9) == []
    # Postgres' clock is not ours to set: what it told before is moved instead.
    Session.objects.update(lease_until=F("lease_until") + HOUR, updated_at=F("updated_at") + HOUR)
    assert claims.due("interactive", 9) == [conversation.pk]
    assert claims.claim(conversation.pk, "here", "interactive").value
