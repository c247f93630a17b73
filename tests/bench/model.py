"""The benchmark's model server: an OpenAI-compatible stream whose every token carries the time of its writing.

`python -m tests.bench.model PORT`. The last user message is JSON that says what to stream: `{"n": 500}` as fast as it
goes, `{"n": 200, "rate": 50}` paced, `{"n": 1, "tool": "list_files"}` one tool call and then the text,
`{"n": 1, "spawn": 4}` four subagents at once.
"""

from __future__ import annotations

import asyncio
import re
import sys
import time
from typing import Any, Protocol, cast

import httptools
import orjson

# A token is nine digits and a space: microseconds of the machine's monotonic clock, which all processes share.
WRAP = 10**9
TOKEN = re.compile(r"(\d{9}) ")
TOKEN_CHARS = 10
# Tokens written before other chats get their turn.
SLICE = 32
HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"


class Parser(Protocol):
    def feed_data(self, data: bytes) -> None: ...


def now() -> int:
    """Microseconds; ages are differences of it."""
    return time.monotonic_ns() // 1000


def token() -> str:
    return f"{now() % WRAP:09d} "


def age(stamp: str, at: int) -> float:
    """Milliseconds from a token's writing to `at`."""
    return ((at - int(stamp)) % WRAP) / 1000


def chunk(delta: dict[str, Any], finish: str | None = None, **more: Any) -> bytes:
    choice = {"index": 0, "delta": delta, "finish_reason": finish}
    body = {"id": "bench", "object": "chat.completion.chunk", "created": 1, "model": "bench", "choices": [choice]}
    data = b"data: " + orjson.dumps(body | more) + b"\n\n"
    return b"%x\r\n%b\r\n" % (len(data), data)


BEFORE, AFTER = chunk({"content": "0" * TOKEN_CHARS}).split(b"0" * TOKEN_CHARS)


def wish(messages: list[dict[str, Any]]) -> dict[str, Any]:
    """What the last user message asks for; not the tool once its result is there."""
    asked = [message["content"] for message in messages if message["role"] == "user"][-1]
    text = asked if isinstance(asked, str) else asked[0]["text"]
    found: dict[str, Any] = orjson.loads(text)
    if messages[-1]["role"] == "tool":
        found.pop("tool", None)
        found.pop("spawn", None)
    return found


def calls(asked: dict[str, Any]) -> list[dict[str, Any]]:
    """The tool calls that it asks for: one without arguments, or so many subagents of 20 tokens each."""
    made = [(asked["tool"], "{}")] if asked.get("tool") else []
    task = orjson.dumps({"agent_id": "writer", "task": '{"n": 20}'}).decode()
    made += [("agent_spawn", task)] * asked.get("spawn", 0)
    return [
        {
            "index": place,
            "id": f"call_{place}_{now()}",
            "type": "function",
            "function": {"name": name, "arguments": args},
        }
        for place, (name, args) in enumerate(made)
    ]


class Connection(asyncio.Protocol):
    """One kept-alive connection; one answer at a time."""

    def __init__(self) -> None:
        self.loop = asyncio.get_running_loop()
        self.parser = cast(Parser, httptools.HttpRequestParser(self))
        self.body = bytearray()
        self.writing = asyncio.Event()
        self.writing.set()
        self.answer: asyncio.Task[None] | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)

    def connection_lost(self, error: Exception | None) -> None:
        if self.answer:
            self.answer.cancel()

    def pause_writing(self) -> None:
        self.writing.clear()

    def resume_writing(self) -> None:
        self.writing.set()

    def data_received(self, data: bytes) -> None:
        self.parser.feed_data(data)

    def on_message_begin(self) -> None:
        self.body.clear()

    def on_body(self, body: bytes) -> None:
        self.body += body

    def on_message_complete(self) -> None:
        request = orjson.loads(self.body)
        self.answer = self.loop.create_task(self.stream(wish(request["messages"])))

    async def stream(self, asked: dict[str, Any]) -> None:
        self.transport.write(HEAD)
        wanted = calls(asked)
        if wanted:
            self.transport.write(chunk({"role": "assistant", "tool_calls": wanted}))
        else:
            await self.tokens(asked["n"], asked.get("rate", 0))
        usage = {"prompt_tokens": 10, "completion_tokens": asked["n"], "total_tokens": 10 + asked["n"]}
        self.transport.write(chunk({}, "tool_calls" if wanted else "stop", usage=usage))
        self.transport.write(b"e\r\ndata: [DONE]\n\n\r\n0\r\n\r\n")

    async def tokens(self, count: int, rate: float) -> None:
        began = self.loop.time()
        for number in range(count):
            if rate and (early := began + number / rate - self.loop.time()) > 0:
                await asyncio.sleep(early)
            elif not rate and number % SLICE == 0:
                await self.writing.wait()
                await asyncio.sleep(0)
            self.transport.write(BEFORE + token().encode() + AFTER)


async def main(port: int) -> None:
    server = await asyncio.get_running_loop().create_server(Connection, "127.0.0.1", port, backlog=4096)
    async with server:
        await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(main(int(sys.argv[1])))
