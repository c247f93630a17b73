"""Streams of real sockets: what comes out whole, and what each way to break is called."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from openai import AsyncOpenAI
from openai.types.chat import ChatCompletionChunk
from pydantic import BaseModel
from pydantic_ai.models.openai import OpenAIChatModel
from pydantic_ai.providers.openai_compatible import OpenAICompatibleProvider

from chatapp.runtime.errors import ModelUnknown, ProviderError
from chatapp.runtime.messages import (
    CallResult,
    Completion,
    Payload,
    Piece,
    load_all,
    repair,
    tool_results,
    user_message,
)
from chatapp.runtime.openai_compat import _text_chunk
from chatapp.runtime.providers import Models, ProviderSettings, default_model
from chatapp.runtime.tools import Answered, Tool, ToolContext
from tests.runtime.provider_server import (
    CUT,
    ODD_TEXT,
    OPEN,
    ProviderServer,
    answer,
    bytewise,
    call,
    chunk,
    failure,
    provider_server,
    sse,
    stream_head,
    text,
)

KEY = "sk-secret-of-the-operator"
HELLO = load_all([user_message("hello")])


class Path(BaseModel):
    path: str


async def look(context: ToolContext, args: Path) -> Answered:
    return Answered("seen")


LOOK = Tool("look", "Look at a file.", Path, look, read_only=True, default="allow")


def models(server: ProviderServer, **settings: Any) -> Models:
    env = {"OPENAI_BASE_URL": f"{server.url}/v1", "OPENAI_API_KEY": KEY}
    env |= {"ANTHROPIC_BASE_URL": server.url, "ANTHROPIC_API_KEY": KEY, "OLLAMA_HOST": server.url}
    return Models(ProviderSettings(env, **({"max_retries": 0, "idle_timeout": 30} | settings)))


async def ask(
    server: ProviderServer,
    name: str = "openai:m",
    payloads: Sequence[Payload] = (),
    pieces: list[Piece] | None = None,
    idle_timeout: float = 30,
    **options: Any,
) -> Completion:
    history = load_all(payloads or [user_message("hello")])
    options = {"instructions": "Be brief.", "tools": [LOOK]} | options
    async with models(server, idle_timeout=idle_timeout).stream(name, history, **options) as stream:
        async for piece in stream:
            if pieces is not None:
                pieces.append(piece)
        return stream.completion()


async def refusal(*script: bytes | str, **options: Any) -> ProviderError:
    async with provider_server(*script) as server:
        with pytest.raises(ProviderError) as caught:
            await ask(server, **options)
    assert KEY not in caught.value.detail
    assert "\n" not in caught.value.detail
    return caught.value


async def test_it_streams_text_and_reports_usage() -> None:
    pieces: list[Piece] = []
    usage = {"prompt_tokens": 7, "completion_tokens": 3, "total_tokens": 10}
    stream = text("Hel", "lo", done=False) + sse(chunk(usage=usage), "[DONE]")
    async with provider_server(stream) as server:
        done = await ask(server, pieces=pieces)
    assert (pieces[0].kind, pieces[0].start) == ("text", True)
    assert "".join(piece.text for piece in pieces) == "Hello"
    assert done.text == "Hello"
    assert (done.usage.input_tokens, done.usage.output_tokens, done.usage.estimated) == (7, 3, False)
    assert server.asked()["messages"][0] == {"role": "system", "content": "Be brief."}


async def test_it_estimates_usage_that_is_not_reported() -> None:
    async with provider_server(text("x" * 40)) as server:
        done = await ask(server)
    assert done.usage.estimated
    assert done.usage.output_tokens == 10
    assert done.usage.input_tokens > 0


async def test_it_keeps_the_answer_for_the_next_request() -> None:
    async with provider_server(
        answer({"tool_calls": [call(0, "a", "look", '{"path": "x"}')]}, finish="tool_calls")
    ) as server:
        done = await ask(server)
        assert done.payload is not None
        result = tool_results([CallResult("a", "look", "seen", ok=True)])
        await ask(server, payloads=[user_message("hello"), done.payload, result])
    assert [message["role"] for message in server.asked()["messages"]] == ["system", "user", "assistant", "tool"]
    assert server.asked()["messages"][3]["content"] == "seen"


async def test_it_tells_thinking_from_text() -> None:
    pieces: list[Piece] = []
    async with provider_server(answer({"reasoning_content": "hm"}, {"content": "yes"})) as server:
        done = await ask(server, pieces=pieces)
    assert [(piece.kind, piece.index, piece.text) for piece in pieces] == [("thinking", 0, "hm"), ("text", 1, "yes")]
    assert [(block.kind, block.text) for block in done.blocks] == [("thinking", "hm"), ("text", "yes")]
    assert done.text == "yes"


PARALLEL = {
    "own indexes": [
        call(0, "a", "look", '{"path"'),
        call(0, None, None, ': "1"}'),
        call(1, "b", "look", '{"path": "2"}'),
    ],
    "one index": [call(0, "a", "look", '{"path": "1"}'), call(0, "b", "look", '{"path": "2"}')],
    "one index in bits": [
        call(0, "a", "look", '{"path"'),
        call(0, None, None, ': "1"}'),
        call(0, "b", "look", '{"path": '),
        call(0, "b", None, '"2"}'),
    ],
    "no ids": [call(0, None, "look", '{"path": "1"}'), call(0, None, "look", '{"path": "2"}')],
    "no index": [call(None, "a", "look", '{"path": "1"}'), call(None, "b", "look", '{"path": "2"}')],
    "name repeated": [
        call(0, "a", "look", '{"path"'),
        call(0, "a", "look", ': "1"}'),
        call(1, "b", "look", '{"path"'),
        call(1, "b", "look", ': "2"}'),
    ],
    "same id twice": [call(0, "a", "look", '{"path": "1"}'), call(1, "a", "look", '{"path": "2"}')],
}


@pytest.mark.parametrize("bits", PARALLEL.values(), ids=PARALLEL)
async def test_it_keeps_parallel_calls_apart(bits: list[dict[str, Any]]) -> None:
    pieces: list[Piece] = []
    stream = answer(*({"tool_calls": [bit]} for bit in bits), finish="tool_calls")
    async with provider_server(stream) as server:
        done = await ask(server, pieces=pieces)
    assert [(made.name, made.args) for made in done.calls] == [("look", {"path": "1"}), ("look", {"path": "2"})]
    assert len({made.provider_call_id for made in done.calls}) == 2
    assert {piece.index for piece in pieces if piece.start} == {made.index for made in done.calls}
    for made in done.calls:
        assert "".join(piece.text for piece in pieces if piece.index == made.index) == made.args_text


async def test_it_says_when_arguments_are_no_object() -> None:
    bits = [call(0, "a", "look", "[1]"), call(1, "b", "look", '{"path"'), call(2, "c", "look", "")]
    async with provider_server(answer(*({"tool_calls": [bit]} for bit in bits), finish="tool_calls")) as server:
        done = await ask(server)
    assert [(made.args, made.args_text) for made in done.calls] == [(None, "[1]"), (None, '{"path"'), ({}, "")]


async def test_it_takes_no_call_when_tools_are_off() -> None:
    pieces: list[Piece] = []
    stream = answer({"content": "so"}, {"tool_calls": [call(0, "a", "look", "{}")]}, finish="tool_calls")
    async with provider_server(stream) as server:
        done = await ask(server, tools_off=True, pieces=pieces)
    assert server.asked()["tool_choice"] == "none"
    assert [piece.kind for piece in pieces] == ["text"]
    assert done.calls == ()
    assert done.payload is not None
    assert [part["part_kind"] for part in done.payload["parts"]] == ["text"]


@pytest.mark.parametrize("end", ["\n\n", "\r\r", "\r\n\r\n"])
@pytest.mark.parametrize("mark", [b"", b"\xef\xbb\xbf"])
async def test_it_reads_every_line_end_and_a_byte_order_mark(end: str, mark: bytes) -> None:
    stream = mark + sse(chunk({"content": ODD_TEXT}), chunk({"content": "c"}), chunk({}, "stop"), "[DONE]", end=end)
    for pieces in (bytewise(stream), [stream]):
        async with provider_server(*pieces) as server:
            assert (await ask(server)).text == f"{ODD_TEXT}c"


async def test_it_gives_text_that_a_database_stores() -> None:
    pieces: list[Piece] = []
    lines = ['{"content": "a\\u0000\\ud83d"}', '{"content": "\\ude00"}', '{"content": "\\udfff"}']
    raw = [f'{{"id":"c","model":"m","choices":[{{"index":0,"delta":{line}}}]}}' for line in lines]
    async with provider_server(sse(*raw, chunk({}, "stop"), "[DONE]")) as server:
        done = await ask(server, pieces=pieces)
    assert done.text == "a\U0001f600\ufffd"
    assert "".join(piece.text for piece in pieces) == done.text


@pytest.mark.parametrize(
    ("script", "code"),
    [
        ((CUT,), "connection_lost"),
        ((text("half", finish=None, done=False), CUT), "connection_lost"),
        ((text("half", finish=None, done=False),), "connection_lost"),
        ((stream_head(),), "garbage"),
        ((sse("{not json"),), "garbage"),
        ((text("half", finish=None, done=False), sse("{not json")), "garbage"),
        ((sse('"a string"'),), "garbage"),
        ((sse('{"choices": "none"}'),), "garbage"),
        ((text("half", finish=None, done=False), b"data: \xff\xfe\n\n"), "garbage"),
        ((sse({"error": {"message": "busy", "code": "server_error"}}),), "overloaded"),
        ((failure("500 Oops", {"error": {"message": "broken"}}),), "overloaded"),
        ((failure("503 Busy", {}),), "overloaded"),
        ((failure("429 Slow", {"error": {"message": "slow down"}}, "retry-after: 7"),), "rate_limited"),
    ],
)
async def test_it_calls_what_may_work_again_retryable(script: tuple[bytes | str, ...], code: str) -> None:
    error = await refusal(*script)
    assert (error.code, error.retryable) == (code, True), error.detail


@pytest.mark.parametrize(
    ("script", "code"),
    [
        (failure("401 No", {"error": {"message": f"Incorrect API key provided: {KEY}"}}), "wrong_key"),
        (failure("404 No", {"error": {"message": "no such model"}}), "model_unknown"),
        (failure("400 No", {"error": {"message": "x", "code": "context_length_exceeded"}}), "context_too_long"),
        (failure("400 No", {"error": {"message": "exceeds the available context size"}}), "context_too_long"),
        (failure("400 No", {"error": {"message": f"bad\nfield {KEY} sk-abcdefgh12345"}}), "rejected"),
        (failure("429 No", {"error": {"message": "pay", "code": "insufficient_quota"}}), "quota"),
        (text("half", finish="content_filter"), "content_filtered"),
    ],
)
async def test_it_calls_what_stays_so_final(script: bytes, code: str) -> None:
    error = await refusal(script)
    assert (error.code, error.retryable) == (code, False), error.detail
    assert "sk-" not in error.detail


async def test_it_quotes_the_provider_in_one_line() -> None:
    error = await refusal(failure("400 No", {"error": {"message": "temperature\nmust be below 2"}}))
    assert error.detail == "The model server refused the request: temperature must be below 2"
    assert error.status == 400


async def test_it_says_when_to_come_back() -> None:
    error = await refusal(failure("429 Slow", {"error": {"message": "slow down"}}, "retry-after: 7"))
    assert "in 7 seconds" in error.detail


@pytest.mark.parametrize("before", [b"", text("half", finish=None, done=False)])
async def test_it_gives_up_on_a_silent_stream(before: bytes) -> None:
    error = await refusal(before, OPEN, idle_timeout=0.2)
    assert (error.code, error.retryable) == ("timeout", True)


async def test_it_asks_again_before_the_first_event_only() -> None:
    async with provider_server(failure("500 Oops", {}, "retry-after-ms: 1")) as server:
        with pytest.raises(ProviderError):
            async with models(server, max_retries=2).stream("openai:m", [], instructions="x", tools=[]):
                pass
        assert len(server.paths) == 3


async def test_it_keeps_text_only_of_a_cut_answer() -> None:
    bits = answer(
        {"reasoning_content": "hm"},
        {"content": "half"},
        {"tool_calls": [call(0, "a", "look", "{")]},
        finish=None,
        done=False,
    )
    async with (
        provider_server(bits, CUT) as server,
        models(server).stream("openai:m", HELLO, instructions="", tools=[LOOK]) as stream,
    ):
        with pytest.raises(ProviderError):
            async for _ in stream:
                pass
        cut = stream.completion(partial=True)
    assert stream.started
    assert cut.text == "half"
    assert cut.calls == ()
    assert cut.payload is not None
    assert [part["part_kind"] for part in cut.payload["parts"]] == ["text"]
    assert cut.usage.estimated


async def test_it_keeps_nothing_of_an_answer_that_never_began() -> None:
    thinking = answer({"reasoning_content": "hm"}, finish=None, done=False)
    async with (
        provider_server(thinking, CUT) as server,
        models(server).stream("openai:m", HELLO, instructions="", tools=[]) as stream,
    ):
        with pytest.raises(ProviderError):
            async for _ in stream:
                pass
        assert stream.completion(partial=True).payload is None


@pytest.mark.parametrize("name", ["openai:m", "anthropic:m"])
async def test_it_hangs_up_when_cancelled(name: str) -> None:
    begun = ANTHROPIC[:2] if name.startswith("anthropic") else [text("half", finish=None, done=False)]
    async with provider_server(*begun, OPEN) as server:
        reading = asyncio.Event()

        async def read() -> None:
            async with models(server).stream(name, HELLO, instructions="", tools=[]) as stream:
                async for _ in stream:
                    reading.set()

        task = asyncio.create_task(read())
        await asyncio.wait_for(reading.wait(), 30)
        task.cancel()
        await asyncio.wait([task])
        assert task.cancelled()
        await asyncio.wait_for(server.hung_up.wait(), 30)


def event(kind: str, **fields: Any) -> bytes:
    return f"event: {kind}\n".encode() + sse({"type": kind, **fields})


ANTHROPIC = [
    event("message_start", message={"id": "m", "type": "message", "role": "assistant", "model": "m", "content": [],
          "stop_reason": None, "stop_sequence": None, "usage": {"input_tokens": 9, "output_tokens": 1}})
    + event("content_block_start", index=0, content_block={"type": "thinking", "thinking": "", "signature": ""}),
    event("content_block_delta", index=0, delta={"type": "thinking_delta", "thinking": "hm"})
    + event("content_block_delta", index=0, delta={"type": "signature_delta", "signature": "signed"})
    + event("content_block_stop", index=0)
    + event("content_block_start", index=1, content_block={"type": "text", "text": ""})
    + event("content_block_delta", index=1, delta={"type": "text_delta", "text": "yes"})
    + event("content_block_stop", index=1)
    + event("content_block_start", index=2, content_block={"type": "tool_use", "id": "t", "name": "look", "input": {}})
    + event("content_block_delta", index=2, delta={"type": "input_json_delta", "partial_json": '{"path": "x"}'})
    + event("content_block_stop", index=2),
    event("message_delta", delta={"stop_reason": "tool_use", "stop_sequence": None}, usage={"output_tokens": 5})
    + event("message_stop"),
]  # fmt: skip


def said(name: str, *texts: str) -> bytes:
    """An answer of one text block in the provider's own words."""
    if name.startswith("openai"):
        return text(*texts)
    head = ANTHROPIC[0].partition(b"event: content_block_start")[0]
    deltas = [event("content_block_delta", index=0, delta={"type": "text_delta", "text": said}) for said in texts]
    begin = event("content_block_start", index=0, content_block={"type": "text", "text": ""})
    return head + begin + b"".join(deltas) + event("content_block_stop", index=0) + ANTHROPIC[-1]


