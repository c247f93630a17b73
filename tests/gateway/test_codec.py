"""Events and deltas on their way: what is told is what was written, for any content."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from chatapp.runtime.events import BlockRef, DeltaType, Envelope
from gateway.consumers import merged
from gateway.publisher import delta_entry

# What a database stores: any text but NUL and halves of surrogate pairs.
TEXT = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=20)
VALUE = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3),
    max_leaves=8,
)
DATA = st.dictionaries(st.sampled_from(["text", "output", "args", "value", "name"]), VALUE)


@given(DATA, DATA, TEXT)
def test_an_event_is_told_as_it_was_written(data: dict[str, Any], metadata: dict[str, Any], source: str) -> None:
    event = Envelope(
        7, "e", "CUSTOM", source, "c", "s", "main", "", 0, datetime(2026, 1, 1, tzinfo=UTC), data, metadata
    )
    told = json.loads(event.encoded)
    assert told == event.flat()
    assert {name: told[name] for name in data} == data
    assert (told["metadata"], told["source"], told["reply_id"]) == (metadata, source or None, None)


BLOCKS = [
    BlockRef(kind, "c", "s", "", "r", f"block-{kind}-{number}", 1, 1) for kind in DeltaType for number in range(2)
]


@given(st.lists(st.tuples(st.sampled_from(BLOCKS), TEXT, st.booleans()), max_size=20))
def test_who_is_behind_gets_the_same_text_of_each_block(said: list[tuple[BlockRef, str, bool]]) -> None:
    """Neighbours are run together; the offsets fit, and events stay where they were."""
    batch: list[dict[str, Any]] = []
    have: dict[str, str] = {}
    for number, (block, text, event) in enumerate(said):
        batch.append(json.loads(delta_entry(block, len(have.get(block.block_id, "")), text)))
        have[block.block_id] = have.get(block.block_id, "") + text
        if event:
            batch.append({"kind": "event", "seq": number})
    got: dict[str, str] = {}
    for frame in merged(batch):
        if frame["kind"] == "delta":
            block_id = frame.get("block_id") or frame["tool_call_id"]
            assert frame["offset"] == len(got.get(block_id, ""))
            got[block_id] = got.get(block_id, "") + frame["text"]
    assert got == have
    assert [f for f in merged(batch) if f["kind"] == "event"] == [f for f in batch if f["kind"] == "event"]
