"""What goes wrong around the product in mid-reply: Valkey or the database away, a full disk, a host that comes back,
a worker that dies, viewers whose line goes silent."""

from __future__ import annotations

import asyncio
import os
import random
import resource
import sqlite3
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import psutil
import psycopg
import pytest
import redis

from tests.conftest import wait_until
from tests.crash.test_kill import SEED, check, follow_for, server_of, settled, strip, valkey_of
from tests.product import Client, Cluster, FakeLLM
from tests.wire import Wire

ROUNDS = max(1, int(os.environ.get("CRASH_ROUNDS", "5")) // 20)
VALKEY_AWAY, DATABASE_AWAY = 30, 10
LEASE = 2.0
# A silent line is given up after its ping and what is waited for the answer.
PING = 20 + 30
VIEWERS = 100
TICKET = """
import django_rq
from gateway import jobs
django_rq.get_queue("default").enqueue(jobs.run, "ticket")
"""
BACKGROUND = """
from chatapp.models import Session
Session.objects.filter(pk="{}").update(lane="background")
"""


@pytest.fixture(scope="module")
def llm() -> Iterator[FakeLLM]:
    running = FakeLLM()
    yield running
    running.stop()


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory, llm: FakeLLM) -> Iterator[Cluster]:
    running = Cluster(tmp_path_factory.mktemp("faults"), llm).start()
    yield running
    running.stop()


async def whole(cluster: Cluster, fault: object, number: int) -> None:
    """A reply under way, the fault, and all of it there once at the end."""
    rng = random.Random(SEED * 1000 + number)
    conversation = cluster.conversation()
    texts = [f"[[n=200 rate={rng.choice((100, 200, 400))}]] message {n}" for n in range(2)]
    async with cluster.join(conversation) as client:
        await client.send("message.send", ref=0, text=texts[0], client_id=f"{fault}-{number}-0")
        assert (await client.ack(0))["kind"] == "ack"
        await follow_for(client, rng.uniform(0.1, 0.6))
        await asyncio.to_thread(fault)  # type: ignore[arg-type]
        await asyncio.to_thread(cluster.start)
    sent = await asyncio.to_thread(
        cluster.api, "POST", f"/conversations/{conversation}/messages", text=texts[1], client_id=f"{number}-1"
    )
    assert sent.status_code == 202, sent.text
    await settled(cluster, conversation)
    events = cluster.events(conversation)
    check(events, texts, client.events)
    last = client.events[-1]["seq"] if client.events else 0
    async with cluster.join(conversation, last) as again:
        await again.until(lambda frame: frame["kind"] == "caught_up")
    assert [strip(e) for e in client.events + again.events] == events


@pytest.mark.parametrize("number", range(ROUNDS))
async def test_it_goes_on_when_valkey_was_away(cluster: Cluster, number: int) -> None:
    def away() -> None:
        cluster.kill(valkey_of)
        time.sleep(VALKEY_AWAY)

    await whole(cluster, away, number)


@pytest.mark.parametrize("number", range(ROUNDS))
async def test_it_goes_on_when_the_database_was_away(cluster: Cluster, number: int) -> None:
    def away() -> None:
        with database_away(cluster):
            time.sleep(DATABASE_AWAY)

    await whole(cluster, away, number)


@contextmanager
def database_away(cluster: Cluster) -> Iterator[None]:
    url = cluster.environment.get("DATABASE_URL")
    if not url:
        connection = sqlite3.connect(cluster.folder / "branchline.sqlite3", isolation_level=None, timeout=20)
        connection.execute("BEGIN EXCLUSIVE")
        yield
        connection.execute("ROLLBACK")
        connection.close()
        return
    name, query = urlsplit(url).path[1:], parse_qs(urlsplit(url).query)
    with psycopg.connect(host=query["host"][0], user="postgres", dbname="postgres", autocommit=True) as admin:
        admin.execute(f'ALTER DATABASE "{name}" ALLOW_CONNECTIONS false')  # type: ignore[call-overload, unused-ignore]
        admin.execute("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = %s", [name])
        yield
        admin.execute(f'ALTER DATABASE "{name}" ALLOW_CONNECTIONS true')  # type: ignore[call-overload, unused-ignore]


@pytest.mark.parametrize("number", range(ROUNDS))
async def test_it_fences_a_server_that_slept_while_another_took_over(cluster: Cluster, number: int) -> None:
    """Both servers stop in turn: one of them holds the lease, and comes back when the other has gone on."""

    def sleeps() -> None:
        for server in [process for process in cluster.tree() if server_of(process)]:
            server.suspend()
            time.sleep(LEASE * 1.5)
            server.resume()

    await whole(cluster, sleeps, number)


