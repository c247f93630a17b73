"""Following a conversation over Server-Sent Events: replay, live, coming back, and how an answer ends."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.test import AsyncClient

from chatapp.models import ApiToken, Session
from chatapp.runtime.events import BlockRef, DeltaType
from chatapp.store import checkpoints, db, deletion
from gateway import sse
from gateway.wiring import Gateway
from tests.gateway.api_client import Api
from tests.gateway.replies import answered, claimed, conversation_of, sent

pytestmark = pytest.mark.django_db(transaction=True)

Message = dict[str, Any]


class Reader:
    """Reads one answer, message by message; comments are left out."""

    def __init__(self, response: Any) -> None:
        self.response = response
        self.chunks: AsyncIterator[bytes] = aiter(response.streaming_content)
        self.waiting: list[Message] = []

    async def next(self) -> Message | None:
        """The next message, None at the end."""
        async with asyncio.timeout(10):
            while not self.waiting:
                try:
                    chunk = await anext(self.chunks)
                except StopAsyncIteration:
                    return None
                self.waiting = [_parsed(block) for block in chunk.decode().split("\n\n") if block and block[0] != ":"]
        return self.waiting.pop(0)

    async def until(self, type_: str) -> list[Message]:
        found: list[Message] = []
        while (message := await self.next()) is not None:
            found.append(message)
            if message.get("event") == type_:
                return found
        raise AssertionError(f"no {type_} in {found}")

    async def close(self) -> None:
        """Go away while nothing comes, as a client that hangs up."""
        reading = asyncio.ensure_future(anext(self.chunks))
        await asyncio.sleep(0)
        reading.cancel()
        await asyncio.wait({reading})


def _parsed(block: str) -> Message:
    return dict(line.split(": ", 1) for line in block.split("\n"))


async def _follow(api: Api, row: Session, headers: dict[str, str] | None = None, **query: Any) -> Reader:
    accept = {"accept": "text/event-stream"}
    response = await api.call("GET", f"conversations/{row.pk}/events", query=query, headers=accept | (headers or {}))
    assert response.status_code == 200
    assert response.headers["Content-Type"] == "text/event-stream"
    return Reader(response)


async def test_it_replays_what_is_stored_and_goes_on_live(api: Api, alice: User, running: Gateway) -> None:
    row = await db.run(conversation_of, alice)
    await db.run(sent, row)
    reader = await _follow(api, row)
    assert await reader.next() == {"retry": "2000"}
    stored = await reader.next()
    assert stored is not None
    assert (stored["id"], stored["event"]) == ("1", "USER_MESSAGE")
    assert json.loads(stored["data"]) == (await api.get(f"conversations/{row.pk}/events")).data["items"][0]
    await api.post(f"conversations/{row.pk}/messages", {"text": "more"})
    live = await reader.next()
    assert live is not None
    assert (live["id"], json.loads(live["data"])["text"]) == ("2", "more")
    await reader.close()
    assert not running.sockets.open


async def test_a_delta_has_no_id(api: Api, alice: User, running: Gateway) -> None:
    row = await db.run(conversation_of, alice)
    await db.run(sent, row)
    hold = await db.run(claimed, row)
    start = await running.ledger.write(checkpoints.begin_block, hold, "text", "block-1")
    reply_id = (await Session.objects.aget(pk=row.pk)).reply_id
    block = BlockRef(DeltaType.TEXT, row.pk, row.pk, "", reply_id, "block-1", start, hold.generation)
    reader = await _follow(api, row)
    await reader.until("TEXT_BLOCK_START")
    running.publisher.delta(block, "Hel")
    delta = (await reader.until("TEXT_BLOCK_DELTA"))[-1]
    assert "id" not in delta
    assert json.loads(delta["data"])["text"] == "Hel"
    await reader.close()


async def test_it_comes_back_after_the_last_event_it_saw(api: Api, alice: User) -> None:
    row = await db.run(conversation_of, alice)
    await db.run(sent, row)
    await db.run(answered, row)
    reader = await _follow(api, row, {"last-event-id": "3"}, after=1)
    ids = [message["id"] for message in await reader.until("AGENT_END") if "id" in message]
    last = (await Session.objects.aget(pk=row.pk)).last_seq
    assert ids == [str(number) for number in range(4, last + 1)]
    await reader.close()


async def test_latest_is_only_what_comes(api: Api, alice: User) -> None:
    row = await db.run(conversation_of, alice)
    await db.run(sent, row)
    for after in ("latest", "99"):
        reader = await _follow(api, row, after=after)
        assert "retry" in (await reader.next() or {})
        waiting = asyncio.ensure_future(reader.next())
        await api.post(f"conversations/{row.pk}/messages", {"text": after})
        message = await waiting
        assert message is not None
        assert json.loads(message["data"])["text"] == after
        await reader.close()


async def test_it_is_narrowed_as_the_list_is(api: Api, alice: User) -> None:
    row = await db.run(conversation_of, alice)
    frame = {"session_id": "child", "source": "main/researcher/reader"}
    assert sse.keeper("main/researcher", "")(frame)
    assert sse.keeper("", "child")(frame)
    for other in (("main", ""), ("main/research", ""), ("", "root"), ("main/researcher", "root")):
        assert not sse.keeper(*other)(frame)
    assert sse.keeper("main", "")({"session_id": "root", "source": None})
    await db.run(sent, row)
    await db.run(answered, row)
    reader = await _follow(api, row, source="main", session=row.pk)
    assert len(await reader.until("AGENT_END")) > 3
    await reader.close()


@pytest.mark.parametrize(
    ("headers", "query"), [({"last-event-id": "x"}, {}), ({}, {"after": "x"}), ({}, {"source": "x"})]
)
async def test_a_bad_question_is_a_problem_and_no_stream(api: Api, alice: User, headers: Any, query: Any) -> None:
    row = await db.run(conversation_of, alice)
    accept = {"accept": "application/json;q=0.5, text/event-stream"}
    refused = await api.call("GET", f"conversations/{row.pk}/events", query=query, headers=accept | headers)
    assert refused.status_code == 422


# How an answer ends


class Frames:
    """A follower that has these batches and then nothing."""

    def __init__(self, *batches: list[dict[str, Any]]) -> None:
        self.batches = batches

    async def frames(self) -> AsyncIterator[list[dict[str, Any]]]:
        for batch in self.batches:
            yield batch
        await asyncio.Event().wait()


def _event(seq: int) -> dict[str, Any]:
    return {"kind": "event", "seq": seq, "type": "CUSTOM", "text": "x" * 100}


async def _whole(follower: Any, over: asyncio.Event | None = None, **limits: Any) -> list[bytes]:
    async with asyncio.timeout(10):
        return [chunk async for chunk in sse.stream(follower, lambda frame: True, over or asyncio.Event(), **limits)]


async def test_it_ends_when_it_is_long_enough_at_a_whole_event() -> None:
    chunks = await _whole(
        Frames([_event(1)], [_event(2), _event(3), _event(4)], [_event(5)]), most=2 * len(sse.wire(_event(1))) + 1
    )
    assert b"".join(chunks).count(b"id: ") == 3
    assert chunks[-1] == b"retry: 0\n\n"


async def test_it_ends_when_it_is_old_enough_and_says_meanwhile_that_it_lives() -> None:
    chunks = await _whole(Frames([_event(1)]), seconds=0.2, silence=0.05)
    assert b": still here\n\n" in chunks
    assert chunks[-1] == b"retry: 0\n\n"


async def test_it_ends_without_a_wish_to_come_back_when_it_may_not_stay() -> None:
    over = asyncio.Event()
    over.set()
    assert await _whole(Frames([_event(1)]), over) == [b"retry: 2000\n\n"]


async def _ends(reader: Reader, running: Gateway) -> None:
    await running.sockets.check()
    while (message := await reader.next()) is not None:
        assert message != {"retry": "0"}


async def test_it_ends_when_the_token_is_revoked(api: Api, alice: User, running: Gateway) -> None:
    row = await db.run(conversation_of, alice)
    await db.run(sent, row)
    reader = await _follow(api, row)
    await reader.until("USER_MESSAGE")
    await running.sockets.check()
    assert running.sockets.open
    await ApiToken.objects.all().adelete()
    await _ends(reader, running)
    assert not running.sockets.open


async def test_it_ends_when_the_conversation_is_deleted(api: Api, alice: User, running: Gateway) -> None:
    row = await db.run(conversation_of, alice)
    await db.run(sent, row)
    reader = await _follow(api, row)
    await reader.until("USER_MESSAGE")
    await db.run(deletion.delete_conversation, alice.pk, row.pk)
    await _ends(reader, running)


async def test_it_ends_at_a_logout(api: Api, alice: User, running: Gateway) -> None:
    row = await db.run(conversation_of, alice)
    await db.run(sent, row)
    client = AsyncClient()
    await client.aforce_login(alice)
    reader = await _follow(Api(client=client), row)
    await reader.until("USER_MESSAGE")
    await client.alogout()
    await _ends(reader, running)


@pytest.mark.parametrize("spins", range(5))
async def test_a_client_that_hangs_up_at_any_moment_leaves_nothing(
    api: Api, alice: User, running: Gateway, spins: int
) -> None:
    row = await db.run(conversation_of, alice)
    await db.run(sent, row)
    reader = await _follow(api, row)
    await reader.until("USER_MESSAGE")
    reading = asyncio.ensure_future(reader.next())
    for _ in range(spins + 1):
        await asyncio.sleep(0)
    reading.cancel()
    async with asyncio.timeout(10):
        await asyncio.wait({reading})
    assert not running.sockets.open
