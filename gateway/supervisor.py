"""`manage.py up`: Valkey, then the server, then the workers; what dies comes back, and a signal ends all of it."""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import functools
import http.client
import os
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from gateway import valkey
from gateway.family import die_with_parent
from gateway.valkey import CannotStart

FIRST_PAUSE, LONGEST_PAUSE = 0.2, 10.0
# Who lived so long starts again with the short pause.
STEADY_SECONDS = 30.0
START_SECONDS = 60.0
# A worker's job gets this long before the second signal breaks it off; recovery takes what is left.
JOB_GRACE = 3.0
# The server's own 11 s for its host and 3 s for what is left of its connections.
STOP_GRACE = 15.0


@dataclass(frozen=True)
class Plan:
    """What `up` was asked for, with nothing left to look up."""

    host: str
    port: int
    workers: int
    manage: tuple[str, ...]
    environment: Mapping[str, str]
    public_host: str
    data_dir: Path
    valkey_socket: Path | None
    migrate: Callable[[], None]
    greet: Callable[[], None]
    say: Callable[[str], None]


@contextlib.contextmanager
def only_one(data_dir: Path) -> Iterator[bool]:
    """Holds the data folder; answers whether the one before us ended without letting go in order."""
    descriptor = os.open(data_dir / "up.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        holder = os.read(descriptor, 20).decode("ascii", "replace").strip() or "unknown"
        os.close(descriptor)
        raise CannotStart(f"it already runs on {data_dir} (process {holder})") from None
    crashed = os.fstat(descriptor).st_size > 0
    os.truncate(descriptor, 0)
    os.write(descriptor, str(os.getpid()).encode())
    try:
        yield crashed
    finally:
        os.truncate(descriptor, 0)
        os.close(descriptor)


def check_port(host: str, port: int, patience: float = 0) -> None:
    """A port in use is one clear line; after a crash the old server may need its seconds to go."""
    deadline = time.monotonic() + patience
    while True:
        try:
            family, kind, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
            with socket.socket(family, kind) as probe:
                probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                probe.bind(address)
            return
        except OSError as error:
            if time.monotonic() >= deadline:
                reason = error.strerror or str(error)
                raise CannotStart(f"cannot listen on {host} port {port}: {reason}; choose another --port") from None
        time.sleep(0.1)


class Child:
    """One supervised process. `prepare` runs before each start."""

    def __init__(self, name: str, command: list[str], prepare: Callable[[], None] | None = None) -> None:
        self.name = name
        self.command = command
        self.prepare = prepare
        self.process: asyncio.subprocess.Process | None = None
        self.starts = 0

    async def start(self, environment: Mapping[str, str]) -> asyncio.subprocess.Process:
        if self.prepare:
            self.prepare()
        # A session of its own: Ctrl-C reaches the supervisor alone, which stops the rest in order.
        self.process = await asyncio.create_subprocess_exec(
            *self.command,
            env=dict(environment),
            stdin=subprocess.DEVNULL,
            start_new_session=True,
            preexec_fn=functools.partial(die_with_parent, os.getpid(), signal.SIGTERM),
        )
        self.starts += 1
        return self.process

    def signal(self, number: int) -> None:
        if self.process is None or self.process.returncode is not None:
            return
        with contextlib.suppress(ProcessLookupError):
            if number == signal.SIGKILL:
                os.killpg(self.process.pid, number)
            else:
                self.process.send_signal(number)


class Supervisor:
    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.stopping = asyncio.Event()
        self.children: list[Child] = []
        self.tasks: list[asyncio.Task[None]] = []
        self.adopted: int | None = None

    async def run(self) -> None:
        """Until a signal. Raises CannotStart with nothing left running."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            loop.add_signal_handler(number, self._asked_to_stop)
        try:
            await self._start()
            await self.stopping.wait()
        finally:
            self.stopping.set()
            await self._stop()

    def _asked_to_stop(self) -> None:
        if self.stopping.is_set():
            for child in self.children:
                child.signal(signal.SIGKILL)
        self.stopping.set()

    async def _start(self) -> None:
        migrated = asyncio.create_task(asyncio.to_thread(self.plan.migrate))
        try:
            if self.plan.valkey_socket:
                await self._start_valkey(self.plan.valkey_socket)
        finally:
            await migrated
        server = Child("server", [*self.plan.manage, "serve", "--host", self.plan.host, "--port", str(self.plan.port)])
        self._keep(server)
        await self._until(self._answers, "the server", server, "the lines above say")
        if self.stopping.is_set():
            return
        # The address first: starting workers take the processor that the first page needs.
        await asyncio.to_thread(self.plan.greet)
        for number in range(1, self.plan.workers + 1):
            self._keep(Child(f"worker {number}", [*self.plan.manage, *WORKER]))

    # Valkey

    async def _start_valkey(self, path: Path) -> None:
        folder = self.plan.data_dir / "valkey"
        child = Child("Valkey", valkey.command(path, folder), functools.partial(valkey.prepare, path, folder))
        self.adopted = await asyncio.to_thread(valkey.server_pid, path)
        if self.adopted:
            # We hold the data folder, so its supervisor is dead; another server on the same files would harm them.
            self.plan.say(f"took over the Valkey that was running (process {self.adopted})")
            self.tasks.append(asyncio.create_task(self._watch_adopted(child, path, self.adopted)))
            return
        self._keep(child)
        await self._until(lambda: valkey.server_pid(path) is not None, "Valkey", child, f"{folder}/valkey.log says")

    async def _watch_adopted(self, child: Child, path: Path, pid: int) -> None:
        while not self.stopping.is_set():
            if await asyncio.to_thread(valkey.server_pid, path) != pid and not _alive(pid):
                self.adopted = None
                self.plan.say("the Valkey that was taken over ended, starting one")
                self._keep(child)
                return
            await self._pause(0.5)

    # Children

    def _keep(self, child: Child) -> None:
        self.children.append(child)
        self.tasks.append(asyncio.create_task(self._supervise(child)))

    async def _supervise(self, child: Child) -> None:
        pause = FIRST_PAUSE / 2
        while not self.stopping.is_set():
            born = time.monotonic()
            process = await child.start(self.plan.environment)
            if self.stopping.is_set():
                # The signal came while it was being born and did not reach it.
                child.signal(signal.SIGTERM)
            code = await process.wait()
            if self.stopping.is_set():
                return
            steady = time.monotonic() - born > STEADY_SECONDS
            pause = FIRST_PAUSE if steady else min(pause * 2, LONGEST_PAUSE)
            self.plan.say(f"{child.name} ended ({_how(code)}), starting it again in {pause:.1f} s")
            await self._pause(pause)

    async def _pause(self, seconds: float) -> None:
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self.stopping.wait(), seconds)

    async def _until(self, true: Callable[[], bool], what: str, child: Child, who_says: str) -> None:
        """Waits for a first answer. Who dies before it would only die again: then `up` gives up."""
        deadline = time.monotonic() + START_SECONDS
        while not self.stopping.is_set() and not await asyncio.to_thread(true):
            dead = child.process is not None and child.process.returncode is not None
            if dead or child.starts > 1 or time.monotonic() > deadline:
                raise CannotStart(f"{what} did not start; {who_says} why")
            await self._pause(0.05)

    def _answers(self) -> bool:
        host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(self.plan.host, self.plan.host)
        client = http.client.HTTPConnection(host, self.plan.port, timeout=2)
        try:
            client.request("GET", "/healthz", headers={"Host": self.plan.public_host})
            return client.getresponse().status == 200
        except (OSError, http.client.HTTPException):
            return False
        finally:
            client.close()

    # The end

    async def _stop(self) -> None:
        """Workers and server together, Valkey last: what they still publish must find it."""
        last = [child for child in self.children if child.name == "Valkey"]
        first = [child for child in self.children if child not in last]
        await self._end(first, again=JOB_GRACE)
        await self._end(last)
        if self.adopted and _alive(self.adopted):
            os.kill(self.adopted, signal.SIGTERM)
            await asyncio.to_thread(_wait_gone, self.adopted)
        await asyncio.gather(*self.tasks, return_exceptions=True)

    async def _end(self, children: list[Child], again: float | None = None) -> None:
        for child in children:
            child.signal(signal.SIGTERM)
        waits = [asyncio.create_task(child.process.wait()) for child in children if child.process]
        if not waits:
            return
        _, left = await asyncio.wait(waits, timeout=again or STOP_GRACE)
        if left and again:
            for child in children:
                if child.name != "server":
                    child.signal(signal.SIGTERM)
            _, left = await asyncio.wait(left, timeout=STOP_GRACE - again)
        if left:
            for child in children:
                child.signal(signal.SIGKILL)
            await asyncio.wait(left)


WORKER = ("rqworker", "default", "--worker-ttl", "20", "--serializer", "rq.serializers.JSONSerializer", "-v", "0")


def _how(code: int) -> str:
    return f"signal {signal.Signals(-code).name}" if code < 0 else f"exit code {code}"


def _alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def _wait_gone(pid: int) -> None:
    """Another's child cannot be waited for, only watched."""
    deadline = time.monotonic() + 5
    while _alive(pid) and time.monotonic() < deadline:
        time.sleep(0.05)


def supervise(plan: Plan) -> None:
    """All of `up` behind its options."""
    with only_one(plan.data_dir) as crashed:
        check_port(plan.host, plan.port, patience=STOP_GRACE if crashed else 0)

        async def main() -> None:
            await Supervisor(plan).run()

        asyncio.run(main())
