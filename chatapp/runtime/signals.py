"""How the engine reaches a running turn: a stop meant for one reply, or the wish to leave at a checkpoint."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from dataclasses import dataclass, field
from typing import Any, TypeVar

T = TypeVar("T")


class Stopped(Exception):
    """The person stopped this reply."""


@dataclass
class Signals:
    """How the engine reaches a turn: `stop` breaks off what its reply waits for, `draining` ends it at a checkpoint."""

    draining: bool = False
    reply_id: str = ""
    # Something is new: in this turn, or (`bell`) in the session's inbox.
    rang: asyncio.Event = field(default_factory=asyncio.Event)
    bell: bool = False
    _stopped: bool = False
    _waiting: set[asyncio.Task[Any]] = field(default_factory=set)

    def enter(self, reply_id: str) -> None:
        """The turn works on this reply now; a stop that was meant for an earlier one is over with it."""
        if reply_id != self.reply_id:
            self.reply_id, self._stopped = reply_id, False

    def ring(self) -> None:
        self.bell = True
        self.rang.set()

    def stop(self, reply_id: str) -> None:
        if reply_id and reply_id == self.reply_id and not self._stopped:
            self._stopped = True
            for task in self._waiting:
                task.cancel()

    async def unless_stopped(self, work: Coroutine[Any, Any, T]) -> T:
        """Await `work`; raises Stopped when the person stops the reply first. Its checkpoints run to their end."""
        if self._stopped:
            work.close()
            raise Stopped
        task = asyncio.ensure_future(work)
        self._waiting.add(task)
        try:
            return await task
        except asyncio.CancelledError:
            current = asyncio.current_task()
            if self._stopped and not (current and current.cancelling()):
                raise Stopped from None
            raise
        finally:
            self._waiting.discard(task)
