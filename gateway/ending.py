"""How a task of ours is ended for sure."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Any


async def end(tasks: Iterable[asyncio.Future[Any]]) -> None:
    """Cancel until all are done: Python 3.11's `wait_for`, which the Valkey client uses for each command, swallows a
    cancel that comes in the moment its work is done."""
    left = {task for task in tasks if not task.done()}
    while left:
        for task in left:
            task.cancel()
        _, left = await asyncio.wait(left, timeout=0.2)
