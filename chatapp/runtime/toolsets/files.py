"""A workspace's files, walked by directory descriptors without following links: nothing outside can be reached."""

from __future__ import annotations

import errno
import fcntl
import os
import re
import shutil
import stat
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Self
from uuid import uuid4

from chatapp.runtime.errors import ToolFailed
from chatapp.runtime.tools import ToolContext

MAX_FILES = 10_000
MAX_DEPTH = 32
GREP_SECONDS = 5.0
RESERVED = ".branchline-"
LOCK = RESERVED + "lock"

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW
# O_NONBLOCK: opening a pipe must not wait for its other end.
_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY
_WRITE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW


@dataclass(frozen=True)
class Entry:
    path: str
    size: int
    is_folder: bool = False
    changed: float = 0.0


@dataclass(frozen=True)
class Hit:
    path: str
    line: int
    text: str


class Workspace:
    """`root` exists. Paths are relative, with `/`; every refusal is a ToolFailed that names the path."""

    def __init__(self, root: Path, file_limit: int, total_limit: int) -> None:
        self._root = root
        self._file_limit = file_limit
        self._total_limit = total_limit

    @classmethod
    def of(cls, context: ToolContext) -> Self:
        """The workspace of whoever calls a tool."""
        return cls(context.workspace, context.file_limit, context.workspace_limit)

    def read(self, path: str) -> bytes:
        parts = split(path)
        with self._folder(parts[:-1], path) as folder:
            return _read(folder, _name(parts, path), path, self._file_limit)

    def head(self, path: str, size: int) -> bytes:
        """How a file begins."""
        parts = split(path)
        with self._folder(parts[:-1], path) as folder:
            return _read(folder, _name(parts, path), path, self._file_limit, size)

    def entry(self, path: str) -> Entry:
        """A file's size and time, without reading it."""
        parts = split(path)
        with self._folder(parts[:-1], path) as folder:
            info = _info(folder, _name(parts, path))
        _require_plain(info, path)
        assert info is not None
        return Entry("/".join(parts), info.st_size, changed=info.st_mtime)

    def entries(self, path: str, most: int, *, folders: bool = True) -> tuple[list[Entry], bool]:
        """What is below a folder, in order, with or without the folders; and whether there is more than `most`."""
        found: list[Entry] = []
        with self._folder(split(path), path) as top:
            for base, below, files, folder in os.fwalk(".", dir_fd=top):
                below.sort()
                rows = [(name, True) for name in below if folders] + [(name, False) for name in sorted(files)]
                for name, is_folder in rows:
                    info = _info(folder, name)
                    if name.startswith(RESERVED) or info is None:
                        continue
                    if not (stat.S_ISDIR(info.st_mode) if is_folder else _is_plain(info)):
                        continue
                    if len(found) == most:
                        return found, True
                    found.append(Entry(_joined(path, base, name), info.st_size, is_folder, info.st_mtime))
        return found, False

    def grep(self, text: str, path: str, most: int) -> tuple[list[Hit], bool]:
        """Lines that contain `text`, whatever its case, and whether the search was cut short by number or time."""
        until = time.monotonic() + GREP_SECONDS
        wanted = text.casefold()
        hits: list[Hit] = []
        for name in self._files(path):
            try:
                content = self.read(name)
            except ToolFailed:
                continue
            for number, line in enumerate(() if is_binary(content) else lines(content), 1):
                if time.monotonic() > until or len(hits) == most:
                    return hits, True
                if wanted in line.casefold():
                    hits.append(Hit(name, number, line))
        return hits, False

    def write(self, path: str, content: bytes) -> None:
        """Whole or not at all: a temporary file beside it, then a rename."""
        with self._locked():
            self._replace(path, content)

    def add(self, path: str, content: bytes) -> str:
        """Write under this name, or under `name (2).txt` and so on where it is taken; the path it got."""
        with self._locked():
            free = self._free(path)
            self._replace(free, content)
        return free

    def edit(self, path: str, old: str, new: str) -> None:
        """Replaces the one place where `old` stands."""
        with self._locked():
            try:
                text = self.read(path).decode()
            except UnicodeDecodeError:
                raise ToolFailed(f"{path} is no UTF-8 text, so it cannot be edited.") from None
            if (count := text.count(old)) != 1:
                raise ToolFailed(f"The old text must stand once in {path}; it stands there {count} times.")
            self._replace(path, text.replace(old, new).encode())

    def delete(self, path: str) -> None:
        parts = split(path)
        with self._locked(), self._folder(parts[:-1], path) as folder:
            name = _name(parts, path)
            _require_plain(_info(folder, name), path)
            with _told(path):
                os.unlink(name, dir_fd=folder)

    def _free(self, path: str) -> str:
        parts = split(path)
        name = _name(parts, path)
        stem, dot, suffix = name.rpartition(".") if "." in name[1:] else (name, "", "")
        with self._folder(parts[:-1], path, create=True) as folder:
            number = 1
            while _info(folder, name) is not None:
                number += 1
                name = f"{stem} ({number}){dot}{suffix}"
        return "/".join([*parts[:-1], name])

    def _replace(self, path: str, content: bytes) -> None:
        parts = split(path)
        name = _name(parts, path)
        if len(content) > self._file_limit:
            raise ToolFailed(f"{path} would be larger than {self._file_limit:,} bytes.", code="too_large")
        with self._folder(parts[:-1], path, create=True) as folder:
            before = _info(folder, name)
            if before is not None:
                _require_plain(before, path)
            self._require_room(len(content) - (before.st_size if before else 0), new=before is None)
            temporary = f"{RESERVED}{uuid4().hex}"
            with _told(path):
                try:
                    with open(os.open(temporary, _WRITE, 0o600, dir_fd=folder), "wb") as file:
                        file.write(content)
                    os.replace(temporary, name, src_dir_fd=folder, dst_dir_fd=folder)
                except BaseException:
                    _discard(temporary, folder)
                    raise

    def _files(self, path: str) -> list[str]:
        parts = split(path)
        if parts:
            with self._folder(parts[:-1], path) as folder:
                info = _info(folder, parts[-1])
            if info is not None and stat.S_ISREG(info.st_mode):
                return ["/".join(parts)]
        return [entry.path for entry in self.entries(path, MAX_FILES)[0] if not entry.is_folder]

    def _require_room(self, more: int, *, new: bool) -> None:
        """Called under the lock, so a temporary file seen here is what a killed writer left."""
        total, count = more, int(new)
        for _, _, names, folder in os.fwalk(self._root):
            for name in names:
                if name.startswith(RESERVED) and name != LOCK:
                    _discard(name, folder)
                elif info := _info(folder, name):
                    total += info.st_size
                    count += 1
        if (more > 0 and total > self._total_limit) or (new and count > MAX_FILES):
            full = f"The workspace is full: at most {self._total_limit:,} bytes in {MAX_FILES:,} files."
            raise ToolFailed(full, code="workspace_full")

    @contextmanager
    def _folder(self, parts: Sequence[str], path: str, *, create: bool = False) -> Iterator[int]:
        """A descriptor of the folder. Each step is opened below the one before, never by a whole path."""
        with _told(path):
            folder = os.open(self._root, os.O_RDONLY | os.O_DIRECTORY)
        try:
            for part in parts:
                with _told(path):
                    if create and _info(folder, part) is None:
                        os.mkdir(part, 0o700, dir_fd=folder)
                    below = os.open(part, _FOLDER, dir_fd=folder)
                os.close(folder)
                folder = below
            yield folder
        finally:
            os.close(folder)

    @contextmanager
    def _locked(self) -> Iterator[None]:
        """One writer at a time, also of another process: the quota is counted and used under one lock."""
        with _told(LOCK), open(os.open(self._root / LOCK, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600), "wb") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield


