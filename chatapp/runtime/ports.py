"""What the loop and the engine need from outside: the Ledger (one transaction a method) and the Feed."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

from chatapp.runtime.declarations import SubagentDeclaration
from chatapp.runtime.delegation import Delegation
from chatapp.runtime.events import BlockRef, Envelope
from chatapp.runtime.messages import Completion, ModelMessage, Payload, Piece, Usage
from chatapp.runtime.registry import Roster
from chatapp.runtime.tools import Tool


@dataclass(frozen=True)
class Hold:
    """A host's claim on a session; each checkpoint is refused (`LeaseLost`) when another claim came after it."""

    session_id: str
    conversation_id: str
    owner: str
    generation: int


@dataclass(frozen=True)
class OpenCall:
    """A tool call that has no result yet. `started` ones were begun before and are safe to run again."""

    id: str
    index: int
    name: str
    args: dict[str, Any]
    started: bool


@dataclass(frozen=True)
class Request:
    """Next: ask the model. `appended` is what the transcript gained since the last checkpoint.

    `model` and `agent` hold from this request on; `delegates` is false for a leaf. `tools_off` on the last request a
    reply may make. `depth` is that of its subagents, `depth_limit` what it and its callers allow.
    """

    reply_id: str
    agent: SubagentDeclaration
    delegates: bool
    source: str
    model: str
    tools_off: bool
    depth: int
    depth_limit: int
    appended: tuple[Payload, ...] = ()


@dataclass(frozen=True)
class Calls:
    """Next: run what is open. `waiting` are the sessions that others wait for; the first of those calls is due in so
    many seconds."""

    reply_id: str
    agent: SubagentDeclaration
    delegates: bool
    calls: tuple[OpenCall, ...]
    waiting: tuple[str, ...] = ()
    due_in: float | None = None


@dataclass(frozen=True)
class Rested:
    """Nothing is left to do; the lease is free again."""


Next = Request | Calls | Rested


@dataclass(frozen=True)
class Work:
    """A claimed session: its fence, its transcript as the model will read it, and what comes next."""

    hold: Hold
    owner_id: int
    transcript: tuple[Payload, ...]
    next: Next
    parent_id: str = ""
    workspace: str = ""


@dataclass(frozen=True)
class Delegated:
    """A call to a subagent as it began: whom it waits for, or what comes next when it was settled at once."""

    next: Next | None
    child_id: str = ""


@dataclass(frozen=True)
class BlockEnd:
    """A text or thinking block as it ended."""

    block_id: str
    kind: Literal["text", "thinking"]
    text: str


@dataclass(frozen=True)
class NewCall:
    """A call of a response with the loop's verdict: `started`, `new` (its turn comes later) or refused."""

    id: str
    index: int
    provider_call_id: str
    name: str
    args: dict[str, Any] | None
    args_text: str
    read_only: bool = False
    verdict: Literal["started", "new", "error", "denied"] = "new"
    output: str = ""


@dataclass(frozen=True)
class CutBlock:
    """What a stream had begun when it was cut: a block, or a tool call whose arguments never became whole."""

    id: str
    kind: Literal["text", "thinking", "call"]
    text: str
    tool_name: str = ""


@dataclass(frozen=True)
class Failure:
    """Why a reply failed, for the thread. `id` stands in the log."""

    id: str
    code: str
    detail: str
    retryable: bool


@dataclass(frozen=True)
class ModelCall:
    """One request as it went: what it used and its wall time; `error` is why it was cut, for the ledger."""

    usage: Usage = field(default_factory=Usage)
    time_ms: int = 0
    error: str = ""


class ModelAnswer(Protocol):
    """An answer as it streams, in text that can be stored and sent.

    `completion` sums up what came, at any time; `started` is true once a piece did.
    """

    @property
    def started(self) -> bool: ...

    def __aiter__(self) -> AsyncIterator[Piece]: ...

    def completion(self, partial: bool = False) -> Completion: ...


class ModelSource(Protocol):
    """Who is asked. Fails with ProviderError, before the first piece or in mid-stream."""

    def takes_media(self, name: str) -> bool:
        """Whether this model looks at pictures and documents."""

    def stream(
        self,
        name: str,
        messages: Sequence[ModelMessage],
        *,
        instructions: str,
        tools: Sequence[Tool],
        tools_off: bool = False,
        temperature: float | None = None,
        top_p: float | None = None,
    ) -> AbstractAsyncContextManager[ModelAnswer]: ...


class Ledger(Protocol):
    """Every transition of a session, each one transaction under the conversation's lock; its events are published
    after the commit."""

    async def claim(self, session_id: str, owner: str, lane: str) -> Work | None: ...

    async def renew(self, hold: Hold) -> str:
        """Extend the lease; the id of the reply that someone asked to stop, or empty. Raises LeaseLost."""

    async def begin_block(self, hold: Hold, kind: str, block_id: str, tool_name: str = "") -> int:
        """A block started; the sequence number of its START."""

    async def record_response(
        self, hold: Hold, done: Completion, blocks: Sequence[BlockEnd], calls: Sequence[NewCall], call: ModelCall
    ) -> Next: ...

    async def retry_step(
        self, hold: Hold, cut: Sequence[CutBlock], call: ModelCall, attempt: int, reason: str, model: str
    ) -> None: ...

    async def start_call(self, hold: Hold, call_id: str) -> None: ...

    async def settle(self, hold: Hold, call_id: str, state: str, output: str, truncated: bool) -> Next | None:
        """A call's result; what comes next when it was the last open one."""

    async def delegate(self, hold: Hold, call_id: str, wish: Delegation) -> Delegated:
        """Begin a call to a subagent: it stays open, or is settled with the reason why not."""

    async def hear_answers(self, hold: Hold) -> Next:
        """Take what answers came for open calls, and those whose time is up."""

    async def wait(self, hold: Hold) -> Next:
        """Only calls to subagents are open: rest, unless an answer came meanwhile."""

    async def roster(self, owner_id: int) -> Roster:
        """The agents that this owner's turns may ask."""

    async def interrupt(
        self,
        hold: Hold,
        reply_id: str,
        partial: Completion | None,
        cut: Sequence[CutBlock],
        call: ModelCall | None,
    ) -> Next:
        """Stopped by the person: keep the partial text, settle what is open, end the reply."""

    async def fail(self, hold: Hold, failure: Failure, cut: Sequence[CutBlock], call: ModelCall | None) -> Next: ...

    async def hand_over(self, hold: Hold) -> None:
        """Give the lease back in mid-turn; whoever claims next goes on."""

    async def due(self, lane: str, limit: int) -> list[str]:
        """Sessions whose doorbell of record rang, or whose lease lapsed."""

    async def free_leases(self, owners: Iterable[str]) -> None:
        """Lapse the leases of processes known to be dead."""


class Feed(Protocol):
    """Where committed events and live deltas go. Never waits, never raises; late or lost is fine."""

    def publish(self, events: Sequence[Envelope]) -> None: ...

    def delta(self, block: BlockRef, text: str) -> None: ...

    def close(self, conversation_id: str, block_ids: Iterable[str]) -> None:
        """These blocks ended: what was gathered for them is dropped, their END carries the whole."""

    def hush(self, conversation_id: str, reply_id: str) -> None:
        """Somebody stopped this reply: viewers drop what still comes of it but its events."""

    def wake(self, session_id: str) -> None: ...
