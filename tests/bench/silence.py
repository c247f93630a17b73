"""Websockets on which nothing happens: what each costs, and what happens when many come back at once."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable

from tests.bench.client import Chat, close_all
from tests.bench.measures import AT_ONCE, Bench, Side, opened, quiet
from tests.bench.servers import Product, Relay
from tests.bench.table import Figures

IDLE, STORM, STORM_NEWS = 2000, 500, 50


async def idle(bench: Bench, side: Side) -> Figures:
    """What a silent websocket costs, and, at the product, 500 that come back at once."""
    if isinstance(side, Relay):
        _, kilobytes = await _silent(side, side.chat)
        return {"KB": kilobytes}
    conversations = [await side.conversation() for _ in range(STORM)]
    following = iter(conversations * (IDLE // STORM + 1))
    chats, kilobytes = await _silent(side, lambda: side.join(next(following)))
    close_all(chats)
    await quiet(side)
    return {"KB": kilobytes, "storm": await storm(bench, side, conversations)}


async def _silent(side: Side, make: Callable[[], Awaitable[Chat]]) -> tuple[list[Chat], float]:
    warm = await opened(AT_ONCE, make)
    await warm[0].ask(n=5)
    await quiet(side)
    before = side.memory()
    chats = await opened(IDLE, make)
    await quiet(side)
    kilobytes = (side.memory() - before) / IDLE / 1024
    close_all(warm)
    if isinstance(side, Relay):
        close_all(chats)
    return chats, kilobytes


async def storm(bench: Bench, product: Product, conversations: list[str]) -> float:
    """Seconds until all are caught up. Some have news, written while nobody listened."""
    turn = '{"n": 5}'
    chats = [await product.join(conversation) for conversation in conversations]
    knew = [chat.seq for chat in chats]
    close_all(chats)
    for conversation in conversations[:STORM_NEWS]:
        await product.post(conversation, turn)
    await quiet(product)
    began = time.perf_counter()
    back = await asyncio.gather(
        *(product.join(c, after) for c, after in zip(conversations, knew, strict=True)), return_exceptions=True
    )
    took = time.perf_counter() - began
    for number, (chat, after) in enumerate(zip(back, knew, strict=True)):
        _came_back(bench, number, chat, after)
    close_all(chat for chat in back if isinstance(chat, Chat))
    return took


def _came_back(bench: Bench, number: int, chat: Chat | BaseException, after: int) -> None:
    if isinstance(chat, BaseException):
        bench.lost.append(f"storm: socket {number} did not come back: {chat!r}")
        return
    newest = chat.caught_up.result()
    if chat.seqs != list(range(after + 1, newest + 1)) or (number < STORM_NEWS and newest == after):
        bench.lost.append(f"storm: socket {number} asked after {after}, caught up at {newest}, got {chat.seqs}")
