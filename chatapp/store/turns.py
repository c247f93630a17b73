"""What comes next for a claimed session: `follow` reads its rows and takes it to a request, open calls or rest."""

from __future__ import annotations

import logging
from datetime import UTC
from typing import Any

from django.conf import settings

from chatapp.models import InboxItem, Message, Session, ToolCall, UsageDay
from chatapp.runtime import messages
from chatapp.runtime.declarations import SubagentDeclaration
from chatapp.runtime.events import EndReason, EventType
from chatapp.runtime.ids import new_id
from chatapp.runtime.messages import AttachedFile, CallResult, Payload, Usage
from chatapp.runtime.policy import depth_limit
from chatapp.runtime.ports import Calls, Failure, Next, OpenCall, Request, Rested
from chatapp.store.answers import hear, next_due, post_answers
from chatapp.store.calls import announce_message, begin_stretch, fail_call, tokens_of
from chatapp.store.writer import Writer

logger = logging.getLogger(__name__)

Kind, State = InboxItem.Kind, InboxItem.State
INTERRUPTED = "Stopped by the person before it was done. Its outcome is unknown."
BUSY = (Session.Status.RUNNING, Session.Status.QUEUED, Session.Status.WAITING)
NOT_STARTED = "Not executed: the person stopped this reply first."


def follow(writer: Writer, session: Session, appended: tuple[Payload, ...] = ()) -> Next:
    """The next right thing, under the lock, in the transaction of the checkpoint before it.

    0. A stop that came before this checkpoint ends the reply here.
    1. Calls that wait for a result go first, those of subagents whose answer is here among them; once all have one,
       the results join the transcript.
    2. Between replies the inbox starts the next one; with nothing in it the session rests and the lease is free.
    3. Within a reply what steers joins, the caps are looked at, and the model is asked.
    """
    if session.stop and session.reply_id:
        stop_reply(writer, session)
    unjoined = list(session.tool_calls.filter(joined=False))
    if any(call.status == ToolCall.Status.CHILD for call in unjoined) and hear(writer, session):
        unjoined = list(session.tool_calls.filter(joined=False))
    if any(call.status not in ToolCall.SETTLED for call in unjoined):
        return _calls(writer, session, unjoined)
    if unjoined:
        if session.reply_id:
            begin_stretch(writer, session, "resume")
        appended += (_join(writer, session, unjoined),)
    if not session.reply_id:
        taken = start_reply(writer, session)
        if taken is None:
            return rest(writer, session)
        appended += taken
    else:
        appended += _take_steers(writer, session)
    if failure := _cap_reached(writer, session):
        end_reply(writer, session, EndReason.FAILED, failure)
        return follow(writer, session, appended)
    return _request(writer, session, appended)


def _calls(writer: Writer, session: Session, unjoined: list[ToolCall]) -> Calls:
    """What can run now, and whom the others wait for."""
    agent, delegates = agent_of(session)
    waiting = [call for call in unjoined if call.status == ToolCall.Status.CHILD]
    runnable = [call for call in unjoined if call.status in (ToolCall.Status.NEW, ToolCall.Status.STARTED)]
    if runnable:
        begin_stretch(writer, session, "resume")
    due = next_due(waiting)
    return Calls(
        session.reply_id, agent, delegates, tuple(_open_call(call) for call in runnable),
        tuple(str(call.child_id) for call in waiting), (due - writer.now).total_seconds() if due else None,
    )  # fmt: skip


def agent_of(session: Session) -> tuple[SubagentDeclaration, bool]:
    """Its declaration, and whether it may hand on work: not as deep as those above it allow, it is a leaf."""
    agent = SubagentDeclaration.from_snapshot(session.declaration)
    return agent, session.depth < min(session.depth_limit, depth_limit([agent.handoff]))


def _open_call(call: ToolCall) -> OpenCall:
    return OpenCall(call.pk, call.index, call.name, call.args or {}, started=call.status == ToolCall.Status.STARTED)


def _join(writer: Writer, session: Session, calls: list[ToolCall]) -> Payload:
    """All results of a step, in call order, as one message."""
    payload = messages.tool_results(
        [CallResult(c.provider_call_id, c.name, c.result, ok=c.state == "success") for c in calls]
    )
    append_message(writer, session, payload, role="tool", sender="agent", text="\n\n".join(c.result for c in calls))
    ToolCall.objects.filter(pk__in=[c.pk for c in calls]).update(joined=True)
    return payload


