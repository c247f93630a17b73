"""The model phase of a turn: ask until a response is whole, its blocks streaming meanwhile, and record it."""

from __future__ import annotations

import asyncio
import logging
import time
from dataclasses import dataclass, field
from typing import Literal

from chatapp.runtime.errors import ProviderError, ToolFailed
from chatapp.runtime.events import BlockRef, DeltaType
from chatapp.runtime.ids import new_id
from chatapp.runtime.messages import (
    ModelMessage,
    Piece,
    RequestedCall,
    Usage,
    has_media,
    load,
    repair,
    with_media,
)
from chatapp.runtime.ports import BlockEnd, CutBlock, Failure, ModelAnswer, ModelCall, NewCall, Next, Request
from chatapp.runtime.signals import Stopped
from chatapp.runtime.tool_phase import judge
from chatapp.runtime.toolsets.agents import LEAF, guide
from chatapp.runtime.turn import Turn

logger = logging.getLogger(__name__)

STEP_RETRIES = 2
DELTA = {"text": DeltaType.TEXT, "thinking": DeltaType.THINKING, "call": DeltaType.TOOL_CALL}


@dataclass
class OpenBlock:
    """A part of the response as it streams; its deltas go to the feed, its whole to the ledger at the end."""

    ref: BlockRef
    kind: Literal["text", "thinking", "call"]
    index: int
    tool_name: str = ""
    pieces: list[str] = field(default_factory=list)

    def cut(self) -> CutBlock:
        return CutBlock(self.ref.block_id, self.kind, "".join(self.pieces), self.tool_name)


@dataclass
class Attempt:
    """One model request under way."""

    request: Request
    model: str
    began: float = field(default_factory=time.monotonic)
    blocks: dict[int, OpenBlock] = field(default_factory=dict)
    stream: ModelAnswer | None = None

    def call(self, error: str = "") -> ModelCall:
        usage = Usage(requests=1)
        if self.stream is not None and self.stream.started:
            usage = self.stream.completion(partial=True).usage
        return ModelCall(usage, round((time.monotonic() - self.began) * 1000), error)

    def cut(self) -> list[CutBlock]:
        return [block.cut() for _, block in sorted(self.blocks.items())]


async def model_phase(turn: Turn, request: Request) -> Next:
    """Ask until a response is whole: the step again up to twice when the stream broke, then the fallback model."""
    tries = [request.model] * (1 + STEP_RETRIES)
    if turn.kit.fallback_model and turn.kit.fallback_model != request.model:
        tries.append(turn.kit.fallback_model)
    number = 0
    while True:
        attempt = Attempt(request, tries[number])
        try:
            await turn.signals.unless_stopped(_stream(turn, attempt))
            return await _record(turn, attempt)
        except Stopped:
            return await _interrupted(turn, attempt)
        except ProviderError as error:
            _close(turn, attempt)
            if error.code == "rejected" and turn.media and has_media(turn.transcript):
                # One picture that the provider does not take must not end the conversation.
                turn.media = False
                continue
            number = _next_try(number, tries, attempt, error)
            if number == len(tries):
                return await _failed(turn, attempt, error)
            await turn.ledger.retry_step(
                turn.work.hold, attempt.cut(), attempt.call(error.code), number, error.code, tries[number]
            )


def _next_try(number: int, tries: list[str], attempt: Attempt, error: ProviderError) -> int:
    """The next try's index, `len(tries)` when there is none.

    Before the first piece the provider's client has retried already, so the same model is not asked again; nor
    where again cannot help.
    """
    broke = attempt.stream is not None and attempt.stream.started and error.retryable
    same_left = number < STEP_RETRIES and attempt.model == tries[0]
    if broke and same_left:
        return number + 1
    fallback = STEP_RETRIES + 1
    return fallback if number < fallback < len(tries) else len(tries)


async def _stream(turn: Turn, attempt: Attempt) -> None:
    request, agent, feed = attempt.request, attempt.request.agent, turn.kit.feed
    tools = turn.tools(agent, request.delegates)
    messages = await _with_files(turn, attempt.model, repair(turn.transcript))
    async with turn.kit.models.stream(
        attempt.model, messages, instructions=await _prompt(turn, request), tools=tools, tools_off=request.tools_off,
        temperature=agent.temperature, top_p=agent.top_p,
    ) as stream:  # fmt: skip
        attempt.stream = stream
        async for piece in stream:
            block = attempt.blocks.get(piece.index)
            if block is None:
                block = await _begin(turn, attempt, piece)
            if piece.text:
                block.pieces.append(piece.text)
                feed.delta(block.ref, piece.text)


