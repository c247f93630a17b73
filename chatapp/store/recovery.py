"""What a cut request left open: closed truthfully, in the same stretch, by whoever holds the lock next."""

from __future__ import annotations

from collections.abc import Sequence

from django.db.models import Sum
from django.db.models.functions import Length

from chatapp.models import Event, Session, ToolCall
from chatapp.runtime.events import EventType
from chatapp.runtime.messages import Usage
from chatapp.runtime.ports import CutBlock
from chatapp.store import branches
from chatapp.store.calls import begin_stretch, fail_call
from chatapp.store.turns import end_model_call, start_reply, stop_reply
from chatapp.store.writer import Writer

END = {"text": EventType.TEXT_BLOCK_END, "thinking": EventType.THINKING_BLOCK_END}
UNKNOWN = "Interrupted by a restart: the outcome is unknown. Look before doing it again."
CHARS_PER_TOKEN = 4


def recover(writer: Writer, session: Session) -> None:
    """Close what a lost host left open; a stop that it never saw holds.

    Side effects that had started are "outcome unknown". Read-only calls stay started and run again; those of
    subagents stay open, since their sessions go on.
    """
    if session.reply_id and session.stop:
        begin_stretch(writer, session, "stop")
    if session.reply_id and not session.stretch_open:
        return
    if not session.stretch_open:
        if session.stop and start_reply(writer, session) is not None:
            stop_reply(writer, session)
        return
    if session.model_call_open:
        close_request(writer, session, left_open(session), "restarted")
        if not session.stop:
            writer.event(session, EventType.MODEL_RETRY, attempt=1, reason="restarted")
    for call in session.tool_calls.filter(joined=False, status=ToolCall.Status.STARTED, read_only=False):
        fail_call(writer, session, call, "interrupted", UNKNOWN)
    if session.stop:
        stop_reply(writer, session)


def close_request(writer: Writer, session: Session, cut: Sequence[CutBlock], error: str) -> None:
    """End a request of which nobody knows what it used: it is counted, its tokens estimated."""
    discard(writer, session, cut)
    sent = session.messages.filter(branches.of_messages(branches.visible(session)), archived=False)
    chars = sent.aggregate(chars=Sum(Length("text")))["chars"] or 0
    end_model_call(writer, session, Usage(chars // CHARS_PER_TOKEN, 0, 0, 1, estimated=True), 0, error)


def discard(writer: Writer, session: Session, cut: Sequence[CutBlock]) -> None:
    """Blocks and calls that had begun and will never be whole; clients drop them."""
    for block in cut:
        if block.kind == "call":
            writer.event(
                session, EventType.TOOL_CALL_END, tool_call_id=block.id, tool_name=block.tool_name, args=None,
                args_text="", state="discarded",
            )  # fmt: skip
        else:
            writer.event(session, END[block.kind], block_id=block.id, text="", state="discarded")
    writer.closed += [block.id for block in cut]


def left_open(session: Session) -> list[CutBlock]:
    """Blocks of the cut request with a START and no END."""
    blocks: dict[str, CutBlock] = {}
    rows = Event.objects.filter(session=session, reply_id=session.reply_id).order_by("-seq")
    for event in rows.iterator(chunk_size=50):
        if event.type == EventType.MODEL_CALL_START:
            break
        if event.type == EventType.TOOL_CALL_START:
            call_id = event.data["tool_call_id"]
            blocks[call_id] = CutBlock(call_id, "call", "", event.data["tool_name"])
        elif event.type == EventType.TEXT_BLOCK_START:
            blocks[event.data["block_id"]] = CutBlock(event.data["block_id"], "text", "")
        elif event.type == EventType.THINKING_BLOCK_START:
            blocks[event.data["block_id"]] = CutBlock(event.data["block_id"], "thinking", "")
    return list(reversed(blocks.values()))