@pytest.mark.parametrize("name", ["openai:m", "anthropic:m"])
async def test_it_gives_the_exact_text_however_the_bytes_come(name: str) -> None:
    stream = said(name, ODD_TEXT, "c")
    comments = stream.replace(b"\n\n", b"\n\n: still here\n\n")
    for parts in (bytewise(stream), [stream], [comments], [stream[:-700], stream[-700:]]):
        async with provider_server(*parts) as server:
            assert (await ask(server, name)).text == f"{ODD_TEXT}c"


@pytest.mark.parametrize("name", ["openai:m", "anthropic:m"])
async def test_it_reads_an_event_of_any_size(name: str) -> None:
    long = ODD_TEXT * 4000
    async with provider_server(said(name, long)) as server:
        assert (await ask(server, name)).text == long


async def test_it_speaks_anthropic_and_returns_its_signature() -> None:
    async with provider_server(*ANTHROPIC) as server:
        done = await ask(server, "anthropic:m")
        assert done.payload is not None
        history = [user_message("hello"), done.payload, tool_results([CallResult("t", "look", "bad", ok=False)])]
        await ask(server, "anthropic:m", history)
    assert [(block.kind, block.text) for block in done.blocks] == [("thinking", "hm"), ("text", "yes")]
    assert done.calls[0].args == {"path": "x"}
    assert (done.usage.input_tokens, done.usage.output_tokens) == (9, 5)
    sent = server.asked()["messages"]
    assert sent[1]["content"][0]["signature"] == "signed"
    assert sent[2]["content"][0]["is_error"] is True


