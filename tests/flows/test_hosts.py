"""Who works on a session: leases, fences, recovery, dead hosts, lost doorbells, RQ workers."""

from __future__ import annotations

import subprocess
import sys
from datetime import timedelta
from pathlib import Path

import django_rq
import pytest
import redis
from django.contrib.auth.models import User
from django.utils import timezone
from rq import Queue

from chatapp.models import Event, InboxItem, Session, ToolCall
from chatapp.runtime.errors import LeaseLost
from chatapp.runtime.messages import Block, Completion, Usage, user_message
from chatapp.runtime.ports import Calls, ModelCall, NewCall, Request, Rested, Work
from chatapp.store import checkpoints, claims, db, posts
from chatapp.store.conversations import create_conversation, delete_conversation
from chatapp.store.posts import Draft
from gateway import jobs, queue
from gateway.wiring import dead_owners, lock_owner
from tests.fakes import Gate
from tests.flows.conftest import Server, eventually

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def asked(alice: User) -> Session:
    """A conversation with a message that nobody has taken."""
    session = create_conversation(alice, model="scripted")
    posts.post_message(alice.pk, session.pk, Draft("Hi"))
    return session


def claimed(session: Session, owner: str = "one") -> Work:
    work = claims.claim(session.pk, owner).value
    assert work is not None
    return work


def lapse(session: Session) -> None:
    Session.objects.filter(pk=session.pk).update(lease_until=timezone.now() - timedelta(seconds=1))


def types(session: Session) -> list[str]:
    return list(Event.objects.filter(conversation=session.pk).values_list("type", flat=True))


def said(text: str = "Hello") -> Completion:
    return Completion(user_message(text), text, (Block(0, "text", text),), (), Usage(1, 1, 0, 1, False))


def new_call(number: int, *, read_only: bool) -> NewCall:
    return NewCall(f"call{number}", number, f"p{number}", "tool", {}, "{}", read_only, "started")


def test_it_gives_a_session_to_one_host(asked: Session) -> None:
    assert isinstance(claimed(asked).next, Request)
    assert claims.claim(asked.pk, "two").value is None


def test_it_refuses_the_checkpoints_of_a_host_that_came_back_late(asked: Session) -> None:
    stale = claimed(asked).hold
    lapse(asked)
    fresh = claimed(asked, "two").hold
    for late in (
        lambda: checkpoints.begin_block(stale, "text", "b"),
        lambda: checkpoints.record_response(stale, said(), [], [], ModelCall()),
        lambda: claims.renew(stale),
    ):
        with pytest.raises(LeaseLost):
            late()
    assert claims.renew(fresh).value is False
    assert "TEXT_BLOCK_START" not in types(asked)


def test_it_closes_what_a_lost_host_left_open_and_asks_again_in_the_same_stretch(asked: Session) -> None:
    hold = claimed(asked).hold
    checkpoints.begin_block(hold, "text", "b1")
    checkpoints.begin_block(hold, "call", "c1", "echo")
    lapse(asked)
    assert isinstance(claimed(asked, "two").next, Request)
    assert types(asked)[2:] == [
        "MODEL_CALL_START", "TEXT_BLOCK_START", "TOOL_CALL_START",
        "TEXT_BLOCK_END", "TOOL_CALL_END", "MODEL_CALL_END", "MODEL_RETRY", "MODEL_CALL_START",
    ]  # fmt: skip
    retry = Event.objects.get(conversation=asked, type="MODEL_RETRY")
    assert retry.data["reason"] == "restarted"


def test_it_calls_a_started_side_effect_unknown_and_runs_a_read_only_call_again(asked: Session) -> None:
    hold = claimed(asked).hold
    calls = [new_call(0, read_only=True), new_call(1, read_only=False)]
    checkpoints.record_response(hold, said(), [], calls, ModelCall())
    lapse(asked)
    following = claimed(asked, "two").next
    assert isinstance(following, Calls)
    assert [(call.id, call.started) for call in following.calls] == [("call0", True)]
    assert "unknown" in ToolCall.objects.get(pk="call1").result
    starts = Event.objects.filter(conversation=asked, type="TOOL_RESULT_START")
    assert [e.data["tool_call_id"] for e in starts] == ["call0", "call1"]


def test_it_obeys_a_stop_that_its_dead_host_never_saw(asked: Session, alice: User) -> None:
    claimed(asked)
    posts.stop(alice.pk, asked.pk)
    lapse(asked)
    assert isinstance(claimed(asked, "two").next, Rested)
    end = Event.objects.filter(conversation=asked).last()
    assert end is not None
    assert end.data["reason"] == "INTERRUPTED"
    assert "MODEL_RETRY" not in types(asked)


