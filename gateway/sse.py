"""A conversation's events as Server-Sent Events: replay, then live, until the answer is long or old enough."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import aclosing
from typing import Any

import orjson
from django.http import StreamingHttpResponse

from gateway.ending import end
from gateway.feed import Follower, Frame
from gateway.sockets import Credentials, Socket
from gateway.wiring import DATABASE_AWAY, gateway

logger = logging.getLogger(__name__)

MAX_BYTES = 8 * 1024 * 1024
MAX_SECONDS = 600.0
# A silent connection is cut by many a proxy after a minute.
SILENCE_SECONDS = 15.0
COME_BACK_MS = 2000

Keep = Callable[[Frame], bool]


def keeper(source: str, session_id: str) -> Keep:
    """The same choice as the event list's: `main` is the conversation's own agent, a longer path all below it."""

    def keep(frame: Frame) -> bool:
        if session_id and frame["session_id"] != session_id:
            return False
        if source == "main":
            return not frame["source"]
        return not source or f"{frame['source'] or ''}/".startswith(f"{source}/")

    return keep


def wire(frame: Frame) -> bytes:
    """`id` is the event's number; a delta has none, so that who comes back asks after the last whole event."""
    fields = {name: value for name, value in frame.items() if name != "kind"}
    number = f"id: {frame['seq']}\n" if frame["kind"] == "event" else ""
    return f"{number}event: {frame['type']}\ndata: ".encode() + orjson.dumps(fields) + b"\n\n"


def respond(credentials: Credentials, after: int | None, keep: Keep) -> StreamingHttpResponse:
    response = StreamingHttpResponse(_watched(credentials, after, keep), content_type="text/event-stream")
    response["Cache-Control"] = "no-store"
    response["X-Accel-Buffering"] = "no"
    return response


async def _watched(credentials: Credentials, after: int | None, keep: Keep) -> AsyncIterator[bytes]:
    """The stream ends within seconds of a logout, a revoked token or the conversation's end, as a socket does."""
    over = asyncio.Event()

    async def close(code: int) -> None:
        over.set()

    socket = Socket(credentials, close)
    sockets = gateway().sockets.open
    sockets.add(socket)
    try:
        async with aclosing(stream(Follower(gateway().bus, credentials.conversation_id, after), keep, over)) as chunks:
            async for chunk in chunks:
                yield chunk
    except DATABASE_AWAY as error:
        logger.warning("event stream of %s ends, the database is away: %s", credentials.conversation_id, error)
    finally:
        sockets.discard(socket)


async def stream(
    follower: Follower, keep: Keep, over: asyncio.Event,
    *, most: int = MAX_BYTES, seconds: float = MAX_SECONDS, silence: float = SILENCE_SECONDS,
) -> AsyncGenerator[bytes, None]:  # fmt: skip
    """Chunks of the answer. It ends with `retry: 0` when it was long or old enough, and without when `over` is set."""
    loop = asyncio.get_running_loop()
    deadline, sent = loop.time() + seconds, 0
    yield b"retry: %d\n\n" % COME_BACK_MS
    closed = asyncio.ensure_future(over.wait())
    async with aclosing(_batches(follower, closed, deadline, silence)) as batches:
        async for batch in batches:
            if chunk := _chunk(batch, keep, most - sent) if batch else b": still here\n\n":
                sent += len(chunk)
                yield chunk
            if sent >= most:
                break
    if not over.is_set():
        yield b"retry: 0\n\n"


def _chunk(batch: list[Frame], keep: Keep, room: int) -> bytes:
    """As much of the batch as there is room for, one frame more at most; the rest is asked for again."""
    parts: list[bytes] = []
    for frame in batch:
        if room <= 0:
            break
        parts.append(_message(frame, keep))
        room -= len(parts[-1])
    return b"".join(parts)


def _message(frame: Frame, keep: Keep) -> bytes:
    if frame["kind"] in ("event", "delta"):
        return wire(frame) if keep(frame) else b""
    # A comment: who reads events sees events only.
    return b": caught up at %d\n\n" % frame["seq"] if frame["kind"] == "caught_up" else b""


async def _batches(
    follower: Follower, closed: asyncio.Future[Any], deadline: float, silence: float
) -> AsyncGenerator[list[Frame], None]:
    """The follower's batches until the deadline or the close; an empty one after each silence.

    The next batch is a task of its own: a timeout around it would end the follower.
    """
    loop = asyncio.get_running_loop()
    frames = follower.frames()
    pending: asyncio.Future[list[Frame]] | None = None
    try:
        while (left := deadline - loop.time()) > 0:
            pending = pending or asyncio.ensure_future(anext(frames))
            await asyncio.wait({pending, closed}, timeout=min(left, silence), return_when=asyncio.FIRST_COMPLETED)
            if closed.done():
                return
            if pending.done():
                batch, pending = pending.result(), None
                yield batch
            elif loop.time() < deadline:
                yield []
    finally:
        closed.cancel()
        if pending is not None:
            await end([pending])
            if not pending.cancelled():
                pending.exception()
        await frames.aclose()
