"""A scripted OpenAI-compatible server: `python -m tests.fake_llm PORT`. The last user message says what to stream.

`[[n=120 rate=200]]` streams 120 words `w1 … w120` at 200 a second; `CALL name {"json": 1}` asks for a tool (several
are parallel calls), after whose results it says `DONE` and the results.
"""

from __future__ import annotations

import asyncio
import json
import re
import sys
from typing import Any

OPTIONS = re.compile(r"\[\[([^\]]*)\]\]")
CALL = re.compile(r"CALL (\w+) (?=\{)")


def script(messages: list[dict[str, Any]]) -> list[tuple[float, dict[str, Any]]]:
    """(seconds to wait before it, delta) of the whole answer."""
    if messages[-1]["role"] == "tool":
        results = [str(m["content"]) for m in messages if m["role"] == "tool"]
        return [(0, {"content": f"DONE {results[-1]}"})]
    asked = str(messages[-1]["content"])
    calls = []
    for number, found in enumerate(CALL.finditer(asked)):
        args, _ = json.JSONDecoder().raw_decode(asked[found.end() :])
        function = {"name": found[1], "arguments": json.dumps(args)}
        calls.append({"index": number, "id": f"call_{number}", "type": "function", "function": function})
    if calls:
        return [(0, {"tool_calls": calls})]
    options: dict[str, str] = {}
    for block in OPTIONS.findall(asked):
        options |= dict(pair.split("=") for pair in block.split())
    wait = 1 / float(options["rate"]) if "rate" in options else 0
    return [(wait, {"content": f"w{n} "}) for n in range(1, int(options.get("n", 3)) + 1)]


async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        head = (await reader.readuntil(b"\r\n\r\n")).decode().lower()
        size = re.search(r"content-length: (\d+)", head)
        body = json.loads(await reader.readexactly(int(size[1]))) if size else {}
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\n")
        if "messages" in body:
            finish = "stop"
            for wait, delta in script(body["messages"]):
                await asyncio.sleep(wait)
                finish = "tool_calls" if "tool_calls" in delta else "stop"
                writer.write(chunk(delta, None))
                await writer.drain()
            writer.write(chunk({}, finish) + b"data: [DONE]\n\n")
        await writer.drain()
    except (ConnectionError, asyncio.IncompleteReadError):
        pass
    finally:
        writer.close()


def chunk(delta: dict[str, Any], finish: str | None) -> bytes:
    choice = {"index": 0, "delta": delta, "finish_reason": finish}
    data = {"id": "c", "object": "chat.completion.chunk", "created": 1, "model": "fake", "choices": [choice]}
    return b"data: " + json.dumps(data).encode() + b"\n\n"


async def main(port: int) -> None:
    server = await asyncio.start_server(answer, "127.0.0.1", port)
    async with server:
        await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(main(int(sys.argv[1])))
