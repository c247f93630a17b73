"""The messages we keep: they survive storing, and a damaged history becomes one that providers accept."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic_ai.messages import (
    ModelMessage,
    ModelRequest,
    ModelResponse,
    TextPart,
    ThinkingPart,
    ToolCallPart,
    ToolReturnPart,
    UserPromptPart,
)
from pydantic_ai.usage import RequestUsage

from chatapp.runtime.messages import (
    MEDIA_ROOM,
    AttachedFile,
    CallResult,
    clean,
    completion,
    has_media,
    load,
    load_all,
    repair,
    tool_results,
    user_message,
    with_media,
)


def asked(text: str = "hi") -> ModelRequest:
    return ModelRequest(parts=[UserPromptPart(content=text)])


def calls(*ids: str) -> ModelResponse:
    return ModelResponse(parts=[ToolCallPart("look", "{}", call_id) for call_id in ids])


def results(*ids: str, output: str = "seen") -> ModelRequest:
    return ModelRequest(parts=[ToolReturnPart("look", output, call_id) for call_id in ids])


def shape(messages: Sequence[ModelMessage]) -> list[list[str]]:
    """Each message as its parts: `?` a prompt, `a` a call, `a=seen` its result."""
    rows = []
    for message in messages:
        row = []
        for part in message.parts:
            if isinstance(part, ToolCallPart):
                row.append(part.tool_call_id)
            elif isinstance(part, ToolReturnPart):
                row.append(f"{part.tool_call_id}={part.content if part.outcome == 'success' else part.outcome}")
            else:
                row.append("?")
        rows.append(row)
    return rows


@pytest.mark.parametrize(
    ("damaged", "repaired"),
    [
        ([asked(), calls("a", "b"), results("a", "b")], [["?"], ["a", "b"], ["a=seen", "b=seen"]]),
        ([asked(), calls("a", "b"), results("b")], [["?"], ["a", "b"], ["a=failed", "b=seen"]]),
        ([asked(), calls("a")], [["?"], ["a"], ["a=failed"]]),
        ([calls("a"), asked()], [["a"], ["a=failed"], ["?"]]),
        ([calls("a"), results("a"), results("a", output="again")], [["a"], ["a=seen"]]),
        ([calls("a"), asked(), results("a")], [["a"], ["a=seen"], ["?"]]),
        ([results("a"), asked(), calls("a")], [["?"], ["a"], ["a=failed"]]),
        ([asked(), results("z")], [["?"]]),
        ([calls("a"), results("a"), calls("a"), results("a")], [["a"], ["a=seen"], ["a"], ["a=seen"]]),
        ([calls("a", "b"), results("a"), results("b")], [["a", "b"], ["a=seen", "b=seen"]]),
    ],
)
def test_it_leaves_one_result_behind_each_call(damaged: list[ModelMessage], repaired: list[list[str]]) -> None:
    assert shape(repair(damaged)) == repaired
    assert shape(repair(repair(damaged))) == repaired


def test_it_never_invents_a_success() -> None:
    (_, made) = repair([calls("a")])
    (part,) = made.parts
    assert isinstance(part, ToolReturnPart)
    assert part.outcome == "failed"
    assert "No result of this call was recorded" in str(part.content)


def test_it_survives_json() -> None:
    payloads = [user_message("hé \U0001f600"), tool_results([CallResult("a", "look", "out", ok=False)])]
    again = load_all(json.loads(json.dumps(payloads)))
    assert again == load_all(payloads)
    (part,) = again[1].parts
    assert isinstance(part, ToolReturnPart)
    assert (part.content, part.outcome) == ("out", "failed")


def test_it_refuses_what_is_no_message() -> None:
    with pytest.raises(ValueError, match="kind"):
        load({"kind": "telegram"})


@given(st.text(alphabet=st.characters(codec=None, exclude_categories=())))
def test_it_cleans_text_for_any_database(text: str) -> None:
    cleaned = clean(text)
    assert "\x00" not in cleaned
    cleaned.encode()
    assert clean(cleaned) == cleaned


@given(st.text())
def test_it_changes_no_text_that_is_clean(text: str) -> None:
    if "\x00" not in text:
        assert clean(text) == text


def test_it_joins_surrogate_pairs_and_replaces_lone_ones() -> None:
    assert clean("a\ud83d\ude00b\ud83dc\x00") == "a\U0001f600b\ufffdc"


def test_it_keeps_call_ids_short_and_different() -> None:
    done = completion(calls("x" * 500, "x" * 500, "y", "y"), range(4))
    ids = [call.provider_call_id for call in done.calls]
    assert len(set(ids)) == 4
    assert max(map(len, ids)) <= 200
    assert done.payload is not None
    assert [part["tool_call_id"] for part in done.payload["parts"]] == ids


def test_it_cleans_what_json_escapes_bring_back() -> None:
    response = ModelResponse(parts=[ToolCallPart("look", '{"a\\u0000": ["\\ud800", NaN]}', "a")])
    (call,) = completion(response, [0]).calls
    assert call.args == {"a": ["\ufffd", None]}


def test_it_keeps_the_streams_indexes() -> None:
    response = ModelResponse(parts=[ThinkingPart("hm"), TextPart("so"), ToolCallPart("look", "{}", "a")])
    done = completion(response, [0, 2, 5])
    assert [block.index for block in done.blocks] == [0, 2]
    assert [call.index for call in done.calls] == [5]


def test_it_believes_a_whole_count_only() -> None:
    response = ModelResponse(parts=[TextPart("x" * 40)], usage=RequestUsage(input_tokens=9, output_tokens=1))
    whole = completion(response, [0]).usage
    assert (whole.input_tokens, whole.output_tokens, whole.estimated) == (9, 1, False)
    cut = completion(response, [0], partial=True).usage
    assert (cut.input_tokens, cut.output_tokens, cut.estimated) == (9, 10, True)


def test_it_says_that_the_model_ran_out_of_room() -> None:
    assert completion(ModelResponse(parts=[TextPart("x")], finish_reason="length"), [0]).cut_off


PICTURE = AttachedFile("uploads/a.png", "a.png", 3, "image/png")
TABLE = AttachedFile("uploads/t.csv", "t.csv", 12, "text/csv")


def contents(message: ModelMessage) -> list[Any]:
    return list(message.parts[0].content)  # type: ignore[union-attr, arg-type]


def test_attached_files_are_named_and_pictures_are_references_until_they_are_asked_for() -> None:
    payload = user_message("Look", [PICTURE, TABLE])
    assert "base64" not in json.dumps(payload)
    message = load(json.loads(json.dumps(payload)))
    assert has_media([message])
    words, named = contents(message)[:2]
    assert words == "Look"
    assert "uploads/a.png (image/png, 3 bytes)" in named
    assert "uploads/t.csv (text/csv, 12 bytes)" in named
    shown = contents(with_media([message], {"uploads/a.png": b"png"}.get)[0])
    assert (shown[2].data, shown[2].media_type) == (b"png", "image/png")
    assert len(shown) == 3


def test_a_model_that_takes_no_pictures_reads_their_names() -> None:
    message = load(user_message("Look", [PICTURE]))
    assert [type(item) for item in contents(with_media([message], None)[0])] == [str, str]


def test_a_picture_that_is_gone_is_left_out() -> None:
    message = load(user_message("Look", [PICTURE]))
    assert len(contents(with_media([message], lambda path: None)[0])) == 2


def test_the_newest_pictures_fill_the_room() -> None:
    old, new = (load(user_message(text, [PICTURE])) for text in ("old", "new"))
    filled = with_media([old, new], lambda path: b"x" * (MEDIA_ROOM - 1))
    assert [len(contents(message)) for message in filled] == [2, 3]


def test_a_document_is_a_document() -> None:
    message = load(user_message("Read", [AttachedFile("uploads/a.pdf", "a.pdf", 3, "application/pdf")]))
    assert contents(with_media([message], lambda path: b"%PDF-")[0])[2].media_type == "application/pdf"
