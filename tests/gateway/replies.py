"""Conversations with a past, made by the store's own transactions."""

from __future__ import annotations

from typing import Any

from chatapp.models import Session
from chatapp.runtime.errors import NotFound
from chatapp.runtime.messages import Completion, Usage
from chatapp.runtime.ports import BlockEnd, Calls, Failure, Hold, ModelCall, NewCall
from chatapp.store import checkpoints, claims, posts
from chatapp.store.conversations import create_conversation
from chatapp.store.posts import Draft, Posted

USED = Usage(input_tokens=10, output_tokens=5)


def conversation_of(user: Any, title: str = "", **fields: Any) -> Session:
    row = create_conversation(user, title=title)
    Session.objects.filter(pk=row.pk).update(**fields)
    return Session.objects.get(pk=row.pk)


def sent(session: Session, text: str = "hello", mode: str = "queue") -> Posted:
    return posts.post_message(session.owner_id, session.pk, Draft(text, mode)).value


def claimed(session: Session) -> Hold:
    work = claims.claim(session.pk, "host", "interactive").value
    if work is None:
        raise NotFound("nothing to claim")
    return work.hold


def _completion(text: str, *calls: NewCall) -> Completion:
    parts: list[dict[str, Any]] = [{"part_kind": "text", "content": text}] if text else []
    parts += [
        {
            "part_kind": "tool-call",
            "tool_name": call.name,
            "tool_call_id": call.provider_call_id,
            "args": call.args_text,
        }
        for call in calls
    ]
    return Completion({"kind": "response", "parts": parts}, text, (), (), USED)


def answered(session: Session, text: str = "an answer", block_id: str = "block-1") -> None:
    """The message that waits gets a reply of one block."""
    hold = claimed(session)
    checkpoints.begin_block(hold, "text", block_id)
    checkpoints.record_response(hold, _completion(text), [BlockEnd(block_id, "text", text)], [], ModelCall(USED, 7))


def answered_with_calls(session: Session, *names: str) -> list[NewCall]:
    """The model asks for these tools in one step, they answer, and it answers."""
    hold = claimed(session)
    calls = [
        NewCall(f"call-{name}", index, f"provider-{index}", name, {"path": "a"}, '{"path": "a"}', read_only=True)
        for index, name in enumerate(names)
    ]
    for call in calls:
        checkpoints.begin_block(hold, "call", call.id, call.name)
    following = checkpoints.record_response(hold, _completion("", *calls), [], calls, ModelCall(USED, 7)).value
    assert isinstance(following, Calls)
    for call in calls:
        checkpoints.start_call(hold, call.id)
    for call in reversed(calls):
        checkpoints.settle(hold, call.id, "success", f"{call.name} says so", False)
    checkpoints.begin_block(hold, "text", "block-1")
    checkpoints.record_response(
        hold, _completion("done"), [BlockEnd("block-1", "text", "done")], [], ModelCall(USED, 7)
    )
    return calls


def failed(session: Session) -> None:
    checkpoints.fail(claimed(session), Failure("id-1", "provider", "it broke", retryable=True), [], ModelCall(USED, 7))