CHAT = [
    answer({"reasoning_content": "hm"}, {"content": "yes"}, {"tool_calls": [call(0, "a", "look", '{"path": "x"}')]})
]


@pytest.mark.parametrize(("name", "stream"), [("openai:m", b"".join(CHAT)), ("anthropic:m", b"".join(ANTHROPIC))])
async def test_it_is_whole_or_fails_wherever_the_stream_is_cut(name: str, stream: bytes) -> None:
    outcomes = set()
    async with provider_server(stream) as server:
        ours = models(server)
        for place in range(0, len(stream), 7):
            server.script = (stream_head(), stream[:place])
            try:
                async with ours.stream(name, HELLO, instructions="", tools=[LOOK]) as answered:
                    async for _ in answered:
                        pass
                    outcomes.add(str(answered.completion().calls))
            except ProviderError as error:
                outcomes.add(error.code)
    assert len(outcomes & {"connection_lost", "garbage"}) == len(outcomes) - 1, outcomes


@settings(max_examples=40, deadline=None)
@given(st.lists(st.binary(max_size=20) | st.sampled_from([b"data: ", b"\n\n", b"{}", b"[DONE]", *CHAT, *ANTHROPIC])))
def test_it_survives_any_bytes(parts: list[bytes]) -> None:
    async def run() -> None:
        async with provider_server(stream_head(), *parts) as server:
            for name in ("openai:m", "anthropic:m"):
                with suppress(ProviderError):
                    await ask(server, name)

    asyncio.run(run())


