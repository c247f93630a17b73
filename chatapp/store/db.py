"""How a transaction runs from async code: a synchronous function on a small pool of threads of its own."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, nullcontext
from datetime import UTC, datetime
from typing import ParamSpec, TypeVar

from django.db import close_old_connections, connection, transaction
from django.utils import timezone

P = ParamSpec("P")
T = TypeVar("T")

# Where SQLite waits for another writer it sleeps, up to a tenth of a second at a time; a lock is handed on at once.
_WRITING = threading.RLock()
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


@contextmanager
def writing() -> Iterator[None]:
    """A transaction that writes: SQLite takes one at a time, whichever threads of this process they are in."""
    with _WRITING if connection.vendor == "sqlite" else nullcontext(), transaction.atomic():
        yield


def database_now() -> datetime:
    """The database's clock, the one all processes share. SQLite's is this machine's."""
    if connection.vendor != "postgresql":
        return timezone.now()
    with connection.cursor() as cursor:
        cursor.execute("SELECT clock_timestamp()")
        now: datetime = cursor.fetchone()[0]
    return now.astimezone(UTC)
