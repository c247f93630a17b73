"""The composition root: one Gateway for each process and event loop, owning its tasks; with a host it runs turns."""

from __future__ import annotations

import asyncio
import fcntl
import logging
import os
import shutil
from collections.abc import Coroutine, Iterator
from contextlib import suppress
from pathlib import Path
from typing import IO, Any

from django.conf import settings
from django.db import InterfaceError, OperationalError

from chatapp.agents import plain_tools
from chatapp.runtime.engine import Engine, Pace
from chatapp.runtime.errors import ProviderError
from chatapp.runtime.ids import new_id
from chatapp.runtime.ports import ModelSource
from chatapp.runtime.providers import Models, ProviderSettings, default_model
from chatapp.runtime.toolsets.agents import agent_tools
from chatapp.runtime.turn import Kit
from chatapp.store import db, deletion
from chatapp.store.ledger import DatabaseLedger
from gateway.bus import Bus
from gateway.ending import end
from gateway.publisher import Publisher
from gateway.sockets import Sockets

logger = logging.getLogger(__name__)

CLEAN_UP_SECONDS = 10.0
DATABASE_AWAY = (OperationalError, InterfaceError)


class Gateway:
    """What commands, consumers and the API share. Built inside a running loop."""

    def __init__(self) -> None:
        self.engine: Engine | None = None
        self.bus = Bus(settings.REDIS_URL, self._woken, doorbells=settings.BRANCHLINE_DOORBELLS)
        self.publisher = Publisher(self.bus)
        self.ledger = DatabaseLedger(self.publisher)
        self.sockets = Sockets()
        self._tasks: set[asyncio.Task[None]] = set()
        self._owner_file: OwnerFile | None = None
        for work in (self.bus.listen(), self.publisher.run(), self.sockets.watch()):
            self._own(work)

    def _own(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(_supervised(work))
        self._tasks.add(task)

    def _woken(self, session_id: str) -> None:
        if self.engine is not None:
            self.engine.ring(session_id)

    def host(self, *, lane: str = "interactive", turns: int | None = None) -> Engine:
        """Let this process run turns. Its owner file stays locked while it lives, so its death is seen at once."""
        owner = new_id()
        self._owner_file = lock_owner(settings.DATA_DIR / "run", owner)
        self.engine = Engine(
            build_kit(self.ledger, self.publisher),
            Pace(settings.BRANCHLINE_LEASE_SECONDS, settings.BRANCHLINE_SWEEP_SECONDS),
            lane=lane,
            turns=turns or settings.BRANCHLINE_HOSTED_TURNS,
            owner=owner,
            outages=DATABASE_AWAY,
            dead_owners=lambda: dead_owners(settings.DATA_DIR / "run"),
        )
        return self.engine

    def start_sweeping(self) -> None:
        assert self.engine is not None
        self._own(self.engine.run())
        self._own(clean_up())

    async def stop(self) -> None:
        """Drain the host, tell the viewers to come back, then end our tasks and connections."""
        if self.engine is not None:
            await self.engine.drain()
        await self.sockets.close_all()
        await self.publisher.flush()
        await end(self._tasks)
        await self.bus.close()
        if self._owner_file is not None:
            self._owner_file.close()
        _gateways.pop(asyncio.get_running_loop(), None)


async def _supervised(work: Coroutine[Any, Any, None]) -> None:
    try:
        await work
    except Exception:
        # A process whose feed or sweep is dead looks alive and does nothing: let the supervisor start another.
        logger.critical("a task this process cannot do without broke", exc_info=True)
        os._exit(70)


_gateways: dict[asyncio.AbstractEventLoop, Gateway] = {}


def gateway() -> Gateway:
    """The running loop's Gateway, made at first use."""
    loop = asyncio.get_running_loop()
    found = _gateways.get(loop)
    if found is None:
        found = _gateways[loop] = Gateway()
    return found


async def clean_up() -> None:
    """Files, then rows, of deleted conversations: within a minute, and again where it was broken off."""
    while True:
        try:
            while gone := await db.run(deletion.deleted_conversations):
                for conversation_id in gone:
                    folder = settings.WORKSPACES_DIR / conversation_id
                    await asyncio.to_thread(shutil.rmtree, folder, ignore_errors=True)
                    await db.run(deletion.purge, conversation_id)
        except DATABASE_AWAY as error:
            logger.warning("deleted conversations stay for now: %s", error)
        await asyncio.sleep(CLEAN_UP_SECONDS)


def build_kit(ledger: DatabaseLedger, publisher: Publisher) -> Kit:
    return Kit(
        ledger=ledger,
        feed=publisher,
        models=Models(ProviderSettings(settings.PROVIDERS, media_models=tuple(settings.BRANCHLINE_MEDIA_MODELS))),
        tools=(*plain_tools(), *agent_tools(ledger)),
        workspaces=settings.WORKSPACES_DIR,
        project=settings.BASE_DIR,
        parallel_tools=settings.BRANCHLINE_PARALLEL_TOOLS,
        result_limit=settings.BRANCHLINE_TOOL_RESULT_CHARS,
        args_limit=settings.BRANCHLINE_EVENT_BYTES,
        file_limit=settings.BRANCHLINE_FILE_BYTES,
        workspace_limit=settings.BRANCHLINE_WORKSPACE_BYTES,
        fallback_model=settings.BRANCHLINE_FALLBACK_MODEL,
    )


async def start_host() -> Gateway:
    """What a server process does beside serving: listen for wakes, sweep, run interactive turns."""
    await asyncio.to_thread(settle_model)
    running = gateway()
    engine = running.host()
    await asyncio.to_thread(preload, engine.kit.models)
    running.start_sweeping()
    return running


def settle_model() -> None:
    """The default model, looked for once a process where none is set."""
    if not settings.BRANCHLINE_MODEL:
        settings.BRANCHLINE_MODEL = default_model(settings.PROVIDERS)


def preload(models: ModelSource) -> None:
    """Import the default model's adapter before somebody waits for it; a bad model says so when it is asked."""
    if isinstance(models, Models):
        with suppress(ProviderError):
            models.preload([settings.BRANCHLINE_MODEL])


def lock_owner(folder: Path, owner: str) -> OwnerFile:
    """A locked file named after this process. Locked before it gets its name: a sweep never finds it unlocked."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    draft = folder / f".{owner}"
    file = draft.open("w")
    fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    draft.rename(folder / owner)
    return OwnerFile(file, folder / owner)


class OwnerFile:
    """An open, locked file under the name it was given after it was locked."""

    def __init__(self, file: IO[str], path: Path) -> None:
        self.file, self.path = file, path

    def close(self) -> None:
        self.path.unlink(missing_ok=True)
        self.file.close()


def dead_owners(folder: Path) -> Iterator[str]:
    """Owners on this machine whose lock nobody holds: killed, or gone without a word. Each is told once."""
    for path in folder.iterdir() if folder.is_dir() else ():
        if path.name.startswith("."):
            continue
        try:
            with path.open("r") as file:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                path.unlink(missing_ok=True)
        except (BlockingIOError, FileNotFoundError):
            continue
        yield path.name
