"""OpenAI-type models: the client, message lists past its type walk, parallel calls that share an index, honest ends."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Iterable
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, TypeVar, cast

import httpx2
from openai import AsyncOpenAI
from openai.resources.chat import AsyncChat, AsyncCompletions
from openai.types.chat import ChatCompletionChunk
from openai.types.chat.chat_completion_chunk import Choice, ChoiceDelta, ChoiceDeltaToolCall
from pydantic import BaseModel
from pydantic_ai._utils import Unset
from pydantic_ai.exceptions import ModelConnectionError
from pydantic_ai.messages import FinishReason, ModelResponseStreamEvent
from pydantic_ai.models.openai import OpenAIChatModel, OpenAIStreamedResponse

from chatapp.runtime.openai_stream import JoiningDecoder

T = TypeVar("T")
M = TypeVar("M", bound=BaseModel)
# As the client reads fields that a server leaves out.
NO_CHUNK = {"id": None, "created": None, "model": None, "object": None}
NO_CHOICE = {"index": None, "finish_reason": None}
BOM = b"\xef\xbb\xbf"


class _Completions(AsyncCompletions):
    async def create(self, *, messages: Any, extra_body: Any = None, **params: Any) -> Any:
        """Sends the same JSON. The client would walk every message along its typed dicts, at 0.11 ms each."""
        return await super().create(messages=[], extra_body={**(extra_body or {}), "messages": messages}, **params)


class _Chat(AsyncChat):
    @cached_property
    def completions(self) -> AsyncCompletions:
        return _Completions(self._client)


class Client(AsyncOpenAI):
    @cached_property
    def chat(self) -> AsyncChat:
        return _Chat(self)

    def _make_sse_decoder(self) -> JoiningDecoder:
        return JoiningDecoder()

    def _process_response_data(self, *, data: object, cast_to: type[T], response: httpx2.Response) -> T:
        """Nearly every chunk only adds text: built directly, a stream costs a third less."""
        if cast_to is ChatCompletionChunk and (chunk := _text_chunk(data)) is not None:
            return cast(T, chunk)
        return super()._process_response_data(data=data, cast_to=cast_to, response=response)


def _text_chunk(data: object) -> ChatCompletionChunk | None:
    """The chunk when it carries one choice with strings and nothing else; None leaves it to the client."""
    if not isinstance(data, dict) or data.get("usage") is not None:
        return None
    choices = data.get("choices")
    if not isinstance(choices, list) or len(choices) != 1 or not isinstance(choices[0], dict):
        return None
    choice = choices[0]
    delta = choice.get("delta")
    if not isinstance(delta, dict) or choice.get("finish_reason") is not None or choice.get("logprobs") is not None:
        return None
    if not all(value is None or isinstance(value, str) for value in delta.values()):
        return None
    made = _construct(Choice, {**NO_CHOICE, **choice, "delta": _construct(ChoiceDelta, delta)})
    return _construct(ChatCompletionChunk, {**NO_CHUNK, **data, "choices": [made]})


def _construct(kind: type[M], values: dict[str, Any]) -> M:
    """Pydantic's own construction; the client's classes replace it by one that walks all types."""
    made: M = BaseModel.model_construct.__func__(kind, **values)  # type: ignore[attr-defined]
    return made


class _Unmarked(httpx2.AsyncByteStream):
    """A body without its byte order mark, which would hide the first event of a stream."""

    def __init__(self, stream: httpx2.AsyncByteStream) -> None:
        self._stream = stream

    async def __aiter__(self) -> AsyncIterator[bytes]:
        head: bytes | None = b""
        async for chunk in self._stream:
            if head is None:
                yield chunk
                continue
            head += chunk
            if len(head) >= len(BOM) or not BOM.startswith(head):
                yield head.removeprefix(BOM)
                head = None
        if head:
            yield head

    async def aclose(self) -> None:
        await self._stream.aclose()


async def _unmark(response: httpx2.Response) -> None:
    if isinstance(response.stream, httpx2.AsyncByteStream):
        response.stream = _Unmarked(response.stream)


def http_client(connect_timeout: float) -> httpx2.AsyncClient:
    """Waits for a connection as long as told, for data as long as its caller waits."""
    return httpx2.AsyncClient(
        timeout=httpx2.Timeout(None, connect=connect_timeout),
        limits=httpx2.Limits(max_connections=1000, max_keepalive_connections=100),
        follow_redirects=True,
        event_hooks={"response": [_unmark]},
    )


@dataclass
class _Slot:
    """The call that a server's index stands for now."""

    place: int
    call_id: str | None
    name: str
    args: str = ""

    def is_left_by(self, call_id: str | None, name: str) -> bool:
        """Whether a bit begins another call. Some servers repeat the name with each bit of the same one."""
        if not name or not self.name:
            return False
        if call_id and self.call_id:
            return call_id != self.call_id
        return name != self.name or _is_object(self.args)


@dataclass
class StreamedChat(OpenAIStreamedResponse):
    """Some servers send every parallel call with index 0 or none: a new name or id begins a new call."""

    _slots: dict[int | None, _Slot] = field(default_factory=dict, init=False)
    _places: int = field(default=0, init=False)

    async def _validate_response(self) -> AsyncIterator[ChatCompletionChunk]:
        """The chunks past the lock and the cancel scope that guard each against a second reader: there is none."""
        first = await self._response.peek()
        if not isinstance(first, Unset):
            yield first
            assert self._response._source_iter is not None
            async for chunk in self._response._source_iter:
                yield chunk

    def _map_tool_call_delta(self, choice: Choice) -> Iterable[ModelResponseStreamEvent]:
        for delta in choice.delta.tool_calls or []:
            self._place(delta)
        return super()._map_tool_call_delta(choice)

    def _place(self, delta: ChoiceDeltaToolCall) -> None:
        index: int | None = getattr(delta, "index", None)
        name = (delta.function.name if delta.function else None) or ""
        slot = self._slots.get(index)
        if slot is None or slot.is_left_by(delta.id, name):
            self._slots[index] = slot = _Slot(self._places, delta.id, name)
            self._places += 1
        else:
            if delta.function and name == slot.name:
                delta.function.name = None
            slot.name = slot.name or name
            delta.id = slot.call_id = slot.call_id or delta.id
        delta.index = slot.place
        slot.args += (delta.function.arguments if delta.function else None) or ""

    def _missing_finish_reason(self) -> FinishReason:
        raise ModelConnectionError(self.model_name, "the stream ended without a finish reason")


class ChatModel(OpenAIChatModel):
    @property
    def _streamed_response_cls(self) -> type[OpenAIStreamedResponse]:
        return StreamedChat


def _is_object(text: str) -> bool:
    try:
        return isinstance(json.loads(text), dict)
    except ValueError:
        return False
