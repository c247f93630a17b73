"""Files by the API: upload, list, download, remove, and messages that bring them along."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.core.files.uploadedfile import SimpleUploadedFile
from django.test import AsyncClient, Client
from pytest_django import Settings

from chatapp.models import Session
from chatapp.store import db
from tests.chatapp.test_workspaces import PNG
from tests.gateway.api_client import Api, check_answer
from tests.gateway.replies import conversation_of

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture(autouse=True)
def folder(settings: Settings, tmp_path: Path) -> Path:
    settings.WORKSPACES_DIR = tmp_path
    return tmp_path


@pytest.fixture
def talk(alice: User) -> Session:
    return conversation_of(alice)


async def upload(api: Api, talk: Session, name: str, content: bytes) -> Any:
    path = f"/api/conversations/{talk.pk}/files"
    file = SimpleUploadedFile(name, content)
    response = await api.client.post(path, {"file": file}, headers=api.headers)
    check_answer("POST", path, response)  # type: ignore[arg-type]
    return response


async def test_a_file_goes_up_is_listed_comes_down_and_goes(api: Api, talk: Session) -> None:
    made = (await upload(api, talk, "a b.png", PNG)).json()
    assert made == {"path": "uploads/a b.png", "name": "a b.png", "size": len(PNG), "media_type": "image/png"}
    listed = await api.get(f"conversations/{talk.pk}/files")
    assert [file["path"] for file in listed.data["items"]] == ["uploads/a b.png"]
    got: Any = await api.client.get(f"/api/sessions/{talk.pk}/files", {"path": made["path"]}, headers=api.headers)
    assert got.content == PNG
    assert got["Content-Disposition"] == 'attachment; filename="a b.png"'
    assert got["Content-Type"] == "application/octet-stream"
    assert got["X-Content-Type-Options"] == "nosniff"
    gone = await api.call("DELETE", f"conversations/{talk.pk}/files", query={"path": made["path"]})
    assert gone.status_code == 204
    again = await api.call("GET", f"sessions/{talk.pk}/files", query={"path": made["path"]})
    assert again.status_code == 404


async def test_a_subagents_files_are_found_in_its_own_folder(api: Api, talk: Session, folder: Path) -> None:
    child = await db.run(lambda: Session.objects.create(
        owner=talk.owner, root=talk, parent=talk, agent_id="x", depth=1, source="main/x", updated_at=talk.updated_at,
        workspace="agents/x/1",
    ))  # fmt: skip
    own = folder / talk.pk / "agents" / "x" / "1"
    await asyncio.to_thread(own.mkdir, parents=True)
    (own / "a.txt").write_text("its own")
    (folder / talk.pk / "b.txt").write_text("its parent's")
    got: Any = await api.client.get(f"/api/sessions/{child.pk}/files", {"path": "a.txt"}, headers=api.headers)
    assert got.content == b"its own"
    for outside in ("b.txt", "../../../b.txt"):
        assert (await api.call("GET", f"sessions/{child.pk}/files", query={"path": outside})).status_code == 404


@pytest.mark.parametrize(("name", "content"), [("a.svg", b"<svg onload=alert(1)>"), ("a.png", b"<script>")])
async def test_only_a_real_picture_is_ever_shown_inline(api: Api, talk: Session, name: str, content: bytes) -> None:
    for file, kind in ((name, "application/octet-stream"), ("real.png", "image/png")):
        made = (await upload(api, talk, file, content if file == name else PNG)).json()
        query = {"path": made["path"], "inline": "1"}
        got: Any = await api.client.get(f"/api/sessions/{talk.pk}/files", query, headers=api.headers)
        assert got["Content-Type"] == kind
        assert got["Content-Disposition"].startswith("inline" if kind == "image/png" else "attachment")


async def test_a_page_uploads_with_its_cookie_and_the_csrf_token(alice: User, talk: Session) -> None:
    browser = Client(enforce_csrf_checks=True)
    await db.run(browser.force_login, alice)
    client = AsyncClient(enforce_csrf_checks=True)
    client.cookies = browser.cookies
    refused = await upload(Api(client=client), talk, "a.txt", b"1")
    assert (refused.status_code, refused.json()["code"]) == (403, "csrf")
    token = "t" * 32
    client.cookies["csrftoken"] = token
    big = Api(client=client)
    big.headers = {"x-csrftoken": token}
    # Larger than what is kept of a body in memory.
    assert (await upload(big, talk, "a.txt", b"1" * 5_000_000)).status_code == 201


async def test_a_form_where_json_belongs_is_refused_not_broken(alice: User, talk: Session) -> None:
    client = AsyncClient()
    await client.aforce_login(alice)
    response: Any = await client.post("/api/conversations", {"title": "x"})
    assert (response.status_code, response.json()["code"]) == (400, "not_json")


async def test_what_is_too_large_or_one_too_many_is_refused(api: Api, talk: Session, settings: Settings) -> None:
    settings.BRANCHLINE_FILE_BYTES, settings.BRANCHLINE_WORKSPACE_BYTES = 10, 15
    large = await upload(api, talk, "a", b"x" * 11)
    assert (large.status_code, large.json()["code"]) == (413, "too_large")
    assert (await upload(api, talk, "a", b"x" * 10)).status_code == 201
    full = await upload(api, talk, "b", b"x" * 10)
    assert (full.status_code, full.json()["code"]) == (409, "workspace_full")


@pytest.mark.parametrize("wrong", [["uploads/none"], ["../x"], "uploads/a", [1], ["uploads/a.txt"] * 11, [["a"]]])
async def test_a_wrong_attachment_refuses_the_message(api: Api, talk: Session, wrong: Any) -> None:
    await upload(api, talk, "a.txt", b"1")
    refused = await api.post(f"conversations/{talk.pk}/messages", {"text": "look", "attachments": wrong})
    assert refused.status_code == 422
    assert refused.data["errors"][0]["field"] == "attachments"
    assert (await api.get(f"conversations/{talk.pk}/events")).data["items"] == []


async def test_a_message_tells_its_attachments(api: Api, talk: Session) -> None:
    made = (await upload(api, talk, "a.txt", b"1")).json()
    sent = await api.post(f"conversations/{talk.pk}/messages", {"text": "look", "attachments": [made["path"]]})
    assert sent.status_code == 202
    event = (await api.get(f"conversations/{talk.pk}/events")).data["items"][0]
    assert event["attachments"] == [made]
