"""Data of the first schema walks through every migration there is; then the pages, the API and new turns work."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator
from contextlib import closing, contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx
import pytest
from django.apps.registry import Apps
from django.contrib.auth.hashers import PBKDF2PasswordHasher
from django.db import connections
from django.db.migrations.executor import MigrationExecutor
from django.utils import timezone
from pytest_django import DjangoDbBlocker

from tests.conftest import wait_until
from tests.product import Product

FIRST = [("chatapp", "0001_initial")]
TALK, DUE, REPLY, ASKED = "1" * 32, "2" * 32, "3" * 32, "4" * 32
OLD_MAIN = {
    "agent_id": "main", "description": "Answers a new conversation.", "prompt": "You are the assistant.",
    "mode": "primary", "model": "", "steps": 25, "temperature": None, "top_p": None, "tools": None,
}  # fmt: skip
PASSWORD, TOKEN = "alice-has-a-password", "bl_of-the-first-version"
# As the first version wrote them, in the model library's form of that time.
MESSAGES: list[tuple[str, dict[str, Any]]] = [
    ("user", {"kind": "request", "parts": [{"part_kind": "user-prompt", "content": "an old question"}]}),
    ("assistant", {"kind": "response", "parts": [
        {"part_kind": "tool-call", "tool_name": "list_files", "args": "{}", "tool_call_id": "call_0"}]}),
    ("tool", {"kind": "request", "parts": [
        {"part_kind": "tool-return", "tool_name": "list_files", "content": "No files.", "tool_call_id": "call_0"}]}),
    ("assistant", {"kind": "response", "parts": [{"part_kind": "text", "content": "an old answer"}]}),
]  # fmt: skip
EVENTS: list[tuple[str, dict[str, Any]]] = [
    ("USER_MESSAGE", {"message_id": ASKED, "text": "an old question", "state": "running", "author": "user"}),
    ("AGENT_START", {"name": "main", "role": "assistant", "trigger": "user"}),
    ("MODEL_CALL_START", {"model": "demo"}),
    ("TOOL_CALL_START", {"tool_call_id": "t1", "tool_name": "list_files"}),
    ("TOOL_CALL_END", {"tool_call_id": "t1", "tool_name": "list_files", "args": {}}),
    ("MODEL_CALL_END", {"usage": {}, "time_ms": 5}),
    ("TOOL_RESULT_START", {"tool_call_id": "t1", "tool_name": "list_files"}),
    ("TOOL_RESULT_END", {"tool_call_id": "t1", "tool_name": "list_files", "state": "success", "output": "No files."}),
    ("MODEL_CALL_START", {"model": "demo"}),
    ("TEXT_BLOCK_START", {"block_id": "b1"}),
    ("TEXT_BLOCK_END", {"block_id": "b1", "text": "an old answer", "state": "complete"}),
    ("MODEL_CALL_END", {"usage": {}, "time_ms": 5}),
    ("AGENT_END", {"reason": "MODEL_STOP", "usage": {}}),
]


@contextmanager
def schema_of_the_first_version(product: Product) -> Iterator[Apps]:
    """The product's database as the first version made it, and that version's models, which write to it."""
    default = connections.databases["default"]
    url = product.environment.get("DATABASE_URL")
    name = urlsplit(url).path[1:] if url else str(product.folder / "branchline.sqlite3")
    options = {key: value for key, value in default["OPTIONS"].items() if key != "pool"}
    connections.databases["old"] = default | {"NAME": name, "OPTIONS": options}
    connection = connections["old"]
    try:
        state = MigrationExecutor(connection).migrate(FIRST)
        yield state.apps
    finally:
        connection.close()
        del connections["old"], connections.databases["old"]


def fill(apps: Apps) -> None:
    def rows(model: str) -> Any:
        app, _, name = model.partition(".")
        return apps.get_model(app, name)._base_manager.using("old")

    now = timezone.now()
    password = PBKDF2PasswordHasher().encode(PASSWORD, "salt")
    alice = rows("auth.User").create(username="alice", password=password, is_active=True, last_login=now)
    digest = hashlib.sha256(TOKEN.encode()).hexdigest()
    rows("chatapp.ApiToken").create(user=alice, name="old", prefix=TOKEN[:8], digest=digest, scopes=["read", "chat"])
    common = {"owner": alice, "agent_id": "main", "declaration": OLD_MAIN, "updated_at": now}
    rows("chatapp.Session").create(
        id=TALK,
        root_id=TALK,
        title="An old talk",
        step=2,
        log_version=len(MESSAGES),
        next_seq=len(EVENTS) + 1,
        **common,
    )
    mail = {"kind": "message", "user": alice, "created_at": now}
    rows("chatapp.InboxItem").create(
        id=ASKED,
        session_id=TALK,
        state="taken",
        announced="running",
        started=True,
        text="an old question",
        seq=1,
        **mail,
    )
    for position, (role, payload) in enumerate(MESSAGES):
        rows("chatapp.Message").create(
            id=ASKED if position == 0 else f"m{position}", session_id=TALK, position=position, role=role,
            sender="user" if role == "user" else "agent", payload=payload, reply_id=REPLY, seq=position + 1,
            text=str(payload["parts"][0].get("content", "")),
        )  # fmt: skip
    for seq, (kind, data) in enumerate(EVENTS, 1):
        rows("chatapp.Event").create(
            conversation_id=TALK, session_id=TALK, seq=seq, type=kind, agent_id="main", created_at=now, data=data,
            reply_id="" if kind == "USER_MESSAGE" else REPLY,
        )  # fmt: skip
    rows("chatapp.ToolCall").create(
        id="t1", session_id=TALK, reply_id=REPLY, step=1, index=0, provider_call_id="call_0", name="list_files",
        args={}, status="done", state="success", result="No files.", joined=True,
    )  # fmt: skip
    # A message that nobody had taken when the old version was stopped.
    rows("chatapp.Session").create(
        id=DUE, root_id=DUE, status="queued", wake_at=now - timedelta(hours=1), next_seq=2, **common
    )
    rows("chatapp.InboxItem").create(
        id="5" * 32, session_id=DUE, state="queued", announced="running", started=True, text="left over", seq=1, **mail
    )
    rows("chatapp.Event").create(
        conversation_id=DUE, session_id=DUE, seq=1, type="USER_MESSAGE", agent_id="main", created_at=now,
        data={"message_id": "5" * 32, "text": "left over", "state": "running", "author": "user"},
    )  # fmt: skip


@pytest.fixture
def product(tmp_path: Path, django_db_blocker: DjangoDbBlocker) -> Iterator[Product]:
    """Started by this version on the data of the first."""
    made = Product(tmp_path)
    with django_db_blocker.unblock(), schema_of_the_first_version(made) as apps:
        fill(apps)
    made.token = TOKEN
    made.start()
    yield made
    made.stop()


def log_in(product: Product) -> httpx.Client:
    browser = httpx.Client(base_url=product.url, follow_redirects=True, timeout=20)
    token = re.search(r'name="csrfmiddlewaretoken" value="(\w+)"', browser.get("/accounts/login/").text)
    assert token
    form = {"username": "alice", "password": PASSWORD, "csrfmiddlewaretoken": token[1]}
    assert browser.post("/accounts/login/", data=form).status_code == 200
    return browser


def answers(product: Product, conversation: str) -> list[str]:
    return [event["reason"] for event in product.events(conversation) if event["type"] == "AGENT_END"]


def test_data_of_the_first_schema_is_read_and_goes_on(product: Product) -> None:
    wait_until(lambda: answers(product, DUE) == ["MODEL_STOP"], 20)

    assert [event["type"] for event in product.events(TALK)] == [kind for kind, _ in EVENTS]
    told = product.api("GET", f"/sessions/{TALK}/messages").json()["items"]
    assert [row["role"] for row in told] == [role for role, _ in MESSAGES]
    found = product.api("GET", "/search?q=question").json()["items"]
    assert [row["conversation_id"] for row in found] == [TALK]

    with closing(log_in(product)) as browser:
        page = browser.get(f"/c/{TALK}/")
        assert page.status_code == 200
        assert "an old question" in page.text
        assert "an old answer" in page.text
        assert "An old talk" in browser.get(f"/c/{DUE}/list/").text
        assert browser.get("/settings/").status_code == 200

    assert product.api("POST", f"/conversations/{TALK}/messages", text="a new question").status_code == 202
    wait_until(lambda: answers(product, TALK) == ["MODEL_STOP"] * 2, 20)
    seqs = [event["seq"] for event in product.events(TALK)]
    assert seqs == list(range(1, len(seqs) + 1))
