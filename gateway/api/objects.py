"""The contract's objects as they go out, built from rows. Parts of later issues have their neutral values."""

from __future__ import annotations

from datetime import datetime
from typing import Any, Generic, Literal, TypeVar

from django.conf import settings
from pydantic import BaseModel, ConfigDict

from chatapp.models import Message, Session
from chatapp.store.feedback import Opinion
from chatapp.store.posts import Posted
from chatapp.store.reads import Told, Used

T = TypeVar("T")
State = Literal["idle", "queued", "running", "waiting", "failed"]


class Page(BaseModel, Generic[T]):
    """`next` goes into the next call; null at the end."""

    items: list[T]
    next: str | None


class Usage(BaseModel):
    input_tokens: int
    output_tokens: int
    cached_tokens: int
    requests: int
    estimated: bool


class Conversation(BaseModel):
    id: str
    title: str
    agent_id: str
    model: str
    permission_mode: str
    plan_mode: bool
    wake: bool
    branch: int
    state: State
    needs_you: bool
    pinned: bool
    archived: bool
    last_seq: int
    usage: Usage
    created_at: datetime
    updated_at: datetime
    expires_at: datetime | None


class SessionNode(BaseModel):
    id: str
    session_id: str
    parent_id: str | None
    agent_id: str
    label: str | None
    source: str | None
    depth: int
    status: State
    waiting_for: Literal["human", "child", "task", "remote"] | None
    tool_call_id: str | None
    subagent_id: str | None
    task_id: str | None
    usage: Usage
    started_at: datetime | None
    ended_at: datetime | None


class Part(BaseModel):
    """A piece of a message: `text`, `thinking`, `tool_call`, `tool_result` or `attachment`, with that kind's fields."""

    model_config = ConfigDict(extra="allow")

    type: Literal["text", "thinking", "tool_call", "tool_result", "attachment"]


class TranscriptMessage(BaseModel):
    id: str
    session_id: str
    role: str
    sender: Literal["user", "agent", "reminder", "summary"]
    text: str
    parts: list[Part]
    tool_call_id: str | None
    reply_id: str | None
    seq: int
    state: str
    synthetic: bool
    archived: bool
    branch: int
    created_at: datetime


class Event(BaseModel):
    """The envelope; the fields of its type stand beside these."""

    model_config = ConfigDict(extra="allow")

    seq: int
    id: str
    type: str
    source: str | None
    conversation_id: str
    session_id: str
    agent_id: str
    reply_id: str | None
    branch: int
    created_at: datetime
    metadata: dict[str, Any]


class Found(BaseModel):
    """A message that has the words that were looked for; `snippet` is what stands around the first."""

    conversation_id: str
    title: str
    message_id: str
    session_id: str
    role: str
    seq: int
    snippet: str
    created_at: datetime


class PostedMessage(BaseModel):
    message_id: str
    seq: int
    state: Literal["running", "queued"]

    @classmethod
    def of(cls, made: Posted) -> PostedMessage:
        return cls.model_validate({"message_id": made.message_id, "seq": made.seq, "state": made.state})


class StoppedSession(BaseModel):
    session_id: str
    agent_id: str
    label: str | None
    task_id: str | None


class StopAnswer(BaseModel):
    stopped: list[StoppedSession]
    continues: list[StoppedSession]


class File(BaseModel):
    """A file of a workspace; `size` in bytes."""

    path: str
    name: str
    size: int
    media_type: str


class Agent(BaseModel):
    id: str
    agent_id: str
    description: str
    mode: str
    model: str | None
    tool_name: str | None
    session_mode: str
    problem: str | None


class OfferedModel(BaseModel):
    """`model` is what a conversation takes; `problem` says why it cannot be asked now."""

    id: str
    model: str
    provider: str
    default: bool
    problem: str | None


class Me(BaseModel):
    username: str
    staff: bool
    scopes: list[str]


def usage(used: Used) -> Usage:
    return Usage(**used)


def own_usage(row: Session) -> Usage:
    return Usage(
        input_tokens=row.input_tokens,
        output_tokens=row.output_tokens,
        cached_tokens=row.cached_tokens,
        requests=row.requests,
        estimated=row.estimated,
    )


def conversation(row: Session, used: Used) -> Conversation:
    return Conversation.model_validate(
        {
            "id": row.pk,
            "title": row.title,
            "agent_id": row.agent_id,
            "model": row.model or settings.BRANCHLINE_MODEL,
            "permission_mode": row.permission_mode,
            "plan_mode": row.plan_mode,
            "wake": row.wake,
            "branch": row.branch,
            "state": row.status,
            "needs_you": False,
            "pinned": row.pinned,
            "archived": row.archived,
            "last_seq": row.last_seq,
            "usage": usage(used),
            "created_at": row.created_at,
            "updated_at": row.updated_at,
            "expires_at": row.expires_at,
        }
    )


def session_node(row: Session) -> SessionNode:
    return SessionNode.model_validate(
        {
            "id": row.pk,
            "session_id": row.pk,
            "parent_id": row.parent_id,
            "agent_id": row.agent_id,
            "label": row.label or None,
            "source": row.source or None,
            "depth": row.depth,
            "status": row.status,
            "waiting_for": row.waiting_for or None,
            "tool_call_id": row.call_id,
            "subagent_id": None,
            "task_id": None,
            "usage": own_usage(row),
            "started_at": row.created_at,
            "ended_at": row.ended_at,
        }
    )


def transcript_message(told: Told) -> TranscriptMessage:
    row = told.row
    return TranscriptMessage.model_validate(
        {
            "id": row.pk,
            "session_id": row.session_id,
            "role": row.role,
            "sender": row.sender,
            "text": row.text,
            "parts": told.parts,
            "tool_call_id": told.tool_call_id,
            "reply_id": told.reply_id or None,
            "seq": row.seq,
            "state": row.state,
            "synthetic": row.synthetic,
            "archived": row.archived,
            "branch": row.branch,
            "created_at": row.created_at,
        }
    )


class GivenRating(BaseModel):
    message_id: str
    reply_id: str
    value: Literal["up", "down"] | None
    reasons: list[str]
    comment: str

    @classmethod
    def of(cls, message_id: str, reply_id: str, opinion: Opinion) -> GivenRating:
        kept = opinion if opinion.value else Opinion("")
        fields = {"value": kept.value or None, "reasons": list(kept.reasons), "comment": kept.comment}
        return cls.model_validate({"message_id": message_id, "reply_id": reply_id, **fields})


def found(row: Message, title: str, snippet: str) -> Found:
    return Found(
        conversation_id=row.session.root_id,
        title=title,
        message_id=row.pk,
        session_id=row.session_id,
        role=row.role,
        seq=row.seq,
        snippet=snippet,
        created_at=row.created_at,
    )
