"""A host's checkpoints in a turn: blocks, responses, calls, and how a reply ends or is cut."""

from __future__ import annotations

from collections.abc import Sequence

from chatapp.models import Session, ToolCall
from chatapp.runtime.errors import LeaseLost
from chatapp.runtime.events import EndReason, EventType
from chatapp.runtime.messages import Completion
from chatapp.runtime.ports import BlockEnd, CutBlock, Failure, Hold, ModelCall, NewCall, Next
from chatapp.store.answers import hear
from chatapp.store.calls import fail_call, settle_call
from chatapp.store.recovery import END, close_request, discard, left_open
from chatapp.store.turns import (
    append_message,
    end_model_call,
    end_reply,
    follow,
    rest_waiting,
    start_model_call,
    stop_reply,
)
from chatapp.store.writer import Writer, Written, held

START = {
    "text": EventType.TEXT_BLOCK_START,
    "thinking": EventType.THINKING_BLOCK_START,
    "call": EventType.TOOL_CALL_START,
}


def begin_block(hold: Hold, kind: str, block_id: str, tool_name: str = "") -> Written[int]:
    with held(hold) as (writer, session):
        data = {"tool_call_id": block_id, "tool_name": tool_name} if kind == "call" else {"block_id": block_id}
        event = writer.event(session, START[kind], **data)
    return writer.written(event.seq)


def record_response(
    hold: Hold, done: Completion, blocks: Sequence[BlockEnd], calls: Sequence[NewCall], call: ModelCall
) -> Written[Next]:
    """The response and its calls become rows before anything executes; without calls the reply is over."""
    with held(hold) as (writer, session):
        for block in blocks:
            writer.event(session, END[block.kind], block_id=block.block_id, text=block.text, state="complete")
        for new in calls:
            _end_call(writer, session, new)
        end_model_call(writer, session, call.usage, call.time_ms)
        if done.payload is not None:
            append_message(
                writer, session, done.payload, role="assistant", sender="agent", text=done.text,
                tokens=call.usage.output_tokens,
            )  # fmt: skip
        if done.cut_off:
            writer.event(session, EventType.CUSTOM, name="cut_off", value={"reason": "length"})
        for new in calls:
            _create_call(writer, session, new)
        writer.set(session, step=session.step + 1)
        if not calls:
            past_limit = session.step > int(session.declaration["steps"])
            end_reply(writer, session, EndReason.MAX_ITERATIONS if past_limit else EndReason.MODEL_STOP)
        following = follow(writer, session)
    return writer.written(following)


def _end_call(writer: Writer, session: Session, new: NewCall) -> None:
    data = {"args": new.args} if new.args is not None else {"args": None, "args_text": new.args_text}
    writer.event(session, EventType.TOOL_CALL_END, tool_call_id=new.id, tool_name=new.name, **data)


def _create_call(writer: Writer, session: Session, new: NewCall) -> None:
    """The row of a call; one that is allowed now starts with it, one that is refused ends with it."""
    started = new.verdict == "started"
    row = ToolCall.objects.create(
        id=new.id, session=session, reply_id=session.reply_id, step=session.step, index=new.index,
        provider_call_id=new.provider_call_id, name=new.name, args=new.args, args_text=new.args_text,
        read_only=new.read_only, status=ToolCall.Status.STARTED if started else ToolCall.Status.NEW,
        started_at=writer.now if started else None,
    )  # fmt: skip
    if started:
        writer.event(session, EventType.TOOL_RESULT_START, tool_call_id=row.pk, tool_name=row.name)
    elif new.verdict != "new":
        fail_call(writer, session, row, new.verdict, new.output)


def retry_step(
    hold: Hold, cut: Sequence[CutBlock], call: ModelCall, attempt: int, reason: str, model: str
) -> Written[None]:
    """A cut stream is discarded on every screen and the same request begins again."""
    with held(hold) as (writer, session):
        discard(writer, session, cut)
        end_model_call(writer, session, call.usage, call.time_ms, call.error)
        writer.event(session, EventType.MODEL_RETRY, attempt=attempt, reason=reason)
        start_model_call(writer, session, model)
    return writer.written(None)


def start_call(hold: Hold, call_id: str) -> Written[None]:
    with held(hold) as (writer, session):
        call = session.tool_calls.get(pk=call_id)
        if call.status != ToolCall.Status.NEW:
            raise LeaseLost("This call was begun or settled elsewhere.")
        call.status, call.started_at = ToolCall.Status.STARTED, writer.now
        call.save(update_fields=["status", "started_at"])
        writer.event(session, EventType.TOOL_RESULT_START, tool_call_id=call.pk, tool_name=call.name)
    return writer.written(None)


def settle(hold: Hold, call_id: str, state: str, output: str, truncated: bool) -> Written[Next | None]:
    with held(hold) as (writer, session):
        call = session.tool_calls.get(pk=call_id)
        settle_call(writer, session, call, state, output, truncated=truncated)
        open_ = session.tool_calls.filter(joined=False).exclude(status__in=ToolCall.SETTLED).exists()
        following = None if open_ else follow(writer, session)
    return writer.written(following)


def hear_answers(hold: Hold) -> Written[Next]:
    """Take what answers came for open calls; what comes next, open calls again where some are left."""
    with held(hold) as (writer, session):
        following = follow(writer, session)
    return writer.written(following)


def wait(hold: Hold) -> Written[Next]:
    """Rest until an answer rings, unless one came meanwhile. The lease is free; nothing is held."""
    with held(hold) as (writer, session):
        heard = hear(writer, session)
        following = follow(writer, session) if heard or session.stop else rest_waiting(writer, session)
    return writer.written(following)


def interrupt(
    hold: Hold, reply_id: str, partial: Completion | None, cut: Sequence[CutBlock], call: ModelCall | None
) -> Written[Next]:
    with held(hold) as (writer, session):
        if session.reply_id != reply_id:
            raise LeaseLost("The reply that was to be stopped is over.")
        _keep_partial(writer, session, partial, cut)
        if call is not None:
            end_model_call(writer, session, call.usage, call.time_ms, "stopped")
        if partial is not None and partial.payload is not None:
            append_message(
                writer, session, partial.payload, role="assistant", sender="agent", text=partial.text, state="partial"
            )
        stop_reply(writer, session)
        following = follow(writer, session)
    return writer.written(following)


def _keep_partial(writer: Writer, session: Session, partial: Completion | None, cut: Sequence[CutBlock]) -> None:
    for block in cut:
        if block.kind == "call" or partial is None:
            discard(writer, session, [block])
        else:
            writer.event(session, END[block.kind], block_id=block.id, text=block.text, state="partial")


def fail(hold: Hold, failure: Failure, cut: Sequence[CutBlock], call: ModelCall | None) -> Written[Next]:
    with held(hold) as (writer, session):
        if call is not None:
            discard(writer, session, cut)
            end_model_call(writer, session, call.usage, call.time_ms, call.error)
        elif session.model_call_open:
            close_request(writer, session, left_open(session), failure.code)
        for row in session.tool_calls.filter(joined=False).exclude(status__in=ToolCall.SETTLED):
            fail_call(writer, session, row, "interrupted", "Not finished: the reply failed. Its outcome is unknown.")
        end_reply(writer, session, EndReason.FAILED, failure)
        following = follow(writer, session)
    return writer.written(following)
