"""The Valkey side of the live path: one publisher, one subscriber and a small pool for each process."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from typing import Any

import redis.asyncio as valkey
from redis.asyncio.retry import Retry
from redis.backoff import ExponentialBackoff, NoBackoff
from redis.exceptions import NoScriptError, RedisError

from chatapp.runtime.ids import new_id
from gateway.ending import end

logger = logging.getLogger(__name__)

AWAY = (RedisError, OSError)
WAKE = "wake"
RING = b"1"
STREAM_LENGTH = 2000
STREAM_SECONDS = 600
LISTEN_SECONDS = 15.0
SUBSCRIBE_SECONDS = 2.0
PAGE = 100
TOLD_BYTES = 256 * 1024

# One delta: append to its block's text and to the stream, and tell the viewers the entry, its id and the id before it.
# ARGV: generation, session, block id, meta, byte offset, text, entry, whole (1 rewrites the block), bell. Frames of an
# older generation and repeats (a retry of a call whose answer was lost) change nothing; -1 asks for the whole block,
# since Valkey lost a part of it.
DELTA = """
local fence = tonumber(redis.call('HGET', KEYS[4], ARGV[2]) or '0')
local generation = tonumber(ARGV[1])
if generation < fence then return 0 end
if generation > fence then redis.call('HSET', KEYS[4], ARGV[2], generation) end
if ARGV[8] == '1' then
  redis.call('SET', KEYS[2], ARGV[6])
else
  local have = redis.call('STRLEN', KEYS[2])
  if have > tonumber(ARGV[5]) then return 0 end
  if have < tonumber(ARGV[5]) then return -1 end
  redis.call('APPEND', KEYS[2], ARGV[6])
