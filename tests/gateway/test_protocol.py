"""The websocket's frames, parsed without I/O: a table of what is taken and what is refused."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chatapp.runtime.errors import BranchlineError, InvalidField, TooLong
from gateway import protocol
from gateway.protocol import (
    BadFrame,
    DeleteMessage,
    EditMessage,
    MarkRead,
    Ping,
    Retry,
    Seen,
    SendMessage,
    StopRun,
    parse,
)

LIMIT = 10
ID = "a" * 32


@pytest.mark.parametrize(
    ("frame", "parsed"),
    [
        ({"kind": "message.send", "text": "Hi", "ref": 1}, SendMessage("Hi", ref=1)),
        (
            {"kind": "message.send", "text": "Hi", "client_id": "c", "mode": "steer"},
            SendMessage("Hi", client_id="c", mode="steer"),
        ),
        (
            {"kind": "message.send", "text": "Hi", "expose_to_user": "true", "headers": {"HX-Request": "true"}},
            SendMessage("Hi", overrides={"expose_to_user": True}),
        ),
        ({"kind": "message.edit", "message_id": ID, "text": "Ho"}, EditMessage(ID, "Ho")),
        ({"kind": "message.delete", "message_id": ID}, DeleteMessage(ID)),
        ({"kind": "message.retry", "ref": {"any": []}}, Retry({"any": []})),
        ({"kind": "run.stop"}, StopRun("reply")),
        ({"kind": "run.stop", "scope": "all", "session_id": ID}, StopRun("all", ID)),
        ({"kind": "seen", "frames": 3}, Seen(3)),
        ({"kind": "conversation.read", "seq": 7, "ref": "read"}, MarkRead(7, "read")),
        ({"kind": "ping", "ref": "x"}, Ping("x")),
    ],
)
def test_it_reads_each_kind(frame: dict[str, Any], parsed: object) -> None:
    assert parse(json.dumps(frame), LIMIT) == parsed


NESTED = '{"kind": "ping", "ref": ' + "[" * 500 + "]" * 500 + "}"


@pytest.mark.parametrize(
    "raw", ["", "{", "[]", "1", "null", '{"kind": 1}', '{"kind": "nope"}', "{}", "NaN", "[" * 9999, NESTED]
)
def test_it_refuses_what_is_no_frame(raw: str) -> None:
    with pytest.raises(BadFrame):
        parse(raw, LIMIT)


@pytest.mark.parametrize(
    ("fields", "field"),
    [
        ({"text": None}, "text"),
        ({"text": 3}, "text"),
        ({"text": " \n\t"}, "text"),
        ({"text": "a\x00"}, "text"),
        ({"text": "a\ud800"}, "text"),
        ({"text": "Hi", "client_id": 7}, "client_id"),
        ({"text": "Hi", "client_id": "x" * 201}, "client_id"),
        ({"text": "Hi", "client_id": "a\x00"}, "client_id"),
        ({"text": "Hi", "mode": "shout"}, "mode"),
        ({"text": "Hi", "mode": ["queue"]}, "mode"),
        ({"text": "Hi", "mode": "steer", "force_sync": True}, "force_sync"),
        ({"text": "Hi", "force_sync": "maybe"}, "force_sync"),
        ({"text": "Hi", "force_sync_timeout_seconds": "soon"}, "force_sync_timeout_seconds"),
        ({"text": "Hi", "force_sync_timeout_seconds": 10**400}, "force_sync_timeout_seconds"),
        ({"text": "Hi", "attributes": []}, "attributes"),
        ({"kind": "message.delete", "message_id": "a\ud800"}, "message_id"),
        ({"kind": "message.delete", "message_id": "a\x00"}, "message_id"),
        ({"kind": "run.stop", "session_id": 7}, "session_id"),
        ({"kind": "run.stop", "scope": "half"}, "scope"),
        ({"kind": "seen", "frames": True}, "frames"),
        ({"kind": "conversation.read"}, "seq"),
        ({"kind": "conversation.read", "seq": -1}, "seq"),
        ({"kind": "conversation.read", "seq": 10**18}, "seq"),
        ({"text": "Hi", "attributes": {"a": "\x00"}}, "attributes"),
    ],
)
def test_it_names_the_field_that_is_wrong(fields: dict[str, Any], field: str) -> None:
    with pytest.raises(InvalidField) as refused:
        parse(json.dumps({"kind": "message.send", **fields}), LIMIT)
    assert refused.value.field == field


def test_it_counts_characters_not_bytes() -> None:
    assert parse(json.dumps({"kind": "message.send", "text": "😀" * LIMIT}), LIMIT)
    with pytest.raises(TooLong):
        parse(json.dumps({"kind": "message.send", "text": "x" * (LIMIT + 1)}), LIMIT)


def test_it_refuses_deep_attributes_without_going_down_the_stack() -> None:
    deep: dict[str, Any] = {}
    for _ in range(200):
        deep = {"a": deep}
    with pytest.raises(InvalidField):
        parse(json.dumps({"kind": "message.send", "text": "Hi", "attributes": deep}), LIMIT)


@given(
    st.recursive(st.none() | st.booleans() | st.floats() | st.text(), st.lists), st.sampled_from([*protocol.BUILDERS])
)
def test_it_answers_any_value_in_any_field(value: Any, kind: str) -> None:
    names = ("text", "client_id", "mode", "message_id", "scope", "session_id", "frames", "seq", "attributes", "ref")
    for name in names:
        raw = json.dumps({"kind": kind, "text": "Hi", "message_id": ID, "frames": 1, "seq": 1, name: value})
        try:
            parse(raw, LIMIT)
        except BranchlineError as problem:
            json.dumps(protocol.error(protocol.reference(raw), problem))


@given(st.binary() | st.text())
def test_it_answers_any_bytes(raw: bytes | str) -> None:
    with pytest.raises(BadFrame):
        parse(raw, LIMIT)
