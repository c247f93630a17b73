"""The physical limit: Daphne, a websocket and the model's stream, each token passed on as one frame, and nothing else.

`python -m tests.bench.relay PORT MODEL_PORT`. It speaks as much of the JSON websocket as the load client needs.
"""

# First of all: it installs the asyncio reactor, which nothing may have replaced before.
from daphne.server import Server  # isort: skip

import asyncio
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import orjson

Scope = dict[str, Any]
Receive = Callable[[], Awaitable[dict[str, Any]]]
Send = Callable[[dict[str, Any]], Awaitable[None]]
REQUEST = b"POST /v1/chat/completions HTTP/1.1\r\nHost: model\r\nContent-Length: %d\r\n\r\n%b"
DATA = b"data: "
DONE = b"data: [DONE]"
LAST_CHUNK = b"0\r"
END = {"kind": "event", "type": "AGENT_END", "reason": "MODEL_STOP"}


class Model:
    """A chat's kept connection to the model server."""

    def __init__(self, port: int) -> None:
        self.port = port
        self.streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None

    async def ask(self, text: str) -> AsyncIterator[str]:
        if self.streams is None:
            self.streams = await asyncio.open_connection("127.0.0.1", self.port)
        reader, writer = self.streams
        body = orjson.dumps({"model": "bench", "stream": True, "messages": [{"role": "user", "content": text}]})
        writer.write(REQUEST % (len(body), body))
        rest = b""
        while data := await reader.read(65536):
            *lines, rest = (rest + data).split(b"\n")
            for line in lines:
                if line.startswith(DATA) and not line.startswith(DONE):
                    choice = orjson.loads(line[len(DATA) :])["choices"][0]
                    if content := choice["delta"].get("content"):
                        yield content
                elif line == LAST_CHUNK:
                    return

    def close(self) -> None:
        if self.streams is not None:
            self.streams[1].close()


class Relay:
    def __init__(self, model_port: int) -> None:
        self.model_port = model_port

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            await send({"type": "http.response.start", "status": 200, "headers": []})
            await send({"type": "http.response.body", "body": b"ok"})
            return
        model = Model(self.model_port)
        answers: set[asyncio.Task[None]] = set()
        try:
            await self.serve(model, answers, receive, send)
        finally:
            for answer in answers:
                answer.cancel()
            model.close()

    async def serve(self, model: Model, answers: set[asyncio.Task[None]], receive: Receive, send: Send) -> None:
        while (message := await receive())["type"] != "websocket.disconnect":
            if message["type"] == "websocket.connect":
                await send({"type": "websocket.accept"})
                await _frame(send, {"kind": "caught_up", "seq": 0})
                continue
            frame = orjson.loads(message["text"])
            if frame["kind"] == "message.send":
                answer = asyncio.create_task(_answer(model, frame["text"], send))
                answers.add(answer)
                answer.add_done_callback(answers.discard)


async def _answer(model: Model, text: str, send: Send) -> None:
    async for content in model.ask(text):
        await _frame(send, {"kind": "delta", "text": content})
    await _frame(send, END)


async def _frame(send: Send, frame: dict[str, Any]) -> None:
    await send({"type": "websocket.send", "text": orjson.dumps(frame).decode()})


def main(port: int, model_port: int) -> None:
    server = Server(
        Relay(model_port), [f"tcp:port={port}:interface=127.0.0.1"], signal_handlers=False, websocket_timeout=-1
    )
    server.run()


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
