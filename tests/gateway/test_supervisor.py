"""`manage.py up` as its operator meets it: starts, restarts, refuses, and leaves nothing running."""

from __future__ import annotations

import asyncio
import http.client
import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import psutil
import pytest
import websockets
from django.conf import settings

from gateway import valkey
from gateway.supervisor import STOP_GRACE, check_port, only_one
from gateway.valkey import CannotStart
from tests.conftest import wait_until
from tests.product import Product, free_port

MANAGE = [sys.executable, str(settings.BASE_DIR / "manage.py")]


def environment(data: Path, **more: str) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if name in {"PATH", "HOME", "VIRTUAL_ENV"}}
    return kept | {"DATA_DIR": str(data), "BRANCHLINE_MODEL": "demo"} | more


def answer(port: int, path: str = "/healthz") -> tuple[int, str]:
    client = http.client.HTTPConnection("127.0.0.1", port, timeout=5)
    try:
        client.request("GET", path)
        response = client.getresponse()
        return response.status, response.read().decode()
    except (OSError, http.client.HTTPException):
        return 0, ""
    finally:
        client.close()


class Running:
    """One `up` and what it says."""

    def __init__(self, data: Path, *options: str, **more: str) -> None:
        self.port = free_port()
        data.mkdir(mode=0o700, parents=True, exist_ok=True)
        self.log = data / f"{self.port}.log"
        with self.log.open("w") as out:
            self.process = subprocess.Popen(
                [*MANAGE, "up", "--port", str(self.port), *options],
                env=environment(data, **more), stdout=out, stderr=out,
            )  # fmt: skip

    def said(self, words: str) -> re.Match[str] | None:
        return re.search(words, self.log.read_text())

    def ready(self) -> None:
        wait_until(lambda: answer(self.port, "/readyz")[0] == 200, 60)

    def children(self) -> dict[str, psutil.Process]:
        kinds = {"valkey-server": "valkey", "serve": "server", "rqworker": "worker"}
        named: dict[str, psutil.Process] = {}
        for child in psutil.Process(self.process.pid).children():
            with suppress(psutil.ZombieProcess, psutil.NoSuchProcess):
                command = " ".join(child.cmdline())
                named |= {kind: child for word, kind in kinds.items() if word in command}
        return named


@contextmanager
def up(data: Path, *options: str, **more: str) -> Iterator[Running]:
    running = Running(data, *options, **more)
    try:
        yield running
    finally:
        running.process.terminate()
        running.process.wait(30)


def gone(processes: list[psutil.Process]) -> bool:
    return not any(one.is_running() and one.status() != psutil.STATUS_ZOMBIE for one in processes)


def test_it_starts_restarts_what_dies_and_leaves_nothing_running(tmp_path: Path) -> None:
    data = tmp_path / "data"
    with up(data, "--workers", "1") as running:
        running.ready()
        wait_until(lambda: running.said("Log in once as admin"))
        second = subprocess.run(
            [*MANAGE, "up", "--port", str(free_port())], env=environment(data), capture_output=True, text=True
        )
        assert second.returncode == 1
        assert re.fullmatch(r"CommandError: .*already runs on .*\(process \d+\)\n", second.stderr)
        before = running.children()
        assert set(before) == {"valkey", "server", "worker"}
        for child in before.values():
            child.kill()
        wait_until(lambda: set(running.children()) == set(before) and gone(list(before.values())), 30)
        running.ready()
        for name in ("Valkey", "server", "worker 1"):
            assert running.said(rf"{name} ended \(signal SIGKILL\), starting it again")
        left = list(running.children().values())
        began = time.monotonic()
        running.process.send_signal(signal.SIGINT)
        assert running.process.wait(30) == 0
        assert time.monotonic() - began < 10
        wait_until(lambda: gone(left))


async def test_a_stop_in_mid_reply_calls_the_viewers_back_and_the_next_start_goes_on(tmp_path: Path) -> None:
    product = Product(tmp_path)
    try:
        await asyncio.to_thread(product.start)
        conversation = product.conversation()
        async with product.join(conversation) as client:
            await client.send("message.send", ref=1, text="slow 5000")
            await client.until(lambda frame: frame["kind"] == "delta")
            began = time.monotonic()
            stopping = asyncio.create_task(asyncio.to_thread(product.stop))
            with pytest.raises(websockets.ConnectionClosed) as closed:
                await client.until(lambda frame: False)
            await stopping
            assert time.monotonic() - began < STOP_GRACE
        assert closed.value.rcvd is not None
        assert closed.value.rcvd.code == 1012
        await asyncio.to_thread(product.start)
        async with product.join(conversation, client.seqs[-1]) as again:
            on = await again.until(lambda frame: frame["kind"] == "delta")
        assert on["reply_id"] == client.events[-1]["reply_id"]
        product.api("POST", f"/conversations/{conversation}/stop", scope="reply")
    finally:
        await asyncio.to_thread(product.stop)


def test_it_takes_everything_along_when_it_is_killed_and_starts_again(tmp_path: Path) -> None:
    data = tmp_path / "data"
    with up(data, "--workers", "1") as running:
        running.ready()
        left = list(running.children().values())
        running.process.kill()
        wait_until(lambda: gone(left), 30)
    with up(data, "--workers", "1") as again:
        again.ready()


