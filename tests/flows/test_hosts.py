"""Who works on a session: leases, fences, recovery, dead hosts, lost doorbells, RQ workers."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from datetime import timedelta
from pathlib import Path

import django_rq
import pytest
import redis
from django.contrib.auth.models import User
from django.test import override_settings
from django.utils import timezone
from rq import Queue

from chatapp.models import Event, InboxItem, Session, ToolCall
from chatapp.runtime.errors import LeaseLost
from chatapp.runtime.messages import Block, Completion, Usage, user_message
from chatapp.runtime.ports import Calls, ModelCall, NewCall, Request, Rested, Work
from chatapp.runtime.signals import Signals
from chatapp.store import checkpoints, claims, db, deletion, posts
from chatapp.store.conversations import create_conversation
from chatapp.store.deletion import delete_conversation
from chatapp.store.posts import Draft
from gateway import commands, jobs, queue
from gateway.ending import end
from gateway.wiring import clean_up, dead_owners, lock_owner
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
    work = claims.claim(session.pk, owner, "interactive").value
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
    assert claims.claim(asked.pk, "two", "interactive").value is None


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
    assert claims.renew(fresh).value == ""
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


def test_it_settles_at_once_the_stop_of_a_reply_that_nobody_hosts(asked: Session, alice: User) -> None:
    posts.stop(alice.pk, asked.pk)
    asked.refresh_from_db()
    assert asked.status == "idle"
    assert types(asked) == ["USER_MESSAGE", "AGENT_START", "AGENT_END"]
    assert claims.claim(asked.pk, "one", "interactive").value is None


def test_it_goes_on_with_the_queue_after_such_a_stop_and_holds_it_after_a_wider_one(
    asked: Session, alice: User
) -> None:
    claimed(asked)
    posts.post_message(alice.pk, asked.pk, Draft("queued"))
    lapse(asked)
    posts.stop(alice.pk, asked.pk, "all")
    asked.refresh_from_db()
    assert asked.status == "idle"
    assert InboxItem.objects.get(text="queued").state == "queued"
    posts.post_message(alice.pk, asked.pk, Draft("go on"))
    work = claimed(asked)
    assert [p["parts"][0]["content"] for p in work.next.appended] == ["queued", "go on"]  # type: ignore[union-attr]


def test_it_does_not_stop_the_reply_after_the_one_that_was_meant(asked: Session, alice: User) -> None:
    work = claimed(asked)
    assert isinstance(work.next, Request)
    posts.post_message(alice.pk, asked.pk, Draft("queued"))
    posts.stop(alice.pk, asked.pk)
    assert claims.renew(work.hold).value == work.next.reply_id
    following = checkpoints.record_response(work.hold, said(), [], [], ModelCall()).value
    assert isinstance(following, Request)
    assert claims.renew(work.hold).value == ""
    with pytest.raises(LeaseLost):
        checkpoints.interrupt(work.hold, work.next.reply_id, None, [], None)
    signals = Signals()
    signals.enter(following.reply_id)
    signals.stop(work.next.reply_id)
    assert not signals._stopped


def test_it_lets_nobody_wait_behind_one_persons_full_queue(asked: Session, alice: User, bob: User) -> None:
    claimed(asked)
    for _ in range(3):
        more = create_conversation(alice, model="scripted")
        posts.post_message(alice.pk, more.pk, Draft("Hi"))
    theirs = create_conversation(bob, model="scripted")
    posts.post_message(bob.pk, theirs.pk, Draft("Hi"))
    with override_settings(BRANCHLINE_RUNNING_PER_USER=1):
        for session_id in claims.due("interactive", 3):
            assert claims.claim(session_id, "one", "interactive").value is None
        assert claims.due("interactive", 3) == [theirs.pk]
    queued = Event.objects.filter(type="CUSTOM", data__name="queued")
    assert queued.count() == 3


def test_it_answers_what_was_told_queued_in_the_next_turn_also_if_nobody_had_claimed_the_first(
    asked: Session, alice: User
) -> None:
    for text in ("second", "third"):
        assert posts.post_message(alice.pk, asked.pk, Draft(text)).value.state == "queued"
    work = claimed(asked)
    assert len(work.next.appended) == 1  # type: ignore[union-attr]
    following = checkpoints.record_response(work.hold, said(), [], [], ModelCall()).value
    assert len(following.appended) == 2  # type: ignore[union-attr]


def test_it_leaves_the_other_lane_alone(asked: Session) -> None:
    assert claims.claim(asked.pk, "worker", "background").value is None


def test_it_says_once_that_the_steps_are_used_up_also_after_a_crash(asked: Session) -> None:
    claimed(asked)
    Session.objects.filter(pk=asked.pk).update(step=asked.declaration["steps"])
    for host in ("two", "three"):
        lapse(asked)
        claimed(asked, host)
    assert types(asked).count("EXCEED_MAX_ITERS") == 1


def test_it_counts_a_request_that_was_cut_by_a_crash(asked: Session) -> None:
    claimed(asked)
    lapse(asked)
    claimed(asked, "two")
    asked.refresh_from_db()
    assert (asked.requests, asked.estimated) == (1, True)


def test_it_reads_a_snapshot_of_another_version(asked: Session) -> None:
    Session.objects.filter(pk=asked.pk).update(declaration={**asked.declaration, "from_the_future": 1})
    assert isinstance(claimed(asked).next, Request)


async def test_it_fails_a_turn_that_breaks_visibly_and_once(server: Server, conversation: Session) -> None:
    server.models.then("half", RuntimeError("a bug")).then("works")
    await server.send(conversation, "Hi")
    assert (await server.failure(conversation))["code"] == "internal"
    assert len(server.models.requests) == 1
    assert (await server.types(conversation))[-3:] == ["MODEL_CALL_END", "RUN_FAILED", "AGENT_END"]
    await server.send(conversation, "Again")
    assert (await server.rest(conversation)).status == "idle"


async def test_it_removes_the_rows_and_files_of_a_deleted_conversation(
    server: Server, conversation: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    gate = Gate()
    server.models.then("half", gate)
    await server.send(conversation, "Hi")
    await gate.reached.wait()
    engine = server.gateway.engine
    assert engine is not None
    folder = engine.kit.workspaces / conversation.pk
    await asyncio.to_thread(folder.mkdir, parents=True)
    await commands.delete_conversation(conversation.owner_id, conversation.pk)

    async def stopped() -> bool:
        return not engine.hosted

    await eventually(stopped, 1)
    assert await db.run(deletion.deleted_conversations) == []
    await Session.objects.filter(pk=conversation.pk).aupdate(deleted_at=timezone.now() - deletion.KEPT)
    cleaning = asyncio.create_task(clean_up())
    rows = Event.objects.filter(conversation_id=conversation.pk)

    async def gone() -> bool:
        return not await db.run(rows.exists) and not folder.exists()

    await eventually(gone)
    await end([cleaning])


def test_it_meets_a_stop_at_the_next_checkpoint_when_no_doorbell_came(asked: Session, alice: User) -> None:
    hold = claimed(asked).hold
    posts.stop(alice.pk, asked.pk)
    calls = [new_call(0, read_only=False)]
    assert isinstance(checkpoints.record_response(hold, said(), [], calls, ModelCall()).value, Rested)
    assert types(asked)[-1] == "AGENT_END"
    assert ToolCall.objects.get().state == "interrupted"


def test_it_ends_the_turns_of_a_deleted_conversation(asked: Session, alice: User) -> None:
    hold = claimed(asked).hold
    assert delete_conversation(alice.pk, asked.pk).wake == (asked.pk,)
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
    await db.run(claims.claim, conversation.pk, "dead", "interactive")
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
