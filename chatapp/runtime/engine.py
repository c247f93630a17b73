"""The engine of one process: claims what is due, hosts the turns, renews their leases, sweeps, stops."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass

from chatapp.runtime.errors import BranchlineError, LeaseLost
from chatapp.runtime.ids import new_id
from chatapp.runtime.loop import Kit, Signals, advance
from chatapp.runtime.ports import Work

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Pace:
    """Seconds: a lease is renewed every quarter of itself and given up after three quarters without."""

    lease: float = 20.0
    sweep: float = 1.0
    drain: float = 10.0


@dataclass
class Hosted:
    """A turn this process is working on."""

    task: asyncio.Task[None]
    signals: Signals
    look: asyncio.Event


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
        self._claiming: set[asyncio.Task[None]] = set()
        self._sweep_now = asyncio.Event()
        self._draining = False

    # Doorbells

    def ring(self, session_id: str) -> None:
        """A doorbell rang. The host looks at its row (somebody may want it to stop); anyone else tries to claim."""
        if hosted := self.hosted.get(session_id):
            hosted.look.set()
        else:
            self._try(session_id)

    def _try(self, session_id: str) -> None:
        if self._draining or session_id in self.hosted:
            return
        if len(self.hosted) + len(self._claiming) >= self.turns:
            return
        task = asyncio.create_task(self._claim(session_id))
        self._claiming.add(task)
        task.add_done_callback(self._claiming.discard)

    async def _claim(self, session_id: str) -> None:
        try:
            work = await self.kit.ledger.claim(session_id, self.owner)
        except self._setbacks as error:
            logger.warning("claim of %s did not work: %s", session_id, error)
            return
        if work is not None:
            self._host(work)

    # Hosting

    def _host(self, work: Work) -> None:
        signals, look = Signals(draining=self._draining), asyncio.Event()
        task = asyncio.create_task(self._turn(work, signals, look))
        self.hosted[work.hold.session_id] = Hosted(task, signals, look)

    async def _turn(self, work: Work, signals: Signals, look: asyncio.Event) -> None:
        """The turn's door: whatever goes wrong is logged, and the rows decide who goes on."""
        session_id = work.hold.session_id
        turn = asyncio.create_task(advance(work, self.kit, signals))
        keeper = asyncio.create_task(self._keep(work, signals, look, turn))
        try:
            await turn
        except asyncio.CancelledError:
            turn.cancel()
            await asyncio.wait({turn})
            if asyncio.current_task() is not None and not self._draining:
                logger.warning("turn of %s was given up: its lease could not be kept", session_id)
        except LeaseLost as lost:
            logger.warning("turn of %s goes on elsewhere: %s", session_id, lost)
        except self.outages as error:
            logger.warning("turn of %s lost its database, recovery goes on with it: %s", session_id, error)
        except Exception:
            logger.exception("turn of %s broke; recovery goes on with it", session_id)
        finally:
            keeper.cancel()
            self.hosted.pop(session_id, None)
            self._sweep_now.set()

    async def _keep(self, work: Work, signals: Signals, look: asyncio.Event, turn: asyncio.Task[None]) -> None:
        """Renew the lease; see a stop. A host that could not renew for three quarters of its lease gives up."""
        clock = asyncio.get_running_loop().time
        renewed = clock()
        while True:
            try:
                async with asyncio.timeout(self.pace.lease / 4):
                    await look.wait()
            except TimeoutError:
                pass
            look.clear()
            try:
                stop = await self.kit.ledger.renew(work.hold)
                renewed = clock()
            except LeaseLost:
                turn.cancel()
                return
            except self.outages:
                if clock() - renewed > self.pace.lease * 3 / 4:
                    turn.cancel()
                    return
                continue
            if stop and not signals.stopped:
                signals.stop()

    # Sweeping: what a lost doorbell would have told, at most a second later

    async def sweep(self) -> None:
        """One look at the rows."""
        if dead := list(self.dead_owners()):
            await self.kit.ledger.free_leases(dead)
        room = self.turns - len(self.hosted) - len(self._claiming)
        if room > 0:
            for session_id in await self.kit.ledger.due(self.lane, room):
                self._try(session_id)

    async def run(self) -> None:
        """Sweep for ever; each finished turn asks for a sweep at once, since its slot may be waited for."""
        while True:
            self._sweep_now.clear()
            await self._guarded(self.sweep)
            try:
                async with asyncio.timeout(self.pace.sweep):
                    await self._sweep_now.wait()
            except TimeoutError:
                pass

    async def _guarded(self, work: Callable[[], Awaitable[None]]) -> None:
        try:
            await work()
        except self._setbacks as error:
            logger.warning("sweep did not work, the next one will: %s", error)

    async def settled(self) -> None:
        """Until nothing is claimed or hosted any more."""
        while self._claiming or self.hosted:
            await asyncio.wait([*self._claiming, *(hosted.task for hosted in self.hosted.values())])

    async def drain(self) -> None:
        """Claim nothing more; running turns reach their next checkpoint, the rest is left to recovery."""
        self._draining = True
        if self._claiming:
            await asyncio.wait(self._claiming)
        tasks = [hosted.task for hosted in self.hosted.values()]
        for hosted in self.hosted.values():
            hosted.signals.draining = True
        if tasks:
            _, late = await asyncio.wait(tasks, timeout=self.pace.drain)
            for task in late:
                task.cancel()
            if late:
                await asyncio.wait(late)
