"""A backup of the running product, made in the middle of a reply, comes to life in another folder."""

from __future__ import annotations

import os
import subprocess
import tarfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.conftest import wait_until
from tests.product import FakeLLM, Product, pg_programs


@pytest.fixture
def llm() -> Iterator[FakeLLM]:
    running = FakeLLM()
    yield running
    running.stop()


def restored(archive: Path, folder: Path) -> Product:
    """As README says it. Its model is another, which answers at once."""
    folder.mkdir(mode=0o700)
    with tarfile.open(archive) as tar:
        tar.extractall(folder, filter="data")
    product = Product(folder)
    if "DATABASE_URL" in product.environment:
        restore = ["pg_restore", "--no-owner", "--exit-on-error", "-d", product.environment["DATABASE_URL"]]
        path = pg_programs(os.environ["PATH"])
        subprocess.run([*restore, folder / "database.dump"], check=True, env=os.environ | {"PATH": path})
    return product


def ends(product: Product, conversation: str) -> list[str]:
    return [event["reason"] for event in product.events(conversation) if event["type"] == "AGENT_END"]


async def test_a_backup_in_mid_reply_is_restored_elsewhere_and_goes_on(tmp_path: Path, llm: FakeLLM) -> None:
    (tmp_path / "old").mkdir()
    old = Product(tmp_path / "old", llm)
    old.environment["PATH"] = pg_programs(old.environment["PATH"])
    old.start()
    try:
        conversation = old.conversation()
        async with old.join(conversation) as client:
            await client.send("message.send", ref=1, text="[[n=100000 rate=50]] write")
            await client.until(lambda frame: frame["kind"] == "delta")
            workspace = tmp_path / "old" / "workspaces" / conversation
            workspace.mkdir(parents=True, exist_ok=True)
            (workspace / "a.txt").write_text("of alice")
            old.manage("backup", str(tmp_path / "b.tgz"))
            assert not ends(old, conversation)
    finally:
        old.kill()

    new = restored(tmp_path / "b.tgz", tmp_path / "new")
    new.token = old.token
    new.start()
    try:
        wait_until(lambda: ends(new, conversation), 30)
        assert ends(new, conversation) == ["MODEL_STOP"]
        files = new.api("GET", f"/conversations/{conversation}/files").json()["items"]
        assert [file["path"] for file in files] == ["a.txt"]
        assert new.api("POST", f"/conversations/{conversation}/messages", text="go on").status_code == 202
        wait_until(lambda: len(ends(new, conversation)) == 2, 30)
        events = new.events(conversation)
        assert [event["seq"] for event in events] == list(range(1, len(events) + 1))
    finally:
        new.stop()
