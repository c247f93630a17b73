"""The Ledger for async code: each method one transaction, its events published after the commit."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import ParamSpec, TypeVar

from chatapp.agents import roster_of_owner
from chatapp.runtime.delegation import Delegation, Listed
from chatapp.runtime.messages import Completion
from chatapp.runtime.ports import BlockEnd, CutBlock, Delegated, Failure, Feed, Hold, ModelCall, NewCall, Next, Work
from chatapp.runtime.registry import Roster
from chatapp.store import checkpoints, claims, db, delegation
from chatapp.store.writer import Written

P = ParamSpec("P")
T = TypeVar("T")


class DatabaseLedger:
    def __init__(self, feed: Feed) -> None:
        self.feed = feed

    async def write(self, function: Callable[P, Written[T]], *args: P.args, **kwargs: P.kwargs) -> T:
        """Run one transaction, then publish what it told and ring whom it woke."""
        written = await db.run(function, *args, **kwargs)
        self.feed.publish(written.events)
        if written.closed:
            self.feed.close(written.conversation_id, written.closed)
        for reply_id in written.hushed:
            self.feed.hush(written.conversation_id, reply_id)
        for session_id in written.wake:
            self.feed.wake(session_id)
        return written.value

    async def claim(self, session_id: str, owner: str, lane: str) -> Work | None:
        return await self.write(claims.claim, session_id, owner, lane)

    async def renew(self, hold: Hold) -> str:
        return await self.write(claims.renew, hold)

    async def hand_over(self, hold: Hold) -> None:
        await self.write(claims.hand_over, hold)

    async def due(self, lane: str, limit: int) -> list[str]:
        return await db.run(claims.due, lane, limit)

    async def free_leases(self, owners: Iterable[str]) -> None:
        await db.run(claims.free_leases, list(owners))

    async def begin_block(self, hold: Hold, kind: str, block_id: str, tool_name: str = "") -> int:
        return await self.write(checkpoints.begin_block, hold, kind, block_id, tool_name)

    async def record_response(
        self, hold: Hold, done: Completion, blocks: Sequence[BlockEnd], calls: Sequence[NewCall], call: ModelCall
    ) -> Next:
        return await self.write(checkpoints.record_response, hold, done, blocks, calls, call)

    async def retry_step(
        self, hold: Hold, cut: Sequence[CutBlock], call: ModelCall, attempt: int, reason: str, model: str
    ) -> None:
        await self.write(checkpoints.retry_step, hold, cut, call, attempt, reason, model)

    async def start_call(self, hold: Hold, call_id: str) -> None:
        await self.write(checkpoints.start_call, hold, call_id)

    async def settle(self, hold: Hold, call_id: str, state: str, output: str, truncated: bool) -> Next | None:
        return await self.write(checkpoints.settle, hold, call_id, state, output, truncated)

    async def delegate(self, hold: Hold, call_id: str, wish: Delegation) -> Delegated:
        return await self.write(delegation.delegate, hold, call_id, wish)

    async def hear_answers(self, hold: Hold) -> Next:
        return await self.write(checkpoints.hear_answers, hold)

    async def wait(self, hold: Hold) -> Next:
        return await self.write(checkpoints.wait, hold)

    async def subagents(self, session_id: str) -> list[Listed]:
        return await db.run(delegation.subagents, session_id)

    async def roster(self, owner_id: int) -> Roster:
        return await db.run(roster_of_owner, owner_id)

    async def interrupt(
        self,
        hold: Hold,
        reply_id: str,
        partial: Completion | None,
        cut: Sequence[CutBlock],
        call: ModelCall | None,
    ) -> Next:
        return await self.write(checkpoints.interrupt, hold, reply_id, partial, cut, call)

    async def fail(self, hold: Hold, failure: Failure, cut: Sequence[CutBlock], call: ModelCall | None) -> Next:
        return await self.write(checkpoints.fail, hold, failure, cut, call)