def test_the_printed_link_logs_in_once_and_is_not_in_the_servers_log(tmp_path: Path) -> None:
    with up(tmp_path / "data", "--workers", "0") as running:
        link = wait_until(lambda: running.said(r"http://127\.0\.0\.1:\d+(/accounts/once/(\S+))"), 60)
        assert answer(running.port, link[1])[0] == 302
        assert answer(running.port, link[1])[0] == 410
        wait_until(lambda: running.said("/accounts/once/… 410"))
        assert running.log.read_text().count(link[2]) == 1


@pytest.mark.parametrize(
    ("options", "more", "line"),
    [
        (["--host", "0.0.0.0"], {}, "set ALLOWED_HOSTS and SECRET_KEY first"),
        (["--host", "0.0.0.0"], {"ALLOWED_HOSTS": "chat.example.org"}, "set SECRET_KEY first"),
        (["--port", "0"], {}, "--port is 1 to 65535"),
        (["--workers", "65"], {}, "--workers 0 to 64"),
        ([], {"REDIS_URL": "nowhere"}, "REDIS_URL is (not shown); allowed"),
        ([], {"BRANCHLINE_AGENT": "foo"}, "BRANCHLINE_AGENT is 'foo'; `python manage.py agents`"),
        ([], {"BRANCHLINE_AGENT": "writer"}, "BRANCHLINE_AGENT is 'writer', which only takes work from other agents"),
        ([], {"BRANCHLINE_SUBAGENTS": "no.such.module"}, "BRANCHLINE_SUBAGENTS: "),
        ([], {"BRANCHLINE_MODEL": "opnai:gpt"}, "BRANCHLINE_MODEL is 'opnai:gpt'; allowed: demo or provider:model"),
    ],
)
def test_it_refuses_what_it_must_not_do_in_one_line(
    tmp_path: Path, options: list[str], more: dict[str, str], line: str
) -> None:
    command, ours = [*MANAGE, "up", *options], environment(tmp_path, **more)
    done = subprocess.run(command, env=ours, capture_output=True, text=True, timeout=60)
    assert done.returncode == 1
    assert line in done.stderr
    assert done.stderr.count("\n") == 1


def test_a_port_in_use_is_one_clear_line() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        with pytest.raises(CannotStart, match=r"cannot listen on 127\.0\.0\.1 port \d+: Address already in use"):
            check_port("127.0.0.1", taken.getsockname()[1])


def test_the_folder_is_held_by_one_and_tells_a_crash_from_an_end(tmp_path: Path) -> None:
    with only_one(tmp_path) as crashed:
        assert not crashed
        with pytest.raises(CannotStart, match=f"process {os.getpid()}"), only_one(tmp_path):
            pass
    with only_one(tmp_path) as crashed:
        assert not crashed
    (tmp_path / "up.lock").write_text("4711")
    with only_one(tmp_path) as crashed:
        assert crashed


@contextmanager
def server(path: Path, folder: Path) -> Iterator[subprocess.Popen[bytes]]:
    valkey.prepare(path, folder)
    process = subprocess.Popen(valkey.command(path, folder))
    try:
        wait_until(lambda: valkey.server_pid(path) == process.pid)
        yield process
    finally:
        process.kill()
        process.wait(10)


def test_valkey_listens_for_this_user_only_and_keeps_its_data_over_a_kill(tmp_path: Path) -> None:
    import redis

    path = tmp_path / "v" / "v.sock"
    with server(path, tmp_path / "v") as process:
        assert path.stat().st_mode & 0o777 == 0o600
        assert path.parent.stat().st_mode & 0o777 == 0o700
        listening = [one for one in psutil.Process(process.pid).net_connections("inet") if one.status == "LISTEN"]
        assert listening == []
        with redis.Redis(unix_socket_path=str(path)) as client:
            client.set("kept", "yes")
    with server(path, tmp_path / "v"), redis.Redis(unix_socket_path=str(path), decode_responses=True) as client:
        assert client.get("kept") == "yes"


def test_a_running_valkey_is_taken_over_and_ended_too(tmp_path: Path) -> None:
    data = tmp_path / "data"
    data.mkdir(mode=0o700)
    path = data / "valkey" / "valkey.sock"
    with server(path, path.parent) as orphan:
        with up(data, "--workers", "1") as running:
            wait_until(lambda: running.said(rf"took over the Valkey that was running \(process {orphan.pid}\)"), 30)
            running.ready()
        assert orphan.wait(10) == 0


def test_a_foreign_or_linked_folder_is_refused(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path)
    with pytest.raises(CannotStart, match="not a folder of this user"):
        valkey.prepare(tmp_path / "link" / "v.sock", tmp_path / "data")


def test_a_folder_deep_below_gets_its_socket_elsewhere(tmp_path: Path) -> None:
    data = tmp_path / ("deep" * 20) / ("deeper" * 20)
    with up(data, "--workers", "0") as running:
        wait_until(lambda: answer(running.port)[0] == 200, 60)
        status: Any = answer(running.port, "/readyz")[1]
        assert '"valkey": "ok"' in status
