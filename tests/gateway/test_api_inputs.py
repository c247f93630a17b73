"""Whatever a caller sends is taken or refused by field; nothing else comes out of the checks."""

from __future__ import annotations

from contextlib import suppress
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from chatapp.runtime.errors import InvalidField
from gateway.api import inputs
from gateway.api.inputs import ConversationChange, MessageChange, NewConversation, NewMessage, StopWish

anything: Any = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(st.characters(codec=None)),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)
BODIES: list[type[inputs.Body]] = [NewConversation, ConversationChange, NewMessage, MessageChange, StopWish]


@pytest.mark.parametrize("body", BODIES)
@given(data=st.data())
def test_a_body_is_taken_or_refused_by_field(body: type[inputs.Body], data: st.DataObject) -> None:
    fields = st.sampled_from([*body.model_fields, "other"])
    sent = data.draw(anything | st.dictionaries(fields, anything | st.just("text"), max_size=4))
    with suppress(InvalidField, ValidationError):
        taken = body.model_validate(sent)
        if isinstance(taken, NewMessage):
            taken.overrides()


@given(text=st.text())
def test_a_cursor_is_one_of_ours_or_refused(text: str) -> None:
    with suppress(InvalidField):
        assert text == "" or inputs.check_cursor(text, bool) is not None


@given(pinned=st.booleans(), moment=st.datetimes(timezones=st.just(UTC)))
def test_a_cursor_comes_back_as_it_was_made(pinned: bool, moment: datetime) -> None:
    assert inputs.check_cursor(inputs.cursor(pinned, moment, "abc"), bool) == (pinned, moment, "abc")
    with pytest.raises(InvalidField):
        inputs.check_cursor(inputs.cursor(pinned, moment, "abc"), int)