def test_it_stops_a_reply_that_nobody_has_claimed_yet(asked: Session, alice: User) -> None:
    posts.stop(alice.pk, asked.pk)
    assert isinstance(claimed(asked).next, Rested)
    assert types(asked) == ["USER_MESSAGE", "AGENT_START", "AGENT_END"]


def test_it_meets_a_stop_at_the_next_checkpoint_when_no_doorbell_came(asked: Session, alice: User) -> None:
    hold = claimed(asked).hold
    posts.stop(alice.pk, asked.pk)
    calls = [new_call(0, read_only=False)]
    assert isinstance(checkpoints.record_response(hold, said(), [], calls, ModelCall()).value, Rested)
    assert types(asked)[-1] == "AGENT_END"
    assert ToolCall.objects.get().state == "interrupted"


def test_it_ends_the_turns_of_a_deleted_conversation(asked: Session, alice: User) -> None:
    hold = claimed(asked).hold
    assert delete_conversation(alice, asked.pk)
    with pytest.raises(LeaseLost):
        checkpoints.begin_block(hold, "text", "b")
    assert claims.due("interactive", 10) == []


def test_it_sees_at_once_that_a_process_of_this_machine_died(tmp_path: Path) -> None:
    living = lock_owner(tmp_path, "living")
    lock_owner(tmp_path, "dead").file.close()
    assert list(dead_owners(tmp_path)) == ["dead"]
    assert list(dead_owners(tmp_path)) == []
    living.close()


async def test_it_takes_over_from_a_dead_process_before_its_lease_lapses(
    server: Server, conversation: Session, alice: User
) -> None:
    engine = server.gateway.engine
    assert engine is not None
    engine.turns = 0
    await server.send(conversation, "Hi")
    await db.run(claims.claim, conversation.pk, "dead")
    engine.dead_owners = lambda: ["dead"]
    engine.turns = 8
    assert (await server.rest(conversation, 1.5)).status == "idle"


async def test_it_finds_work_that_nobody_rang_for(server: Server, conversation: Session, alice: User) -> None:
    await db.run(posts.post_message, alice.pk, conversation.pk, Draft("Hi"))
    assert (await server.rest(conversation)).status == "idle"


async def test_it_hands_a_turn_over_when_its_server_is_told_to_leave(server: Server, conversation: Session) -> None:
    engine = server.gateway.engine
    assert engine is not None
    gate = Gate()
    server.models.then("half", gate)
    await server.send(conversation, "Hi")
    await gate.reached.wait()
    engine.pace = type(engine.pace)(engine.pace.lease, engine.pace.sweep, drain=0.1)
    await engine.drain()
    assert engine.hosted == {}
    engine._draining = False
    assert (await server.rest(conversation)).status == "idle"
    reasons = [e.get("reason") for e in await server.events(conversation) if e["type"] in ("MODEL_RETRY", "AGENT_END")]
    assert reasons == ["restarted", "MODEL_STOP"]


async def test_it_gives_up_a_turn_whose_lease_was_taken(server: Server, conversation: Session) -> None:
    gate = Gate()
    server.models.then("half", gate)
    engine = server.gateway.engine
    assert engine is not None
    await server.send(conversation, "Hi")
    await gate.reached.wait()
    await db.run(Session.objects.filter(pk=conversation.pk).update, generation=99)

    async def gone() -> bool:
        return not engine.hosted

    await eventually(gone)
    assert (await server.types(conversation))[-1] == "TEXT_BLOCK_START"


# RQ


@pytest.fixture
def tickets(live_valkey: redis.Redis) -> Queue:
    return django_rq.get_queue("default")


def test_a_worker_runs_due_background_sessions_by_a_ticket(
    tickets: Queue, asked: Session, server_environment: dict[str, str]
) -> None:
    Session.objects.filter(pk=asked.pk).update(lane="background", model="demo")
    tickets.enqueue(jobs.run, "ticket")
    command = [sys.executable, "manage.py", "rqworker", "--burst", "default"]
    done = subprocess.run(command, env=server_environment, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    asked.refresh_from_db()
    assert asked.status == "idle"
    assert types(asked)[-1] == "AGENT_END"


def test_a_job_runs_one_function_only(tickets: Queue) -> None:
    job = tickets.enqueue("os.system", "true")
    assert isinstance(job, queue.Job)
    with pytest.raises(ValueError, match=r"gateway\.jobs\.run only"):
        _ = queue.Job.fetch(job.id, connection=tickets.connection, serializer=tickets.serializer).func


def test_an_inbox_item_is_taken_in_the_transaction_of_its_message(asked: Session) -> None:
    claimed(asked)
    item = InboxItem.objects.get()
    assert item.state == "taken"
    assert asked.messages.get().pk == item.id