async def test_it_takes_an_anthropic_stream_without_its_end_for_lost() -> None:
    assert (await refusal(*ANTHROPIC[:2], name="anthropic:m")).code == "connection_lost"
    assert (
        await refusal(
            ANTHROPIC[0], event("error", error={"type": "overloaded_error", "message": "x"}), name="anthropic:m"
        )
    ).code == "overloaded"


TEXT_ITEM = {"id": "i", "type": "message", "role": "assistant", "status": "in_progress", "content": []}
PART = {"type": "output_text", "text": "", "annotations": []}
RESPONSE = {"id": "r", "object": "response", "created_at": 1, "model": "m", "output": [], "status": "in_progress"}
USAGE = {
    "input_tokens": 4,
    "output_tokens": 2,
    "total_tokens": 6,
    "input_tokens_details": {"cached_tokens": 1, "cache_write_tokens": 0},
    "output_tokens_details": {"reasoning_tokens": 0},
}
RESPONSES = [
    event("response.created", response=RESPONSE, sequence_number=0)
    + event("response.output_item.added", item=TEXT_ITEM, output_index=0, sequence_number=1)
    + event("response.content_part.added", item_id="i", output_index=0, content_index=0, part=PART, sequence_number=2)
    + event("response.output_text.delta", item_id="i", output_index=0, content_index=0, delta="ok", sequence_number=3),
    event("response.completed", response=RESPONSE | {"status": "completed", "usage": USAGE}, sequence_number=4),
]


