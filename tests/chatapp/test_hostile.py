"""Texts and addresses made to hurt."""

from __future__ import annotations

import base64
import json
import time
from pathlib import Path

import pytest
from django.contrib.auth.models import User
from django.test import Client
from pytest_django import Settings

from chatapp import markdown, workspaces
from chatapp.store.conversations import create_conversation


def test_addresses_that_look_like_many_cost_no_more_than_their_text() -> None:
    """6 s on the event loop: texts below 16 KiB are rendered there."""
    began = time.process_time()
    markdown.render("www.$1" * 1300)
    assert time.process_time() - began < 1


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("when", ["9999-12-31T23:59:59-23:59", "0001-01-01T00:00:00+14:00"])
def test_a_cursor_of_no_day_is_not_found(alice: User, when: str) -> None:
    talk = create_conversation(alice)
    cursor = base64.urlsafe_b64encode(json.dumps([True, when, "x"]).encode()).decode().rstrip("=")
    client = Client(raise_request_exception=False)
    client.force_login(alice)
    for address, status in (
        (f"/search/?q=a&after={cursor}", 404), (f"/c/{talk.pk}/list/older/?after={cursor}", 404),
        (f"/c/{talk.pk}/list/?until={cursor}", 404), (f"/api/conversations?cursor={cursor}", 422),
    ):  # fmt: skip
        assert client.get(address).status_code == status


@pytest.mark.django_db(transaction=True)
def test_a_list_of_files_is_not_filled_with_folders(alice: User, settings: Settings, tmp_path: Path) -> None:
    settings.WORKSPACES_DIR = tmp_path
    talk = create_conversation(alice)
    made = workspaces.upload(talk.pk, "a.txt", b"1")
    for number in range(600):
        (tmp_path / talk.pk / f"f{number}").mkdir()
    assert [entry.path for entry in workspaces.listed(talk.pk)[0]] == [made["path"]]


@pytest.mark.django_db(transaction=True)
def test_a_file_is_of_the_same_kind_in_the_list_as_when_it_came(
    alice: User, settings: Settings, tmp_path: Path
) -> None:
    settings.WORKSPACES_DIR = tmp_path
    talk = create_conversation(alice)
    made = workspaces.upload(talk.pk, "a.png", b"\x89PNG\r\n\x1a\n")
    client = Client()
    client.force_login(alice)
    listed = client.get(f"/api/conversations/{talk.pk}/files").json()["items"]
    assert listed == [made]