async def _prompt(turn: Turn, request: Request) -> str:
    """The agent's own, what it may hand on, and what it is to somebody else."""
    parts = [request.agent.prompt]
    if request.delegates and any(tool.name == "agent_spawn" for tool in turn.tools(request.agent, delegates=True)):
        listed = (await turn.agents()).listed(request.agent.handoff, request.depth, request.depth_limit)
        parts.append(guide(listed))
    if request.source:
        parts.append(LEAF)
    return "\n\n".join(part for part in parts if part)


async def _with_files(turn: Turn, model: str, messages: list[ModelMessage]) -> list[ModelMessage]:
    """Attached pictures as the workspace has them now; what was deleted since is named in the text only."""
    if not has_media(messages):
        return messages
    if not (turn.media and turn.kit.models.takes_media(model)):
        return with_media(messages, None)
    workspace = turn.files()

    def read(path: str) -> bytes | None:
        try:
            return workspace.read(path)
        except ToolFailed:
            return None

    return await asyncio.to_thread(with_media, messages, read)


async def _begin(turn: Turn, attempt: Attempt, piece: Piece) -> OpenBlock:
    """START is a row before the first delta, so that whoever joins knows of the block."""
    hold, request = turn.work.hold, attempt.request
    block_id = new_id()

    def ref(start_seq: int) -> BlockRef:
        return BlockRef(
            DELTA[piece.kind], hold.conversation_id, hold.session_id, request.source, request.reply_id, block_id,
            start_seq, hold.generation,
        )  # fmt: skip

    attempt.blocks[piece.index] = OpenBlock(ref(0), piece.kind, piece.index, piece.tool_name)
    seq = await turn.ledger.begin_block(hold, piece.kind, block_id, piece.tool_name)
    attempt.blocks[piece.index].ref = ref(seq)
    return attempt.blocks[piece.index]


def _close(turn: Turn, attempt: Attempt) -> None:
    turn.kit.feed.close(turn.work.hold.conversation_id, [block.ref.block_id for block in attempt.blocks.values()])


async def _record(turn: Turn, attempt: Attempt) -> Next:
    assert attempt.stream is not None
    done = attempt.stream.completion()
    if not done.calls and not done.text.strip() and not _answered_before(turn):
        raise ProviderError("The model answered with nothing. Try again.", code="empty_reply", retryable=True)
    _close(turn, attempt)
    calls = [_judged(turn, attempt, call, place) for place, call in enumerate(done.calls)]
    texts = {block.index: block.text for block in done.blocks}
    blocks = [
        BlockEnd(block.ref.block_id, block.kind, texts.get(index, "".join(block.pieces)))
        for index, block in sorted(attempt.blocks.items())
        if block.kind != "call"
    ]
    if done.payload is not None:
        turn.transcript.append(load(done.payload))
    call = ModelCall(done.usage, round((time.monotonic() - attempt.began) * 1000))
    return await turn.ledger.record_response(turn.work.hold, done, blocks, calls, call)


def _judged(turn: Turn, attempt: Attempt, call: RequestedCall, place: int) -> NewCall:
    block = attempt.blocks.get(call.index)
    new = NewCall(
        block.ref.block_id if block else new_id(), place, call.provider_call_id, call.name, call.args, call.args_text
    )
    return judge(turn, attempt.request, new)


def _answered_before(turn: Turn) -> bool:
    """After tool results a model may end without a word; right after the person's message it may not."""
    return bool(turn.transcript) and any(p.part_kind == "tool-return" for p in turn.transcript[-1].parts)


async def _interrupted(turn: Turn, attempt: Attempt) -> Next:
    _close(turn, attempt)
    partial = None
    if attempt.stream is not None and attempt.stream.started:
        partial = attempt.stream.completion(partial=True)
        if partial.payload is not None:
            turn.transcript.append(load(partial.payload))
    reply_id = attempt.request.reply_id
    return await turn.ledger.interrupt(turn.work.hold, reply_id, partial, attempt.cut(), attempt.call())


async def _failed(turn: Turn, attempt: Attempt, error: ProviderError) -> Next:
    failure = Failure(new_id()[:12], error.code, error.detail, error.retryable)
    logger.warning("reply failed id=%s model=%s code=%s: %s", failure.id, attempt.model, error.code, error.detail)
    return await turn.ledger.fail(turn.work.hold, failure, attempt.cut(), attempt.call(error.code))
