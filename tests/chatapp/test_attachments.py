"""The files that go with the next message, as the server draws and keeps them."""

from __future__ import annotations

from pathlib import Path

import pytest
from django.contrib.auth.models import User
from django.core.files.uploadedfile import SimpleUploadedFile
from django.test import Client
from django.utils import timezone
from pytest_django import Settings

from chatapp.models import InboxItem, Session
from chatapp.store.conversations import create_conversation

pytestmark = pytest.mark.django_db


@pytest.fixture
def page(client: Client, alice: User) -> Client:
    client.force_login(alice)
    return client


@pytest.fixture
def talk(alice: User) -> Session:
    return create_conversation(alice)


@pytest.fixture
def uploads(settings: Settings, tmp_path: Path, talk: Session) -> Path:
    settings.WORKSPACES_DIR = tmp_path
    return tmp_path / talk.id / "uploads"


def attach(page: Client, talk: Session, *files: SimpleUploadedFile, beside: int = 0) -> str:
    data = {"file": files, "attachments": [f"uploads/{n}" for n in range(beside)]}
    return page.post(f"/c/{talk.id}/attachments/", data).content.decode()


def test_a_file_comes_back_as_a_chip_that_names_it(page: Client, talk: Session, uploads: Path) -> None:
    shown = attach(page, talk, SimpleUploadedFile("a b.txt", b"words"))
    assert '<input type="hidden" name="attachments" value="uploads/a b.txt">' in shown
    assert f'hx-delete="/c/{talk.id}/attachments/?path=uploads%2Fa%20b.txt"' in shown
    assert (uploads / "a b.txt").read_bytes() == b"words"


def test_what_is_not_taken_is_said_beside_the_box(page: Client, talk: Session, uploads: Path) -> None:
    shown = attach(page, talk, SimpleUploadedFile("<b>.txt", b""), SimpleUploadedFile("good.txt", b"x"))
    assert shown.count("<li") == 1
    assert "is empty." in shown.split('hx-target="#problem"')[1]
    assert "<b>" not in shown


def test_ten_files_are_the_most(page: Client, talk: Session, uploads: Path) -> None:
    files = [SimpleUploadedFile(f"{n}.txt", b"x") for n in range(3)]
    shown = attach(page, talk, *files, beside=8)
    assert shown.count("<li") == 2
    assert "At most 10 files go with a message." in shown
    assert "<li" not in attach(page, talk, *files, beside=12)


def test_a_draft_is_drawn_again_with_the_files_that_are_still_there(page: Client, talk: Session, uploads: Path) -> None:
    attach(page, talk, SimpleUploadedFile("a.txt", b"x"))
    paths = {"path": ["uploads/a.txt", "uploads/gone.txt", "../../etc/passwd", "a\x00b"]}
    shown = page.get(f"/c/{talk.id}/attachments/", paths).content.decode()
    assert shown.count("<li") == 1
    assert 'value="uploads/a.txt"' in shown


def test_a_file_that_is_taken_away_is_deleted_unless_a_message_has_it(
    page: Client, talk: Session, uploads: Path, alice: User
) -> None:
    attach(page, talk, SimpleUploadedFile("a.txt", b"x"), SimpleUploadedFile("sent.txt", b"x"))
    InboxItem.objects.create(
        session=talk, user=alice, kind=InboxItem.Kind.MESSAGE, text="see", created_at=timezone.now(),
        attachments=[{"path": "uploads/sent.txt", "name": "sent.txt", "size": 1, "media_type": "text/plain"}],
    )  # fmt: skip
    for name in ("a.txt", "sent.txt", "a.txt", "../../x"):
        answer = page.delete(f"/c/{talk.id}/attachments/", query_params={"path": f"uploads/{name}"})
        assert (answer.status_code, answer.content) == (200, b"")
    assert [path.name for path in uploads.iterdir()] == ["sent.txt"]