async def test_it_speaks_the_responses_api() -> None:
    async with provider_server(*RESPONSES) as server:
        done = await ask(server, "openai-responses:m")
    assert server.paths == ["/v1/responses"]
    assert done.text == "ok"
    assert (done.usage.input_tokens, done.usage.output_tokens, done.usage.cached_tokens) == (4, 2, 1)
    assert (await refusal(RESPONSES[0], name="openai-responses:m")).code == "connection_lost"


@pytest.mark.parametrize(
    "data",
    [
        chunk({"role": "assistant", "content": "a", "reasoning_content": "b", "tool_calls": None}) | {"extra": 1},
        {"choices": [{"delta": {"content": "a", "reasoning_content": "b"}}]},
    ],
)
def test_it_builds_the_chunks_that_the_client_would(data: dict[str, Any]) -> None:
    ours = _text_chunk(data)
    theirs = ChatCompletionChunk.construct(**data)
    assert ours is not None
    assert ours.model_dump(warnings=False) == theirs.model_dump(warnings=False)
    assert (ours.choices[0].delta.content, getattr(ours.choices[0].delta, "reasoning_content", None)) == ("a", "b")
    for name in ("id", "created", "model", "usage", "service_tier"):
        assert getattr(ours, name) == getattr(theirs, name)


