"""A workspace's files: what tools may do inside, and that nothing leads out."""

from __future__ import annotations

import os
import socket
import threading
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from chatapp.runtime.errors import ToolFailed
from chatapp.runtime.toolsets import files
from chatapp.runtime.toolsets.files import Workspace, split

SECRET = "the secret outside"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A workspace beside a secret, with links of every kind that lead to it."""
    (tmp_path / "secret.txt").write_text(SECRET)
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "secret.txt").write_text(SECRET)
    root = tmp_path / "workspace"
    (root / "sub").mkdir(parents=True)
    (root / "notes.md").write_text("one\ntwo\nthree\n")
    (root / "sub" / "deep.txt").write_text("Two deep\n")
    (root / "link.txt").symlink_to(tmp_path / "secret.txt")
    (root / "linked").symlink_to(tmp_path / "folder")
    (root / "sub" / "up").symlink_to("../..")
    os.link(tmp_path / "secret.txt", root / "hard.txt")
    os.mkfifo(root / "pipe")
    return root


def outside(root: Path) -> dict[str, str]:
    found = {}
    for path in root.parent.rglob("*"):
        if not path.is_relative_to(root) and path.is_file():
            found[str(path)] = path.read_text()
    return found


ESCAPES = [
    "../secret.txt",
    "sub/../../secret.txt",
    "/etc/passwd",
    "link.txt",
    "linked/secret.txt",
    "sub/up/secret.txt",
    "hard.txt",
    "pipe",
    "sub",
    "",
    ".",
    "notes.md/x",
    "a\x00b",
    "..\\secret.txt",
    "~/secret.txt",
    "\udc2e\udc2e/secret.txt",
    "a\nb",
    ".branchline-lock",
    "x" * 300,
    "/".join("a" * 40),
]


def space(root: Path, file_limit: int = 10_000_000, total_limit: int = 200_000_000) -> Workspace:
    return Workspace(root, file_limit, total_limit)


@pytest.mark.parametrize("path", ESCAPES)
def test_it_reads_writes_and_deletes_nothing_outside(root: Path, path: str) -> None:
    before = outside(root)
    workspace = space(root)
    with pytest.raises(ToolFailed):
        workspace.read(path)
    with pytest.raises(ToolFailed):
        workspace.write(path, b"gotcha")
    with pytest.raises(ToolFailed):
        workspace.edit(path, "secret", "gotcha")
    with pytest.raises(ToolFailed):
        workspace.delete(path)
    assert outside(root) == before


NAMES = st.sampled_from(
    [
        "..",
        ".",
        "",
        "sub",
        "linked",
        "link.txt",
        "up",
        "secret.txt",
        "hard.txt",
        "notes.md",
        "．．",
        "..\u200b",
        "%2e%2e",
        "…",
    ]
)


@settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(NAMES | st.text(max_size=5), max_size=6), st.sampled_from(["/", "\\", "//"]))
def test_it_stays_inside_whatever_the_path(root: Path, names: list[str], separator: str) -> None:
    before = outside(root)
    workspace = space(root)
    path = separator.join(names)
    for act in (
        lambda: workspace.read(path),
        lambda: workspace.write(path, b"gotcha"),
        lambda: workspace.grep("secret", path, 10)[0],
        lambda: workspace.entries(path, 10)[0],
        lambda: workspace.delete(path),
    ):
        with suppress(ToolFailed):
            assert SECRET not in str(act())
    assert outside(root) == before
    assert {path.name for path in root.parent.iterdir()} == {"secret.txt", "folder", "workspace"}


def test_it_shows_no_link_pipe_or_lock(root: Path) -> None:
    space(root).write("new.txt", b"x")
    found, more = space(root).entries(".", 100)
    assert [entry.path for entry in found] == ["sub", "new.txt", "notes.md", "sub/deep.txt"]
    assert not more


def test_it_lists_at_most_what_was_asked(root: Path) -> None:
    found, more = space(root).entries("", 1)
    assert len(found) == 1
    assert more


def test_it_finds_text_whatever_its_case(root: Path) -> None:
    hits, more = space(root).grep("TWO", ".", 10)
    assert [(hit.path, hit.line, hit.text) for hit in hits] == [("notes.md", 2, "two"), ("sub/deep.txt", 1, "Two deep")]
    assert not more
    assert [hit.path for hit in space(root).grep("two", "sub/deep.txt", 10)[0]] == ["sub/deep.txt"]


def test_it_takes_a_pattern_literally(root: Path) -> None:
    (root / "evil.txt").write_text("a" * 50_000 + "\n(a+)+$\n")
    hits, _ = space(root).grep("(a+)+$", ".", 10)
    assert [hit.line for hit in hits] == [2]


def test_it_stops_searching_in_time(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "GREP_SECONDS", -1.0)
    assert space(root).grep("two", ".", 10) == ([], True)


def test_it_creates_folders_and_replaces_whole_files(root: Path) -> None:
    workspace = space(root)
    workspace.write("a/b/c.txt", b"first")
    workspace.write("a/b/c.txt", b"second")
    assert workspace.read("a/b/c.txt") == b"second"
    assert [path.name for path in (root / "a" / "b").iterdir()] == ["c.txt"]


def test_it_changes_a_passage_that_stands_once(root: Path) -> None:
    workspace = space(root)
    workspace.edit("notes.md", "two", "2")
    assert workspace.read("notes.md") == b"one\n2\nthree\n"
    with pytest.raises(ToolFailed, match="3 times"):
        workspace.edit("notes.md", "e", "E")


def test_it_edits_no_file_that_is_not_text(root: Path) -> None:
    (root / "latin.txt").write_bytes(b"caf\xe9")
    with pytest.raises(ToolFailed, match="UTF-8"):
        space(root).edit("latin.txt", "caf", "tea")
    assert (root / "latin.txt").read_bytes() == b"caf\xe9"


def test_it_refuses_what_is_too_large(root: Path) -> None:
    with pytest.raises(ToolFailed, match="larger"):
        space(root, file_limit=10).write("new.txt", b"x" * 11)
    with pytest.raises(ToolFailed, match="larger"):
        space(root, file_limit=10).read("notes.md")


def test_it_refuses_what_overfills_the_workspace(root: Path) -> None:
    space(root).write("last.txt", b"x" * 10)
    workspace = space(root, total_limit=60)
    with pytest.raises(ToolFailed, match="full"):
        workspace.write("more.txt", b"x" * 10)
    workspace.write("last.txt", b"x")


def test_it_refuses_one_file_too_many(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    workspace = space(root)
    workspace.write("last.txt", b"x" * 10)
    monkeypatch.setattr(files, "MAX_FILES", 6)
    with pytest.raises(ToolFailed, match="full"):
        workspace.write("more.txt", b"x" * 10)
    workspace.write("last.txt", b"x")


def test_it_removes_what_a_killed_writer_left(root: Path) -> None:
    (root / "sub" / ".branchline-0123").write_text("half")
    space(root).write("new.txt", b"x")
    assert [path.name for path in (root / "sub").iterdir() if path.name.startswith(".")] == []


def test_it_counts_the_room_under_one_lock(root: Path) -> None:
    used = sum(path.lstat().st_size for path in root.rglob("*") if not path.is_dir())
    refused = []

    def write(number: int) -> None:
        try:
            space(root, total_limit=used + 100).write(f"{number}.txt", b"x" * 30)
        except ToolFailed:
            refused.append(number)

    threads = [threading.Thread(target=write, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(refused) == 5


def test_it_leaves_no_temporary_file_behind(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "replace", fail)
    with pytest.raises(ToolFailed, match="No space left"):
        space(root).write("notes.md", b"new")
    assert (root / "notes.md").read_text() == "one\ntwo\nthree\n"
    assert {path.name for path in root.iterdir() if path.name.startswith(".")} == {files.LOCK}


def test_it_opens_no_socket_or_device(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(root)
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind("door")
        with pytest.raises(ToolFailed, match="no ordinary file"):
            space(root).read("door")
    with pytest.raises(ToolFailed, match="no ordinary file"):
        space(Path("/dev")).read("zero")


def test_it_lists_names_that_can_be_stored(root: Path) -> None:
    (root / os.fsdecode(b"caf\xe9\n")).write_text("x")
    paths = [entry.path for entry in space(root).entries("", 100)[0]]
    assert "caf??" in paths


@pytest.mark.parametrize(
    ("path", "parts"), [("a/./b//c", ["a", "b", "c"]), (".", []), ("./a", ["a"]), ("ä b", ["ä b"])]
)
def test_it_reads_ordinary_paths(path: str, parts: list[str]) -> None:
    assert split(path) == parts
