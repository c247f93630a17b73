"""A session's tool calls as they end, open ones to subagents too, and the small steps that others share."""

from __future__ import annotations

from typing import Any

from chatapp.models import InboxItem, Session, ToolCall
from chatapp.runtime.errors import ToolFailed
from chatapp.runtime.events import EventType
from chatapp.store.writer import Writer

Status = ToolCall.Status
SETTLED_AS = {"success": Status.DONE, "denied": Status.DENIED}


def announce_message(writer: Writer, session: Session, item: InboxItem, state: str) -> int:
    """USER_MESSAGE at every change of its state; the caller stores `item`. The number of the last one."""
    if item.announced == state:
        return item.seq
    attached = {"attachments": item.attachments} if item.attachments else {}
    event = writer.event(
        session, EventType.USER_MESSAGE, message_id=item.id, text=item.text, state=state, author=item.author,
        mode=item.mode, **attached,
    )  # fmt: skip
    item.announced = state
    item.seq = item.seq or event.seq
    return event.seq


def ring(writer: Writer, session: Session) -> None:
    """Something waits for it. Whoever holds it looks into the inbox before letting go; a lingering host now."""
    if session.lease_owner:
        writer.wakes.append(session.pk)
    else:
        writer.wake(session)


def begin_stretch(writer: Writer, session: Session, trigger: str) -> None:
    """AGENT_START, where none is open: each way of going on begins one."""
    if not session.stretch_open:
        writer.set(session, stretch_open=True, stretch_usage={})
        writer.event(
            session, EventType.AGENT_START, name=session.agent_id, role="assistant", trigger=trigger,
            **tokens_of(session),
        )  # fmt: skip


def tokens_of(session: Session) -> dict[str, int]:
    """What a subagent has used so far, for those who look at it."""
    return {} if session.parent_id is None else {"session_tokens": session.input_tokens + session.output_tokens}


def fail_call(writer: Writer, session: Session, call: ToolCall, state: str, output: str) -> None:
    """Settle a call that did not run to its end; a never started one gets its START with the END."""
    if call.status == Status.NEW:
        writer.event(session, EventType.TOOL_RESULT_START, tool_call_id=call.pk, tool_name=call.name)
    elif call.status == Status.CHILD:
        end_handoff(writer, session, call, "cancelled" if state == "interrupted" else "failed", error=output)
        let_go(writer, call)
    settle_call(writer, session, call, state, output, truncated=False)


def settle_call(writer: Writer, session: Session, call: ToolCall, state: str, output: str, *, truncated: bool) -> None:
    if call.status in ToolCall.SETTLED:
        raise ToolFailed(f"call {call.pk} has its result already")
    writer.event(
        session, EventType.TOOL_RESULT_END, tool_call_id=call.pk, tool_name=call.name, state=state, output=output,
        truncated=truncated,
    )  # fmt: skip
    call.status = SETTLED_AS.get(state, Status.FAILED)
    call.state, call.result, call.truncated, call.ended_at = state, output, truncated, writer.now
    call.due_at = call.wait_left = None
    call.save(update_fields=["status", "state", "result", "truncated", "ended_at", "due_at", "wait_left"])


# Handoffs: HANDOFF_START and HANDOFF_END stand around all that a subagent does for a call


def start_handoff(writer: Writer, session: Session, call: ToolCall, about: dict[str, Any]) -> None:
    """`about` names the subagent, its depth and its session_mode."""
    writer.event(session, EventType.HANDOFF_START, **_handoff(call, about), status="starting")


def end_handoff(
    writer: Writer, session: Session, call: ToolCall, status: str, *, output: str = "", error: str = "",
    about: dict[str, Any] | None = None, attempts: int = 1,
) -> None:  # fmt: skip
    began = call.started_at or writer.now
    writer.event(
        session, EventType.HANDOFF_END, **_handoff(call, about or about_child(writer.session(str(call.child_id)))),
        status=status, attempts=attempts, duration_ms=round((writer.now - began).total_seconds() * 1000),
        output=output or None, error=error or None,
    )  # fmt: skip


def about_child(child: Session) -> dict[str, Any]:
    mode = "reuse" if child.reuse_key else "new"
    return {"subagent": child.agent_id, "depth": child.depth, "session_mode": mode, "child_session_id": child.pk}


def _handoff(call: ToolCall, about: dict[str, Any]) -> dict[str, Any]:
    return {"handoff_id": f"handoff:{call.pk}", "call_id": call.pk, "tool": call.name, **about}


def let_go(writer: Writer, call: ToolCall) -> None:
    """Nobody waits for this call's child any more: what it was asked is taken back, or its reply to it stopped."""
    InboxItem.objects.filter(reply_to=call, kind=InboxItem.Kind.ANSWER).update(state=InboxItem.State.TAKEN)
    asked = InboxItem.objects.filter(reply_to=call, kind=InboxItem.Kind.MESSAGE).first()
    if asked is None:
        return
    child = writer.session(asked.session_id)
    if asked.state == InboxItem.State.QUEUED:
        asked.state = InboxItem.State.REMOVED
        announce_message(writer, child, asked, "removed")
        asked.save(update_fields=["state", "announced", "seq"])
    elif child.reply_id and child.reply_id == asked.reply_id:
        writer.set(child, stop=child.stop or "reply")
        writer.hushed.append(child.reply_id)
        ring(writer, child)
