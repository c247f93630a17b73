"""The processes that are measured: the product, the relay and the model server, where they run and what they cost."""

from __future__ import annotations

import ctypes
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import httpx
import psutil

from gateway.family import die_with_parent
from tests.bench.client import Chat, connect

ROOT = Path(__file__).resolve().parents[2]
PASSWORD = "alice-has-a-password"
_libc = ctypes.CDLL(None)


def cores() -> tuple[set[int], set[int]]:
    """(the servers', the model's and the client's). On one core both are the same."""
    first, *others = sorted(os.sched_getaffinity(0))
    return {first}, set(others) or {first}


@contextmanager
def on(which: set[int]) -> Iterator[None]:
    """What is started inside runs on these cores."""
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, which)
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def cpu_clock(pid: int) -> float:
    """CPU seconds of a process and its threads in nanoseconds' resolution; a short burst is a few ticks of /proc's."""
    clock = ctypes.c_int()
    if _libc.clock_getcpuclockid(pid, ctypes.byref(clock)):
        raise ProcessLookupError(pid)
    return time.clock_gettime(clock.value)


class Server:
    """A process with all below it."""

    NAME = ""

    def __init__(
        self, command: list[str], which: set[int], log: Path, environment: dict[str, str] | None = None
    ) -> None:
        self.command, self.which, self.log, self.environment = command, which, log, environment
        self.process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Until it answers."""
        raise NotImplementedError

    def launch(self) -> None:
        with on(self.which), self.log.open("ab") as log:
            self.process = subprocess.Popen(
                self.command, cwd=ROOT, env=self.environment, stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                start_new_session=True, preexec_fn=partial(die_with_parent, os.getpid(), signal.SIGTERM),
            )  # fmt: skip

    def wait_for(self, url: str, seconds: float = 60) -> None:
        assert self.process is not None
        deadline = time.monotonic() + seconds
        with httpx.Client(timeout=seconds) as client:
            while time.monotonic() < deadline:
                if self.process.poll() is not None:
                    raise RuntimeError(self.log.read_text())
                try:
                    if client.get(url).status_code < 500:
                        return
                except httpx.TransportError:
                    time.sleep(0.01)
        raise TimeoutError(f"{url} did not answer: {self.log.read_text()}")

    def tree(self) -> list[psutil.Process]:
        if self.process is None or self.process.poll() is not None:
            return []
        top = psutil.Process(self.process.pid)
        return [top, *top.children(recursive=True)]

    def cpu(self) -> float:
        """Seconds of the whole tree: the living by their clocks, the ended by their parents' tally."""
        total = 0.0
        for process in self.tree():
            try:
                times = process.cpu_times()
                total += cpu_clock(process.pid) + times.children_user + times.children_system
            except (psutil.NoSuchProcess, ProcessLookupError):
                continue
        return total

    def memory(self) -> int:
        """Bytes that would be free without it."""
        return sum(process.memory_full_info().uss for process in self.tree())

    def stop(self) -> None:
        if self.process is not None and self.process.poll() is None:
            self.process.terminate()
            try:
                self.process.wait(30)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait(10)


class ModelServer(Server):
    NAME = "model"

    def __init__(self, folder: Path, which: set[int]) -> None:
        self.port = free_port()
        super().__init__([sys.executable, "-m", "tests.bench.model", str(self.port)], which, folder / "model.log")

    def start(self) -> None:
        self.launch()
        deadline = time.monotonic() + 20
        while time.monotonic() < deadline:
            with socket.socket() as probe:
                if probe.connect_ex(("127.0.0.1", self.port)) == 0:
                    return
            time.sleep(0.02)
        raise TimeoutError(self.log.read_text())


class Relay(Server):
    NAME = "relay"

    def __init__(self, folder: Path, which: set[int], model: ModelServer) -> None:
        self.port = free_port()
        command = [sys.executable, "-m", "tests.bench.relay", str(self.port), str(model.port)]
        super().__init__(command, which, folder / "relay.log")

    def start(self) -> None:
        self.launch()
        self.wait_for(f"http://127.0.0.1:{self.port}/")

    async def chat(self) -> Chat:
        return await connect(self.port, "/", {})


class Product(Server):
    """`manage.py up --workers 0` on SQLite, with the limits of one person out of the way."""

    NAME = "ours"

    def __init__(self, folder: Path, which: set[int], model: ModelServer) -> None:
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        environment = {name: value for name, value in os.environ.items() if not name.startswith("BRANCHLINE_")}
        for name in ("DATABASE_URL", "REDIS_URL", "ALLOWED_HOSTS", "SECRET_KEY"):
            environment.pop(name, None)
        environment |= {
            "DJANGO_SETTINGS_MODULE": "chatapp.settings",
            "DJANGO_SUPERUSER_PASSWORD": PASSWORD,
            "DATA_DIR": str(folder / "data"),
            "PUBLIC_URL": self.url,
            "OPENAI_BASE_URL": f"http://127.0.0.1:{model.port}/v1",
            "BRANCHLINE_MODEL": "openai:bench",
            "BRANCHLINE_RATE_MESSAGES": "0",
            "BRANCHLINE_RUNNING_PER_USER": "1000",
            "BRANCHLINE_HOSTED_TURNS": "1000",
            "BRANCHLINE_TOKEN_CAP_SESSION": str(10**12),
            "BRANCHLINE_TOKEN_CAP_USER_DAY": str(10**12),
        }
        command = [sys.executable, "manage.py", "up", "--port", str(self.port), "--workers", "0"]
        super().__init__(command, which, folder / "up.log", environment)
        self.token = ""

    def start(self) -> None:
        self.launch()
        self.wait_for(f"{self.url}/accounts/login/")
        if not self.token:
            self.manage("createsuperuser", "--noinput", "--username", "alice", "--email", "alice@example.org")
            self.token = self.manage("api_token", "alice").splitlines()[-1]
            self.client = httpx.AsyncClient(base_url=self.url, headers=self.bearer, timeout=60)

    def manage(self, *arguments: str) -> str:
        command = [sys.executable, "manage.py", *arguments]
        done = subprocess.run(command, cwd=ROOT, env=self.environment, capture_output=True, text=True, check=True)
        return done.stdout.strip()

    @property
    def bearer(self) -> dict[str, str]:
        return {"Authorization": f"Bearer {self.token}"}

    async def conversation(self) -> str:
        made = await self.client.post("/api/conversations", json={})
        made.raise_for_status()
        return str(made.json()["id"])

    async def post(self, conversation: str, text: str) -> None:
        (await self.client.post(f"/api/conversations/{conversation}/messages", json={"text": text})).raise_for_status()

    async def join(self, conversation: str, after: int = 0, seconds: float = 60) -> Chat:
        headers = self.bearer | {"Sec-WebSocket-Protocol": "branchline.json.v1"}
        return await connect(self.port, f"/ws/c/{conversation}/?after={after}", headers, seconds)

    async def chat(self) -> Chat:
        return await self.join(await self.conversation())

    async def browser(self) -> httpx.AsyncClient:
        """Logged in as a person is."""
        client = httpx.AsyncClient(base_url=self.url, timeout=60)
        await client.get("/accounts/login/")
        form = {"username": "alice", "password": PASSWORD, "csrfmiddlewaretoken": client.cookies["csrftoken"]}
        answer = await client.post("/accounts/login/", data=form, headers={"Referer": self.url})
        assert answer.status_code == 302, answer.text
        return client
