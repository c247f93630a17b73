"""A scripted model with gates that tests open, for turns that touch no network."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from pydantic_ai.messages import ModelMessage, ModelResponse, TextPart, ToolCallPart
from pydantic_ai.usage import RequestUsage

from chatapp.runtime.messages import Completion, Piece, clean, clean_name, completion
from chatapp.runtime.tools import Tool
from chatapp.runtime.toolsets.agents import LEAF


@dataclass(frozen=True)
class Call:
    """The model asks for a tool; `args` is the JSON it writes."""

    name: str
    args: str = "{}"


@dataclass
class Gate:
    """The model waits here until the test opens it; `reached` tells the test that it does."""

    reached: asyncio.Event = field(default_factory=asyncio.Event)
    opened: asyncio.Event = field(default_factory=asyncio.Event)


Part = str | Call | Gate | Exception


@dataclass
class Request:
    """What the model was asked."""

    model: str
    messages: list[ModelMessage]
    tools: list[str]
    tools_off: bool
    instructions: str = ""

    @property
    def asked(self) -> str:
        """What its session was asked first."""
        return str(self.messages[0].parts[0].content) if self.messages else ""  # type: ignore[union-attr]

    @property
    def texts(self) -> list[str]:
        return [str(p.content) for m in self.messages for p in m.parts if hasattr(p, "content")]


class ScriptedModels:
    """In place of `Models`: each request plays the next script, a list of parts; a session whose first message has
    scripts of its own plays those, and a subagent none but its own."""

    def __init__(self, *scripts: Sequence[Part]) -> None:
        self.scripts: deque[Sequence[Part]] = deque(scripts)
        self.own: dict[str, deque[Sequence[Part]]] = {}
        self.requests: list[Request] = []

    def then(self, *parts: Part) -> ScriptedModels:
        self.scripts.append(parts)
        return self

    def asked(self, first: str, *scripts: Sequence[Part]) -> ScriptedModels:
        self.own.setdefault(first, deque()).extend(scripts)
        return self

    def of(self, first: str) -> list[Request]:
        """The requests of the session that was asked this first."""
        return [request for request in self.requests if request.asked == first]

    def takes_media(self, name: str) -> bool:
        return name.startswith("sees")

    @asynccontextmanager
    async def stream(
        self, name: str, messages: Sequence[ModelMessage], *, instructions: str, tools: Sequence[Tool],
        tools_off: bool = False, temperature: float | None = None, top_p: float | None = None,
    ) -> AsyncIterator[ScriptedStream]:  # fmt: skip
        request = Request(name, list(messages), [tool.name for tool in tools], tools_off, instructions)
        self.requests.append(request)
        scripts = self.own.get(request.asked, deque() if LEAF in instructions else self.scripts)
        yield ScriptedStream(scripts.popleft() if scripts else ["ok"], len(self.requests))


class ScriptedStream:
    def __init__(self, script: Sequence[Part], number: int) -> None:
        self.script = script
        self.number = number
        self.parts: list[TextPart | ToolCallPart] = []
        self.started = False

    async def __aiter__(self) -> AsyncIterator[Piece]:
        for part in self.script:
            if isinstance(part, Gate):
                part.reached.set()
                await part.opened.wait()
            elif isinstance(part, Exception):
                raise part
            else:
                self.started = True
                yield self._piece(part)

    def _piece(self, part: str | Call) -> Piece:
        if isinstance(part, Call):
            index = len(self.parts)
            self.parts.append(ToolCallPart(part.name, part.args, f"call_{index}"))
            return Piece("call", index, True, clean(part.args), clean_name(part.name))
        last = self.parts[-1] if self.parts else None
        if isinstance(last, TextPart):
            last.content += part
            return Piece("text", len(self.parts) - 1, False, part)
        self.parts.append(TextPart(part))
        return Piece("text", len(self.parts) - 1, True, part)

    def completion(self, partial: bool = False) -> Completion:
        response = ModelResponse(
            parts=[*self.parts], usage=RequestUsage(input_tokens=10, output_tokens=5), model_name="scripted"
        )
        return completion(response, range(len(self.parts)), partial=partial)
