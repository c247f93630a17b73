"""The live half of the feed: committed events and gathered deltas on their way into Valkey, in order."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import orjson

from chatapp.runtime.events import BlockRef, DeltaType, Envelope
from gateway.bus import (
    AWAY,
    RING,
    STREAM_LENGTH,
    STREAM_SECONDS,
    WAKE,
    Bus,
    bell,
    block_key,
    fence_key,
    open_key,
    stream_key,
)

logger = logging.getLogger(__name__)

QUICK = 0.016
SLOW = 0.050
FLOOD = 100  # deltas a second of one block; faster ones wait the long window
BACKLOG = 20_000


@dataclass
class Gathered:
    """A block's deltas that were not sent yet. `sent_*` is how much of it went out, in code points and in bytes."""

    ref: BlockRef
    pieces: list[str] = field(default_factory=list)
    whole: list[str] = field(default_factory=list)
    sent: int = 0
    sent_bytes: int = 0
    sent_at: float = -1.0
    due: float = 0.0
    count: int = 0
    counted_at: float = 0.0
    rewrite: bool = False

    def window(self, now: float) -> float:
        """The gathering window, from the rate since the last look half a second ago."""
        self.count += 1
        elapsed = now - self.counted_at
        if elapsed > 0.5:
            self.count, self.counted_at = 1, now
            return QUICK
        return SLOW if self.count > FLOOD * max(elapsed, 0.1) else QUICK


