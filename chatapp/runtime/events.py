"""The event types, the envelope that carries one, and the live deltas beside them."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from functools import cached_property
from typing import Any

import orjson


class EventType(StrEnum):
    USER_MESSAGE = "USER_MESSAGE"
    AGENT_START = "AGENT_START"
    AGENT_END = "AGENT_END"
    MODEL_CALL_START = "MODEL_CALL_START"
    MODEL_CALL_END = "MODEL_CALL_END"
    MODEL_RETRY = "MODEL_RETRY"
    TEXT_BLOCK_START = "TEXT_BLOCK_START"
    TEXT_BLOCK_END = "TEXT_BLOCK_END"
    THINKING_BLOCK_START = "THINKING_BLOCK_START"
    THINKING_BLOCK_END = "THINKING_BLOCK_END"
    TOOL_CALL_START = "TOOL_CALL_START"
    TOOL_CALL_END = "TOOL_CALL_END"
    TOOL_RESULT_START = "TOOL_RESULT_START"
    TOOL_RESULT_END = "TOOL_RESULT_END"
    HANDOFF_START = "HANDOFF_START"
    HANDOFF_END = "HANDOFF_END"
    EXCEED_MAX_ITERS = "EXCEED_MAX_ITERS"
    RUN_FAILED = "RUN_FAILED"
    CUSTOM = "CUSTOM"


class EndReason(StrEnum):
    """Why a stretch ended."""

    MODEL_STOP = "MODEL_STOP"
    MAX_ITERATIONS = "MAX_ITERATIONS"
    INTERRUPTED = "INTERRUPTED"
    WAITING = "WAITING"
    FAILED = "FAILED"


@dataclass(frozen=True)
class Envelope:
    """A numbered event of a conversation; `flat()` is its wire form."""

    seq: int
    id: str
    type: str
    source: str
    conversation_id: str
    session_id: str
    agent_id: str
    reply_id: str
    branch: int
    created_at: datetime
    data: dict[str, Any]
    metadata: dict[str, Any]

    @cached_property
    def encoded(self) -> bytes:
        """Its wire form. Raises TypeError for what no client could be told; the writer asks before it commits."""
        return orjson.dumps(self.flat())

    def flat(self) -> dict[str, Any]:
        return {
            "seq": self.seq,
            "id": self.id,
            "type": self.type,
            "source": self.source or None,
            "conversation_id": self.conversation_id,
            "session_id": self.session_id,
            "agent_id": self.agent_id,
            "reply_id": self.reply_id or None,
            "branch": self.branch,
            "created_at": self.created_at.isoformat().replace("+00:00", "Z"),
            "metadata": self.metadata,
            **self.data,
        }


class DeltaType(StrEnum):
    TEXT = "TEXT_BLOCK_DELTA"
    THINKING = "THINKING_BLOCK_DELTA"
    TOOL_CALL = "TOOL_CALL_DELTA"


@dataclass(frozen=True)
class BlockRef:
    """An open block that deltas belong to: text, thinking, or a tool call's arguments (`block_id` = tool_call_id)."""

    type: DeltaType
    conversation_id: str
    session_id: str
    source: str
    reply_id: str
    block_id: str
    start_seq: int
    generation: int