@pytest.mark.parametrize("number", range(ROUNDS))
async def test_it_loses_nothing_when_the_servers_are_told_to_end(cluster: Cluster, number: int) -> None:
    def terminate() -> None:
        servers = [process for process in cluster.tree() if server_of(process)]
        for server in servers:
            server.terminate()
        psutil.wait_procs(servers, timeout=20)

    await whole(cluster, terminate, number)


def worker_of(process: psutil.Process) -> bool:
    """A worker or the process of its job."""
    return "rqworker" in process.cmdline()


@pytest.mark.parametrize("number", range(ROUNDS))
async def test_it_goes_on_with_a_background_reply_when_workers_die(cluster: Cluster, number: int) -> None:
    rng = random.Random(SEED * 1000 + number)
    conversation = cluster.conversation()
    cluster.manage("shell", "-c", BACKGROUND.format(conversation))
    text = "[[n=300 rate=100]] in the background"
    assert cluster.api("POST", f"/conversations/{conversation}/messages", text=text).status_code == 202
    cluster.manage("shell", "-c", TICKET)
    async with cluster.join(conversation) as client:
        await client.until(lambda frame: frame["kind"] == "delta", 30)
        await follow_for(client, rng.uniform(0, 1))
    await asyncio.to_thread(cluster.kill, worker_of)
    await asyncio.to_thread(cluster.start)
    async with asyncio.timeout(60):
        # Who gives out tickets comes later; the rows say what is due to whoever has one.
        while cluster.api("GET", f"/conversations/{conversation}").json()["state"] != "idle":
            await asyncio.to_thread(cluster.manage, "shell", "-c", TICKET)
    check(cluster.events(conversation), [text], client.events)


async def test_viewers_whose_line_went_silent_leave_nothing(cluster: Cluster) -> None:
    conversation = cluster.conversation()
    wire = Wire(cluster.ports[0])
    with redis.Redis(unix_socket_path=str(cluster.socket)) as valkey:
        port = int(wire.url.rsplit(":", 1)[1])
        viewers = [Client(f"ws://127.0.0.1:{port}/ws/c/{conversation}/?after=0", cluster.token) for _ in range(VIEWERS)]
        for viewer in viewers:
            await viewer.__aenter__()
            await viewer.until(lambda frame: frame["kind"] == "caught_up")
        assert valkey.pubsub_channels("bell:*")
        wire.hang()
        await asyncio.to_thread(wait_until, lambda: not valkey.pubsub_channels("bell:*"), PING * 1.5)
    wire.close()
    for viewer in viewers:
        viewer.ws.transport.abort()


async def test_a_full_disk_is_told_and_nothing_is_damaged(cluster: Cluster) -> None:
    if "DATABASE_URL" in cluster.environment:
        # Postgres' own disk is not ours to fill; what it answers then is an OperationalError as above.
        return
    conversation = cluster.conversation()
    send = f"/conversations/{conversation}/messages"
    assert cluster.api("POST", send, text="[[n=3]] before").status_code == 202
    await settled(cluster, conversation)
    before = cluster.events(conversation)
    servers = [process for process in cluster.tree() if server_of(process)]
    unlimited = resource.RLIM_INFINITY
    for server in servers:
        server.rlimit(psutil.RLIMIT_FSIZE, (smallest(cluster.folder), unlimited))
    for _ in range(4):
        refused = cluster.api("POST", send, text="x" * 100_000)
        assert (refused.status_code, refused.json()["code"]) == (503, "unavailable"), refused.text
    assert cluster.events(conversation) == before
    for server in servers:
        server.rlimit(psutil.RLIMIT_FSIZE, (unlimited, unlimited))
    assert cluster.api("POST", send, text="[[n=3]] after").status_code == 202
    await settled(cluster, conversation)
    check(cluster.events(conversation), ["[[n=3]] before", "[[n=3]] after"], [])
    with sqlite3.connect(cluster.folder / "branchline.sqlite3") as connection:
        assert connection.execute("PRAGMA integrity_check").fetchone() == ("ok",)


def smallest(folder: Path) -> int:
    """What no file of the database may outgrow now."""
    return min(path.stat().st_size for path in folder.glob("branchline.sqlite3-wal")) or 1
