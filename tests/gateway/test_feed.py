"""The live path: what a viewer gets when stream and rows disagree, deltas repeat, or Valkey is away."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import aclosing
from typing import Any

import pytest
import redis
from django.contrib.auth.models import User

from chatapp.models import Session
from chatapp.runtime.events import BlockRef, DeltaType
from chatapp.runtime.ports import CutBlock, Failure
from chatapp.store import claims, db, posts
from chatapp.store import feed as rows
from chatapp.store.checkpoints import begin_block
from chatapp.store.conversations import create_conversation
from chatapp.store.posts import Draft
from gateway.bus import open_key, stream_key
from gateway.ending import end
from gateway.feed import Follower
from gateway.wiring import Gateway, gateway
from tests.conftest import wait_until

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
async def running(transactional_db: None, live_valkey: redis.Redis) -> AsyncIterator[Gateway]:
    found = gateway()
    yield found
    await found.stop()


@pytest.fixture
def conversation(alice: User) -> Session:
    return create_conversation(alice, model="scripted")


class Viewer:
    """Pulls a follower's frames one at a time."""

    def __init__(self, running: Gateway, conversation: Session, after: int | None = 0, heal: float = 15) -> None:
        self.follower = Follower(running.bus, conversation.pk, after, heal=heal)
        self.frames = self.follower.frames()
        self.waiting: list[dict[str, Any]] = []

    async def next(self, seconds: float = 5) -> dict[str, Any]:
        while not self.waiting:
            async with asyncio.timeout(seconds):
                self.waiting = list(await anext(self.frames))
        return self.waiting.pop(0)

    async def until(self, kind: str, type_: str = "") -> list[dict[str, Any]]:
        """All frames up to the one looked for."""
        seen = [await self.next()]
        while seen[-1]["kind"] != kind or (type_ and seen[-1].get("type") != type_):
            seen.append(await self.next())
        return seen


class Turn:
    """A claimed session with one open text block, whose deltas a test sends."""

    def __init__(self, running: Gateway, conversation: Session, hold: Any, start_seq: int) -> None:
        self.running = running
        self.hold = hold
        self.ref = BlockRef(
            DeltaType.TEXT, conversation.pk, conversation.pk, "", "r", "block", start_seq, hold.generation
        )

    async def say(self, text: str) -> None:
        self.running.publisher.delta(self.ref, text)
        await asyncio.sleep(0.05)
        await self.running.publisher.flush()


@pytest.fixture
async def turn(running: Gateway, conversation: Session) -> Turn:
    ledger = running.ledger
    await ledger.write(posts.post_message, conversation.owner_id, conversation.pk, Draft("Hi"))
    work = await ledger.write(claims.claim, conversation.pk, "me", "interactive")
    assert work is not None
    seq = await ledger.write(begin_block, work.hold, "text", "block")
    return Turn(running, conversation, work.hold, seq)


async def test_it_gives_rows_then_the_open_block_then_what_comes(
    running: Gateway, conversation: Session, turn: Turn
) -> None:
    await turn.say("Hello ")
    viewer = Viewer(running, conversation)
    seen = await viewer.until("caught_up")
    assert [f["seq"] for f in seen if f["kind"] == "event"] == [1, 2, 3, 4]
    assert [(f["offset"], f["text"]) for f in seen if f["kind"] == "delta"] == [(0, "Hello ")]
    await turn.say("wörld")
    delta = await viewer.next()
    assert (delta["offset"], delta["text"]) == (6, "wörld")
    assert "start_seq" not in delta


async def test_it_fills_a_gap_in_the_stream_from_the_rows(
    running: Gateway, conversation: Session, live_valkey: redis.Redis
) -> None:
    viewer = Viewer(running, conversation)
    await viewer.until("caught_up")
    await db.run(posts.post_message, conversation.owner_id, conversation.pk, Draft("unheard"))
    await running.ledger.write(posts.post_message, conversation.owner_id, conversation.pk, Draft("heard"))
    assert [(await viewer.next())["text"] for _ in range(2)] == ["unheard", "heard"]


