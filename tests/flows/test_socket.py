"""The product by HTTP and the JSON websocket alone, against a provider in another process."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Iterator

import pytest
import websockets

from tests.product import Client, FakeLLM, Product

LONG = "[[n=120 rate=120]]"


@pytest.fixture(scope="module", params=["demo", "openai:fake"])
def product(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Product]:
    llm = FakeLLM() if request.param == "openai:fake" else None
    running = Product(tmp_path_factory.mktemp("product"), llm).start()
    yield running
    running.stop()
    if llm is not None:
        llm.stop()


@pytest.fixture
def slow(product: Product) -> str:
    """What to say to get about 120 words in about a second or two."""
    return LONG if "OPENAI_BASE_URL" in product.environment else "slow 80"


async def test_it_streams_a_reply_without_gaps(product: Product, slow: str) -> None:
    conversation = product.conversation()
    async with product.join(conversation) as client:
        await client.send("message.send", ref="a", text=slow, client_id="one")
        ack = await client.ack("a")
        await client.until_type("AGENT_END")
        assert ack["kind"] == "ack"
        assert client.seqs == list(range(1, len(client.events) + 1))
        end = next(e for e in client.events if e["type"] == "TEXT_BLOCK_END")
        assert client.deltas > 10
        assert end["text"].startswith(client.texts[end["block_id"]])
        assert len(end["text"]) - len(client.texts[end["block_id"]]) < 40
        await client.send("message.send", ref="b", text=slow, client_id="one")
        assert (await client.ack("b"))["message_id"] == ack["message_id"]
    assert [e["type"] for e in product.events(conversation)].count("AGENT_START") == 1


async def test_it_shows_every_character_once_to_whoever_joins_in_mid_reply(product: Product, slow: str) -> None:
    conversation = product.conversation()
    async with product.join(conversation) as first:
        await first.send("message.send", ref=1, text=slow)
        await first.until_type("TEXT_BLOCK_START")
        for _ in range(15):
            await first.frame()
        async with product.join(conversation) as second:
            await asyncio.gather(first.until_type("AGENT_END"), second.until_type("AGENT_END"))
            assert second.events == first.events
            for block, text in second.texts.items():
                end = next(e for e in second.events if e["type"] == "TEXT_BLOCK_END" and e["block_id"] == block)
                assert end["text"].startswith(text)
                assert len(text) > 30


@pytest.mark.parametrize("seed", [1, 2])
async def test_it_gives_back_the_ledger_exactly_over_ten_reconnects(product: Product, slow: str, seed: int) -> None:
    rng = random.Random(seed)
    conversation = product.conversation()
    async with product.join(conversation) as client:
        await client.send("message.send", ref=1, text=slow)
        await client.until_type("TEXT_BLOCK_START")
        last = client.seqs[-1]
    joined: list[tuple[int, Client]] = []
    for _ in range(10):
        after = rng.randint(0, last)
        async with product.join(conversation, after) as client:
            for _ in range(rng.randint(1, 10)):
                if client.events and client.events[-1]["type"] == "AGENT_END":
                    break
                await client.until(lambda frame: True)
        joined.append((after, client))
        last = max([last, *client.seqs])
    async with product.join(conversation) as client:
        await client.until_type("AGENT_END")
    joined.append((0, client))
    ledger = product.events(conversation)
    whole = {e["block_id"]: e["text"] for e in ledger if e["type"] == "TEXT_BLOCK_END"}
    assert [e["seq"] for e in ledger] == list(range(1, len(ledger) + 1))
    for after, client in joined:
        seen = [{k: v for k, v in event.items() if k != "kind"} for event in client.events]
        assert seen == ledger[after : after + len(seen)]
        assert all(whole[block].startswith(text) for block, text in client.texts.items())


async def test_it_stops_within_half_a_second_and_keeps_the_partial_text(product: Product, slow: str) -> None:
    conversation = product.conversation()
    async with product.join(conversation) as client:
        await client.send("message.send", ref=1, text=slow)
        await client.until_type("TEXT_BLOCK_START")
        for _ in range(10):
            await client.frame()
        asked = time.monotonic()
        await client.send("run.stop", ref=2, scope="reply")
        await client.until_type("AGENT_END")
        assert time.monotonic() - asked < 0.5
        end = next(e for e in client.events if e["type"] == "TEXT_BLOCK_END")
        assert end["state"] == "partial"
        assert end["text"]
        assert client.events[-1]["reason"] == "INTERRUPTED"
        await client.send("message.send", ref=3, text="hello")
        await client.until_type("AGENT_END")
        assert client.events[-1]["reason"] == "MODEL_STOP"


async def test_it_runs_a_queued_message_next_and_two_sockets_see_one_order(product: Product, slow: str) -> None:
    conversation = product.conversation()
    async with product.join(conversation) as first, product.join(conversation) as second:
        await first.send("message.send", ref=1, text=slow)
        await first.ack(1)
        await second.send("message.send", ref=2, text="hello")
        assert (await second.ack(2))["state"] == "queued"
        for client in (first, second):
            await client.until_type("AGENT_END")
            await client.until_type("AGENT_END")
        assert first.events == second.events


async def test_it_reads_a_file_by_a_tool_call(product: Product) -> None:
    conversation = product.conversation()
    workspace = product.folder / "workspaces" / conversation
    workspace.mkdir(parents=True)
    (workspace / "notes.md").write_text("the answer is 42")
    (workspace / "b.md").write_text("second")
    fake = "OPENAI_BASE_URL" in product.environment
    text = 'CALL read_file {"path": "notes.md"} CALL read_file {"path": "b.md"}' if fake else "read notes.md"
    async with product.join(conversation) as client:
        await client.send("message.send", ref=1, text=text)
        await client.until_type("AGENT_END")
    results = [e for e in client.events if e["type"] == "TOOL_RESULT_END"]
    assert len(results) == (2 if fake else 1)
    assert {r["state"] for r in results} == {"success"}
    assert any("the answer is 42" in r["output"] for r in results)


@pytest.mark.parametrize(
    ("text", "code"), [("x" * 200_001, "too_long"), ("  \n", "invalid"), ("a\x00b", "invalid"), (None, "invalid")]
)
async def test_it_refuses_a_bad_text_and_stores_nothing(product: Product, text: object, code: str) -> None:
    conversation = product.conversation()
    async with product.join(conversation) as client:
        await client.send("message.send", ref=1, text=text)
        refused = await client.ack(1)
        assert (refused["kind"], refused["code"]) == ("error", code)
    assert product.events(conversation) == []


async def test_it_refuses_half_a_surrogate_pair(product: Product) -> None:
    conversation = product.conversation()
    async with product.join(conversation) as client:
        await client.ws.send('{"kind": "message.send", "ref": 1, "text": "a\\ud800"}')
        assert (await client.until(lambda f: f["kind"] == "error"))["kind"] == "error"
    assert product.events(conversation) == []


async def test_it_closes_after_five_bad_frames_in_a_row_and_not_before(product: Product) -> None:
    async with product.join(product.conversation()) as client:
        for raw in ("nonsense", "[]", '{"kind": "x"}', "{}"):
            await client.ws.send(raw)
            await client.until(lambda f: f["kind"] == "error")
        await client.send("ping", ref=9)
        assert (await client.ack(9))["kind"] == "ack"
        for _ in range(5):
            await client.ws.send("nonsense")
        with pytest.raises(websockets.ConnectionClosed) as closed:
            await client.until(lambda frame: False)
        assert closed.value.rcvd is not None
        assert closed.value.rcvd.code == 4400


async def test_it_tells_the_truth_about_after(product: Product) -> None:
    conversation = product.conversation()
    async with product.join(conversation) as client:
        await client.send("message.send", ref=1, text="hello")
        last = (await client.until_type("AGENT_END"))["seq"]
    for after in ("latest", last + 100, last):
        async with product.join(conversation, after) as client:
            assert await client.frame() == {"kind": "caught_up", "seq": last}


async def test_it_refuses_a_wrong_origin_and_a_bad_token_before_the_handshake(product: Product) -> None:
    url = f"ws://127.0.0.1:{product.port}/ws/c/{product.conversation()}/"
    cases: list[dict[str, str]] = [
        {"Origin": "https://evil.example"},
        {"Origin": "null"},
        {"Origin": f"http://127.0.0.1:{product.port}.evil.example"},
        {},
        {"Authorization": "Bearer wrong"},
        {"Authorization": f"Bearer {product.token}", "Origin": "https://evil.example"},
    ]
    for headers in cases:
        with pytest.raises(websockets.InvalidStatus):
            await websockets.connect(url, additional_headers=headers)


async def test_it_accepts_and_then_closes_for_strangers_and_unknown_conversations(product: Product) -> None:
    known = product.conversation()
    for conversation, headers, code in (
        (known, {"Origin": product.url}, 4401),
        ("0" * 32, {"Authorization": f"Bearer {product.token}"}, 4404),
        ("no-such_ID", {"Authorization": f"Bearer {product.token}"}, 4404),
    ):
        url = f"ws://127.0.0.1:{product.port}/ws/c/{conversation}/"
        async with websockets.connect(url, additional_headers=headers) as ws:
            with pytest.raises(websockets.ConnectionClosed) as closed:
                await ws.recv()
            assert closed.value.rcvd is not None
            assert closed.value.rcvd.code == code


async def test_it_answers_a_strangers_frames_as_if_there_were_nothing(product: Product) -> None:
    bob = await asyncio.to_thread(product.person, f"bob{random.randrange(10**9)}")
    hers = product.conversation()
    sent = product.api("POST", f"/conversations/{hers}/messages", text="hello").json()
    before = len(product.events(hers))
    alice, product.token = product.token, bob
    own = product.conversation()
    product.token = alice
    async with product.join(own, token=bob) as client:
        for frame in (
            {"kind": "message.edit", "message_id": sent["message_id"], "text": "mine"},
            {"kind": "message.delete", "message_id": sent["message_id"]},
            {"kind": "run.stop", "session_id": hers},
        ):
            await client.send(**frame, ref=1)
            refused = await client.ack(1)
            assert (refused["kind"], refused["code"]) == ("error", "not_found")
    async with product.join(hers, token=bob) as client:
        with pytest.raises(websockets.ConnectionClosed) as closed:
            await client.frame()
        assert closed.value.rcvd is not None
        assert closed.value.rcvd.code == 4404
    assert len(product.events(hers)) >= before


async def test_it_closes_a_socket_soon_after_its_conversation_is_deleted(product: Product) -> None:
    conversation = product.conversation()
    async with product.join(conversation) as client:
        await client.until(lambda frame: frame["kind"] == "caught_up")
        assert product.api("DELETE", f"/conversations/{conversation}").status_code == 204
        with pytest.raises(websockets.ConnectionClosed) as closed:
            await client.until(lambda frame: False, 8)
        assert closed.value.rcvd is not None
        assert closed.value.rcvd.code == 4404
