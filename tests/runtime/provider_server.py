"""A provider's server for tests: plays scripted byte streams over a real socket and records what it was asked."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

OPEN = "keep the connection open and silent"
CUT = "break the connection off"
Script = Sequence[bytes | str]


def chunk(
    delta: dict[str, Any] | None = None, finish: str | None = None, usage: dict[str, int] | None = None
) -> dict[str, Any]:
    """One chunk of a chat completion."""
    choices = [] if delta is None and finish is None else [{"index": 0, "delta": delta or {}, "finish_reason": finish}]
    return {
        "id": "c",
        "object": "chat.completion.chunk",
        "created": 1,
        "model": "m",
        "choices": choices,
        "usage": usage,
    }


def sse(*items: dict[str, Any] | str, end: str = "\n\n") -> bytes:
    """Events as the wire has them, their characters not escaped."""
    lines = [item if isinstance(item, str) else json.dumps(item, ensure_ascii=False) for item in items]
    return "".join(f"data: {line}{end}" for line in lines).encode()


def call(index: int | None, call_id: str | None, name: str | None, args: str) -> dict[str, Any]:
    """A bit of a tool call inside a chunk's delta."""
    function = {"arguments": args} | ({"name": name} if name else {})
    return {"index": index, "type": "function", "function": function} | ({"id": call_id} if call_id else {})


def answer(*deltas: dict[str, Any], finish: str | None = "stop", done: bool = True) -> bytes:
    """A whole chat completion."""
    items: list[dict[str, Any] | str] = [chunk(delta) for delta in deltas]
    items += [chunk({}, finish)] if finish else []
    return sse(*items, *(["[DONE]"] if done else []))


def text(*words: str, finish: str | None = "stop", done: bool = True) -> bytes:
    return answer(*({"content": word} for word in words), finish=finish, done=done)


def stream_head(status: str = "200 OK") -> bytes:
    return f"HTTP/1.1 {status}\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\n".encode()


def failure(status: str, body: dict[str, Any], *headers: str) -> bytes:
    content = json.dumps(body).encode()
    head = "\r\n".join([f"HTTP/1.1 {status}", "content-type: application/json", "connection: close", *headers])
    return f"{head}\r\ncontent-length: {len(content)}\r\n\r\n".encode() + content


# What others broke on: separators that some take for line ends, a family of four joined characters, two more scripts.
ODD_TEXT = "a\u2028b\u2029c\x85d \U0001f468\u200d\U0001f469\u200d\U0001f467\u200d\U0001f466 한국어 العربية."


def bytewise(stream: bytes) -> list[bytes]:
    return [stream[place : place + 1] for place in range(len(stream))]


@dataclass
class ProviderServer:
    """Plays `script`; each request's path, headers and JSON body are kept."""

    script: Script = ()
    url: str = ""
    paths: list[str] = field(default_factory=list)
    bodies: list[bytes] = field(default_factory=list)
    headers: list[dict[str, str]] = field(default_factory=list)
    hung_up: asyncio.Event = field(default_factory=asyncio.Event)

    def asked(self) -> dict[str, Any]:
        asked: dict[str, Any] = json.loads(self.bodies[-1])
        return asked

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await self._read(reader)
            for part in self.script:
                if part == CUT:
                    writer.transport.abort()
                    return
                if part == OPEN:
                    await reader.read()
                    self.hung_up.set()
                elif isinstance(part, bytes):
                    writer.write(part)
                    await writer.drain()
        except (ConnectionError, asyncio.IncompleteReadError):
            self.hung_up.set()
        finally:
            writer.close()

    async def _read(self, reader: asyncio.StreamReader) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
        headers = {name.lower(): value for name, _, value in (line.partition(": ") for line in head[1:] if line)}
        self.paths.append(head[0].split()[1])
        self.headers.append(headers)
        self.bodies.append(await reader.readexactly(int(headers.get("content-length", 0))))


@asynccontextmanager
async def provider_server(*script: bytes | str) -> AsyncIterator[ProviderServer]:
    """A script that begins with no status line gets the head of a stream."""
    first = script[0] if script else b""
    whole = script if isinstance(first, bytes) and first.startswith(b"HTTP/") else (stream_head(), *script)
    played = ProviderServer(whole if first != CUT else script)
    server = await asyncio.start_server(played.serve, "127.0.0.1", 0)
    try:
        played.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        yield played
    finally:
        server.close()