async def test_it_drops_repeats_of_events_and_of_deltas(
    running: Gateway, conversation: Session, turn: Turn, live_valkey: redis.Redis
) -> None:
    viewer = Viewer(running, conversation)
    await turn.say("abc")
    await viewer.until("caught_up")
    entries: Any = live_valkey.xrange(stream_key(conversation.pk))
    for _, fields in entries:
        live_valkey.xadd(stream_key(conversation.pk), fields)
    await turn.say("def")
    delta = await viewer.next()
    assert (delta["offset"], delta["text"]) == (3, "def")


async def test_it_sends_the_whole_block_again_after_valkey_forgot_it(
    running: Gateway, conversation: Session, turn: Turn, live_valkey: redis.Redis
) -> None:
    viewer = Viewer(running, conversation)
    await turn.say("abc")
    await viewer.until("caught_up")
    live_valkey.flushall()
    await turn.say("def")
    await running.publisher.flush()
    delta = await viewer.next()
    assert (delta["offset"], delta["text"]) == (3, "def")
    late = await Viewer(running, conversation).until("caught_up")
    assert [f["text"] for f in late if f["kind"] == "delta"] == ["abcdef"]


async def test_it_drops_the_deltas_of_a_host_that_lost_its_lease(
    running: Gateway, conversation: Session, turn: Turn
) -> None:
    viewer = Viewer(running, conversation)
    await viewer.until("caught_up")
    stale = turn.ref
    turn.ref = BlockRef(**{**stale.__dict__, "block_id": "new", "generation": stale.generation + 1})
    await turn.say("from the new host")
    turn.ref = stale
    await turn.say("from the old one")
    turn.ref = BlockRef(**{**stale.__dict__, "block_id": "newer", "generation": stale.generation + 1})
    await turn.say("end")
    assert [(await viewer.next())["text"] for _ in range(2)] == ["from the new host", "end"]


async def test_it_shows_no_block_that_has_ended(
    running: Gateway, conversation: Session, turn: Turn, live_valkey: redis.Redis
) -> None:
    await turn.say("abc")
    await running.ledger.fail(
        turn.hold, Failure("id", "code", "detail", retryable=False), [CutBlock("block", "text", "abc")], None
    )
    seen = await Viewer(running, conversation, after=5).until("caught_up")
    assert [f for f in seen if f["kind"] == "delta"] == []
    running.publisher.close(conversation.pk, ["block"])
    await running.publisher.flush()
    assert live_valkey.hgetall(open_key(conversation.pk)) == {}


async def test_it_takes_deltas_from_the_doorbell_and_leaves_the_stream_alone(
    running: Gateway, conversation: Session, turn: Turn, monkeypatch: pytest.MonkeyPatch
) -> None:
    viewer = Viewer(running, conversation)
    await viewer.until("caught_up")
    await turn.say("one ")
    await viewer.until("delta")
    reads = []
    read = running.bus.read

    async def counted(*args: Any, **more: Any) -> Any:
        reads.append(args)
        return await read(*args, **more)

    monkeypatch.setattr(running.bus, "read", counted)
    texts = []
    for word in ("two ", "three ", "four "):
        await turn.say(word)
        texts.append((await viewer.next())["text"])
    assert texts == ["two ", "three ", "four "]
    assert reads == []


async def test_it_heals_a_lost_doorbell(running: Gateway, conversation: Session) -> None:
    viewer = Viewer(running, conversation, heal=0.2)
    await viewer.until("caught_up")
    await db.run(posts.post_message, conversation.owner_id, conversation.pk, Draft("nobody rang"))
    assert (await viewer.next())["text"] == "nobody rang"


async def test_it_heals_more_than_one_page(
    running: Gateway, conversation: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rows, "PAGE_BYTES", 1)
    viewer = Viewer(running, conversation, heal=0.2)
    await viewer.until("caught_up")
    for number in range(2 * rows.FIRST_STEP + 1):
        await db.run(posts.post_message, conversation.owner_id, conversation.pk, Draft(f"message {number}"))
    seen = [await viewer.next()]
    # The sweep that found the first one brings all, page by page.
    viewer.follower.heal = 60
    seen += [await viewer.next() for _ in range(2 * rows.FIRST_STEP)]
    assert [event["seq"] for event in seen] == list(range(1, 2 * rows.FIRST_STEP + 2))
    assert viewer.waiting == []


