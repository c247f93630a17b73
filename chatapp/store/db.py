"""How a transaction runs from async code: a synchronous function on a small pool of threads of its own."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from typing import ParamSpec, TypeVar

from django.db import close_old_connections, connection
from django.utils import timezone

P = ParamSpec("P")
T = TypeVar("T")

_POOL = ThreadPoolExecutor(max_workers=4, thread_name_prefix="store")


def _checked(work: Callable[[], T]) -> T:
    close_old_connections()
    try:
        return work()
    finally:
        close_old_connections()


async def run(function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Run `function` in the pool. A cancelled caller waits for it: a commit is never left unseen behind our back."""
    future = asyncio.get_running_loop().run_in_executor(_POOL, _checked, lambda: function(*args, **kwargs))
    try:
        return await asyncio.shield(future)
    except asyncio.CancelledError:
        await asyncio.wait({future})
        if not future.cancelled():
            future.exception()
        raise


def database_now() -> datetime:
    """The database's clock, the one all processes share. SQLite's is this machine's."""
    if connection.vendor != "postgresql":
        return timezone.now()
    with connection.cursor() as cursor:
        cursor.execute("SELECT clock_timestamp()")
        now: datetime = cursor.fetchone()[0]
    return now.astimezone(UTC)