end
redis.call('HSET', KEYS[3], ARGV[3], ARGV[4])
local last = redis.call('XREVRANGE', KEYS[1], '+', '-', 'COUNT', 1)
local before = last[1] and last[1][1] or '0-0'
local id = redis.call('XADD', KEYS[1], 'MAXLEN', '~', 2000, '*', 'd', ARGV[7])
redis.call('PUBLISH', ARGV[9], before .. ' ' .. id .. ' ' .. ARGV[7])
for i = 1, 4 do redis.call('EXPIRE', KEYS[i], 3600) end
return 1
"""

# What a joining viewer needs in one step: the stream's last id, and each open block's meta and text so far.
SNAPSHOT = """
local last = redis.call('XREVRANGE', KEYS[1], '+', '-', 'COUNT', 1)
local out = {last[1] and last[1][1] or '0-0'}
local open = redis.call('HGETALL', KEYS[2])
for i = 1, #open, 2 do
  out[#out + 1] = open[i + 1]
  out[#out + 1] = redis.call('GET', ARGV[1] .. open[i]) or ''
end
return out
"""


def stream_key(conversation_id: str) -> str:
    return f"stream:{{{conversation_id}}}"


def block_key(conversation_id: str, block_id: str) -> str:
    return f"block:{{{conversation_id}}}:{block_id}"


def open_key(conversation_id: str) -> str:
    return f"open:{{{conversation_id}}}"


def fence_key(conversation_id: str) -> str:
    return f"fence:{{{conversation_id}}}"


def bell(conversation_id: str) -> str:
    return f"bell:{conversation_id}"


@dataclass(frozen=True)
class Snapshot:
    last_id: str
    blocks: tuple[tuple[bytes, str], ...]


Entry = tuple[str, dict[bytes, bytes]]


class Watch:
    """One viewer's doorbell: entries it was told, or just that there is something to look for in the stream."""

    def __init__(self) -> None:
        self.rang = asyncio.Event()
        self._look = True
        self._told: list[tuple[str, Entry]] = []
        self._bytes = 0

    def ring(self) -> None:
        self._look = True
        self._forget()
        self.rang.set()

    def tell(self, before: str, entry_id: str, delta: bytes) -> None:
        """A new delta and the id of the entry before it. A viewer that does not come for them looks later."""
        self._bytes += len(delta)
        if self._bytes > TOLD_BYTES:
            self.ring()
        elif not self._look:
            self._told.append((before, (entry_id, {b"d": delta})))
        self.rang.set()

    def take(self, cursor: str) -> list[Entry] | None:
        """What comes after `cursor`; None when only the stream knows."""
        told, look, self._look = self._told, self._look, False
        self._forget()
        self.rang.clear()
        entries: list[Entry] = []
        for before, entry in told:
            if before == cursor:
                entries.append(entry)
                cursor = entry[0]
            elif _number(entry[0]) > _number(cursor):
                return None
            # Else it was told while the stream was read, and is known from there.
        return None if look else entries

    def _forget(self) -> None:
        self._told, self._bytes = [], 0


def _number(entry_id: str) -> tuple[int, int]:
    milliseconds, _, count = entry_id.partition("-")
    return int(milliseconds), int(count)


class Bus:
    """Connections of one process. `on_wake` hears the doorbells of sessions; viewers watch conversations.

    With `doorbells` off nobody is rung: sweeps find everything (the tests prove it).
    """

    def __init__(self, url: str, on_wake: Callable[[str], None], *, doorbells: bool = True) -> None:
        retry = Retry(ExponentialBackoff(cap=0.5, base=0.02), 3)
        self.pool = valkey.BlockingConnectionPool.from_url(
            url, max_connections=8, timeout=None, socket_timeout=5, retry=retry, health_check_interval=30
        )
        self.client = valkey.Redis(connection_pool=self.pool)
        # No retry of the client's own: after each reconnect we must look, since doorbells were lost meanwhile.
        over_tcp = {} if url.startswith("unix:") else {"socket_keepalive": True}
        self._listener = valkey.Redis.from_url(url, socket_timeout=None, retry=Retry(NoBackoff(), 0), **over_tcp)
        self.name = new_id()
        self.on_wake = on_wake
        self.doorbells = doorbells
        self._pubsub: Any = None
        self._silent = 0
        self._bells: dict[str, set[Watch]] = {}
        self._subscribed: dict[str, asyncio.Future[None]] = {}
        self._matching: set[asyncio.Task[None]] = set()
        self._order = asyncio.Lock()
        self._delta = self.client.register_script(DELTA)
        self._snapshot = self.client.register_script(SNAPSHOT)

    @property
    def delta_sha(self) -> str:
        return str(self._delta.sha)

    async def load_scripts(self) -> None:
        await self.client.script_load(DELTA)

    # Listening

    async def listen(self) -> None:
        """Read doorbells for ever; after each reconnect everybody looks, since bells may have been lost."""
        wait = 0.05
        while True:
            try:
                async with self._listener.pubsub() as pubsub:
                    # Until this answers nobody else may use it: two first commands would open two connections.
                    await pubsub.subscribe(WAKE)
                    wait = 0.05
                    await self._hear_all(pubsub)
            except AWAY as error:
                logger.warning("Valkey is away, trying again: %s", error)
                # Idle viewers must find out, and go on from the rows.
                self.ring_all()
            await asyncio.sleep(wait)
            wait = min(wait * 2, 1.0)

    async def _hear_all(self, pubsub: Any) -> None:
        self._pubsub, self._silent = pubsub, 0
        try:
            if self._bells:
                await pubsub.subscribe(*self._bells)
            self.ring_all()
            while True:
                await self._hear_next(pubsub)
        finally:
            self._pubsub = None

    async def _hear_next(self, pubsub: Any) -> None:
        """One message. After a silence a ping: a connection that is half dead fails at the second one."""
        message = await pubsub.get_message(timeout=LISTEN_SECONDS)
        if message is not None:
            self._silent = 0
            self._hear(message)
            return
        self._silent += 1
        if self._silent > 1:
            raise ConnectionError("no answer to a ping")
        await pubsub.ping()

    def _hear(self, message: dict[str, Any]) -> None:
        if message["type"] == "pong":
            return
        channel = message["channel"].decode()
        if message["type"] == "subscribe":
            future = self._subscribed.pop(channel, None)
            if future is not None and not future.done():
                future.set_result(None)
            # Who looked before this answer may have missed a doorbell.
            for watch in self._bells.get(channel, ()):
                watch.ring()
        elif message["type"] == "message" and self.doorbells:
            if channel == WAKE:
                session_id, _, sender = message["data"].decode().partition(" ")
                # Our own rang here before it was sent.
                if sender != self.name:
                    self.on_wake(session_id)
            else:
                self._tell(self._bells.get(channel, ()), message["data"])

    def _tell(self, watches: Iterable[Watch], told: bytes) -> None:
        if told == RING:
            for watch in watches:
                watch.ring()
            return
        before, entry_id, delta = told.split(b" ", 2)
        for watch in watches:
            watch.tell(before.decode(), entry_id.decode(), delta)

    def ring_all(self) -> None:
        for watches in self._bells.values():
            for watch in watches:
                watch.ring()

    @asynccontextmanager
    async def watch(self, conversation_id: str) -> AsyncIterator[Watch]:
        """A doorbell that rings when something was published; subscribed before it is handed out, if Valkey is up."""
        channel, watch = bell(conversation_id), Watch()
        watchers = self._bells.setdefault(channel, set())
        watchers.add(watch)
        try:
            await self._subscribed_to(channel, first=len(watchers) == 1)
            yield watch
        finally:
            watchers.discard(watch)
            if not watchers and self._bells.get(channel) is watchers:
                del self._bells[channel]
                self._match(channel)

    async def _subscribed_to(self, channel: str, *, first: bool) -> None:
        """The first watcher subscribes; those who come meanwhile wait for the same answer."""
        if self._pubsub is None:
            return
        if first:
            self._subscribed[channel] = asyncio.get_running_loop().create_future()
            self._match(channel)
        if done := self._subscribed.get(channel):
            # The sweep heals what is missed where the answer does not come.
            with suppress(TimeoutError):
                async with asyncio.timeout(SUBSCRIBE_SECONDS):
                    await asyncio.shield(done)

    def _match(self, channel: str) -> None:
        """In a task of its own, since a viewer may be cancelled at any moment."""
        task = asyncio.create_task(self._subscribe_as_watched(channel))
        self._matching.add(task)
        task.add_done_callback(self._matching.discard)

    async def _subscribe_as_watched(self, channel: str) -> None:
        """One after the other, each as things are then: who comes while the last one leaves stays subscribed."""
        async with self._order:
            # Else the listener subscribes to all bells when it is back.
            if self._pubsub is not None:
                with suppress(*AWAY):
                    watched = channel in self._bells
                    await (self._pubsub.subscribe(channel) if watched else self._pubsub.unsubscribe(channel))

    # Reading

    async def snapshot(self, conversation_id: str) -> Snapshot:
        prefix = block_key(conversation_id, "")
        rows = await self._snapshot(keys=[stream_key(conversation_id), open_key(conversation_id)], args=[prefix])
        texts = tuple((rows[i], rows[i + 1].decode()) for i in range(1, len(rows), 2))
        return Snapshot(rows[0].decode(), texts)

    async def read(self, conversation_id: str, after: str, count: int = PAGE) -> list[Entry]:
        rows: Any = await self.client.xrange(stream_key(conversation_id), f"({after}", "+", count=count)
        return [(entry_id.decode(), fields) for entry_id, fields in rows]

    async def block_text(self, conversation_id: str, block_id: str) -> str:
        text: Any = await self.client.get(block_key(conversation_id, block_id))
        return (text or b"").decode()

    # Writing

    async def send(self, commands: Iterable[tuple[Any, ...]]) -> list[Any]:
        """One pipeline of raw commands; their answers in order."""
        commands = list(commands)
        for _ in range(2):
            pipe = self.client.pipeline(transaction=False)
            for command in commands:
                pipe.execute_command(*command)
            answers = await pipe.execute(raise_on_error=False)
            if not any(isinstance(answer, NoScriptError) for answer in answers):
                return list(answers)
            # A restarted Valkey has forgotten the script. What went through is dropped as a repeat.
            await self.load_scripts()
        return list(answers)

    async def close(self) -> None:
        await end(self._matching)
        await self.client.aclose()
        await self.pool.disconnect()
        await self._listener.aclose()
