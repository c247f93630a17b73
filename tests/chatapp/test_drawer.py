"""The drawer of files and the model picker, as the server draws them."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from django.contrib.auth.models import User
from django.core.files.uploadedfile import SimpleUploadedFile
from django.test import Client
from pytest_django import Settings

from chatapp.models import Session
from chatapp.store.conversations import create_conversation

pytestmark = pytest.mark.django_db


@pytest.fixture
def page(client: Client, alice: User) -> Client:
    """A browser in which alice is logged in."""
    client.force_login(alice)
    return client


@pytest.fixture
def talk(alice: User) -> Session:
    return create_conversation(alice)


@pytest.fixture
def folder(settings: Settings, tmp_path: Path, talk: Session) -> Path:
    """The conversation's files; made when the first one is put there."""
    settings.WORKSPACES_DIR = tmp_path
    return tmp_path / talk.id


def put(folder: Path, name: str, age: int = 0, content: bytes = b"words") -> None:
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    os.utime(path, (1_750_000_000 - age, 1_750_000_000 - age))


def drawer(page: Client, talk: Session) -> str:
    return page.get(f"/c/{talk.id}/drawer/files/").content.decode()


def test_a_conversation_without_files_says_how_one_comes(page: Client, talk: Session, folder: Path) -> None:
    assert "Nothing here yet: attach a file or let the assistant write one." in drawer(page, talk)
    assert not folder.exists()


def test_the_newest_file_stands_first_with_its_folder_and_size(page: Client, talk: Session, folder: Path) -> None:
    put(folder, "old.txt", age=100)
    put(folder, "notes/new.txt", content=b"x" * 2048)
    shown = drawer(page, talk)
    assert shown.index("new.txt") < shown.index("old.txt")
    assert "<bdi>notes</bdi>" in shown
    assert "2.0\xa0KB" in shown
    assert f'href="/api/sessions/{talk.id}/files?path=notes%2Fnew.txt"' in shown


def test_the_button_counts_the_files(page: Client, talk: Session, folder: Path) -> None:
    button = '<span class="count" id="files-count" hidden>0</span>'
    assert button in page.get(f"/c/{talk.id}/").content.decode()
    put(folder, "a.txt")
    put(folder, "deep/b.txt")
    counted = '<span class="count" id="files-count">2</span>'
    assert counted in page.get(f"/c/{talk.id}/").content.decode()
    assert counted in drawer(page, talk)


def test_more_than_500_files_are_cut_with_a_line(page: Client, talk: Session, folder: Path) -> None:
    for number in range(501):
        put(folder, f"many/{number}.txt", age=number)
    shown = drawer(page, talk)
    assert shown.count('<li class="stored"') == 500
    assert "The 500 newest of 501 files." in shown
    assert "/500.txt" not in shown


def test_a_file_name_is_no_markup_and_hides_nothing(page: Client, talk: Session, folder: Path) -> None:
    put(folder, "<b>\u202egpj.exe")
    shown = drawer(page, talk)
    assert "<b>" not in shown
    assert "\u202e" not in shown
    assert "&lt;b&gt;⟨U+202E⟩gpj.exe" in shown


def test_a_row_keeps_its_id_when_others_come(page: Client, talk: Session, folder: Path) -> None:
    put(folder, "a.txt", age=5)
    row = drawer(page, talk).split('id="w-')[1].split('"')[0]
    put(folder, "b.txt")
    assert f'id="w-{row}"' in drawer(page, talk)


def test_files_are_uploaded_into_the_conversation(page: Client, talk: Session, folder: Path) -> None:
    files = [SimpleUploadedFile("a.txt", b"one"), SimpleUploadedFile("a.txt", b"two")]
    shown = page.post(f"/c/{talk.id}/drawer/files/", {"file": files}).content.decode()
    assert "a.txt" in shown
    assert "a (2).txt" in shown
    assert (folder / "uploads" / "a.txt").read_bytes() == b"one"


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("none.txt", b"", "“none.txt” is empty."),
        ("big.txt", b"x" * 2000, "“big.txt” is larger than"),
        ("\u202egpj.exe", b"", "“gpj.exe” is empty."),
    ],
)
def test_a_file_that_is_not_taken_is_refused_with_a_reason(
    page: Client, talk: Session, folder: Path, settings: Settings, name: str, content: bytes, said: str
) -> None:
    settings.BRANCHLINE_FILE_BYTES = 1024
    files = [SimpleUploadedFile(name, content), SimpleUploadedFile("good.txt", b"good")]
    shown = page.post(f"/c/{talk.id}/drawer/files/", {"file": files}).content.decode()
    assert said in shown
    assert [path.name for path in (folder / "uploads").iterdir()] == ["good.txt"]


