"""Door 1 to the model library: the messages we keep, what a stream is made of, dump, load and repair."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import takewhile
from typing import Any, Literal

import orjson
from pydantic import ConfigDict, TypeAdapter
from pydantic_ai.messages import (
    ModelMessage,
    ModelRequest,
    ModelRequestPart,
    ModelResponse,
    ModelResponsePart,
    TextPart,
    ThinkingPart,
    ToolCallPart,
    ToolReturnPart,
    UserPromptPart,
)

__all__ = [
    "FORMAT",
    "Block",
    "CallResult",
    "Completion",
    "ModelMessage",
    "Payload",
    "Piece",
    "RequestedCall",
    "Usage",
    "clean",
    "completion",
    "count_chars",
    "load",
    "load_all",
    "repair",
    "tool_results",
    "user_message",
]

FORMAT = "pydantic-ai/2"
Payload = dict[str, Any]
LOST_RESULT = "No result of this call was recorded. Whether it ran is unknown."
MAX_CALL_ID = 200
MAX_NAME = 200
# What a provider reports is believed up to here: sums of it still fit into a column.
MAX_COUNT = 10**12
CHARS_PER_TOKEN = 4

_ADAPTER: TypeAdapter[ModelMessage] = TypeAdapter(ModelMessage, config=ConfigDict(ser_json_bytes="base64"))


@dataclass(frozen=True, slots=True)
class Piece:
    """A bit of a streamed answer. Each index starts once; a call's text is its arguments' JSON as it grows."""

    kind: Literal["text", "thinking", "call"]
    index: int
    start: bool
    text: str
    tool_name: str = ""


@dataclass(frozen=True)
class Block:
    """A whole text or thinking block; `index` is that of its pieces."""

    index: int
    kind: Literal["text", "thinking"]
    text: str


@dataclass(frozen=True)
class RequestedCall:
    """A call as the model wrote it. `args` is None when `args_text` is no JSON object."""

    index: int
    provider_call_id: str
    name: str
    args: dict[str, Any] | None
    args_text: str


@dataclass(frozen=True)
class Usage:
    """Tokens of one request; `estimated` when the provider reported none. Cached tokens are part of the input."""

    input_tokens: int = 0
    output_tokens: int = 0
    cached_tokens: int = 0
    requests: int = 1
    estimated: bool = False


@dataclass(frozen=True)
class Completion:
    """What a model answered, or as much of it as came.

    `payload` is None when nothing is worth keeping; `cut_off` says that the model hit its own output limit.
    """

    payload: Payload | None
    text: str
    blocks: tuple[Block, ...]
    calls: tuple[RequestedCall, ...]
    usage: Usage
    cut_off: bool = False


@dataclass(frozen=True)
class CallResult:
    """A settled call on its way into the history; `ok` False marks it as failed for the model."""

    provider_call_id: str
    tool_name: str
    output: str
    ok: bool


def clean(text: str) -> str:
    """Text that any database stores: no NUL, surrogate pairs joined, a lone surrogate replaced."""
    text = text.replace("\x00", "")
    if text.isascii():
        return text
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    return text


def clean_name(name: str) -> str:
    """A tool's name as the rows take it; no real one is so long."""
    return clean(name)[:MAX_NAME]


def user_message(text: str) -> Payload:
    return _dump(ModelRequest(parts=[UserPromptPart(content=clean(text))]))


def tool_results(results: Sequence[CallResult]) -> Payload:
    """All results of one step as one message, in the order given."""
    return _dump(ModelRequest(parts=[_result_part(result) for result in results]))


def load(payload: Payload) -> ModelMessage:
    """One stored message. Raises ValueError when it is none."""
    return _ADAPTER.validate_python(payload)


def load_all(payloads: Iterable[Payload]) -> list[ModelMessage]:
    return [load(payload) for payload in payloads]


def repair(messages: Sequence[ModelMessage]) -> list[ModelMessage]:
    """A history providers accept: every call has one result, right behind it; no other results."""
    repaired: list[ModelMessage] = []
    for position, message in enumerate(messages):
        if isinstance(message, ModelResponse):
            repaired.append(message)
            if calls := [part for part in message.parts if isinstance(part, ToolCallPart)]:
                followers = takewhile(lambda m: isinstance(m, ModelRequest), messages[position + 1 :])
                repaired.append(_joined(calls, followers))
        elif not any(isinstance(part, ToolReturnPart) for part in message.parts):
            repaired.append(message)
        elif rest := [part for part in message.parts if not isinstance(part, ToolReturnPart)]:
            repaired.append(replace(message, parts=rest))
    return repaired


