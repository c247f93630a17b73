"""One viewer's way through a conversation: the rows after its number, the open blocks, then the live stream."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator
from contextlib import suppress
from typing import Any

import orjson

from chatapp.store import db
from chatapp.store import feed as rows
from gateway.bus import AWAY, PAGE, Bus, Entry, Watch

logger = logging.getLogger(__name__)

Frame = dict[str, Any]
HEAL_SECONDS = 15.0
AWAY_SECONDS = 0.5


class Follower:
    """Frames `event`, `delta`, `caught_up` and, for the page, `status`, each event once and in order.

    Stream ids stay in here; `seq` is the number of the last event given out. The database is the truth: a gap in the
    stream, a lost doorbell or an absent Valkey only make it slower.
    """

    def __init__(self, bus: Bus, conversation_id: str, after: int | None, *, heal: float = HEAL_SECONDS) -> None:
        self.bus = bus
        self.conversation_id = conversation_id
        self.seq = after if after is not None else -1
        self.heal = heal
        self._cursor = "0-0"
        self._offsets: dict[str, int] = {}
        self._ended: set[str] = set()
        self._hushed: set[str] = set()

    async def frames(self) -> AsyncGenerator[list[Frame], None]:
        """Batches of frames for ever; the reader pulls, so it is never ahead of its client by more than a batch."""
        async with self.bus.watch(self.conversation_id) as watch:
            async for batch in self._replay():
                yield batch
            while True:
                try:
                    entries = await self._entries(watch)
                except AWAY:
                    async for batch in self._without_valkey():
                        yield batch
                    watch.ring()
                    continue
                async for batch in self._take(entries):
                    yield batch
                if not watch.rang.is_set():
                    async for batch in self._wait(watch):
                        yield batch

    async def _entries(self, watch: Watch) -> list[Entry]:
        """As the doorbell told them, or from the stream where that may not be all."""
        told = watch.take(self._cursor)
        if told is not None:
            return told
        entries = await self.bus.read(self.conversation_id, self._cursor)
        if len(entries) == PAGE:
            watch.ring()
        return entries

    async def _wait(self, watch: Watch) -> AsyncGenerator[list[Frame], None]:
        """For the doorbell; what the rows have after a long silence, since a bell may have been lost."""
        try:
            async with asyncio.timeout(self.heal):
                await watch.rang.wait()
        except TimeoutError:
            watch.ring()
            async for page in self._rows():
                yield page

    # Joining

    async def _replay(self) -> AsyncGenerator[list[Frame], None]:
        """The stream's place first, then the rows, then the open blocks: what comes in between is in both."""
        newest = await db.run(rows.last_seq, self.conversation_id) or 0
        after = newest if self.seq < 0 else min(self.seq, newest)
        self.seq = after
        blocks: tuple[tuple[bytes, str], ...] = ()
        with suppress(*AWAY):
            snapshot = await self.bus.snapshot(self.conversation_id)
            self._cursor, blocks = snapshot.last_id, snapshot.blocks
        async for page in self._rows():
            yield page
        if blocks:
            yield await self._open(blocks, after)
        yield [{"kind": "caught_up", "seq": self.seq}]

    async def _open(self, blocks: tuple[tuple[bytes, str], ...], after: int) -> list[Frame]:
        frames = []
        metas = [(orjson.loads(meta), text) for meta, text in blocks]
        oldest = min(meta["start_seq"] for meta, _ in metas)
        self._ended |= await db.run(rows.ended_blocks, self.conversation_id, min(oldest, after))
        for meta, text in metas:
            if meta["start_seq"] <= self.seq:
                frames += self._delta({**meta, "text": text})
        return frames

    # Following

    async def _take(self, entries: list[Entry]) -> AsyncGenerator[list[Frame], None]:
        """Their frames in one batch; where the stream has a gap, the rows between them page by page."""
        frames: list[Frame] = []
        for entry_id, fields in entries:
            self._cursor = entry_id
            event = orjson.loads(fields[b"e"]) if b"e" in fields else None
            delta = orjson.loads(fields[b"d"]) if b"d" in fields else None
            if b"h" in fields:
                self._hushed.add(fields[b"h"].decode())
                continue
            # An entry of another kind says that there are rows whose events did not come through.
            known = event["seq"] - 1 if event else delta["start_seq"] if delta else None
            if known is None or known > self.seq:
                yield frames
                frames = []
                async for page in self._rows(known):
                    yield page
            if event and event["seq"] == self.seq + 1:
                frames.append(self._pass(event))
            elif delta:
                frames += await self._live_delta(delta)
        yield frames

    async def _rows(self, upto: int | None = None) -> AsyncGenerator[list[Frame], None]:
        """What the ledger has beyond our number in pages, so that nobody holds all of it who reads slowly."""
        while upto is None or self.seq < upto:
            page = await db.run(rows.events_after, self.conversation_id, self.seq, upto=upto)
            if not page:
                return
            yield [self._pass(event) for event in page]

    def _pass(self, event: Frame) -> Frame:
        self.seq = event["seq"]
        for block_id in rows.block_ids([event]):
            self._ended.add(block_id)
            self._offsets.pop(block_id, None)
        return {"kind": "event", **event}

    async def _live_delta(self, delta: Frame) -> list[Frame]:
        """A delta that starts where the last one ended, or the block's text from there when some were missed."""
        block_id = delta.get("block_id") or delta["tool_call_id"]
        hushed = delta["reply_id"] in self._hushed
        if hushed or block_id in self._ended or delta["start_seq"] > self.seq:
            return []
        if delta["offset"] > self._offsets.get(block_id, 0):
            text = ""
            with suppress(*AWAY):
                text = await self.bus.block_text(self.conversation_id, block_id)
            delta = {**delta, "offset": 0, "text": text}
        return self._delta(delta)

    def _delta(self, delta: Frame) -> list[Frame]:
        block_id = delta.get("block_id") or delta["tool_call_id"]
        have = self._offsets.get(block_id, 0)
        text = delta["text"][max(0, have - delta["offset"]) :]
        if block_id in self._ended or not text:
            return []
        self._offsets[block_id] = have + len(text)
        frame = {**delta, "offset": have, "text": text}
        del frame["start_seq"]
        return [frame]

    async def _without_valkey(self) -> AsyncGenerator[list[Frame], None]:
        """Valkey is away: rows twice a second until it is back, and the viewer knows."""
        yield [{"kind": "status", "state": "reconnecting"}]
        while True:
            await asyncio.sleep(AWAY_SECONDS)
            async for page in self._rows():
                yield page
            try:
                await self.bus.read(self.conversation_id, self._cursor, count=1)
            except AWAY:
                continue
            yield [{"kind": "status", "state": "connected"}]
            async for page in self._rows():
                yield page
            return