def test_a_full_folder_says_so(page: Client, talk: Session, folder: Path, settings: Settings) -> None:
    settings.BRANCHLINE_WORKSPACE_BYTES = 1024
    put(folder, "much.bin", content=b"x" * 1024)
    files = [SimpleUploadedFile("one.txt", b"one more")]
    shown = page.post(f"/c/{talk.id}/drawer/files/", {"file": files}).content.decode()
    assert "There is no room for “one.txt”" in shown


def test_a_file_is_deleted(page: Client, talk: Session, folder: Path) -> None:
    put(folder, "notes/a b&c.txt")
    put(folder, "kept.txt")
    shown = page.delete(f"/c/{talk.id}/drawer/files/?path=notes%2Fa%20b%26c.txt").content.decode()
    assert "kept.txt" in shown
    assert not (folder / "notes" / "a b&c.txt").exists()
    again = page.delete(f"/c/{talk.id}/drawer/files/?path=notes%2Fa%20b%26c.txt").content.decode()
    assert "This file is no longer there." in again


@pytest.mark.parametrize("path", ["", "..", "../secret.txt", "/etc/passwd", "notes", "a\x00b"])
def test_nothing_outside_is_deleted(page: Client, talk: Session, folder: Path, path: str) -> None:
    put(folder, "notes/a.txt")
    put(folder.parent, "secret.txt")
    answer = page.delete(f"/c/{talk.id}/drawer/files/", query_params={"path": path})
    assert "This file is no longer there." in answer.content.decode()
    assert (folder.parent / "secret.txt").exists()
    assert (folder / "notes" / "a.txt").exists()


@pytest.fixture
def offered(settings: Settings) -> None:
    settings.BRANCHLINE_MODEL = "demo"
    settings.BRANCHLINE_MODELS = ["openai:gpt-5", "anthropic:claude"]
    settings.PROVIDERS = {"OPENAI_API_KEY": "any"}


def choose(page: Client, talk: Session, model: str) -> str:
    return page.post(f"/c/{talk.id}/model/", {"model": model}).content.decode()


def test_the_picker_offers_models_and_says_why_one_cannot_be_asked(page: Client, talk: Session, offered: None) -> None:
    shown = page.get(f"/c/{talk.id}/").content.decode()
    rows = {row.split('"')[0]: row.split("</li>")[0] for row in shown.split('name="model" value="')[1:]}
    assert list(rows) == ["demo", "openai:gpt-5", "anthropic:claude"]
    assert 'aria-pressed="true"' in rows["demo"]
    assert "aria-disabled" not in rows["openai:gpt-5"]
    assert 'aria-disabled="true"' in rows["anthropic:claude"]
    assert "ANTHROPIC_API_KEY" in rows["anthropic:claude"]


def test_a_chosen_model_is_kept_and_shown(page: Client, talk: Session, offered: None) -> None:
    shown = choose(page, talk, "openai:gpt-5")
    assert "main · openai:gpt-5" in shown
    assert "scripted answers</span><" not in shown
    talk.refresh_from_db()
    assert talk.model == "openai:gpt-5"
    assert "answers here are scripted" not in page.get(f"/c/{talk.id}/").content.decode()
    assert "answers here are scripted" in choose(page, talk, "demo")


@pytest.mark.parametrize(
    ("model", "said"),
    [("mistral:large", "not offered"), ("", "not offered"), ("anthropic:claude", "ANTHROPIC")],
)
def test_a_model_that_cannot_be_asked_is_refused(
    page: Client, talk: Session, offered: None, model: str, said: str
) -> None:
    shown = choose(page, talk, model)
    assert said in shown.split('hx-target="#picker-lost"')[1].split("</hx-partial>")[0]
    assert "main · demo" in shown
    talk.refresh_from_db()
    assert talk.model == ""


def test_changes_are_made_by_posts_only(page: Client, talk: Session) -> None:
    assert page.get(f"/c/{talk.id}/model/").status_code == 405
    assert page.put(f"/c/{talk.id}/drawer/files/").status_code == 405