class Publisher:
    """Implements the Feed port. One task sends; while it waits for Valkey, what comes is gathered."""

    def __init__(self, bus: Bus) -> None:
        self.bus = bus
        self._loop = asyncio.get_running_loop()
        self._queue: deque[tuple[Any, ...]] = deque()
        self._rung: dict[str, None] = {}
        self._lost: set[str] = set()
        self._blocks: dict[str, Gathered] = {}
        self._ready = asyncio.Event()
        self._timer: asyncio.TimerHandle | None = None

    # The port: never waits, never raises

    def publish(self, events: Sequence[Envelope]) -> None:
        for event in events:
            if len(self._queue) > BACKLOG:
                self._lost.add(event.conversation_id)
                continue
            stream = stream_key(event.conversation_id)
            self._queue.append(("XADD", stream, "MAXLEN", "~", STREAM_LENGTH, "*", "e", event.encoded))
            self._rung[event.conversation_id] = None
        self._ready.set()

    def delta(self, block: BlockRef, text: str) -> None:
        gathered = self._blocks.get(block.block_id)
        if gathered is None:
            gathered = self._blocks[block.block_id] = Gathered(block)
        now = self._loop.time()
        window = gathered.window(now)
        if not gathered.pieces:
            gathered.due = max(now, gathered.sent_at + window)
            self._at(gathered.due)
        gathered.pieces.append(text)

    def close(self, conversation_id: str, block_ids: Iterable[str]) -> None:
        for block_id in block_ids:
            self._blocks.pop(block_id, None)
            self._queue.append(("HDEL", open_key(conversation_id), block_id))
            self._queue.append(("DEL", block_key(conversation_id, block_id)))
        self._ready.set()

    def hush(self, conversation_id: str, reply_id: str) -> None:
        stream = stream_key(conversation_id)
        self._queue.append(("XADD", stream, "MAXLEN", "~", STREAM_LENGTH, "*", "h", reply_id))
        self._rung[conversation_id] = None
        self._ready.set()

    def wake(self, session_id: str) -> None:
        """Whoever hosts here need not wait until Valkey tells it."""
        self._queue.append(("PUBLISH", WAKE, f"{session_id} {self.bus.name}"))
        self._ready.set()
        if self.bus.doorbells:
            self.bus.on_wake(session_id)

    # The sender

    def _at(self, due: float) -> None:
        if due <= self._loop.time():
            self._ready.set()
        elif self._timer is None or self._timer.when() > due:
            if self._timer is not None:
                self._timer.cancel()
            self._timer = self._loop.call_at(due, self._rang)

    def _rang(self) -> None:
        self._timer = None
        self._ready.set()

    async def run(self) -> None:
        while True:
            await self._ready.wait()
            self._ready.clear()
            await self.flush()

    async def flush(self) -> None:
        """Events first, then a doorbell for each of their conversations, then the deltas that are due."""
        commands = list(self._queue)
        conversations = dict(self._rung)
        lost, self._lost = self._lost, set()
        self._queue.clear()
        self._rung.clear()
        for conversation in lost:
            stream = stream_key(conversation)
            commands.append(("XADD", stream, "MAXLEN", "~", STREAM_LENGTH, "*", "r", "1"))
            conversations[conversation] = None
        for conversation in conversations:
            commands.append(("EXPIRE", stream_key(conversation), STREAM_SECONDS))
            commands.append(("PUBLISH", bell(conversation), RING))
        first_delta = len(commands)
        sending = self._due_blocks()
        for gathered, command in sending:
            commands.append(command)
            conversations[gathered.ref.conversation_id] = None
        if not commands:
            return
        try:
            answers = await self.bus.send(commands)
        except AWAY as error:
            await self._away(error, commands, conversations, sending)
            return
        for (gathered, _), answer in zip(sending, answers[first_delta:], strict=False):
            if answer == -1:
                self._again(gathered)

    def _due_blocks(self) -> list[tuple[Gathered, tuple[Any, ...]]]:
        now = self._loop.time()
        due: list[tuple[Gathered, tuple[Any, ...]]] = []
        soonest: float | None = None
        for gathered in self._blocks.values():
            if not gathered.pieces:
                continue
            if gathered.due <= now + 0.001:
                due.append((gathered, self._command(gathered, now)))
            elif soonest is None or gathered.due < soonest:
                soonest = gathered.due
        if soonest is not None:
            self._at(soonest)
        return due

    def _command(self, gathered: Gathered, now: float) -> tuple[Any, ...]:
        """The script call that sends what was gathered; the whole block after Valkey lost a part of it."""
        ref, text = gathered.ref, "".join(gathered.pieces)
        gathered.pieces.clear()
        gathered.whole.append(text)
        if gathered.rewrite:
            text = "".join(gathered.whole)
            gathered.whole = [text]
            gathered.sent = gathered.sent_bytes = 0
        entry = delta_entry(ref, gathered.sent, text)
        meta = delta_entry(ref, 0, "")
        conversation = ref.conversation_id
        command = (
            "EVALSHA", self.bus.delta_sha, 4, stream_key(conversation), block_key(conversation, ref.block_id),
            open_key(conversation), fence_key(conversation), ref.generation, ref.session_id, ref.block_id, meta,
            gathered.sent_bytes, text, entry, int(gathered.rewrite), bell(conversation),
        )  # fmt: skip
        gathered.sent += len(text)
        gathered.sent_bytes += len(text.encode())
        gathered.sent_at, gathered.rewrite = now, False
        return command

    def _again(self, gathered: Gathered) -> None:
        """Send the whole block at once."""
        gathered.rewrite = True
        gathered.pieces.append("")
        gathered.due = 0.0
        self._ready.set()

    async def _away(
        self, error: Exception, commands: list[tuple[Any, ...]], conversations: dict[str, None],
        sending: list[tuple[Gathered, tuple[Any, ...]]],
    ) -> None:  # fmt: skip
        """The rows have it all: viewers are told to look at them once Valkey is back. Doorbells of sessions and the
        ends of blocks are kept and sent again."""
        logger.warning("Valkey is away; the feed goes on from the rows: %s", error)
        self._lost.update(conversations)
        kept = dict.fromkeys(c for c in commands if c[0] in ("HDEL", "DEL") or c[:2] == ("PUBLISH", WAKE))
        self._queue.extendleft(reversed(list(kept)[-BACKLOG:]))
        for gathered, _ in sending:
            if gathered.ref.block_id in self._blocks:
                self._again(gathered)
        await asyncio.sleep(0.2)
        self._ready.set()


def delta_entry(ref: BlockRef, offset: int, text: str) -> bytes:
    """A delta's wire form, with the number of its START for the server's own use."""
    key = "tool_call_id" if ref.type is DeltaType.TOOL_CALL else "block_id"
    return orjson.dumps(
        {
            "kind": "delta",
            "type": ref.type.value,
            "session_id": ref.session_id,
            "source": ref.source or None,
            "reply_id": ref.reply_id,
            key: ref.block_id,
            "offset": offset,
            "text": text,
            "start_seq": ref.start_seq,
        }
    )