def make(folder: Path, model: Path | None = None) -> None:
    """The folder of a workspace, where there is none yet: empty, or a copy of a declaration's own files. What is no
    plain file or folder is left out."""
    if folder.is_dir():
        return
    folder.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    if model is None:
        folder.mkdir(mode=0o700, exist_ok=True)
        return
    draft = folder.with_name(f"{RESERVED}{uuid4().hex}")
    shutil.copytree(model, draft, ignore=_not_copied)
    draft.chmod(0o700)
    try:
        # In one step: who comes at the same time finds all of it, or makes it.
        draft.rename(folder)
    except OSError:
        shutil.rmtree(draft, ignore_errors=True)


def _not_copied(folder: str, names: list[str]) -> list[str]:
    odd = [name for name in names if not _is_ordinary(Path(folder, name).lstat())]
    return [*odd, "AGENTS.md"]


def _is_ordinary(info: os.stat_result) -> bool:
    return stat.S_ISREG(info.st_mode) or stat.S_ISDIR(info.st_mode)


def split(path: str) -> list[str]:
    """The names a path goes through. Raises ToolFailed for what could lead out or name nothing."""
    shown = ascii(path[:100])
    if any(ord(char) < 32 or 0xD800 <= ord(char) <= 0xDFFF for char in path):
        raise ToolFailed(f"The path {shown} has characters that no file name here has.")
    if path.startswith(("/", "~")) or "\\" in path:
        raise ToolFailed(f"The path {shown} must be relative to the workspace, with / between names.")
    parts = [part for part in path.split("/") if part not in ("", ".")]
    if ".." in parts:
        raise ToolFailed(f"The path {shown} must not contain '..'.")
    if len(parts) > MAX_DEPTH or any(part.startswith(RESERVED) for part in parts):
        raise ToolFailed(f"The path {shown} is not available.")
    return parts


