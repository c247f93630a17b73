"""The load client: chats on the JSON websocket that acknowledge what they read and note when each token came."""

from __future__ import annotations

import asyncio
import base64
import os
import struct
from collections.abc import Iterable
from typing import Any, cast

import orjson

from tests.bench.model import TOKEN, age, now

TEXT, CLOSE, PING, PONG = 1, 8, 9, 10
# Told to the server after so many frames, or so many bytes of them.
ACKNOWLEDGED_FRAMES = 64
ACKNOWLEDGED_BYTES = 64 * 1024


class Closed(Exception):
    """The server ended the websocket, or did not open it."""


class Turn:
    """One message and its answer: when each token was read, how old it was, and the text so far."""

    def __init__(self) -> None:
        self.sent = now()
        self.read_at: list[int] = []
        self.ages: list[float] = []
        self.text = ""
        self.wrong = False
        self.frames = 0
        self.ended = 0

    @property
    def first(self) -> float:
        """Milliseconds until the first token was here."""
        return (self.read_at[0] - self.sent) / 1000

    @property
    def length(self) -> float:
        """Milliseconds until the end of the answer was here."""
        return (self.ended - self.sent) / 1000

    def delta(self, frame: dict[str, Any], at: int) -> None:
        """What a client has already counts once."""
        self.frames += 1
        offset = frame.get("offset", len(self.text))
        fresh = frame["text"][len(self.text) - offset :]
        self._came(fresh, at)

    def block_end(self, whole: str, at: int) -> None:
        """The end carries the whole text: what no delta brought comes with it, what differs was wrong."""
        self.wrong = not whole.startswith(self.text)
        self._came(whole[len(self.text) :], at)

    def _came(self, fresh: str, at: int) -> None:
        self.text += fresh
        for stamp in TOKEN.findall(fresh):
            self.read_at.append(at)
            self.ages.append(age(stamp, at))


class Chat(asyncio.Protocol):
    """A conversation's websocket. Reads frames in bulk: the client must not be what is measured."""

    def __init__(self, path: str, headers: dict[str, str]) -> None:
        self.path, self.headers = path, headers
        self.loop = asyncio.get_running_loop()
        self.caught_up: asyncio.Future[int] = self.loop.create_future()
        self.over: asyncio.Future[None] | None = None
        self.turn = Turn()
        self.seq = 0
        self.seqs: list[int] = []
        self.unseen_frames = self.unseen_bytes = 0
        self.open = False
        self._buffer = bytearray()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)
        key = base64.b64encode(os.urandom(16)).decode()
        own = {"Host": "127.0.0.1", "Upgrade": "websocket", "Connection": "Upgrade"}
        own |= {"Sec-WebSocket-Key": key, "Sec-WebSocket-Version": "13"}
        lines = [f"{name}: {value}" for name, value in (own | self.headers).items()]
        self.transport.write("\r\n".join([f"GET {self.path} HTTP/1.1", *lines, "\r\n"]).encode())

    def connection_lost(self, error: Exception | None) -> None:
        for waited in (self.caught_up, self.over):
            if waited is not None and not waited.done():
                waited.set_exception(Closed(f"{self.path}: the websocket ended"))
                # Not all of them are waited for.
                waited.exception()

    def data_received(self, data: bytes) -> None:
        at = now()
        self._buffer += data
        if not self.open and not self._handshaken():
            return
        start = 0
        while (frame := _frame(self._buffer, start)) is not None:
            opcode, begin, start = frame
            self._take(opcode, self._buffer[begin:start], at)
        del self._buffer[:start]
        if self.unseen_frames >= ACKNOWLEDGED_FRAMES or self.unseen_bytes >= ACKNOWLEDGED_BYTES:
            self.send("seen", frames=self.unseen_frames)
            self.unseen_frames = self.unseen_bytes = 0

    def _handshaken(self) -> bool:
        head, end, rest = self._buffer.partition(b"\r\n\r\n")
        if end and not head.startswith(b"HTTP/1.1 101"):
            raise Closed(f"{self.path}: {head.decode('latin-1').splitlines()[0]}")
        if end:
            self._buffer, self.open = bytearray(rest), True
        return self.open

    def _take(self, opcode: int, payload: bytearray, at: int) -> None:
        if opcode == PING:
            self._write(PONG, bytes(payload))
        elif opcode == CLOSE:
            self.transport.close()
        elif opcode == TEXT:
            self.unseen_frames += 1
            self.unseen_bytes += len(payload)
            self._read(orjson.loads(payload), at)

    def _read(self, frame: dict[str, Any], at: int) -> None:
        kind = frame["kind"]
        if kind == "delta" and "tool_call_id" not in frame:
            self.turn.delta(frame, at)
        elif kind == "event":
            self._event(frame, at)
        elif kind == "caught_up":
            self.caught_up.set_result(frame["seq"])
        elif kind == "error":
            raise Closed(f"{self.path}: {frame}")

    def _event(self, event: dict[str, Any], at: int) -> None:
        if "seq" in event:
            self.seq = event["seq"]
            self.seqs.append(self.seq)
        if event.get("source"):
            # A subagent's: its tokens reach the viewer as deltas, its end is not the turn's.
            return
        if event["type"] == "TEXT_BLOCK_END":
            self.turn.block_end(event["text"], at)
        elif event["type"] == "AGENT_END" and self.over is not None and not self.over.done():
            self.turn.ended = at
            self.over.set_result(None)

    def send(self, kind: str, **fields: Any) -> None:
        self._write(TEXT, orjson.dumps({"kind": kind, **fields}))

    def _write(self, opcode: int, payload: bytes) -> None:
        """Masked with zeros: a client must mask, and nobody needs the noise."""
        size = len(payload)
        head = (
            struct.pack("!BB", 128 | opcode, 128 | size) if size < 126 else struct.pack("!BBH", 128 | opcode, 254, size)
        )
        self.transport.write(head + b"\0\0\0\0" + payload)

    async def ask(self, seconds: float = 60, **wish: Any) -> Turn:
        """One turn, until its answer is over."""
        self.turn, self.over = Turn(), self.loop.create_future()
        self.send("message.send", text=orjson.dumps(wish).decode())
        async with asyncio.timeout(seconds):
            await self.over
        return self.turn

    def close(self) -> None:
        self.transport.abort()


def _frame(buffer: bytearray, start: int) -> tuple[int, int, int] | None:
    """(opcode, where its payload begins, where it ends) of the frame at `start`, None while it is not whole."""
    if len(buffer) < start + 2:
        return None
    size, begin = buffer[start + 1], start + 2
    if size >= 126:
        begin += 2 if size == 126 else 8
        if len(buffer) < begin:
            return None
        size = int.from_bytes(buffer[start + 2 : begin], "big")
    end = begin + size
    return (buffer[start] & 15, begin, end) if len(buffer) >= end else None


async def connect(port: int, path: str, headers: dict[str, str], seconds: float = 30) -> Chat:
    """A chat that has caught up."""
    loop = asyncio.get_running_loop()
    async with asyncio.timeout(seconds):
        _, chat = await loop.create_connection(lambda: Chat(path, headers), "127.0.0.1", port)
        await chat.caught_up
    return chat


def close_all(chats: Iterable[Chat]) -> None:
    for chat in chats:
        chat.close()
