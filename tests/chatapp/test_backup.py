"""`manage.py backup`: what is in the archive, what is not, and what stays when it cannot be made."""

from __future__ import annotations

import io
import json
import os
import resource
import signal
import sqlite3
import subprocess
import sys
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from django.conf import settings as django_settings
from django.contrib.auth.models import User
from django.core.management import CommandError, call_command
from django.db import connection
from django.db.migrations.recorder import MigrationRecorder

from chatapp import backups
from chatapp.runtime.toolsets.files import LOCK
from chatapp.store.conversations import create_conversation
from tests.product import pg_programs

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def data(tmp_path: Path, settings: Any, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A data folder with a key and one workspace."""
    folder = tmp_path / "data"
    (folder / "workspaces" / "c1" / "notes").mkdir(parents=True)
    (folder / "workspaces" / "c1" / "notes" / "a.txt").write_text("of alice")
    (folder / "secret-key").write_text("k" * 40)
    settings.DATA_DIR, settings.WORKSPACES_DIR = folder, folder / "workspaces"
    monkeypatch.setenv("PATH", pg_programs(os.environ["PATH"]))
    return folder


@pytest.fixture(autouse=True)
def terminated() -> Iterator[None]:
    """The command takes SIGTERM for its own process, which here is everybody's."""
    before = signal.getsignal(signal.SIGTERM)
    yield
    signal.signal(signal.SIGTERM, before)


def backup(target: Path, *options: str) -> str:
    out = io.StringIO()
    call_command("backup", str(target), *options, stdout=out)
    return out.getvalue()


def names(target: Path) -> list[str]:
    with tarfile.open(target) as archive:
        return archive.getnames()


def content(target: Path, name: str) -> bytes:
    with tarfile.open(target) as archive:
        file = archive.extractfile(name)
        assert file
        return file.read()


def manifest(target: Path) -> dict[str, Any]:
    return dict(json.loads(content(target, "manifest.json")))


def test_it_holds_the_database_the_key_the_workspaces_and_what_they_are(
    data: Path, tmp_path: Path, alice: User
) -> None:
    conversation = create_conversation(alice)
    target = tmp_path / "b.tgz"
    said = backup(target)
    database = "branchline.sqlite3" if connection.vendor == "sqlite" else "database.dump"
    assert names(target) == ["manifest.json", database, "secret-key", "workspaces/c1/notes/a.txt"]
    assert content(target, "workspaces/c1/notes/a.txt") == b"of alice"
    assert content(target, "secret-key") == b"k" * 40
    told = manifest(target)
    assert (told["format"], told["version"], told["database"]) == (1, "0.1.0", database)
    newest = max(path.stem for path in (django_settings.BASE_DIR / "chatapp" / "migrations").glob("0*.py"))
    assert told["schema"]["chatapp"] == newest
    assert {"auth", "sessions", "axes"} <= told["schema"].keys()
    assert "1 files" in said
    if connection.vendor == "sqlite":
        (tmp_path / "copy").write_bytes(content(target, database))
        with sqlite3.connect(tmp_path / "copy") as copy:
            assert copy.execute("SELECT id FROM chatapp_session").fetchall() == [(conversation.pk,)]


def test_only_its_owner_may_read_it_whatever_the_umask(data: Path, tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        backup(tmp_path / "b.tgz")
    finally:
        os.umask(before)
    assert (tmp_path / "b.tgz").stat().st_mode & 0o777 == 0o600
    with tarfile.open(tmp_path / "b.tgz") as archive:
        assert {member.mode & 0o077 for member in archive} == {0}


def test_it_follows_no_link_and_waits_for_no_pipe(data: Path, tmp_path: Path) -> None:
    workspace = data / "workspaces" / "c1"
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / "secret").write_text("secret")
    (workspace / "link").symlink_to(tmp_path / "outside" / "secret")
    (workspace / "folder").symlink_to(tmp_path / "outside")
    os.mkfifo(workspace / "pipe")
    (workspace / LOCK).touch()
    said = backup(tmp_path / "b.tgz")
    assert [name for name in names(tmp_path / "b.tgz") if "c1" in name] == ["workspaces/c1/notes/a.txt"]
    assert "3 links and special files left out" in said


def test_the_workspaces_folder_itself_may_be_a_link(data: Path, tmp_path: Path) -> None:
    (data / "workspaces").rename(tmp_path / "shared")
    (data / "workspaces").symlink_to(tmp_path / "shared")
    backup(tmp_path / "b.tgz")
    assert "workspaces/c1/notes/a.txt" in names(tmp_path / "b.tgz")


def test_it_takes_every_file_name(data: Path, tmp_path: Path) -> None:
    odd = [b"new\nline", b"\xff\xfe", "ä\u202e".encode(), b"n" * 255]
    for name in odd:
        Path(os.fsdecode(os.fsencode(data / "workspaces" / "c1") + b"/" + name)).write_bytes(name)
    backup(tmp_path / "b.tgz")
    with tarfile.open(tmp_path / "b.tgz") as archive:
        archive.extractall(tmp_path / "new", filter="data")
    assert sorted(os.listdir(os.fsencode(tmp_path / "new" / "workspaces" / "c1"))) == sorted([*odd, b"notes"])


@pytest.mark.parametrize("now", ["shorter", "longer", "gone"])
def test_a_file_that_changes_meanwhile_does_not_break_it(
    data: Path, tmp_path: Path, now: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, last = data / "workspaces" / "c1" / "b.txt", data / "workspaces" / "c1" / "z.txt"
    first.write_bytes(b"b" * 100_000)
    last.write_text("last")
    add = backups._Exact

    def changed(file: Any) -> Any:
        if os.fstat(file.fileno()).st_ino != first.stat().st_ino:
            return add(file)
        if now == "gone":
            last.unlink()
        else:
            first.write_bytes(b"b" * {"shorter": 10, "longer": 200_000}[now])
        return add(file)

    monkeypatch.setattr(backups, "_Exact", changed)
    backup(tmp_path / "b.tgz")
    assert len(content(tmp_path / "b.tgz", "workspaces/c1/b.txt")) == 100_000
    assert ("workspaces/c1/z.txt" in names(tmp_path / "b.tgz")) == (now != "gone")
    assert content(tmp_path / "b.tgz", "workspaces/c1/notes/a.txt") == b"of alice"


def test_it_overwrites_nothing(data: Path, tmp_path: Path) -> None:
    (tmp_path / "b.tgz").write_text("precious")
    with pytest.raises(CommandError, match="b.tgz exists already"):
        backup(tmp_path / "b.tgz")
    assert (tmp_path / "b.tgz").read_text() == "precious"


def test_an_empty_database_is_a_wrong_address_and_no_backup(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(MigrationRecorder, "applied_migrations", lambda self: {})
    with pytest.raises(CommandError, match="look at DATA_DIR and DATABASE_URL"):
        backup(tmp_path / "b.tgz")
    assert os.listdir(tmp_path) == ["data"]


def test_a_folder_that_is_missing_is_one_line(data: Path, tmp_path: Path) -> None:
    with pytest.raises(CommandError, match=r"No backup was made: .*b\.tgz: No such file or directory"):
        backup(tmp_path / "nowhere" / "b.tgz")


def test_without_the_database_the_rest_is_there(data: Path, tmp_path: Path) -> None:
    backup(tmp_path / "b.tgz", "--no-database")
    assert names(tmp_path / "b.tgz") == ["manifest.json", "secret-key", "workspaces/c1/notes/a.txt"]
    assert manifest(tmp_path / "b.tgz")["database"] is None


@pytest.mark.parametrize("limit", [100_000, 3_000_000])
def test_a_full_disk_is_one_line_and_leaves_nothing(
    data: Path, tmp_path: Path, limit: int, server_environment: dict[str, str]
) -> None:
    """A limit on the size of files stands for the disk: the database does not fit, or the archive does not."""
    (data / "workspaces" / "c1" / "noise").write_bytes(os.urandom(4_000_000))
    (tmp_path / "to").mkdir()
    done = subprocess.run(
        [sys.executable, str(django_settings.BASE_DIR / "manage.py"), "backup", str(tmp_path / "to" / "b.tgz")],
        env=server_environment | {"DATA_DIR": str(data)},
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit)),
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 1
    (line,) = done.stderr.splitlines()
    assert line.startswith("CommandError: No backup was made: ")
    assert os.listdir(tmp_path / "to") == []


def test_without_pg_dump_the_line_says_what_to_do(data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection, "vendor", "postgresql")
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(CommandError, match="install PostgreSQL's client programs, or give --no-database"):
        backup(tmp_path / "b.tgz")
    assert os.listdir(tmp_path) == ["data"]
