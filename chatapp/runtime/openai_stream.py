"""A chat completion's events as they are read: those that arrived together and only add text come as one."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterable, Iterator
from contextlib import aclosing
from typing import Any, TypeVar

import orjson
from openai._streaming import ServerSentEvent, SSEDecoder

T = TypeVar("T")
MOST = 256
TEXTS = ("content", "reasoning_content", "reasoning")


class JoiningDecoder(SSEDecoder):
    """The client's own decoder. A fast model's hundred tokens in one read cost what one costs, and none waits."""

    async def aiter_bytes(self, iterator: AsyncIterator[bytes]) -> AsyncIterator[ServerSentEvent]:
        async with aclosing(at_once(super().aiter_bytes(iterator), _is_last)) as batches:
            async for batch in batches:
                for event in joined(batch):
                    yield event


async def at_once(source: AsyncIterator[T], is_last: Callable[[T], bool]) -> AsyncGenerator[list[T], None]:
    """What `source` had ready, in lists of at most `MOST`; nothing is read after the last one."""
    ready: list[T] = []
    arrived, taken = asyncio.Event(), asyncio.Event()

    async def read() -> None:
        async for item in source:
            ready.append(item)
            arrived.set()
            if is_last(item):
                return
            if len(ready) == MOST:
                taken.clear()
                await taken.wait()

    reader = asyncio.create_task(read())
    reader.add_done_callback(lambda _: arrived.set())
    try:
        while ready or not reader.done():
            if ready:
                batch = list(ready)
                ready.clear()
                taken.set()
                yield batch
            else:
                arrived.clear()
                await arrived.wait()
        reader.result()
    finally:
        reader.cancel()
        await asyncio.gather(reader, return_exceptions=True)


def _is_last(event: ServerSentEvent) -> bool:
    return event.data.startswith("[DONE]")


class Parsed(ServerSentEvent):
    """An event whose data is known already."""

    def __init__(self, event: ServerSentEvent, value: Any) -> None:
        super().__init__(event=event.event, data=event.data, id=event.id, retry=event.retry)
        self.value = value

    def json(self) -> Any:
        return self.value


def joined(events: Iterable[ServerSentEvent]) -> Iterator[ServerSentEvent]:
    """The same events, neighbours that differ in nothing but the text they add made one."""
    run: Run | None = None
    for event in map(_parsed, events):
        found = _text_delta(event.value) if isinstance(event, Parsed) else None
        if run is not None and run.takes(event, found):
            continue
        if run is not None:
            yield run.whole()
        run = Run(event, *found) if found and isinstance(event, Parsed) else None
        if run is None:
            yield event
    if run is not None:
        yield run.whole()


class Run:
    """A first event and the texts of those that followed it; its own is emptied meanwhile, to compare the rest."""

    def __init__(self, first: Parsed, delta: dict[str, Any], field: str) -> None:
        self.first, self.delta, self.field = first, delta, field
        self.texts = [delta[field]]
        delta[field] = ""

    def takes(self, event: ServerSentEvent, found: tuple[dict[str, Any], str] | None) -> bool:
        if found is None or not isinstance(event, Parsed):
            return False
        delta, field = found
        text, delta[field] = delta[field], ""
        if event.value == self.first.value:
            self.texts.append(text)
            return True
        delta[field] = text
        return False

    def whole(self) -> Parsed:
        self.delta[self.field] = "".join(self.texts)
        return self.first


def _parsed(event: ServerSentEvent) -> ServerSentEvent:
    """As it is where it is no plain JSON: the client says what is wrong with it."""
    try:
        return Parsed(event, orjson.loads(event.data))
    except orjson.JSONDecodeError:
        return event


def _text_delta(data: Any) -> tuple[dict[str, Any], str] | None:
    """The delta and the name of its one text, where a chunk adds text and says nothing else."""
    choices = data.get("choices") if isinstance(data, dict) and data.get("usage") is None else None
    if not isinstance(choices, list) or len(choices) != 1 or not isinstance(choices[0], dict):
        return None
    delta = choices[0].get("delta")
    if not isinstance(delta, dict) or choices[0].get("finish_reason") is not None or choices[0].get("logprobs"):
        return None
    told = [name for name, value in delta.items() if value is not None and name != "role"]
    if len(told) != 1 or told[0] not in TEXTS or not isinstance(delta[told[0]], str):
        return None
    # OpenAI pads each event with letters of no meaning, against guessing its length on the wire.
    data.pop("obfuscation", None)
    return delta, told[0]
