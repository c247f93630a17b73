"""The engine of one process: claims what is due, hosts the turns, renews their leases, sweeps, stops."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass

from chatapp.runtime.errors import BranchlineError, LeaseLost
from chatapp.runtime.ids import new_id
from chatapp.runtime.loop import advance
from chatapp.runtime.ports import Failure, Rested, Work
from chatapp.runtime.signals import Signals
from chatapp.runtime.turn import Kit

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Pace:
    """Seconds: a lease is renewed every quarter of itself and given up after three quarters without."""

    lease: float = 20.0
    sweep: float = 1.0
    drain: float = 8.0


@dataclass(eq=False)
class Hosted:
    """A turn this process is working on. `look` is its doorbell; one of a subagent takes no slot of its own."""

    signals: Signals
    look: asyncio.Event
    below: bool = False
    task: asyncio.Task[None] | None = None


class Engine:
    """`lane` is what it claims; `outages` are the exceptions that mean the database is away for the moment;
    `dead_owners` names processes of this machine that died with leases."""

    def __init__(
        self, kit: Kit, pace: Pace, *, lane: str, turns: int, owner: str = "",
        outages: tuple[type[Exception], ...] = (), dead_owners: Callable[[], Iterable[str]] = lambda: (),
    ) -> None:  # fmt: skip
        self.kit = kit
        self.pace = pace
        self.lane = lane
        self.turns = turns
        self.owner = owner or new_id()
        self.outages = outages
        self._setbacks: tuple[type[Exception], ...] = (BranchlineError, *outages)
        self.dead_owners = dead_owners
        self.hosted: dict[str, Hosted] = {}
        self._claiming: dict[str, asyncio.Task[None]] = {}
        self._sweep_now = asyncio.Event()
        self._draining = False

    # Doorbells

    def ring(self, session_id: str) -> None:
        """A doorbell rang. The host looks at its row (somebody may want it to stop); anyone else tries to claim."""
        if hosted := self.hosted.get(session_id):
            hosted.look.set()
            hosted.signals.ring()
        elif self._room() > 0:
            self._try(session_id)

    def host(self, session_id: str) -> None:
        """A subagent of a turn that is hosted here: it works in its caller's slot."""
        self._try(session_id)

    def busy(self, session_id: str) -> bool:
        return session_id in self.hosted or session_id in self._claiming

    def _room(self) -> int:
        own = sum(not hosted.below for hosted in self.hosted.values())
        return self.turns - own - len(self._claiming)

    def _try(self, session_id: str) -> None:
        if not self._draining and not self.busy(session_id):
            self._claiming[session_id] = asyncio.create_task(self._claim(session_id))

    async def _claim(self, session_id: str) -> None:
        """A claim that breaks must not end the sweep; the next one tries again."""
        try:
            work = await self.kit.ledger.claim(session_id, self.owner, self.lane)
            if work is not None:
                self._host(work)
        except self._setbacks as error:
            logger.warning("claim of %s did not work: %s", session_id, error)
        except Exception:
            logger.exception("claim of %s broke", session_id)
        finally:
            del self._claiming[session_id]

    # Hosting

    def _host(self, work: Work) -> None:
        hosted = Hosted(Signals(draining=self._draining), asyncio.Event(), below=bool(work.parent_id))
        self.hosted[work.hold.session_id] = hosted
        hosted.task = asyncio.create_task(self._turn(work, hosted))

    async def _turn(self, work: Work, hosted: Hosted) -> None:
        """The turn's door: whatever goes wrong is logged, and the rows decide who goes on."""
        session_id = work.hold.session_id
        turn = asyncio.create_task(advance(work, self.kit, hosted.signals, self))
        keeper = asyncio.create_task(self._keep(work, hosted, turn))
        try:
            await turn
        except asyncio.CancelledError:
            turn.cancel()
            await asyncio.wait({turn})
            logger.warning("turn of %s was broken off; recovery goes on with it", session_id)
        except LeaseLost as lost:
            logger.warning("turn of %s goes on elsewhere: %s", session_id, lost)
        except self.outages as error:
            logger.warning("turn of %s lost its database, recovery goes on with it: %s", session_id, error)
        except Exception:
            logger.exception("turn of %s broke", session_id)
            await self._fail(work)
        finally:
            keeper.cancel()
            if self.hosted.get(session_id) is hosted:
                del self.hosted[session_id]
            self._sweep_now.set()

    async def _fail(self, work: Work) -> None:
        """A bug would only hit again: the reply fails visibly, with an id that stands in the log."""
        failure = Failure(new_id()[:12], "internal", "Something here broke. Whoever runs this server can look.", True)
        logger.error("reply failed id=%s session=%s: the traceback is above", failure.id, work.hold.session_id)
        try:
            following = await self.kit.ledger.fail(work.hold, failure, [], None)
            if not isinstance(following, Rested):
                await self.kit.ledger.hand_over(work.hold)
        except self._setbacks as error:
            logger.warning("turn of %s is left to recovery: %s", work.hold.session_id, error)

    async def _keep(self, work: Work, hosted: Hosted, turn: asyncio.Task[None]) -> None:
        """Renew the lease; see a stop. A host that could not renew for three quarters of its lease gives up."""
        clock = asyncio.get_running_loop().time
        renewed = clock()
        missed: tuple[type[Exception], ...] = (asyncio.InvalidStateError, *self._setbacks)
        while True:
            with suppress(TimeoutError):
                async with asyncio.timeout(self.pace.lease / 4):
                    await hosted.look.wait()
            hosted.look.clear()
            patience = renewed + self.pace.lease * 3 / 4 - clock()
            renewal = asyncio.create_task(self.kit.ledger.renew(work.hold))
            # The turn may end meanwhile, and nobody is left who asks.
            renewal.add_done_callback(lambda done: done.cancelled() or done.exception())
            await asyncio.wait({renewal}, timeout=max(patience, 0.1))
            try:
                hosted.signals.stop(renewal.result())
                renewed = clock()
            except missed as error:
                if isinstance(error, LeaseLost) or clock() >= renewed + self.pace.lease * 3 / 4:
                    turn.cancel()
                    return

    # Sweeping: what a lost doorbell would have told, at most a second later

    async def sweep(self) -> None:
        """One look at the rows."""
        if dead := list(self.dead_owners()):
            await self.kit.ledger.free_leases(dead)
        if (room := self._room()) > 0:
            for session_id in await self.kit.ledger.due(self.lane, room):
                self._try(session_id)

    async def run(self) -> None:
        """Sweep for ever; each finished turn asks for a sweep at once, since its slot may be waited for."""
        while True:
            self._sweep_now.clear()
            await self._guarded(self.sweep)
            with suppress(TimeoutError):
                async with asyncio.timeout(self.pace.sweep):
                    await self._sweep_now.wait()

    async def _guarded(self, work: Callable[[], Awaitable[None]]) -> None:
        try:
            await work()
        except self._setbacks as error:
            logger.warning("sweep did not work, the next one will: %s", error)

    async def settled(self) -> None:
        """Until nothing is claimed or hosted any more."""
        while running := [*self._claiming.values(), *self._hosting()]:
            await asyncio.wait(running)

    def _hosting(self) -> list[asyncio.Task[None]]:
        return [hosted.task for hosted in self.hosted.values() if hosted.task is not None]

    async def drain(self) -> None:
        """Claim nothing more; running turns reach their next checkpoint, the rest is left to recovery."""
        self._draining = True
        if self._claiming:
            await asyncio.wait(self._claiming.values())
        tasks = self._hosting()
        for hosted in self.hosted.values():
            hosted.signals.draining = True
            hosted.signals.ring()
        if tasks:
            _, late = await asyncio.wait(tasks, timeout=self.pace.drain)
            for task in late:
                task.cancel()
            if late:
                await asyncio.wait(late)
