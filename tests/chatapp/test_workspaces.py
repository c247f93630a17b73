"""A person's files in a workspace: names, kinds, limits, and what they may not be."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pytest_django import Settings

from chatapp import workspaces
from chatapp.runtime.errors import InvalidField, NotFound, ToolFailed

PNG = b"\x89PNG\r\n\x1a\n" + b"\x00" * 20


@pytest.fixture(autouse=True)
def folder(settings: Settings, tmp_path: Path) -> Path:
    settings.WORKSPACES_DIR = tmp_path
    return tmp_path


def test_an_upload_gets_a_free_name_and_says_what_it_is() -> None:
    first = workspaces.upload("talk", "plan.txt", b"one")
    second = workspaces.upload("talk", "plan.txt", b"two!")
    assert first == {"path": "uploads/plan.txt", "name": "plan.txt", "size": 3, "media_type": "text/plain"}
    assert (second["path"], second["size"]) == ("uploads/plan (2).txt", 4)
    assert workspaces.fetch("talk", "uploads/plan.txt")[1] == b"one"


@pytest.mark.parametrize(
    ("name", "content", "kind"),
    [
        ("a.png", PNG, "image/png"),
        ("a.txt", PNG, "image/png"),
        ("a.png", b"<svg onload=alert(1)>", "application/octet-stream"),
        ("a.svg", b"<svg onload=alert(1)>", "application/octet-stream"),
        ("a.jpg", b"\xff\xd8\xff\xe0", "image/jpeg"),
        ("a.gif", b"GIF89a", "image/gif"),
        ("a.webp", b"RIFF\x00\x00\x00\x00WEBP", "image/webp"),
        ("a.pdf", b"%PDF-1.7", "application/pdf"),
        ("a.pdf", b"no", "application/octet-stream"),
        ("a.csv", b"a;b", "text/csv"),
        ("a", b"", "application/octet-stream"),
    ],
)
def test_a_picture_is_known_by_its_beginning_not_by_its_name(name: str, content: bytes, kind: str) -> None:
    assert workspaces.upload("talk", name, content)["media_type"] == kind


@pytest.mark.parametrize(
    ("name", "kept"),
    [
        ("../../etc/passwd", "passwd"),
        ("C:\\temp\\a.txt", "a.txt"),
        (".branchline-lock", "branchline-lock"),
        ("...", "file"),
        ("", "file"),
        ("a\x00b\n\u202etxt.exe", "abtxt.exe"),
        ("Bericht Q3 (neu).pdf", "Bericht Q3 (neu).pdf"),
        ("報告.txt", "報告.txt"),
        ("a<b>:c.txt", "a_b__c.txt"),
    ],
)
def test_a_name_is_made_harmless(name: str, kept: str) -> None:
    assert workspaces.plain_name(name) == kept


@given(st.text(max_size=300))
def test_any_name_becomes_one_that_can_be_written(name: str) -> None:
    kept = workspaces.plain_name(name)
    assert kept
    assert len(kept.encode()) <= workspaces.NAME_BYTES
    assert "/" not in kept
    assert not kept.startswith(".")
    assert workspaces.plain_name(kept) == kept


def test_a_file_that_is_too_large_and_one_too_many_are_refused(settings: Settings) -> None:
    settings.BRANCHLINE_FILE_BYTES, settings.BRANCHLINE_WORKSPACE_BYTES = 10, 15
    with pytest.raises(ToolFailed) as refused:
        workspaces.upload("talk", "a", b"x" * 11)
    assert refused.value.code == "too_large"
    workspaces.upload("talk", "a", b"x" * 10)
    with pytest.raises(ToolFailed) as refused:
        workspaces.upload("talk", "b", b"x" * 10)
    assert refused.value.code == "workspace_full"
    assert [entry.path for entry in workspaces.listed("talk")[0]] == ["uploads/a"]


def test_what_a_message_attaches_must_be_there(folder: Path) -> None:
    workspaces.upload("talk", "a.txt", b"1")
    os.symlink("/etc/passwd", folder / "talk" / "link")
    assert [file["path"] for file in workspaces.attachments("talk", ["uploads/a.txt", "uploads/a.txt"])] == [
        "uploads/a.txt"
    ]
    for path in ("uploads/none", "../talk/uploads/a.txt", "link", "uploads", ""):
        with pytest.raises(InvalidField):
            workspaces.attachments("talk", [path])
        with pytest.raises(NotFound):
            workspaces.fetch("talk", path)
        with pytest.raises(NotFound):
            workspaces.remove("talk", path)


def test_a_conversation_without_files_has_none_and_makes_no_folder(folder: Path) -> None:
    assert workspaces.listed("talk") == ([], False)
    assert list(folder.iterdir()) == []
