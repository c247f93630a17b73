"""Events that arrived together: what becomes one, what stays apart, and that nothing is read too far."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import aclosing
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from openai._streaming import ServerSentEvent

from chatapp.runtime.openai_stream import MOST, JoiningDecoder, at_once, joined
from tests.runtime.provider_server import call, chunk, sse

WORD = st.text(max_size=5)
FIELD = st.sampled_from(["content", "reasoning_content", "reasoning"])
TEXT = st.builds(lambda field, word: chunk({field: word}), FIELD, WORD)
OTHER = st.sampled_from([
    chunk(), chunk({}), chunk({"role": "assistant", "content": ""}), chunk({"content": "x"}, "stop"),
    chunk({"content": "a", "reasoning": "b"}), chunk({"content": ["x"]}), chunk({"content": None}),
    chunk({"tool_calls": [call(0, "c", "t", "{")]}), chunk({"content": "x"}, usage={"prompt_tokens": 1}),
    {"error": {"message": "x"}}, {"choices": [None]}, [], 7,
])  # fmt: skip


def events(*items: Any) -> list[ServerSentEvent]:
    return [ServerSentEvent(data=item if isinstance(item, str) else json.dumps(item)) for item in items]


def told(values: list[Any]) -> list[Any]:
    """What a reader learns: text by field, neighbours of one kind run together, and everything else as it is."""
    out: list[Any] = []
    for value in values:
        text, rest = split(json.loads(json.dumps(value)))
        if text is not None and out and out[-1][1] == rest and out[-1][0] is not None:
            out[-1] = (out[-1][0] + text, rest)
        else:
            out.append((text, rest))
    return out


def split(value: Any) -> tuple[str | None, Any]:
    """The text of a chunk that has nothing else to say, and the chunk without it."""
    if not isinstance(value, dict) or value.get("usage") or not value.get("choices") or not value["choices"][0]:
        return None, value
    delta = value["choices"][0]["delta"]
    names = [name for name in delta if name != "role"]
    if len(names) != 1 or not isinstance(delta[names[0]], str) or value["choices"][0]["finish_reason"]:
        return None, value
    text, delta[names[0]] = delta[names[0]], ""
    return text, value


@given(st.lists(TEXT | OTHER, max_size=30))
def test_joining_changes_nothing_that_is_told(items: list[Any]) -> None:
    assert told([event.json() for event in joined(events(*items))]) == told(items)


def test_a_hundred_tokens_in_one_read_are_one_event() -> None:
    words = [chunk({"content": f"w{n} "}) | {"obfuscation": "x" * n} for n in range(100)]
    (one,) = joined(events(*words))
    assert one.json()["choices"][0]["delta"] == {"content": "".join(f"w{n} " for n in range(100))}


@pytest.mark.parametrize("odd", ["[DONE]", "{", '{"choices": [{"delta": {"content": "\\ud83d"}}]}', "NaN", ""])
def test_what_is_no_plain_json_is_left_to_the_client(odd: str) -> None:
    before, after = chunk({"content": "a"}), chunk({"content": "b"})
    assert [event.data for event in joined(events(before, odd, after))][1] == odd


async def test_a_server_that_waits_between_tokens_is_not_waited_for() -> None:
    async def slow() -> AsyncIterator[bytes]:
        yield sse(chunk({"content": "a"}), chunk({"content": "b"}))
        await asyncio.Event().wait()

    async with aclosing(JoiningDecoder().aiter_bytes(slow())) as decoded:  # type: ignore[type-var]
        assert (await anext(decoded)).json()["choices"][0]["delta"] == {"content": "ab"}


async def numbers(count: int, read: list[int], error: Exception | None = None) -> AsyncIterator[int]:
    for number in range(count):
        read.append(number)
        yield number
    if error:
        raise error


async def test_nothing_is_read_after_the_last() -> None:
    read: list[int] = []
    batches = [batch async for batch in at_once(numbers(9, read), lambda number: number == 5)]
    assert batches == [[0, 1, 2, 3, 4, 5]]
    assert read == batches[0]


async def test_a_slow_reader_is_not_outrun() -> None:
    read: list[int] = []
    async with aclosing(at_once(numbers(3 * MOST, read), lambda number: False)) as batches:
        await anext(batches)
        assert len(read) <= MOST + 1
        assert sum([len(batch) async for batch in batches]) == 2 * MOST


async def test_an_error_comes_after_what_was_there() -> None:
    batches = at_once(numbers(3, [], ConnectionError("cut")), lambda number: False)
    assert await anext(batches) == [0, 1, 2]
    with pytest.raises(ConnectionError):
        await anext(batches)


async def test_a_reader_that_leaves_ends_the_reading() -> None:
    ended = asyncio.Event()

    async def silent() -> AsyncIterator[int]:
        try:
            yield 1
            await asyncio.Event().wait()
        finally:
            ended.set()

    async with aclosing(at_once(silent(), lambda number: False)) as batches:
        await anext(batches)
    assert ended.is_set()
