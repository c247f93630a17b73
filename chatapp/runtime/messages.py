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
    BinaryContent,
    DocumentUrl,
    FileUrl,
    ImageUrl,
    ModelMessage,
    ModelRequest,
    ModelRequestPart,
    ModelResponse,
    ModelResponsePart,
    TextPart,
    ThinkingPart,
    ToolCallPart,
    ToolReturnPart,
    UserContent,
    UserPromptPart,
)

__all__ = [
    "FORMAT",
    "AttachedFile",
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
    "has_media",
    "load",
    "load_all",
    "repair",
    "tool_results",
    "user_message",
    "with_media",
]

FORMAT = "pydantic-ai/2"
Payload = dict[str, Any]
LOST_RESULT = "No result of this call was recorded. Whether it ran is unknown."
MAX_CALL_ID = 200
MAX_NAME = 200
# What a provider reports is believed up to here: sums of it still fit into a column.
MAX_COUNT = 10**12
CHARS_PER_TOKEN = 4
# Pictures and documents that models look at, how their references begin, and how many bytes of them go into a request.
PDF = "application/pdf"
MEDIA = ("image/png", "image/jpeg", "image/gif", "image/webp", PDF)
WORKSPACE = "workspace:"
MEDIA_ROOM = 15 * 1024 * 1024
MEDIA_CHARS = 4_000

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
class AttachedFile:
    """A file of the workspace that came with a person's message. `size` in bytes."""

    path: str
    name: str
    size: int
    media_type: str


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


def user_message(text: str, files: Sequence[AttachedFile] = ()) -> Payload:
    """What a person wrote. Files are named in words; what a model may look at is a reference, resolved by
    `with_media` when it is asked, so that no picture is stored twice."""
    if not files:
        return _dump(ModelRequest(parts=[UserPromptPart(content=clean(text))]))
    named = [f"- {clean(file.path)} ({file.media_type}, {file.size:,} bytes)" for file in files]
    content: list[UserContent] = [clean(text), "\n".join(["Attached, as files of the workspace:", *named])]
    content += [_reference(file) for file in files if file.media_type in MEDIA]
    return _dump(ModelRequest(parts=[UserPromptPart(content=content)]))


def _reference(file: AttachedFile) -> DocumentUrl | ImageUrl:
    kind = DocumentUrl if file.media_type == PDF else ImageUrl
    return kind(WORKSPACE + clean(file.path), media_type=file.media_type)


def has_media(messages: Iterable[ModelMessage]) -> bool:
    return any(isinstance(item, FileUrl) for message in messages for item in _contents(message))


def with_media(messages: Sequence[ModelMessage], read: Callable[[str], bytes | None] | None) -> list[ModelMessage]:
    """References replaced by what `read` gives for their path, the newest first while there is room; the others, and
    all where the model takes none (`read` None), are left out: their names stand in the text."""
    room = _Room(read)
    return [room.fill(message) for message in reversed(messages)][::-1]


class _Room:
    """How many bytes of media still go into a request."""

    def __init__(self, read: Callable[[str], bytes | None] | None) -> None:
        self.read = read
        self.left = MEDIA_ROOM

    def fill(self, message: ModelMessage) -> ModelMessage:
        if not has_media([message]):
            return message
        assert isinstance(message, ModelRequest)
        return replace(message, parts=[self._part(part) for part in message.parts])

    def _part(self, part: ModelRequestPart) -> ModelRequestPart:
        if not isinstance(part, UserPromptPart) or isinstance(part.content, str):
            return part
        content = [self._resolved(item) if isinstance(item, FileUrl) else item for item in part.content]
        return replace(part, content=[item for item in content if item is not None])

    def _resolved(self, reference: FileUrl) -> BinaryContent | None:
        data = self.read(reference.url.removeprefix(WORKSPACE)) if self.read else None
        if data is None or len(data) > self.left:
            return None
        self.left -= len(data)
        return BinaryContent(data, media_type=reference.media_type)


def _contents(message: ModelMessage) -> Iterable[Any]:
    for part in message.parts:
        if isinstance(part, UserPromptPart) and not isinstance(part.content, str):
            yield from part.content


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
    items = content if isinstance(content, list | tuple) else [content]
    return sum(len(item) if isinstance(item, str) else MEDIA_CHARS if item else 0 for item in items)
