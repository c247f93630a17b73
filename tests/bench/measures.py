"""The measurements: each puts one load on one side and answers its figures by name."""

from __future__ import annotations

import asyncio
import gc
import random
import statistics
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

from tests.bench.client import Chat, Turn, close_all
from tests.bench.model import now
from tests.bench.servers import Product, Relay
from tests.bench.table import Figures

Side = Product | Relay
RATE = 50
STAGGER = 1.0
BURST_CHATS, BURST_TOKENS = 10, 500
SUSTAINED = (25, 50, 100, 150, 200, 300, 400)
HISTORY = 1000
# As long as people's messages are in the peers' measurements.
MESSAGE_CHARS = 200
AT_ONCE = 20


@dataclass
class Bench:
    """One run: how long its streams are, and what the rounds keep between them."""

    seconds: float
    product: Product
    long_conversation: str = ""
    lost: list[str] = field(default_factory=list)


def percentile(values: list[float], share: float) -> float:
    return sorted(values)[min(len(values) - 1, int(share * len(values)))]


async def opened(count: int, make: Callable[[], Awaitable[Chat]]) -> list[Chat]:
    gate = asyncio.Semaphore(AT_ONCE)

    async def one() -> Chat:
        async with gate:
            return await make()

    return list(await asyncio.gather(*(one() for _ in range(count))))


async def quiet(side: Side, seconds: float = 30) -> None:
    """Until the server rests: what an overloaded one still has to do is not the next figure's business."""
    gc.collect()
    for _ in range(int(seconds / 0.2)):
        before = side.cpu()
        await asyncio.sleep(0.2)
        if side.cpu() - before < 0.02:
            return


def check(bench: Bench, side: Side, turns: list[Turn]) -> None:
    """The deltas are the beginning of the text that the ledger has."""
    if wrong := sum(turn.wrong for turn in turns):
        bench.lost.append(f"{side.NAME}: in {wrong} of {len(turns)} answers the deltas are not the stored text")


async def paced(bench: Bench, side: Side, chats: int) -> Figures:
    """Chats of 50 tokens/s. Figures of the time in which all of them stream, CPU of all of it."""
    people = await opened(chats, side.chat)
    await quiet(side)
    dice = random.Random(1)
    length = int(RATE * (bench.seconds + STAGGER))

    async def one(chat: Chat) -> None:
        await asyncio.sleep(dice.random() * STAGGER)
        await chat.ask(length / RATE + 5, n=length, rate=RATE)

    begins = now() + int((STAGGER + 0.3) * 1e6)
    ends = begins + int((bench.seconds - 0.3) * 1e6)
    cpu = side.cpu()
    ended = await asyncio.gather(*(one(chat) for chat in people), return_exceptions=True)
    cpu = side.cpu() - cpu
    close_all(people)
    turns = [chat.turn for chat in people]
    check(bench, side, turns)
    await quiet(side)
    return {**_paced_figures(turns, begins, ends, cpu), "unfinished": sum(1 for end in ended if end is not None)}


def _paced_figures(turns: list[Turn], begins: int, ends: int, cpu: float) -> Figures:
    inside = [age for turn in turns for at, age in zip(turn.read_at, turn.ages, strict=True) if begins <= at < ends]
    offered = len(turns) * RATE * (ends - begins) / 1e6
    got = sum(len(turn.ages) for turn in turns)
    ages = inside or [60_000.0]
    return {
        "p50": percentile(ages, 0.5),
        "p95": percentile(ages, 0.95),
        "p99": percentile(ages, 0.99),
        "delivered": len(inside) / offered,
        "cpu": 1000 * cpu / max(got, 1),
        "first": statistics.median([turn.first for turn in turns if turn.read_at] or [60_000.0]),
        "tokens a frame": got / max(sum(turn.frames for turn in turns), 1),
    }


async def delay10(bench: Bench, side: Side) -> Figures:
    return await paced(bench, side, 10)


async def delay50(bench: Bench, side: Side) -> Figures:
    return await paced(bench, side, 50)


async def sustained(bench: Bench, side: Side) -> Figures:
    """The most chats that are served in time. The relay is asked from the top: it takes them all."""
    best = 0
    for chats in SUSTAINED if isinstance(side, Product) else reversed(SUSTAINED):
        found = await paced(bench, side, chats)
        good = found["delivered"] >= 0.95 and found["p95"] <= 200
        best = max(best, chats if good else 0)
        if good != isinstance(side, Product):
            break
    return {"chats": best}


async def burst(bench: Bench, side: Side) -> Figures:
    """Ten chats as fast as it goes, three times."""
    people = await opened(BURST_CHATS, side.chat)
    await asyncio.gather(*(chat.ask(n=5) for chat in people))
    took = cpu = 0.0
    turns: list[Turn] = []
    for _ in range(3):
        await quiet(side)
        used, began = side.cpu(), time.perf_counter()
        turns += await asyncio.gather(*(chat.ask(120, n=BURST_TOKENS) for chat in people))
        took += time.perf_counter() - began
        cpu += side.cpu() - used
    close_all(people)
    check(bench, side, turns)
    got = sum(len(turn.ages) for turn in turns)
    frames = sum(turn.frames for turn in turns)
    return {"rate": got / took, "cpu": 1000 * cpu / got, "tokens a frame": got / frames}


async def tool(bench: Bench, side: Side) -> Figures:
    """A turn that calls a tool, each in a fresh conversation."""
    people = await opened(12, side.chat)
    await quiet(side)
    turns = [await chat.ask(n=1, tool="list_files") for chat in people]
    close_all(people)
    return {"ms": statistics.median(turn.length for turn in turns[2:])}


async def subagents(bench: Bench, side: Side) -> Figures:
    """A turn that hands work to four at once, each in a session of its own that is stored."""
    people = await opened(8, side.chat)
    await quiet(side)
    turns = [await chat.ask(n=1, spawn=4) for chat in people]
    close_all(people)
    return {"ms": statistics.median(turn.length for turn in turns[2:])}


async def history(bench: Bench, side: Side) -> Figures:
    """The first token at 1,000 messages; the relay knows no history and answers as ever."""
    if isinstance(side, Product):
        bench.long_conversation = bench.long_conversation or await grown(side)
        chat = await side.join(bench.long_conversation)
    else:
        chat = await side.chat()
    await chat.ask(n=20)
    await quiet(side)
    turns = [await chat.ask(n=20) for _ in range(6)]
    chat.close()
    return {"first": statistics.median(turn.first for turn in turns)}


async def opening(bench: Bench, side: Side) -> Figures:
    """The page of a conversation of 1,000 messages, as a browser asks for it."""
    assert isinstance(side, Product)
    bench.long_conversation = bench.long_conversation or await grown(side)
    browser = await side.browser()
    took = []
    for _ in range(7):
        began = time.perf_counter()
        page = await browser.get(f"/c/{bench.long_conversation}/")
        took.append((time.perf_counter() - began) * 1000)
        assert page.status_code == 200, page
    await browser.aclose()
    return {"ms": statistics.median(took[1:]), "KB": len(page.content) / 1024}


async def grown(product: Product) -> str:
    """A conversation of 1,000 messages, by turns as people have them."""
    conversation = await product.conversation()
    chat = await product.join(conversation)
    for _ in range(HISTORY // 2):
        await chat.ask(n=20, pad="x" * (MESSAGE_CHARS - 20))
    chat.close()
    return conversation


async def start(bench: Bench, side: Side) -> Figures:
    """`up` again, to the first page."""
    side.stop()
    began = time.perf_counter()
    side.start()
    return {"s": time.perf_counter() - began}
