"""Many readers at once, readers that do not read, and readers that are gone without a word."""

from __future__ import annotations

import asyncio
import json
import random
import subprocess
import sys
from collections.abc import Iterator

import psutil
import pytest
import redis
import websockets

from tests.conftest import wait_until
from tests.product import ROOT, Client, FakeLLM, Product

STORM = 500
GONE = 100
# Events of 100 KB, 40 MB together.
LARGE = """
from chatapp.models import Event, Session
from chatapp.runtime.ids import new_id
talk = Session.objects.get(pk="{}")
Event.objects.bulk_create(
    Event(id=new_id(), conversation=talk, session=talk, seq=n, type="CUSTOM", agent_id="main", reply_id="", source="",
          branch=0, created_at=talk.created_at, metadata={{}}, data={{"name": "large", "value": "x" * 100_000}})
    for n in range(talk.next_seq, talk.next_seq + 400))
Session.objects.filter(pk=talk.pk).update(next_seq=talk.next_seq + 400)
"""


@pytest.fixture(scope="module")
def product(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Product]:
    llm = FakeLLM()
    running = Product(tmp_path_factory.mktemp("readers"), llm).start()
    yield running
    running.stop()
    llm.stop()


@pytest.fixture
def valkey(product: Product) -> Iterator[redis.Redis]:
    with redis.Redis(unix_socket_path=str(product.folder / "valkey" / "valkey.sock")) as client:
        yield client


def server(product: Product) -> psutil.Process:
    return next(process for process in product.tree() if "serve" in process.cmdline())


def bells(valkey: redis.Redis) -> int:
    return len(valkey.pubsub_channels("bell:*"))


async def said(product: Product, conversation: str, text: str) -> None:
    async with product.join(conversation) as client:
        await client.send("message.send", ref=1, text=text)
        await client.until_type("AGENT_END")


async def test_a_reader_that_does_not_read_adds_no_memory_and_gets_it_all_later(product: Product) -> None:
    conversation = product.conversation()
    await said(product, conversation, "[[n=3]] what is imported late is not a reader's")
    product.manage("shell", "-c", LARGE.format(conversation))
    last = product.api("GET", f"/conversations/{conversation}").json()["last_seq"]
    before = memory(server(product))
    headers = {"Authorization": f"Bearer {product.token}"}
    url = f"ws://127.0.0.1:{product.port}/ws/c/{conversation}/?after=0"
    seqs: list[int] = []

    async def read() -> None:
        frame = json.loads(await ws.recv())
        await ws.send('{"kind": "seen", "frames": 1}')
        if frame["kind"] == "event":
            seqs.append(frame["seq"])

    json_v1 = websockets.Subprotocol("branchline.json.v1")
    async with websockets.connect(
        url, subprotocols=[json_v1], additional_headers=headers, max_size=None, max_queue=1
    ) as ws:
        await read()
        # As the page does, it told what it has seen; and then it reads no more. Until that came, the server took it for
        # a program that never tells, which it is 8 MB ahead of.
        await asyncio.to_thread(wait_until, lambda: sleeps(server(product)), 20)
        assert memory(server(product)) - before < 20 * 1024 * 1024
        while len(seqs) < last:
            await read()
        assert seqs == list(range(1, last + 1))


def memory(process: psutil.Process) -> int:
    """Its own, without what the system keeps of files that it has mapped, such as the database."""
    return sum(int(part.rss) for part in process.memory_maps(grouped=True) if part.path.startswith("["))


def sleeps(process: psutil.Process) -> bool:
    """Whether it has nothing to do for half a second."""
    return float(process.cpu_percent(0.5)) < 5


async def test_a_reader_that_stalls_in_a_flood_gets_the_same_text(product: Product) -> None:
    conversation = product.conversation()
    async with product.join(conversation) as quick, product.join(conversation) as slow:
        await quick.send("message.send", ref=1, text="[[n=1000 rate=500]]")
        await quick.until_type("TEXT_BLOCK_START")
        slow.ws.transport.pause_reading()
        await quick.until_type("AGENT_END", 30)
        slow.ws.transport.resume_reading()
        await slow.until_type("AGENT_END")
        whole = next(event["text"] for event in quick.events if event["type"] == "TEXT_BLOCK_END")
        assert whole == "".join(f"w{n} " for n in range(1, 1001))
        assert slow.events == quick.events
        assert all(whole.startswith(text) for client in (quick, slow) for text in client.texts.values())


async def test_five_hundred_reconnects_at_once_lose_nothing(product: Product, valkey: redis.Redis) -> None:
    conversation = product.conversation()
    await said(product, conversation, "[[n=20]]")
    events = [{"kind": "event", **event} for event in product.events(conversation)]
    rng = random.Random(1)

    async def come_back() -> None:
        after = rng.randrange(len(events))
        async with product.join(conversation, after) as client:
            await client.until(lambda frame: frame["kind"] == "caught_up", 60)
            assert client.events == events[after:]

    await asyncio.gather(*(come_back() for _ in range(STORM)))
    await asyncio.to_thread(wait_until, lambda: bells(valkey) == 0)


async def test_readers_that_are_gone_without_a_word_leave_nothing(product: Product, valkey: redis.Redis) -> None:
    conversation = product.conversation()
    await said(product, conversation, "[[n=3]]")
    connections = len(server(product).net_connections("tcp"))

    async def vanish(rng: random.Random) -> None:
        client: Client = product.join(conversation)
        await client.__aenter__()
        if rng.random() < 0.7:
            await client.until(lambda frame: frame["kind"] == "caught_up")
        client.ws.transport.abort()

    for number in range(GONE // 10):
        await asyncio.gather(*(vanish(random.Random(f"{number}-{n}")) for n in range(10)))
    await asyncio.to_thread(wait_until, lambda: bells(valkey) == 0)
    await asyncio.to_thread(wait_until, lambda: len(server(product).net_connections("tcp")) <= connections)
    await said(product, conversation, "[[n=3]] still there?")


def test_a_socket_has_no_last_hour(product: Product) -> None:
    """The server's own default ends each after a day, in a way that a browser takes for wanted."""
    look = "import gateway.server as s; print(s.Server(None, '127.0.0.1', 0).websocket_timeout)"
    command = [sys.executable, "-c", f"import django; django.setup(); {look}"]
    done = subprocess.run(command, env=product.environment, cwd=ROOT, capture_output=True, text=True, timeout=60)
    assert done.stdout.strip() == "-1", done.stderr