def completion(
    response: ModelResponse,
    indexes: Sequence[int],
    *,
    partial: bool = False,
    keep_calls: bool = True,
    measured: bool = True,
    prompt_chars: Callable[[], int] = int,
) -> Completion:
    """What the loop needs of a response; `indexes` are its parts' places in the stream.

    Of a cut stream only text is kept: a half-written call and thinking without its signature would be refused.
    """
    parts = list(zip(indexes, _cleaned(response.parts), strict=False))
    if partial or not keep_calls:
        parts = [(index, part) for index, part in parts if not isinstance(part, ToolCallPart)]
    kept = [part for _, part in parts if not partial or (isinstance(part, TextPart) and part.content)]
    blocks = tuple(
        Block(index, "text" if isinstance(part, TextPart) else "thinking", part.content)
        for index, part in parts
        if isinstance(part, TextPart | ThinkingPart)
    )
    return Completion(
        payload=_dump(replace(response, parts=kept)) if kept else None,
        text="\n\n".join(block.text for block in blocks if block.kind == "text" and block.text),
        blocks=blocks,
        calls=tuple(_requested(index, part) for index, part in parts if isinstance(part, ToolCallPart)),
        usage=_usage(response, measured=measured, partial=partial, prompt_chars=prompt_chars),
        cut_off=response.finish_reason == "length",
    )


def count_chars(messages: Iterable[ModelMessage]) -> int:
    """How much text a model is sent, for an estimate of its tokens."""
    return sum(_chars(part) for message in messages for part in message.parts)


def _dump(message: ModelMessage) -> Payload:
    payload: Payload = _ADAPTER.dump_python(message, mode="json")
    return payload


def _result_part(result: CallResult) -> ToolReturnPart:
    return ToolReturnPart(
        tool_name=result.tool_name,
        content=clean(result.output),
        tool_call_id=result.provider_call_id,
        outcome="success" if result.ok else "failed",
    )


def _joined(calls: Sequence[ToolCallPart], followers: Iterable[ModelMessage]) -> ModelRequest:
    """The calls' results in call order, taken from the requests before the next response."""
    found: dict[str, list[ToolReturnPart]] = {}
    for message in followers:
        for part in message.parts:
            if isinstance(part, ToolReturnPart):
                found.setdefault(part.tool_call_id, []).append(part)
    parts: list[ModelRequestPart] = []
    for call in calls:
        results = found.get(call.tool_call_id)
        lost = CallResult(call.tool_call_id, call.tool_name, LOST_RESULT, ok=False)
        parts.append(results.pop(0) if results else _result_part(lost))
    return ModelRequest(parts=parts)


def _cleaned(parts: Sequence[ModelResponsePart]) -> list[ModelResponsePart]:
    """Parts a database stores, with call ids that are short and differ within the response."""
    seen: set[str] = set()
    cleaned: list[ModelResponsePart] = []
    for part in parts:
        if isinstance(part, TextPart | ThinkingPart):
            part = replace(part, content=clean(part.content))
        elif isinstance(part, ToolCallPart):
            call_id = clean(part.tool_call_id)
            if call_id in seen or len(call_id) > MAX_CALL_ID:
                call_id = f"{call_id[: MAX_CALL_ID - 10]}-{len(seen)}"
            seen.add(call_id)
            part = ToolCallPart(
                clean_name(part.tool_name),
                clean(part.args) if isinstance(part.args, str) else json.dumps(part.args or {}),
                call_id,
                id=part.id,
                provider_name=part.provider_name,
                provider_details=part.provider_details,
            )
        cleaned.append(part)
    return cleaned


def _requested(index: int, part: ModelResponsePart) -> RequestedCall:
    assert isinstance(part, ToolCallPart)
    text = part.args if isinstance(part.args, str) else json.dumps(part.args or {}, ensure_ascii=False)
    return RequestedCall(index, part.tool_call_id, part.tool_name, _parsed(text), text)


def _parsed(text: str) -> dict[str, Any] | None:
    """Arguments as an object that every client can be told of; None otherwise (huge integers, endless nesting)."""
    try:
        value = _clean_json(json.loads(text) if text.strip() else {})
        orjson.dumps(value)
    except (ValueError, TypeError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


def _clean_json(value: Any) -> Any:
    """JSON escapes can bring back what `clean` took out of the text."""
    if isinstance(value, str):
        return clean(value)
    if isinstance(value, list):
        return [_clean_json(item) for item in value]
    if isinstance(value, dict):
        return {clean(key): _clean_json(item) for key, item in value.items()}
    if isinstance(value, float) and value - value != 0:
        return None  # NaN and infinity are no JSON
    return value


def _usage(response: ModelResponse, *, measured: bool, partial: bool, prompt_chars: Callable[[], int]) -> Usage:
    """The provider's count; an estimate where it gave none or was cut off before it could."""
    reported = response.usage
    if measured and not partial and (reported.input_tokens or reported.output_tokens):
        counts = (reported.input_tokens, reported.output_tokens, reported.cache_read_tokens)
        sent, written, cached = (min(max(count, 0), MAX_COUNT) for count in counts)
        return Usage(sent, written, cached)
    written = -(-sum(_chars(part) for part in response.parts) // CHARS_PER_TOKEN)
    sent = (reported.input_tokens if measured else 0) or -(-prompt_chars() // CHARS_PER_TOKEN)
    return Usage(min(max(sent, 0), MAX_COUNT), written, 0, estimated=True)


def _chars(part: ModelRequestPart | ModelResponsePart) -> int:
    if isinstance(part, ToolCallPart):
        args = part.args if isinstance(part.args, str) else json.dumps(part.args or {})
        return len(part.tool_name) + len(args)
    content = getattr(part, "content", None)
    return len(content) if isinstance(content, str) else 0
