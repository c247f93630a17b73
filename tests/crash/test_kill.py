"""kill -9 in mid-reply: nothing lost, doubled or stuck. CRASH_ROUNDS rounds of CRASH_SEED, printed when one fails."""

from __future__ import annotations

import asyncio
import os
import random
from collections import Counter
from collections.abc import Iterator
from typing import Any

import psutil
import pytest
import websockets

from tests.product import Client, Cluster, FakeLLM, Product

ROUNDS = int(os.environ.get("CRASH_ROUNDS", "3"))
SEED = int(os.environ.get("CRASH_SEED", "0"))
CHILD = 'CALL agent_spawn {"agent_id": "writer", "task": "[[n=%d rate=100]]"} '
SCRIPTS = ("[[n=60 rate=80]]", 'CALL list_files {"path": "."}', "[[n=400 rate=800]]", "[[n=5 rate=5]]", CHILD % 60,
           "".join(CHILD % (20 * n) for n in range(1, 5)))  # fmt: skip


@pytest.fixture(scope="module")
def llm() -> Iterator[FakeLLM]:
    running = FakeLLM()
    yield running
    running.stop()


@pytest.fixture(scope="module")
def product(tmp_path_factory: pytest.TempPathFactory, llm: FakeLLM) -> Iterator[Product]:
    kind = Cluster if os.environ.get("TEST_DB") == "pg" else Product
    running = kind(tmp_path_factory.mktemp("crash"), llm).start()
    yield running
    running.stop()


def server_of(process: psutil.Process) -> bool:
    return "serve" in process.cmdline()


def valkey_of(process: psutil.Process) -> bool:
    return "valkey" in process.name()


def everything(process: psutil.Process) -> bool:
    return True


VICTIMS = (everything, everything, everything, server_of, valkey_of)


@pytest.mark.parametrize("number", range(ROUNDS))
async def test_it_loses_doubles_and_blocks_nothing_when_killed_in_mid_reply(product: Product, number: int) -> None:
    rng = random.Random(SEED * 1000 + number)
    print(f"round {number} of seed {SEED}")
    conversation = product.conversation()
    texts = [f"{rng.choice(SCRIPTS)} message {n}" for n in range(rng.randint(1, 3))]
    async with product.join(conversation) as client:
        for n, text in enumerate(texts):
            await client.send("message.send", ref=n, text=text, client_id=f"{number}-{n}")
            assert (await client.ack(n))["kind"] == "ack"
        await follow_for(client, rng.uniform(0, 0.9))
        victim = VICTIMS[number % len(VICTIMS)]
        await asyncio.to_thread(product.kill, victim)
    before = client.events
    await asyncio.to_thread(product.start)
    await settled(product, conversation)
    check(product.events(conversation), texts, before)
    async with product.join(conversation, before[-1]["seq"] if before else 0) as again:
        await again.until(lambda frame: frame["kind"] == "caught_up")
    assert [strip(e) for e in before + again.events] == product.events(conversation)


async def follow_for(client: Client, seconds: float) -> None:
    try:
        async with asyncio.timeout(seconds):
            while True:
                await client.frame()
    except (TimeoutError, websockets.ConnectionClosed):
        pass


def strip(event: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in event.items() if key != "kind"}


async def settled(product: Product, conversation: str) -> None:
    """Wait until the conversation rests; a Valkey or server that is being restarted may refuse for a moment."""
    async with asyncio.timeout(40):
        while True:
            await asyncio.sleep(0.05)
            try:
                got = await asyncio.to_thread(product.api, "GET", f"/conversations/{conversation}")
            except OSError:
                continue
            except Exception as error:
                if "httpx" not in type(error).__module__:
                    raise
                continue
            if got.status_code == 200 and got.json()["state"] in ("idle", "failed"):
                return


def check(events: list[dict[str, Any]], texts: list[str], before: list[dict[str, Any]]) -> None:
    """The ledger is gapless, everything that began has ended once, and every message was answered once."""
    assert [e["seq"] for e in events] == list(range(1, len(events) + 1))
    taken = [e["text"] for e in events if (e["type"], e["source"], e.get("state")) == ("USER_MESSAGE", None, "running")]
    assert taken == texts
    for session in {e["session_id"] for e in events}:
        brackets = [e for e in events if e["type"] in ("AGENT_START", "AGENT_END") and e["session_id"] == session]
        assert [e["type"] for e in brackets] == ["AGENT_START", "AGENT_END"] * (len(brackets) // 2)
        assert {e["reason"] for e in brackets[1::2]} <= {"MODEL_STOP", "WAITING"}
        assert brackets[-1]["reason"] == "MODEL_STOP"
    check_subagents(events)
    for begin, end, key in (
        ("TEXT_BLOCK_START", "TEXT_BLOCK_END", "block_id"),
        ("TOOL_CALL_START", "TOOL_CALL_END", "tool_call_id"),
        ("TOOL_RESULT_START", "TOOL_RESULT_END", "tool_call_id"),
        ("HANDOFF_START", "HANDOFF_END", "call_id"),
    ):
        begun = Counter(e[key] for e in events if e["type"] == begin)
        assert begun == Counter(e[key] for e in events if e["type"] == end)
        assert set(begun.values()) <= {1}
    calls = Counter(e["type"] for e in events)
    assert calls["MODEL_CALL_START"] == calls["MODEL_CALL_END"]
    whole = [e["text"] for e in events if e["type"] == "TEXT_BLOCK_END" and e["state"] == "complete"]
    assert all(text == "".join(f"w{n} " for n in range(1, text.count(" ") + 1)) or "DONE" in text for text in whole)
    assert [strip(e) for e in before] == events[: len(before)]


def check_subagents(events: list[dict[str, Any]]) -> None:
    """Each call made one, which was asked once and whose own words went back once."""
    spawned = [e for e in events if e["type"] == "TOOL_RESULT_END" and e["tool_name"] == "agent_spawn"]
    assert all("status: ok" in e["output"] for e in spawned)
    asked = [e for e in events if e["type"] == "USER_MESSAGE" and e["source"] and e["state"] == "running"]
    made = Counter(e["metadata"]["toolCallId"] for e in asked)
    assert made == Counter(e["tool_call_id"] for e in spawned)
    assert set(made.values()) <= {1}
    for end in (e for e in events if e["type"] == "HANDOFF_END"):
        own = [e for e in events if e["session_id"] == end["child_session_id"] and e["type"] == "TEXT_BLOCK_END"]
        assert [e["text"] for e in own if e["state"] == "complete"] == [end["output"]]
        assert all(e["seq"] < end["seq"] for e in own)


async def test_it_ends_everything_with_all_doorbells_off(
    tmp_path_factory: pytest.TempPathFactory, llm: FakeLLM
) -> None:
    product = Product(tmp_path_factory.mktemp("deaf"), llm, BRANCHLINE_DOORBELLS="off").start()
    try:
        conversation = product.conversation()
        for n in range(2):
            sent = product.api("POST", f"/conversations/{conversation}/messages", text=f"[[n=5 rate=50]] {n}")
            assert sent.status_code == 202
        await settled(product, conversation)
        ends = [e["reason"] for e in product.events(conversation) if e["type"] == "AGENT_END"]
        assert ends
        assert set(ends) == {"MODEL_STOP"}
        async with product.join(conversation) as client:
            await client.until(lambda frame: frame["kind"] == "caught_up")
            assert [strip(e) for e in client.events] == product.events(conversation)
    finally:
        product.stop()
