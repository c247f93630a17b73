"""`manage.py sweep`: works off what is due and nobody hosts, then ends."""

from __future__ import annotations

import asyncio
from importlib import import_module
from typing import Any

from django.core.management.base import BaseCommand

LOOK_SECONDS = 0.1


async def sweep() -> int:
    """Claims due sessions and hosts their turns until none is left; answers how many turns it saw."""
    running = import_module("gateway.wiring").gateway()
    engine = running.host()
    seen: set[str] = set()
    try:
        while True:
            await engine.sweep()
            await asyncio.sleep(LOOK_SECONDS)
            seen |= set(engine.hosted)
            if not engine.hosted and not await running.ledger.due(engine.lane, 1):
                return len(seen)
    finally:
        await running.stop()


class Command(BaseCommand):
    help = "Goes on with every session that is due and that no server works on, then ends."

    def handle(self, *args: Any, **options: Any) -> None:
        self.stdout.write(f"sessions worked on: {asyncio.run(sweep())}")
