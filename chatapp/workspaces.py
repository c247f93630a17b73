"""A conversation's files as its person handles them: upload, list, fetch, remove; what an attachment is."""

from __future__ import annotations

import mimetypes
import re
import unicodedata
from collections.abc import Sequence
from pathlib import PurePosixPath
from typing import TypedDict

from django.conf import settings

from chatapp.runtime.errors import InvalidField, NotFound, ToolFailed
from chatapp.runtime.toolsets.files import Entry, Workspace

UPLOADS = "uploads"
ATTACHMENTS_MOST = 10
NAME_BYTES = 120
LISTED_MOST = 500
ANY = "application/octet-stream"
# What begins so is so; a name alone makes no picture.
MAGIC = (
    (b"\x89PNG\r\n\x1a\n", "image/png"),
    (b"\xff\xd8\xff", "image/jpeg"),
    (b"GIF87a", "image/gif"),
    (b"GIF89a", "image/gif"),
    (b"%PDF-", "application/pdf"),
)
PICTURES = ("image/png", "image/jpeg", "image/gif", "image/webp")
# Nothing a file name here needs: control, format and private characters, separators, what shells and URLs read.
_UNWANTED = re.compile(r'[\x00-\x1f\x7f/\\\\:*?"<>|#%]')


class Attachment(TypedDict):
    """A file of the workspace that a message brings along. `size` in bytes."""

    path: str
    name: str
    size: int
    media_type: str


def upload(conversation_id: str, name: str, content: bytes) -> Attachment:
    """Store a person's file under a free name. Raises ToolFailed, code `too_large` or `workspace_full`."""
    path = _workspace(conversation_id).add(f"{UPLOADS}/{plain_name(name)}", content)
    return _attachment(path, len(content), content[:16])


def attachments(conversation_id: str, paths: Sequence[str]) -> list[Attachment]:
    """What a message's paths name; InvalidField for one that is not there."""
    if not paths:
        return []
    workspace = _workspace(conversation_id)
    try:
        return [_described(workspace, path) for path in dict.fromkeys(paths)]
    except ToolFailed as failed:
        raise InvalidField("attachments", failed.detail) from None


def listed(conversation_id: str, most: int = LISTED_MOST) -> tuple[list[Entry], bool]:
    """The files in order, and whether there are more than are listed."""
    if not (settings.WORKSPACES_DIR / conversation_id).is_dir():
        return [], False
    return _workspace(conversation_id).entries(".", most, folders=False)


def described(conversation_id: str) -> list[Attachment]:
    """The files that are listed, each with what it is."""
    entries, _more = listed(conversation_id)
    workspace = _workspace(conversation_id) if entries else None
    return [_described(workspace, entry.path) for entry in entries] if workspace else []


def fetch(conversation_id: str, path: str) -> tuple[Attachment, bytes]:
    try:
        content = _workspace(conversation_id).read(path)
    except ToolFailed:
        raise NotFound("No such file.") from None
    return _attachment(path, len(content), content[:16]), content


def remove(conversation_id: str, path: str) -> None:
    try:
        _workspace(conversation_id).delete(path)
    except ToolFailed:
        raise NotFound("No such file.") from None


def plain_name(name: str) -> str:
    """A file name that every system and every reader takes, with its ending kept."""
    base = unicodedata.normalize("NFC", name.replace("\\", "/").rsplit("/", 1)[-1])
    base = "".join(char for char in base if unicodedata.category(char) not in ("Cc", "Cf", "Co", "Cs", "Zl", "Zp"))
    base = " ".join(_UNWANTED.sub("_", base).split()).strip(" .") or "file"
    suffix = PurePosixPath(base).suffix[:20]
    stem = base[: len(base) - len(suffix)] if suffix else base
    while len((stem + suffix).encode()) > NAME_BYTES:
        stem = stem[:-1].rstrip(" .")
    return stem + suffix


def guess(name: str) -> str:
    """By the name alone; pictures and PDF are known by how they begin."""
    kind = mimetypes.guess_type(name)[0] or ANY
    return ANY if kind.startswith("image/") or kind == "application/pdf" else kind


def _workspace(conversation_id: str) -> Workspace:
    root = settings.WORKSPACES_DIR / conversation_id
    root.mkdir(mode=0o700, parents=True, exist_ok=True)
    return Workspace(root, settings.BRANCHLINE_FILE_BYTES, settings.BRANCHLINE_WORKSPACE_BYTES)


def _described(workspace: Workspace, path: str) -> Attachment:
    entry = workspace.entry(path)
    return _attachment(entry.path, entry.size, workspace.head(path, 16))


def _attachment(path: str, size: int, head: bytes) -> Attachment:
    name = path.rsplit("/", 1)[-1]
    return {"path": path, "name": name, "size": size, "media_type": _media_type(name, head)}


def _media_type(name: str, head: bytes) -> str:
    if head[:4] == b"RIFF" and head[8:12] == b"WEBP":
        return "image/webp"
    return next((kind for start, kind in MAGIC if head.startswith(start)), guess(name))