def is_binary(content: bytes) -> bool:
    return b"\x00" in content[:8192]


def lines(content: bytes) -> list[str]:
    """Split at CR, LF and CRLF only; NUL and what is no UTF-8 are shown replaced."""
    text = content.decode("utf-8-sig", "replace").replace("\x00", "\ufffd")
    found = re.split(r"\r\n|\n|\r", text)
    return found[:-1] if found[-1] == "" else found


def _read(folder: int, name: str, path: str, limit: int, most: int | None = None) -> bytes:
    # Looked at first, because opening a device can already do something; then again, because it may have changed.
    _require_plain(_info(folder, name), path)
    with _told(path), open(os.open(name, _READ, dir_fd=folder), "rb") as file:
        info = os.fstat(file.fileno())
        _require_plain(info, path)
        content = file.read(limit + 1 if most is None else most)
    if len(content) > limit:
        raise ToolFailed(f"{path} is larger than {limit:,} bytes.")
    return content


def _name(parts: Sequence[str], path: str) -> str:
    if not parts:
        raise ToolFailed(f"{ascii(path[:100])} names no file.")
    return parts[-1]


def _info(folder: int, name: str) -> os.stat_result | None:
    try:
        return os.stat(name, dir_fd=folder, follow_symlinks=False)
    except OSError:
        return None


def _is_plain(info: os.stat_result) -> bool:
    """A second link could be a file from outside."""
    return stat.S_ISREG(info.st_mode) and info.st_nlink == 1


def _require_plain(info: os.stat_result | None, path: str) -> None:
    if info is None:
        raise ToolFailed(f"There is no file {path}.")
    if stat.S_ISDIR(info.st_mode):
        raise ToolFailed(f"{path} is a folder.")
    if not _is_plain(info):
        raise ToolFailed(f"{path} is a link or no ordinary file, so it is not touched.")


def _joined(path: str, base: str, name: str) -> str:
    """As text that can be stored; a name that this changes cannot be reached by the tools anyway."""
    joined = "/".join([*split(path), *[part for part in base.split("/") if part not in ("", ".")], name])
    return re.sub(r"[\x00-\x1f]", "?", joined).encode(errors="replace").decode()


def _discard(name: str, folder: int) -> None:
    try:
        os.unlink(name, dir_fd=folder)
    except FileNotFoundError:
        return


@contextmanager
def _told(path: str) -> Iterator[None]:
    """The system's refusals in words; a link in the middle of a path is one of them."""
    try:
        yield
    except FileNotFoundError:
        raise ToolFailed(f"There is no {path}.") from None
    except NotADirectoryError:
        raise ToolFailed(f"{path} does not lead through folders.") from None
    except OSError as error:
        if error.errno in (errno.ELOOP, errno.EMLINK):
            raise ToolFailed(f"{path} leads through a link, which is not followed.") from None
        raise ToolFailed(f"{path}: {error.strerror or 'the system refused'}.") from None
