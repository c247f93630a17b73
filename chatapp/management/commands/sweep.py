"""`manage.py sweep`: works off what is due and nobody hosts, then ends."""

from __future__ import annotations

import asyncio
from importlib import import_module
from typing import Any

from django.core.management.base import BaseCommand

from chatapp.runtime.ports import Feed, Work
from chatapp.store.ledger import DatabaseLedger

# A session that is due but waits for a slot of its owner comes back after this.
LOOK_SECONDS = 0.1


class _Counting(DatabaseLedger):
    """Knows which sessions were claimed through it; a look at what is hosted would miss short turns."""

    def __init__(self, feed: Feed) -> None:
        super().__init__(feed)
        self.claimed: set[str] = set()

    async def claim(self, session_id: str, owner: str, lane: str) -> Work | None:
        work = await super().claim(session_id, owner, lane)
        if work is not None:
            self.claimed.add(session_id)
        return work


async def sweep() -> int:
    """Claims due sessions and hosts their turns until none is left; answers how many it worked on."""
    # By dotted string: the product never imports its delivery edge.
    wiring = import_module("gateway.wiring")
    await asyncio.to_thread(wiring.settle_model)
    running = wiring.gateway()
    running.ledger = ledger = _Counting(running.publisher)
    engine = running.host()
    try:
        while True:
            await engine.sweep()
            await engine.settled()
            if not await ledger.due(engine.lane, 1):
                return len(ledger.claimed)
            await asyncio.sleep(LOOK_SECONDS)
    finally:
        await running.stop()


class Command(BaseCommand):
    help = "Goes on with every session that is due and that no server works on, then ends."

    def handle(self, *args: Any, **options: Any) -> None:
        self.stdout.write(f"sessions worked on: {asyncio.run(sweep())}")
