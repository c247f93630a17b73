"""A server in this process: the real ledger, feed and engine on the real Valkey, answered by a scripted model."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import replace
from typing import Any, TypeVar

import pytest
import redis
from django.contrib.auth.models import User

from chatapp.models import Event, Session
from chatapp.runtime.tools import Tool
from chatapp.store import db
from chatapp.store.conversations import create_conversation
from chatapp.store.feed import events_after
from chatapp.store.posts import Draft, Posted
from gateway import commands
from gateway.wiring import Gateway, gateway
from tests.fakes import ScriptedModels

T = TypeVar("T")


async def eventually(look: Callable[[], Awaitable[T | None]], seconds: float = 10) -> T:
    """Look until there is something to see."""
    async with asyncio.timeout(seconds):
        while True:
            if seen := await look():
                return seen
            await asyncio.sleep(0.01)


class Server:
    """The process under test, and what a test asks of it."""

    def __init__(self, running: Gateway, models: ScriptedModels) -> None:
        self.gateway = running
        self.models = models

    def set(self, **kit: Any) -> None:
        engine = self.gateway.engine
        assert engine is not None
        engine.kit = replace(engine.kit, **kit)

    def offer(self, *tools: Tool) -> None:
        engine = self.gateway.engine
        assert engine is not None
        engine.kit = replace(engine.kit, tools=(*engine.kit.tools, *tools))

    async def events(self, session: Session) -> list[dict[str, Any]]:
        return await db.run(events_after, session.pk, 0, 5000)

    async def types(self, session: Session) -> list[str]:
        return [event["type"] for event in await self.events(session)]

    async def send(self, session: Session, text: str, **more: Any) -> Posted:
        return await commands.send_message(session.owner_id, session.pk, Draft(text, **more))

    async def rest(self, session: Session, seconds: float = 10) -> Session:
        """Wait until the session rests and waits for no subagent, and answer its row."""
        busy = (Session.Status.RUNNING, Session.Status.QUEUED)

        async def resting() -> Session | None:
            row = await db.run(Session.objects.get, pk=session.pk)
            return None if row.status in busy or row.lease_owner or row.waiting_for == "child" else row

        return await eventually(resting, seconds)

    async def failure(self, session: Session) -> dict[str, Any]:
        """Wait until the session rests, failed, and answer why."""
        row = await self.rest(session)
        assert row.error
        return dict(row.error)

    async def until(self, session: Session, type_: str, count: int = 1, seconds: float = 10) -> None:
        """Wait until the ledger has `count` events of this type."""
        rows = Event.objects.filter(conversation=session.pk, type=type_)

        async def there() -> bool:
            return await db.run(rows.count) >= count

        await eventually(there, seconds)


@pytest.fixture
async def server(transactional_db: None, live_valkey: redis.Redis) -> AsyncIterator[Server]:
    running = gateway()
    models = ScriptedModels()
    engine = running.host()
    engine.kit = replace(engine.kit, models=models)
    running.start_sweeping()
    yield Server(running, models)
    await running.stop()


@pytest.fixture
def conversation(transactional_db: None, alice: User) -> Session:
    return create_conversation(alice, model="scripted")