def start_reply(writer: Writer, session: Session) -> tuple[Payload, ...] | None:
    """Take what the next reply answers: messages of one sender with the same overrides, or a wish to try again,
    which adds nothing (the failed reply's input is in the transcript). None when nothing waits."""
    waiting = list(session.inbox.filter(state=State.QUEUED).exclude(kind=Kind.ANSWER).select_related("reply_to"))
    if not waiting or session.queue_held:
        return None
    first = waiting[0]
    batch = []
    for item in waiting:
        if _sender(item) != _sender(first):
            break
        if first.started and not item.started:
            # It was told "queued": it starts the next turn, also when nobody had claimed this one yet.
            break
        batch.append(item)
    writer.set(session, reply_id=new_id(), step=0, error=None, ended_at=None)
    payloads = _take(writer, session, batch, "running")
    begin_stretch(writer, session, first.author)
    return payloads


def _sender(item: InboxItem) -> tuple[Any, ...]:
    """One turn answers the person, or one agent; never both."""
    caller = item.reply_to.session_id if item.reply_to else ""
    return item.kind, item.author, caller, item.overrides


def _take_steers(writer: Writer, session: Session) -> tuple[Payload, ...]:
    return _take(writer, session, list(session.inbox.filter(state=State.QUEUED, mode="steer")), "steered")


def _take(writer: Writer, session: Session, items: list[InboxItem], announce: str) -> tuple[Payload, ...]:
    """Inbox items become messages in the same transaction; the thread is told where they were taken."""
    payloads: tuple[Payload, ...] = ()
    for item in items:
        if item.kind == Kind.MESSAGE:
            seq = announce_message(writer, session, item, announce)
            payload = messages.user_message(item.text, [AttachedFile(**file) for file in item.attachments])
            append_message(
                writer, session, payload, role="user", sender=item.author, text=item.text, pk=item.id, seq=seq
            )
            payloads += (payload,)
        InboxItem.objects.filter(pk=item.pk).update(
            state=State.TAKEN, announced=item.announced, reply_id=session.reply_id
        )
    return payloads


def append_message(
    writer: Writer, session: Session, payload: Payload, *, role: str, sender: str, text: str,
    pk: str = "", seq: int = 0, tokens: int = 0, state: str = "complete",
) -> None:  # fmt: skip
    Message.objects.create(
        id=pk or new_id(),
        session=session,
        position=session.log_version,
        role=role,
        sender=sender,
        payload=payload,
        format=messages.FORMAT,
        text=text,
        reply_id=session.reply_id,
        step=session.step,
        seq=seq or writer.root.last_seq,
        tokens=tokens,
        state=state,
        branch=session.branch,
    )
    writer.set(session, log_version=session.log_version + 1)


def _cap_reached(writer: Writer, session: Session) -> Failure | None:
    """Token caps, looked at before each model request."""
    if 0 < settings.BRANCHLINE_TOKEN_CAP_SESSION <= session.input_tokens + session.output_tokens:
        what = "This conversation has used all the tokens it may."
    else:
        day = UsageDay.objects.filter(user_id=session.owner_id, day=writer.now.astimezone(UTC).date()).first()
        if not day or not 0 < settings.BRANCHLINE_TOKEN_CAP_USER_DAY <= day.tokens:
            return None
        what = "Your tokens for today are used up."
    return new_failure("token_cap", what + " Someone who runs this server can raise the limit.", retryable=False)


def _request(writer: Writer, session: Session, appended: tuple[Payload, ...]) -> Request:
    agent, delegates = agent_of(session)
    model = session.model or agent.model or settings.BRANCHLINE_MODEL
    steps = int(session.declaration["steps"])
    tools_off = session.step >= steps
    if tools_off and not _told(session, EventType.EXCEED_MAX_ITERS):
        writer.event(session, EventType.EXCEED_MAX_ITERS, max_iters=steps)
    start_model_call(writer, session, model)
    limit = min(session.depth_limit, depth_limit([agent.handoff]))
    return Request(
        session.reply_id, agent, delegates, session.source, model, tools_off, session.depth + 1, limit, appended
    )


def _told(session: Session, type_: EventType) -> bool:
    """A recovered request comes here a second time."""
    return session.own_events.filter(reply_id=session.reply_id, type=type_).exists()


def start_model_call(writer: Writer, session: Session, model: str) -> None:
    writer.event(session, EventType.MODEL_CALL_START, model=model)
    writer.set(session, model_call_open=True)


