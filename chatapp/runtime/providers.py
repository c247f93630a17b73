"""Door 2 to the model library: from `provider:model` to a streaming call, with models and clients shared."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from fnmatch import fnmatchcase
from functools import partial
from importlib.util import find_spec
from typing import Any, Self

from pydantic_ai.direct import model_request_stream
from pydantic_ai.messages import (
    InstructionPart,
    ModelMessage,
    PartDeltaEvent,
    PartStartEvent,
    TextPart,
    TextPartDelta,
    ThinkingPart,
    ThinkingPartDelta,
    ToolCallPart,
    ToolCallPartDelta,
)
from pydantic_ai.models import Model, ModelRequestParameters, StreamedResponse
from pydantic_ai.settings import ModelSettings
from pydantic_ai.tools import ToolDefinition

from chatapp.runtime.errors import ModelUnknown, ProviderError
from chatapp.runtime.messages import Completion, Piece, clean, clean_name, completion, count_chars
from chatapp.runtime.provider_catalog import (
    DEMO,
    PLACEHOLDER_KEY,
    PROVIDERS,
    Provider,
    ProviderSettings,
    default_model,
)
from chatapp.runtime.provider_errors import RAISED, Door
from chatapp.runtime.tools import Tool

__all__ = ["ModelStream", "Models", "ProviderSettings", "default_model"]


class ModelStream:
    """The pieces of one answer as they come; `completion()` sums up what came, at any time."""

    def __init__(
        self, response: StreamedResponse, door: Door, *, idle: float, calls: bool, summing: Callable[..., Completion]
    ) -> None:
        self.started = False
        self._response = response
        self._events = aiter(response)
        self._door = door
        self._idle = idle
        self._calls = calls
        self._summing = summing
        self._indexes: set[int] = set()
        self._halves: dict[int, str] = {}

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Piece:
        while True:
            try:
                async with asyncio.timeout(self._idle):
                    event = await anext(self._events)
            except StopAsyncIteration:
                self._require_end()
                raise
            except RAISED as error:
                raise self._door.translate(error) from error
            if (piece := self._piece(event)) is not None:
                self.started = True
                return piece

    def completion(self, partial: bool = False) -> Completion:
        return self._summing(self._response.get(), sorted(self._indexes), partial=partial)

    def _require_end(self) -> None:
        """A socket that was cut can look like an end; a finished answer says why it ended."""
        response = self._response.get()
        if response.finish_reason == "content_filter":
            raise self._door.content_filtered()
        reason = response.finish_reason or (response.provider_details or {}).get("finish_reason")
        if not reason and response.model_name != DEMO:
            raise self._door.connection_lost()

    def _piece(self, event: object) -> Piece | None:
        if isinstance(event, PartStartEvent):
            part = event.part
            self._indexes.add(event.index)
            if isinstance(part, TextPart):
                return Piece("text", event.index, True, self._text(event.index, part.content))
            if isinstance(part, ThinkingPart):
                return Piece("thinking", event.index, True, self._text(event.index, part.content))
            if isinstance(part, ToolCallPart) and self._calls:
                return Piece(
                    "call",
                    event.index,
                    True,
                    self._text(event.index, _args_text(part.args)),
                    clean_name(part.tool_name),
                )
        elif isinstance(event, PartDeltaEvent):
            delta = event.delta
            if isinstance(delta, TextPartDelta):
                return self._grown("text", event.index, delta.content_delta)
            if isinstance(delta, ThinkingPartDelta):
                return self._grown("thinking", event.index, delta.content_delta or "")
            if isinstance(delta, ToolCallPartDelta) and self._calls:
                return self._grown("call", event.index, _args_text(delta.args_delta))
        return None

    def _grown(self, kind: Any, index: int, text: str) -> Piece | None:
        text = self._text(index, text)
        return Piece(kind, index, False, text) if text else None

    def _text(self, index: int, text: str) -> str:
        """Storable text. A pair of surrogates cut by the stream is held back until its other half is there."""
        text = self._halves.pop(index, "") + text
        if text and "\ud800" <= text[-1] <= "\udbff":
            self._halves[index] = text[-1]
            text = text[:-1]
        return clean(text)


class Models:
    """All models of this process. A client belongs to the event loop that it was first used in."""

    def __init__(self, settings: ProviderSettings) -> None:
        self._settings = settings
        self._models: dict[str, Model[Any]] = {}
        self._definitions: dict[str, tuple[Tool, ToolDefinition]] = {}
        self._loop: asyncio.AbstractEventLoop | None = None

    def check(self, name: str) -> None:
        """Raises ModelUnknown or ProviderError when `name` cannot be asked. Touches no network."""
        self._find(name)

    def takes_media(self, name: str) -> bool:
        return any(fnmatchcase(name, pattern) for pattern in self._settings.media_models)

    def preload(self, names: Iterable[str]) -> None:
        """Imports the adapters (half a second each) before the first message, or before a fork, has to wait for it."""
        for name in names:
            self._built(name)

    def stream(
        self,
        name: str,
        messages: Sequence[ModelMessage],
        *,
        instructions: str,
        tools: Sequence[Tool],
        tools_off: bool = False,
        temperature: float | None = None,
        top_p: float | None = None,
    ) -> AbstractAsyncContextManager[ModelStream]:
        """Ask a model. `tools_off` still shows the tools, which a history with calls needs, but takes no call."""
        settings = ModelSettings()
        if temperature is not None:
            settings["temperature"] = temperature
        if top_p is not None:
            settings["top_p"] = top_p
        if tools_off:
            settings["tool_choice"] = "none"
        parameters = ModelRequestParameters(
            function_tools=[self._definition(tool) for tool in tools],
            instruction_parts=[InstructionPart(content=instructions)] if instructions else [],
        )
        summing = partial(
            completion,
            keep_calls=not tools_off,
            measured=name != DEMO,
            prompt_chars=lambda: len(instructions) + count_chars(messages),
        )
        return self._open(name, list(messages), settings, parameters, summing)

    @asynccontextmanager
    async def _open(
        self,
        name: str,
        messages: list[ModelMessage],
        settings: ModelSettings,
        parameters: ModelRequestParameters,
        summing: Callable[..., Completion],
    ) -> AsyncIterator[ModelStream]:
        provider, model_name, key = self._find(name)
        secrets = (key,) if key != PLACEHOLDER_KEY else ()
        door = Door(provider.called(self._settings), model_name, " or ".join(provider.keys), secrets)
        idle = self._settings.idle_timeout
        async with AsyncExitStack() as stack:
            with door.errors():
                request = model_request_stream(
                    self._model(name), messages, model_settings=settings, model_request_parameters=parameters
                )
                async with asyncio.timeout(idle):
                    response = await stack.enter_async_context(request)
            calls = settings.get("tool_choice") != "none"
            yield ModelStream(response, door, idle=idle, calls=calls, summing=summing)

    def _find(self, name: str) -> tuple[Provider, str, str]:
        kind, _, model = name.partition(":")
        provider = PROVIDERS.get(kind)
        if provider is None or bool(model) == (kind == DEMO):
            known = ", ".join(f"{kind}:…" for kind in PROVIDERS if kind != DEMO)
            raise ModelUnknown(f"There is no model “{name[:100]}”. A model is written {known} or {DEMO}.")
        key = provider.key(self._settings)
        if not key:
            keys = " or ".join(provider.keys)
            detail = f"{provider.title} needs a key. The operator must set {keys}, or you pick another model."
            raise ProviderError(detail, code="no_key", retryable=False)
        if not _installed(provider.package):
            raise ModelUnknown(
                f"{provider.title} needs a package that is not installed. "
                f'The operator must run: pip install "branchline[{provider.extra}]"'
            )
        return provider, model, key

    def _model(self, name: str) -> Model[Any]:
        loop = asyncio.get_running_loop()
        if loop is not self._loop:
            if self._loop is not None:
                self._models.clear()
            self._loop = loop
        return self._built(name)

    def _built(self, name: str) -> Model[Any]:
        if name not in self._models:
            provider, model, key = self._find(name)
            self._models[name] = provider.build(model, key, self._settings)
        return self._models[name]

    def _definition(self, tool: Tool) -> ToolDefinition:
        known = self._definitions.get(tool.name)
        if known is None or known[0] is not tool:
            definition = ToolDefinition(
                name=tool.name, description=tool.description, parameters_json_schema=tool.json_schema()
            )
            self._definitions[tool.name] = known = (tool, definition)
        return known[1]


def _installed(package: str) -> bool:
    try:
        return find_spec(package) is not None
    except ModuleNotFoundError:  # its parent is missing
        return False


def _args_text(args: str | Mapping[str, Any] | None) -> str:
    return args if isinstance(args, str) else json.dumps(args) if args else ""
