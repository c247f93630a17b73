"""The thread as events make it."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from chatapp import parts, thread
from chatapp.templatetags.thread import draw, duration

NOON = datetime(2026, 5, 4, 12, tzinfo=UTC)


class Ledger:
    """Events in the order they are added, numbered from 1."""

    def __init__(self) -> None:
        self.events: list[dict[str, Any]] = []

    def add(self, kind: str, reply_id: str | None = "r1", **fields: Any) -> dict[str, Any]:
        seq = len(self.events) + 1
        when = (NOON + timedelta(milliseconds=400 * seq)).isoformat().replace("+00:00", "Z")
        event = {"seq": seq, "id": f"e{seq}", "type": kind, "source": None, "reply_id": reply_id, "created_at": when}
        event |= {"conversation_id": "c1", "session_id": "c1", "agent_id": "main", "branch": 0, "metadata": {}}
        event |= fields
        self.events.append(event)
        return event

    def message(self, message_id: str, text: str, state: str, reply_id: str | None = None) -> None:
        self.add("USER_MESSAGE", reply_id, message_id=message_id, text=text, state=state, author="user")


def a_conversation() -> list[dict[str, Any]]:
    """One of everything: text, thinking, a call, a retry, a stop, a failure, a queue."""
    log = Ledger()
    log.message("u1", "hello <b>", "running")
    log.add("AGENT_START", trigger="user")
    log.add("THINKING_BLOCK_START", block_id="k1")
    log.add("THINKING_BLOCK_END", block_id="k1", text="hm", state="complete")
    log.add("TEXT_BLOCK_START", block_id="b0")
    log.add("TEXT_BLOCK_END", block_id="b0", text="half", state="discarded")
    log.add("TOOL_CALL_START", tool_call_id="c0", tool_name="read_file")
    log.add("TOOL_CALL_END", tool_call_id="c0", tool_name="read_file", args=None, args_text="", state="discarded")
    log.add("MODEL_RETRY", attempt=1, reason="connection_lost")
    log.add("TEXT_BLOCK_START", block_id="b1")
    log.add("TEXT_BLOCK_END", block_id="b1", text="I look **there**.", state="complete")
    log.add("TOOL_CALL_START", tool_call_id="c1", tool_name="read_file")
    log.add("TOOL_CALL_END", tool_call_id="c1", tool_name="read_file", args={"path": "notes.md"})
    log.message("u2", "and then?", "queued")
    log.add("TOOL_RESULT_START", tool_call_id="c1", tool_name="read_file")
    log.add("TOOL_RESULT_END", tool_call_id="c1", tool_name="read_file", state="success", output="<i>", truncated=True)
    log.message("u3", "hurry", "queued")
    log.message("u3", "hurry", "steered", "r1")
    log.add("CUSTOM", name="cut_off", value={})
    log.add("CUSTOM", name="something_else", value={})
    log.add("EXCEED_MAX_ITERS", max_iters=25)
    log.add("TEXT_BLOCK_START", block_id="b2")
    log.add("TEXT_BLOCK_END", block_id="b2", text="So f", state="partial")
    log.add("AGENT_END", reason="INTERRUPTED")
    log.message("u2", "and then?", "running")
    log.add("AGENT_START", "r2", trigger="user")
    log.message("u4", "never", "queued")
    log.message("u5", "later", "queued")
    log.message("u4", "never", "removed")
    log.add("RUN_FAILED", "r2", code="wrong_key", detail="The key <was> refused.", retryable=False)
    log.add("AGENT_END", "r2", reason="FAILED")
    return log.events


def a_delegation() -> list[dict[str, Any]]:
    """Two subagents of one kind at once, one of which has one of its own, fails and is asked again."""
    log = Ledger()

    def below(kind: str, key: str, **fields: Any) -> None:
        call, parent = {"s1": ("c1", "c1"), "s2": ("c2", "c1"), "s3": ("c3", "s2")}[key]
        source = "main/helper/helper" if key == "s3" else "main/helper"
        label = {"label": "Scout"} if key == "s2" else {}
        whose = {"session_id": key, "agent_id": "helper", "source": source}
        metadata = {"toolCallId": call, "parentSessionId": parent, **label}
        log.add(kind, fields.pop("reply_id", f"r-{key}"), **whose, metadata=metadata, **fields)

    def asked(key: str, message_id: str, text: str, state: str) -> None:
        below("USER_MESSAGE", key, message_id=message_id, text=text, state=state, author="agent", mode="queue")

    def call(call_id: str, name: str = "agent_spawn") -> None:
        log.add("TOOL_CALL_START", tool_call_id=call_id, tool_name=name)
        log.add("TOOL_CALL_END", tool_call_id=call_id, tool_name=name, args={"agent_id": "helper"})
        log.add("TOOL_RESULT_START", tool_call_id=call_id, tool_name=name)

    log.message("u1", "hello", "running")
    log.add("AGENT_START", trigger="user")
    call("c1")
    call("c2")
    asked("s1", "m1", "Count <b>.", "running")
    asked("s2", "m2", "Look.", "queued")
    below("AGENT_START", "s1", trigger="agent", session_tokens=0)
    asked("s2", "m2", "Look.", "running")
    below("AGENT_START", "s2", trigger="agent", session_tokens=0)
    below("TEXT_BLOCK_START", "s1", block_id="b1")
    below("TOOL_CALL_START", "s2", tool_call_id="c3", tool_name="agent_spawn")
    below("TOOL_CALL_END", "s2", tool_call_id="c3", tool_name="agent_spawn", args={"agent_id": "helper"})
    below("TEXT_BLOCK_END", "s1", block_id="b1", text="**Four**", state="complete")
    below("MODEL_CALL_END", "s1", session_tokens=1234)
    below("AGENT_END", "s1", reason="MODEL_STOP", session_tokens=1234)
    log.add("HANDOFF_END", child_session_id="s1", status="completed", output="Four", error=None)
    log.add("TOOL_RESULT_END", tool_call_id="c1", tool_name="agent_spawn", state="success", output="Four")
    asked("s3", "m3", "Look deeper.", "running")
    below("AGENT_START", "s3", trigger="agent", session_tokens=0)
    below("AGENT_END", "s2", reason="WAITING", session_tokens=5)
    log.add("AGENT_END", reason="WAITING")
    below("AGENT_END", "s3", reason="INTERRUPTED", session_tokens=7)
    below("AGENT_START", "s2", trigger="resume", session_tokens=5)
    below("HANDOFF_END", "s2", child_session_id="s3", status="cancelled", output=None, error="It was stopped.")
    below("MODEL_RETRY", "s2", attempt=1, reason="connection_lost")
    below("RUN_FAILED", "s2", code="wrong_key", detail="No.", retryable=False)
    below("AGENT_END", "s2", reason="FAILED", session_tokens=9)
    log.add("AGENT_START", trigger="resume")
    log.add("HANDOFF_END", child_session_id="s2", status="failed", output=None, error="No key.")
    log.add("TOOL_RESULT_END", tool_call_id="c2", tool_name="agent_spawn", state="error", output="No key.")
    call("c4", "agent_send")
    asked("s1", "m4", "Sure?", "running")
    below("AGENT_START", "s1", reply_id="r-s1b", trigger="agent", session_tokens=1234)
    below("TEXT_BLOCK_END", "s1", reply_id="r-s1b", block_id="b2", text="Yes.", state="complete")
    below("AGENT_END", "s1", reply_id="r-s1b", reason="MODEL_STOP", session_tokens=1300)
    log.add("HANDOFF_END", child_session_id="s1", status="completed", output="Yes.", error=None)
    log.add("TOOL_RESULT_END", tool_call_id="c4", tool_name="agent_send", state="success", output="Yes.")
    log.add("AGENT_END", reason="MODEL_STOP")
    return log.events


def test_each_subagent_has_its_panel_below_the_call_that_made_it() -> None:
    [_message, reply] = thread.fold(a_delegation()).items
    assert isinstance(reply, parts.Reply)
    first, second = (call.panels for call in reply.parts if isinstance(call, parts.ToolCall) and call.hands_on)
    assert [(panel.id, panel.state, panel.tokens, panel.handed) for panel in first] == [("s1", "done", 1300, "Yes.")]
    assert [(panel.id, panel.state, panel.error, panel.label) for panel in second] == [
        ("s2", "failed", "No key.", "Scout")
    ]
    assert [item.id for item in first[0].items] == ["m1", "r-s1", "m4", "r-s1b"]
    nested = next(part for part in second[0].items[1].parts if isinstance(part, parts.ToolCall))
    assert [(panel.id, panel.state, panel.crumbs) for panel in nested.panels] == [
        ("s3", "stopped", ["main", "helper", "helper"])
    ]


def test_a_subagent_whose_call_is_elsewhere_is_left_out() -> None:
    events = [event for event in a_delegation() if event.get("tool_call_id") != "c1"]
    shown = str([draw(item.template, part=item) for item in thread.fold(events).items])
    assert "Four" not in shown
    assert "Look." in shown


def test_it_keeps_messages_and_replies_in_order() -> None:
    folded = thread.fold(a_conversation())
    assert [item.id for item in folded.items] == ["u1", "r1", "u2", "r2"]
    assert folded.last_seq == len(a_conversation())


def test_it_keeps_what_waits_apart() -> None:
    assert [(message.id, message.text) for message in thread.fold(a_conversation()).queued] == [("u5", "later")]


def test_an_edit_of_a_queued_message_keeps_its_place() -> None:
    log = Ledger()
    log.message("u1", "a", "queued")
    log.message("u2", "b", "queued")
    log.message("u1", "changed", "queued")
    assert [message.text for message in thread.fold(log.events).queued] == ["changed", "b"]


def test_a_steered_message_stands_where_it_was_taken() -> None:
    reply = thread.fold(a_conversation()).items[1]
    assert isinstance(reply, parts.Reply)
    ids = [part.id for part in reply.parts]
    assert ids.index("c1") < ids.index("u3") < ids.index("b2")


def test_it_drops_a_discarded_text_and_keeps_a_stopped_one_with_one_note() -> None:
    reply = thread.fold(a_conversation()).items[1]
    assert isinstance(reply, parts.Reply)
    ids = [part.id for part in reply.parts]
    assert "b0" not in ids
    assert ids[-2:] == ["b2", "r1-stopped"]


def test_it_shows_a_call_with_its_arguments_and_result() -> None:
    reply = thread.fold(a_conversation()).items[1]
    assert isinstance(reply, parts.Reply)
    call = next(part for part in reply.parts if part.id == "c1")
    assert (call.state, call.brief, call.output, call.truncated) == ("success", "notes.md", "<i>", True)


def test_it_shows_arguments_that_did_not_parse_as_they_came() -> None:
    log = Ledger()
    log.add("TOOL_CALL_START", tool_call_id="c1", tool_name="x")
    log.add("TOOL_CALL_END", tool_call_id="c1", tool_name="x", args=None, args_text='{"pa')
    reply = thread.fold(log.events).items[0]
    assert isinstance(reply, parts.Reply)
    assert reply.parts[0].args == '{"pa'


def test_only_the_last_failure_can_be_retried() -> None:
    log = Ledger()
    log.add("RUN_FAILED", code="timeout", detail="late")
    log.add("AGENT_END", reason="FAILED")
    failed = thread.fold(log.events)
    assert (failed.failed, failed.running) == (True, False)
    log.add("AGENT_START", trigger="user")
    again = thread.fold(log.events)
    assert (again.failed, again.running) == (False, True)
    reply = again.items[0]
    assert isinstance(reply, parts.Reply)
    assert not reply.parts[0].last


def test_it_drops_a_call_that_was_cut_while_it_was_written() -> None:
    log = Ledger()
    log.add("TOOL_CALL_START", tool_call_id="c1", tool_name="x")
    log.add("MODEL_RETRY", attempt=1, reason="restarted")
    reply = thread.fold(log.events).items[0]
    assert isinstance(reply, parts.Reply)
    assert [type(part) for part in reply.parts] == [parts.Note]


def test_it_leaves_children_and_unknown_types_out() -> None:
    log = Ledger()
    log.add("TEXT_BLOCK_START", block_id="b1")
    log.events[-1]["source"] = "main/researcher"
    log.add("SOMETHING_NEW")
    folded = thread.fold(log.events)
    assert (folded.items, folded.last_seq) == ([], 2)


def parts_of(log: Ledger) -> list[Any]:
    reply = thread.fold(log.events).items[0]
    assert isinstance(reply, parts.Reply)
    return reply.parts


def test_it_drops_a_discarded_call() -> None:
    log = Ledger()
    log.add("TOOL_CALL_START", tool_call_id="c1", tool_name="x")
    log.add("TOOL_CALL_END", tool_call_id="c1", tool_name="x", args=None, args_text="", state="discarded")
    assert parts_of(log) == []


def test_it_notes_an_answer_that_was_cut_off_and_passes_unknown_names_over() -> None:
    log = Ledger()
    log.add("CUSTOM", name="cut_off", value={})
    log.add("CUSTOM", name="unheard_of", value={})
    assert [part.text for part in parts_of(log)] == ["The answer hit the model's length limit."]


def test_it_waits_for_a_slot_until_the_agent_starts() -> None:
    log = Ledger()
    log.add("CUSTOM", None, name="queued", value={"reason": "user_limit"})
    assert thread.fold(log.events).waiting
    log.add("AGENT_START", trigger="user")
    assert not thread.fold(log.events).waiting


@pytest.mark.parametrize("as_row", [False, True])
def test_a_call_knows_how_long_it_took(as_row: bool) -> None:
    log = Ledger()
    log.add("TOOL_RESULT_START", tool_call_id="c1", tool_name="x")
    log.add("TOOL_RESULT_END", tool_call_id="c1", tool_name="x", state="success", output="")
    for event in log.events if as_row else []:
        event["created_at"] = datetime.fromisoformat(event["created_at"])
    assert parts_of(log)[0].took == timedelta(milliseconds=400)


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0, ""), (-1, ""), (0.0004, ""), (0.25, "250 ms"), (0.9996, "1.0 s"), (1.25, "1.2 s"), (59.97, "1 min 0 s"),
     (125.6, "2 min 5 s")],
)  # fmt: skip
def test_a_duration_reads_as_a_person_says_it(seconds: float, text: str) -> None:
    assert duration(timedelta(seconds=seconds)) == text


def failed(**fields: Any) -> Any:
    log = Ledger()
    log.add("RUN_FAILED", **fields)
    return parts_of(log)[0]


def test_a_failure_has_our_line_and_the_detail_where_it_says_more() -> None:
    failure = failed(code="wrong_key", detail="X refused the key. The operator must check X_KEY.")
    assert failure.line == "The model's provider refused the key."
    assert failure.detail == "X refused the key. The operator must check X_KEY."
    assert failed(code="timeout", detail="X sent nothing for too long.").detail == ""


def test_a_failure_of_an_unknown_code_says_its_detail_once() -> None:
    failure = failed(code="brand_new", detail="Something else.")
    assert (failure.line, failure.detail) == ("Something else.", "")
    assert failed(code="", detail="").line


def first_reply(log: Ledger) -> parts.Reply:
    return next(item for item in thread.fold(log.events).items if isinstance(item, parts.Reply))


def test_a_reply_is_over_when_it_ends_and_the_last_one_until_more_follows() -> None:
    log = Ledger()
    log.add("AGENT_START", trigger="user")
    assert not first_reply(log).over
    log.add("AGENT_END", reason="WAITING")
    assert not first_reply(log).over
    log.add("AGENT_START", trigger="resume")
    log.add("AGENT_END", reason="MODEL_STOP")
    assert (first_reply(log).over, first_reply(log).last) == (True, True)
    log.add("AGENT_START", "r2", trigger="user")
    assert (first_reply(log).over, first_reply(log).last) == (True, False)


def test_a_failed_reply_has_its_own_way_to_try_again() -> None:
    log = Ledger()
    log.add("RUN_FAILED", code="timeout", detail="late")
    log.add("AGENT_END", reason="FAILED")
    assert (first_reply(log).over, first_reply(log).last) == (True, False)


def test_thinking_knows_how_long_it_took() -> None:
    log = Ledger()
    log.add("THINKING_BLOCK_START", block_id="k1")
    log.add("THINKING_BLOCK_END", block_id="k1", text="hm", state="complete")
    assert parts_of(log)[0].took == timedelta(milliseconds=400)


def test_a_long_result_and_long_arguments_show_their_beginning() -> None:
    call = parts.ToolCall("c1", "x", args="y" * 2001, output="row\n" * 201)
    assert (len(call.shown_args), call.has_more_args) == (2000, True)
    assert (call.shown_output.count("row"), call.has_more_output) == (200, True)
    short = parts.ToolCall("c1", "x", args="y" * 2000, output="\x1b[31m" + "row\n" * 150)
    assert (short.has_more_args, short.has_more_output) == (False, False)
    assert "\x1b" not in short.shown_output
    assert len(parts.ToolCall("c1", "x", output="z" * 5_000_000).shown_output) == 20_000


def test_a_message_bears_its_files() -> None:
    log = Ledger()
    file = {"path": "uploads/a b.png", "name": "a b.png", "size": 3, "media_type": "image/png"}
    log.add("USER_MESSAGE", None, message_id="u1", text="", state="running", attachments=[file])
    message = thread.fold(log.events).items[0]
    assert isinstance(message, parts.UserMessage)
    assert message.attachments[0].address == "/api/sessions/c1/files?path=uploads%2Fa%20b.png"
    assert message.attachments[0].is_picture


@pytest.mark.parametrize(("before", "after"), [(None, 2), (0, None), (0, 2)])
def test_siblings_say_their_place_and_lead_to_their_neighbours(before: int | None, after: int | None) -> None:
    message = parts.UserMessage("u1", "hello", siblings=parts.Siblings(2, 3, before, after))
    html = draw(message.template, part=message)
    assert "2 of 3" in html
    assert [f'name="branch" value="{n}"' in html for n in (0, 2)] == [before == 0, after == 2]
    assert html.count("disabled") == (before is None) + (after is None)
    assert "siblings" not in draw(message.template, part=parts.UserMessage("u1", "hello"))


def test_a_steered_message_cannot_be_written_anew() -> None:
    assert "data-branch" in draw(parts.UserMessage.template, part=parts.UserMessage("u1", "hello"))
    assert "data-branch" not in draw(parts.UserMessage.template, part=parts.UserMessage("u1", "hello", steered=True))