@pytest.mark.parametrize(
    "data",
    [
        chunk({}, "stop"),
        chunk(usage={"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2}),
        chunk({"tool_calls": [call(0, "a", "look", "{}")]}),
        {"id": "c", "choices": ["a"]},
        {"id": "c", "choices": [{"delta": "a"}]},
        [],
    ],
)
def test_it_leaves_every_other_chunk_to_the_client(data: object) -> None:
    assert _text_chunk(data) is None


async def test_it_asks_ollama_on_its_own_address() -> None:
    async with provider_server(text("ok")) as server:
        assert (await ask(server, "ollama:qwen")).text == "ok"
    assert server.paths == ["/v1/chat/completions"]
    assert KEY not in str(server.headers)


async def test_it_sends_the_same_bytes_past_the_clients_type_walk() -> None:
    payloads = [user_message("a \u2028 \U0001f600"), user_message("b")]
    async with provider_server(text("ok")) as server:
        await ask(server, payloads=payloads, temperature=0.5)
        client = AsyncOpenAI(base_url=f"{server.url}/v1", api_key=KEY, max_retries=0)
        plain = OpenAIChatModel("m", provider=OpenAICompatibleProvider("server", openai_client=client))
        ours = models(server)
        ours._models["openai:m"] = plain
        ours._loop = asyncio.get_running_loop()
        async with ours.stream(
            "openai:m", load_all(payloads), instructions="Be brief.", tools=[LOOK], temperature=0.5
        ) as stream:
            async for _ in stream:
                pass
    assert len(server.bodies) == 2
    assert server.bodies[0] == server.bodies[1]


async def test_it_shares_a_model_within_a_loop() -> None:
    async with provider_server(text("ok")) as server:
        ours = models(server)
        assert ours._model("openai:m") is ours._model("openai:m")
        other = await asyncio.to_thread(lambda: asyncio.run(_model_of(ours)))
    assert other is not ours._model("openai:m")


async def _model_of(ours: Models) -> object:
    return ours._model("openai:m")


@pytest.mark.parametrize("name", ["", "m", "nobody:m", "openai:", "demo:m", "gateway/openai:m"])
def test_it_knows_no_other_model(name: str) -> None:
    with pytest.raises(ModelUnknown):
        Models(ProviderSettings({"OPENAI_API_KEY": KEY})).check(name)


@pytest.mark.parametrize(("name", "key"), [("openai:m", "OPENAI_API_KEY"), ("anthropic:m", "ANTHROPIC_API_KEY")])
def test_it_names_the_missing_key(name: str, key: str) -> None:
    with pytest.raises(ProviderError, match=key) as caught:
        Models(ProviderSettings({})).check(name)
    assert caught.value.code == "no_key"
    Models(ProviderSettings({key: KEY})).check(name)


def test_it_names_the_extra_to_install() -> None:
    with pytest.raises(ModelUnknown, match=r"branchline\[groq\]"):
        Models(ProviderSettings({"GROQ_API_KEY": KEY})).check("groq:m")


def test_it_needs_no_key_for_a_server_of_ones_own() -> None:
    Models(ProviderSettings({"OPENAI_BASE_URL": "http://127.0.0.1:9/v1"})).check("openai:m")


DEAF = {"OLLAMA_HOST": "http://127.0.0.1:9"}


@pytest.mark.parametrize(
    ("env", "start"),
    [
        ({}, "demo"),
        ({"ANTHROPIC_API_KEY": "k", "OPENAI_API_KEY": "k"}, "openai:gpt"),
        ({"ANTHROPIC_API_KEY": "k"}, "anthropic:claude"),
        ({"OPENAI_BASE_URL": "http://127.0.0.1:9/v1"}, "openai:default"),
    ],
)
def test_it_picks_the_first_provider_with_a_key(env: dict[str, str], start: str) -> None:
    assert default_model(DEAF | env).startswith(start)


MODELS = {"data": [{"id": "nomic-embed-text"}, {"id": "qwen3:8b"}]}


async def test_it_finds_the_models_of_a_local_server() -> None:
    async with provider_server(failure("200 OK", MODELS)) as server:
        url = {"OPENAI_BASE_URL": f"{server.url}/v1"}
        assert await asyncio.to_thread(default_model, DEAF | url) == "openai:qwen3:8b"
        assert await asyncio.to_thread(default_model, {"OLLAMA_HOST": server.url}) == "ollama:qwen3:8b"


async def test_it_does_not_wait_for_a_silent_ollama() -> None:
    async with provider_server(OPEN) as server:
        async with asyncio.timeout(2):
            assert await asyncio.to_thread(default_model, {"OLLAMA_HOST": server.url}) == "demo"


async def test_it_sends_a_repaired_history() -> None:
    calls = answer({"tool_calls": [call(0, "a", "look", "{}")]}, finish="tool_calls")
    async with provider_server(calls) as server:
        done = await ask(server)
        assert done.payload is not None
        history = repair(load_all([user_message("x"), done.payload, user_message("y")]))
        async with models(server).stream("openai:m", history, instructions="", tools=[LOOK]) as stream:
            async for _ in stream:
                pass
    roles = [message["role"] for message in server.asked()["messages"]]
    assert roles == ["user", "assistant", "tool", "user"]


def test_it_imports_no_adapter_before_it_is_asked_for() -> None:
    code = "import sys, chatapp.runtime.providers; print(sorted({'openai', 'anthropic', 'django'} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
