"""One archive of everything that cannot be made again: the database, the workspaces, the key; taken while it runs."""

from __future__ import annotations

import io
import json
import os
import shutil
import sqlite3
import stat
import subprocess
import tarfile
import tempfile
import tomllib
from collections.abc import Iterator
from contextlib import closing, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO, cast

from django.conf import settings
from django.db import connection
from django.db.migrations.recorder import MigrationRecorder
from django.utils import timezone

from chatapp.runtime.toolsets.files import RESERVED

# O_NONBLOCK: opening a pipe must not wait for its other end.
_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY


class NoBackup(Exception):
    """One line for the operator."""


@dataclass
class Contents:
    """What the archive holds. `left_out` counts links, pipes and the like."""

    files: int = 0
    left_out: int = 0


def write(target: Path, *, database: bool = True) -> Contents:
    """Whole or not at all: made in a private folder beside `target`, then renamed."""
    schema = _schema()
    _refuse_taken(target)
    with tempfile.TemporaryDirectory(dir=target.parent, prefix=".branchline-backup-") as name:
        folder = Path(name)
        # First of all: a file that a message brings along was there before the message, so the files copied later
        # have it.
        dump = _database(folder) if database else None
        archive = folder / "archive"
        with open(os.open(archive, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600), "wb") as raw:
            contents = _fill(raw, dump, schema)
            raw.flush()
            os.fsync(raw.fileno())
        _refuse_taken(target)
        archive.rename(target)
    return contents


def _refuse_taken(target: Path) -> None:
    if os.path.lexists(target):
        raise NoBackup(f"{target} exists already")


def _schema() -> dict[str, str]:
    """The last migration of each app. An empty database is a wrong DATA_DIR or DATABASE_URL: no backup of anything."""
    applied = sorted(MigrationRecorder(connection).applied_migrations())
    if not any(app == "chatapp" for app, _ in applied):
        raise NoBackup("this database holds no Branchline; look at DATA_DIR and DATABASE_URL")
    return dict(applied)


def _database(folder: Path) -> Path:
    return _sqlite(folder / "branchline.sqlite3") if connection.vendor == "sqlite" else _postgres(folder)


def _sqlite(copy: Path) -> Path:
    """In one step, so that writers neither wait nor make it start again."""
    connection.ensure_connection()
    with closing(sqlite3.connect(copy)) as target:
        connection.connection.backup(target)
    return copy


def _postgres(folder: Path) -> Path:
    program = shutil.which("pg_dump")
    if program is None:
        raise NoBackup("pg_dump is missing; install PostgreSQL's client programs, or give --no-database")
    connection.ensure_connection()
    info = connection.connection.info
    dump = folder / "database.dump"
    # The password stays out of the process list: `dsn` is without it.
    done = subprocess.run(
        [program, "--format=custom", f"--file={dump}", f"--dbname={info.dsn}"],
        env=os.environ | {"PGPASSWORD": info.password},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        errors="replace",
    )
    if done.returncode:
        raise NoBackup(" ".join(done.stderr.split()) or f"pg_dump ended with {done.returncode}")
    return dump


def _fill(raw: IO[bytes], dump: Path | None, schema: dict[str, str]) -> Contents:
    contents = Contents()
    with tarfile.open(fileobj=raw, mode="w:gz", compresslevel=6, format=tarfile.PAX_FORMAT) as archive:
        _add_manifest(archive, dump, schema)
        if dump:
            _add(archive, dump.name, dump)
        key = settings.DATA_DIR / "secret-key"
        if key.exists():
            _add(archive, key.name, key)
        for path, file in _walk(contents):
            _add_file(archive, f"workspaces/{path}", file)
            contents.files += 1
    return contents


def _add_manifest(archive: tarfile.TarFile, dump: Path | None, schema: dict[str, str]) -> None:
    project = tomllib.loads((settings.BASE_DIR / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    manifest = {
        "format": 1,
        "version": project["version"],
        "made_at": timezone.now().isoformat(),
        "database": dump.name if dump else None,
        "schema": schema,
    }
    content = json.dumps(manifest, indent=1).encode()
    info = tarfile.TarInfo("manifest.json")
    info.size, info.mode, info.mtime = len(content), 0o600, int(timezone.now().timestamp())
    archive.addfile(info, io.BytesIO(content))


def _add(archive: tarfile.TarFile, name: str, path: Path) -> None:
    with path.open("rb") as file:
        _add_file(archive, name, file)


def _add_file(archive: tarfile.TarFile, name: str, file: IO[bytes]) -> None:
    found = os.fstat(file.fileno())
    info = tarfile.TarInfo(name)
    info.size, info.mode, info.mtime = found.st_size, stat.S_IMODE(found.st_mode) & 0o700, int(found.st_mtime)
    archive.addfile(info, cast("IO[bytes]", _Exact(file)))


class _Exact:
    """Gives the bytes the header promised: a file may grow or shrink while it is read."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file

    def read(self, size: int) -> bytes:
        return self._file.read(size).ljust(size, b"\0")


def _walk(contents: Contents) -> Iterator[tuple[str, IO[bytes]]]:
    """Path and open file of each plain file of the workspaces, by directory descriptors and never through a link."""
    # The folder itself may be a link, to one that several machines share.
    top = settings.WORKSPACES_DIR.resolve()
    if not top.exists():
        return
    for base, folders, files, folder in os.fwalk(top, onerror=_loud):
        folders.sort()
        for name in sorted(folders + files):
            with suppress(FileNotFoundError):
                kind = stat.S_IFMT(os.stat(name, dir_fd=folder, follow_symlinks=False).st_mode)
                if kind not in (stat.S_IFREG, stat.S_IFDIR):
                    contents.left_out += 1
                elif kind == stat.S_IFREG and not name.startswith(RESERVED):
                    with open(os.open(name, _READ, dir_fd=folder), "rb") as file:
                        yield os.path.relpath(os.path.join(base, name), top), file


def _loud(error: OSError) -> None:
    """What cannot be read must not be missing in silence; what was deleted meanwhile may."""
    if not isinstance(error, FileNotFoundError):
        raise error