def end_model_call(writer: Writer, session: Session, usage: Usage, time_ms: int, error: str = "") -> None:
    """MODEL_CALL_END, and what the request used on the session, its stretch and its owner's day."""
    used = usage_dict(usage)
    data: dict[str, Any] = {"usage": used, "time_ms": time_ms}
    if error:
        data["error"] = error
    stretch = session.stretch_usage or usage_dict(Usage(requests=0))
    writer.set(
        session,
        model_call_open=False,
        input_tokens=session.input_tokens + usage.input_tokens,
        output_tokens=session.output_tokens + usage.output_tokens,
        cached_tokens=session.cached_tokens + usage.cached_tokens,
        requests=session.requests + usage.requests,
        estimated=session.estimated or usage.estimated,
        stretch_usage={k: (stretch[k] or v) if k == "estimated" else stretch[k] + v for k, v in used.items()},
    )
    writer.event(session, EventType.MODEL_CALL_END, **data, **tokens_of(session))
    if tokens := usage.input_tokens + usage.output_tokens:
        UsageDay.add(session.owner_id, writer.now.astimezone(UTC).date(), tokens)


def usage_dict(usage: Usage) -> dict[str, Any]:
    return {
        "input_tokens": usage.input_tokens,
        "output_tokens": usage.output_tokens,
        "cached_tokens": usage.cached_tokens,
        "requests": usage.requests,
        "estimated": usage.estimated,
    }


def end_reply(writer: Writer, session: Session, reason: EndReason, failure: Failure | None = None) -> None:
    """AGENT_END of a reply that is over, RUN_FAILED before it when it failed."""
    if failure:
        writer.event(
            session, EventType.RUN_FAILED, error_id=failure.id, code=failure.code, detail=failure.detail,
            retryable=failure.retryable,
        )  # fmt: skip
    usage = session.stretch_usage or usage_dict(Usage(requests=0))
    over = writer.event(session, EventType.AGENT_END, reason=reason.value, usage=usage, **tokens_of(session))
    error = failure and {
        "id": failure.id, "code": failure.code, "detail": failure.detail, "retryable": failure.retryable,
    }  # fmt: skip
    reply_id = session.reply_id
    writer.set(session, reply_id="", stretch_open=False, stop="", error=error, news_seq=over.seq, ended_at=writer.now)
    if session.parent_id is not None:
        outcome, text = _outcome(session, reply_id, reason, failure)
        post_answers(writer, session, reply_id, outcome, text)


def _outcome(session: Session, reply_id: str, reason: EndReason, failure: Failure | None) -> tuple[str, str]:
    """What a caller is told: the final answer only."""
    if failure is not None:
        return "error", failure.detail
    if reason == EndReason.INTERRUPTED:
        return "cancelled", "It was stopped before it was done."
    last = session.messages.filter(reply_id=reply_id, role="assistant").order_by("-position").first()
    return "ok", last.text if last else ""


def new_failure(code: str, detail: str, *, retryable: bool) -> Failure:
    """A failure whose id a person can quote and an operator can find in the log."""
    failure = Failure(new_id()[:12], code, detail, retryable)
    logger.warning("reply failed id=%s code=%s: %s", failure.id, code, detail)
    return failure


def rest(writer: Writer, session: Session) -> Rested:
    status = Session.Status.FAILED if session.error else Session.Status.IDLE
    writer.set(session, status=status, waiting_for="", lease_owner="", lease_until=None, wake_at=None, stop="")
    return Rested()


def rest_waiting(writer: Writer, session: Session) -> Rested:
    """Only subagents are open: an answer rings, or the clock of the call that is due first."""
    waiting = list(session.tool_calls.filter(joined=False, status=ToolCall.Status.CHILD))
    if session.stretch_open:
        usage = session.stretch_usage or usage_dict(Usage(requests=0))
        more = tokens_of(session)
        writer.event(session, EventType.AGENT_END, reason=EndReason.WAITING.value, usage=usage, **more)
    writer.set(
        session, status=Session.Status.WAITING, waiting_for="child", stretch_open=False, lease_owner="",
        lease_until=None, wake_at=next_due(waiting),
    )  # fmt: skip
    return Rested()


def stop_reply(writer: Writer, session: Session) -> None:
    """Settle every open call and end the reply as stopped by the person; what was settled joins the transcript.

    After `reply` the queue goes on; after a wider stop it stays queued until the next message.
    """
    writer.set(session, queue_held=session.stop not in ("", "reply"))
    for call in session.tool_calls.filter(joined=False).exclude(status__in=ToolCall.SETTLED):
        new = call.status == ToolCall.Status.NEW
        fail_call(writer, session, call, "interrupted", NOT_STARTED if new else INTERRUPTED)
    end_reply(writer, session, EndReason.INTERRUPTED)