async def test_a_gap_of_many_rows_comes_page_by_page(
    running: Gateway, conversation: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rows, "PAGE_BYTES", 1)
    viewer = Viewer(running, conversation)
    await viewer.until("caught_up")
    for number in range(2 * rows.FIRST_STEP):
        await db.run(posts.post_message, conversation.owner_id, conversation.pk, Draft(f"unheard {number}"))
    await running.ledger.write(posts.post_message, conversation.owner_id, conversation.pk, Draft("heard"))
    batches = [batch for _ in range(5) if (batch := await anext(viewer.frames))]
    assert [len(batch) for batch in batches] == [rows.FIRST_STEP, rows.FIRST_STEP, 1]
    assert batches[-1][0]["text"] == "heard"


async def test_it_goes_on_from_the_rows_while_valkey_is_away(
    running: Gateway, conversation: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    viewer = Viewer(running, conversation, heal=0.1)
    await viewer.until("caught_up")
    read = running.bus.read

    async def away(*args: Any, **kwargs: Any) -> Any:
        raise redis.ConnectionError("away")

    monkeypatch.setattr(running.bus, "read", away)
    assert await viewer.next() == {"kind": "status", "state": "reconnecting"}
    await db.run(posts.post_message, conversation.owner_id, conversation.pk, Draft("meanwhile"))
    assert (await viewer.next())["text"] == "meanwhile"
    monkeypatch.setattr(running.bus, "read", read)
    assert await viewer.next() == {"kind": "status", "state": "connected"}


async def test_it_lets_go_of_its_doorbell_when_a_viewer_leaves(running: Gateway, conversation: Session) -> None:
    for _ in range(20):
        async with aclosing(Follower(running.bus, conversation.pk, 0).frames()) as frames:
            await anext(frames)
    assert running.bus._bells == {}


@pytest.mark.parametrize("steps", range(0, 60, 3))
async def test_a_viewer_that_leaves_at_any_moment_leaves_no_doorbell(
    running: Gateway, conversation: Session, live_valkey: redis.Redis, steps: int
) -> None:
    async def view() -> None:
        async with aclosing(Follower(running.bus, conversation.pk, 0).frames()) as frames:
            async for _batch in frames:
                pass

    for number in range(steps, steps + 3):
        viewers = [asyncio.create_task(view()) for _ in range(3)]
        for _ in range(number):
            await asyncio.sleep(0)
        await end(viewers)
    await asyncio.to_thread(wait_until, lambda: not live_valkey.pubsub_channels("bell:*"))
    assert running.bus._bells == {}


async def test_who_comes_while_the_last_viewer_leaves_is_rung(running: Gateway, conversation: Session) -> None:
    for number in range(30):
        first, second = Viewer(running, conversation, after=None), Viewer(running, conversation, after=None)
        await first.until("caught_up")
        leaves = asyncio.create_task(first.frames.aclose())
        for _ in range(number % 6):
            await asyncio.sleep(0)
        await second.until("caught_up")
        await leaves
        draft = Draft(f"message {number}")
        await running.ledger.write(posts.post_message, conversation.owner_id, conversation.pk, draft)
        assert (await second.next(2))["text"] == draft.text
        await second.frames.aclose()


async def test_it_hears_doorbells_after_a_long_silence(
    running: Gateway, conversation: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    viewer = Viewer(running, conversation)
    await viewer.until("caught_up")
    answered, hear = asyncio.Event(), running.bus._hear

    def heard(message: dict[str, Any]) -> None:
        hear(message)
        if message["type"] == "pong":
            answered.set()

    monkeypatch.setattr("gateway.bus.LISTEN_SECONDS", 0.02)
    monkeypatch.setattr(running.bus, "_hear", heard)
    await running.ledger.write(posts.post_message, conversation.owner_id, conversation.pk, Draft("first"))
    async with asyncio.timeout(5):
        await answered.wait()
    await running.ledger.write(posts.post_message, conversation.owner_id, conversation.pk, Draft("second"))
    assert [(await viewer.next())["text"] for _ in range(2)] == ["first", "second"]
