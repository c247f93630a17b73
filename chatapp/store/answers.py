"""Answers of subagents: posted in the transaction that ends a child's reply, taken by whoever hosts its caller."""

from __future__ import annotations

from datetime import datetime

from django.conf import settings

from chatapp.models import InboxItem, Session, ToolCall
from chatapp.runtime.delegation import worded
from chatapp.store.calls import begin_stretch, end_handoff, let_go, ring, settle_call
from chatapp.store.writer import Writer

Kind, State = InboxItem.Kind, InboxItem.State
HANDOFFS = {"ok": "completed", "error": "failed", "cancelled": "cancelled"}
STATES = {"ok": "success", "error": "error", "cancelled": "interrupted"}


def post_answers(writer: Writer, session: Session, reply_id: str, outcome: str, text: str) -> None:
    """To every call that the reply which is over took up and that is still open. `outcome` is ok, error or
    cancelled."""
    taken = session.inbox.filter(reply_id=reply_id, kind=Kind.MESSAGE, reply_to__status=ToolCall.Status.CHILD)
    for item in taken.select_related("reply_to"):
        call = item.reply_to
        assert call is not None
        caller = writer.session(call.session_id)
        InboxItem.objects.create(
            session=caller, kind=Kind.ANSWER, author="agent", reply_to=call, outcome=outcome, text=text,
            created_at=writer.now,
        )  # fmt: skip
        ring(writer, caller)


def hear(writer: Writer, session: Session) -> int:
    """Settle the open calls whose answer is here or whose time is up; how many."""
    open_calls = {call.pk: call for call in session.tool_calls.filter(joined=False, status=ToolCall.Status.CHILD)}
    if not open_calls:
        return 0
    settled = 0
    for item in session.inbox.filter(kind=Kind.ANSWER, state=State.QUEUED):
        InboxItem.objects.filter(pk=item.pk).update(state=State.TAKEN, reply_id=session.reply_id)
        if call := open_calls.pop(str(item.reply_to_id), None):
            _answered(writer, session, call, item)
            settled += 1
    for call in open_calls.values():
        if call.due_at is not None and call.due_at <= writer.now:
            _timed_out(writer, session, call)
            settled += 1
    return settled


def _answered(writer: Writer, session: Session, call: ToolCall, item: InboxItem) -> None:
    begin_stretch(writer, session, "resume")
    child = writer.session(str(call.child_id))
    said, truncated = _cut(item.text)
    fine = item.outcome == "ok"
    text = worded(
        item.outcome, child.agent_key, child.agent_id, child.pk, reply=said if fine else "", error="" if fine else said
    )
    end_handoff(writer, session, call, HANDOFFS[item.outcome], output=said if fine else "", error="" if fine else said)
    settle_call(writer, session, call, STATES[item.outcome], text, truncated=truncated)


def _cut(text: str) -> tuple[str, bool]:
    limit: int = settings.BRANCHLINE_TOOL_RESULT_CHARS
    if len(text) <= limit:
        return text, False
    return f"{text[:limit]}\n… cut after {limit} of {len(text)} characters; ask the agent for the rest.", True


def _timed_out(writer: Writer, session: Session, call: ToolCall) -> None:
    begin_stretch(writer, session, "resume")
    child = writer.session(str(call.child_id))
    error = "It was not done in the time you gave it, and was stopped."
    let_go(writer, call)
    end_handoff(writer, session, call, "failed", error="timeout")
    text = worded("timeout", child.agent_key, child.agent_id, child.pk, error=error)
    settle_call(writer, session, call, "error", text, truncated=False)


def next_due(calls: list[ToolCall]) -> datetime | None:
    return min((call.due_at for call in calls if call.due_at is not None), default=None)
