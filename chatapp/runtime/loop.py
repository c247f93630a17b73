"""The turn: `advance` takes a claimed session from where its rows stand to rest, one checkpoint after another."""

from __future__ import annotations

import asyncio
import logging
import time
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal, TypeVar

from pydantic import ValidationError

from chatapp.runtime.errors import ProviderError, ToolFailed
from chatapp.runtime.events import BlockRef, DeltaType
from chatapp.runtime.ids import new_id
from chatapp.runtime.messages import (
    ModelMessage,
    Piece,
    RequestedCall,
    Usage,
    clean,
    has_media,
    load,
    load_all,
    repair,
    with_media,
)
from chatapp.runtime.ports import (
    BlockEnd,
    Calls,
    CutBlock,
    Failure,
    Feed,
    Ledger,
    ModelAnswer,
    ModelCall,
    ModelSource,
    NewCall,
    Next,
    OpenCall,
    Request,
    Rested,
    Work,
)
from chatapp.runtime.signals import Signals, Stopped
from chatapp.runtime.tools import Answered, Tool, ToolContext
from chatapp.runtime.toolsets.files import Workspace

logger = logging.getLogger(__name__)
T = TypeVar("T")

STEP_RETRIES = 2
DELTA = {"text": DeltaType.TEXT, "thinking": DeltaType.THINKING, "call": DeltaType.TOOL_CALL}
NEEDS_OK = "Not executed: this tool needs a person's OK, and nobody can be asked for it here yet."
TOOL_BUG = "This tool broke: a fault of the tool, not of the arguments. Do not call it the same way again."


@dataclass(frozen=True)
class Kit:
    """What a turn works with; one for each process."""

    ledger: Ledger
    feed: Feed
    models: ModelSource
    tools: tuple[Tool, ...]
    workspaces: Path
    parallel_tools: int = 8
    result_limit: int = 50_000
    args_limit: int = 256 * 1024
    file_limit: int = 10 * 1024 * 1024
    workspace_limit: int = 200 * 1024 * 1024
    fallback_model: str = ""


@dataclass
class Turn:
    """A claimed session in this process: its fence, its transcript so far, and how it is told to stop."""

    work: Work
    kit: Kit
    signals: Signals
    transcript: list[ModelMessage]
    media: bool = True

    @property
    def ledger(self) -> Ledger:
        return self.kit.ledger


async def advance(work: Work, kit: Kit, signals: Signals) -> None:
    """Go on until the session rests. Starting, resuming and recovering are this same call."""
    turn = Turn(work, kit, signals, load_all(work.transcript))
    following: Next = work.next
    while not isinstance(following, Rested):
        if signals.draining:
            await kit.ledger.hand_over(work.hold)
            return
        signals.enter(following.reply_id)
        if isinstance(following, Request):
            turn.transcript += load_all(following.appended)
            following = await model_phase(turn, following)
        else:
            following = await tool_phase(turn, following)


# The model phase


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
    tools = [tool for tool in turn.kit.tools if agent.tools is None or tool.name in agent.tools]
    messages = await _with_files(turn, attempt.model, repair(turn.transcript))
    async with turn.kit.models.stream(
        attempt.model, messages, instructions=agent.prompt, tools=tools, tools_off=request.tools_off,
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


async def _with_files(turn: Turn, model: str, messages: list[ModelMessage]) -> list[ModelMessage]:
    """Attached pictures as the workspace has them now; what was deleted since is named in the text only."""
    if not has_media(messages):
        return messages
    if not (turn.media and turn.kit.models.takes_media(model)):
        return with_media(messages, None)
    kit = turn.kit
    workspace = Workspace(kit.workspaces / turn.work.hold.conversation_id, kit.file_limit, kit.workspace_limit)

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
    calls = [_judge(turn, attempt, call, place) for place, call in enumerate(done.calls)]
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


# The tool phase


def _judge(turn: Turn, attempt: Attempt, call: RequestedCall, place: int) -> NewCall:
    """The loop's verdict on a call: it starts with the response's transaction, waits its turn, or is refused."""
    block = attempt.blocks.get(call.index)
    new = NewCall(
        block.ref.block_id if block else new_id(), place, call.provider_call_id, call.name, call.args, call.args_text
    )
    tool = _tool(turn, new.name)
    if len(call.args_text) > turn.kit.args_limit:
        new = replace(new, args=None, args_text=call.args_text[:200] + "…")
        return _refused(new, "error", f"The arguments are longer than {turn.kit.args_limit} characters. Send less.")
    problem = _problem(tool, call)
    if tool is None or problem:
        return _refused(new, "error", problem)
    if tool.default == "ask":
        return _refused(new, "denied", NEEDS_OK)
    verdict: Literal["started", "new"] = "started" if place < turn.kit.parallel_tools else "new"
    return replace(new, read_only=tool.read_only, verdict=verdict)


def _refused(new: NewCall, verdict: Literal["error", "denied"], output: str) -> NewCall:
    return replace(new, verdict=verdict, output=output)


def _tool(turn: Turn, name: str) -> Tool | None:
    return next((tool for tool in turn.kit.tools if tool.name == name), None)


def _problem(tool: Tool | None, call: RequestedCall) -> str:
    """Why a call cannot run, worded for the model; empty when it can."""
    if tool is None:
        return f"There is no tool named {call.name[:100]!r}."
    if call.args is None:
        return "The arguments are not a JSON object. Write them again."
    try:
        tool.arguments.model_validate(call.args)
    except ValidationError as error:
        lines = [f"{'.'.join(map(str, e['loc'])) or 'arguments'}: {e['msg']}" for e in error.errors()[:5]]
        return "Invalid arguments. " + "; ".join(lines)
    return ""


async def tool_phase(turn: Turn, phase: Calls) -> Next:
    """Run what is open side by side, each result settled as it comes; the last one says what is next."""
    gate = asyncio.Semaphore(turn.kit.parallel_tools)
    outcomes: list[Next | None] = []

    async def one(call: OpenCall) -> None:
        async with gate:
            outcomes.append(await _run_call(turn, call))

    try:
        async with asyncio.TaskGroup() as group:
            for call in phase.calls:
                group.create_task(one(call))
    except BaseExceptionGroup as several:
        # Stopped, or one that ends the turn: the engine tells them apart by their own class.
        first = several.exceptions[0]
        if isinstance(first, Stopped):
            return await turn.ledger.interrupt(turn.work.hold, phase.reply_id, None, [], None)
        raise first from None
    return next(outcome for outcome in outcomes if outcome is not None)


async def _run_call(turn: Turn, call: OpenCall) -> Next | None:
    """`started` is a row before the side effect; whatever the tool does, the call gets one result.

    Only the tool itself can be stopped: a settle that was broken off would lose what comes next.
    """
    if not call.started:
        await turn.ledger.start_call(turn.work.hold, call.id)
    answer = await turn.signals.unless_stopped(_answer(turn, call))
    output, truncated = await _fit(turn, call, clean(answer.output))
    return await turn.ledger.settle(turn.work.hold, call.id, answer.state, output, truncated)


async def _answer(turn: Turn, call: OpenCall) -> Answered:
    tool = _tool(turn, call.name)
    if tool is None:
        return Answered(f"There is no tool named {call.name[:100]!r} any more.", "error")
    context = _context(turn, call)
    try:
        await asyncio.to_thread(context.workspace.mkdir, mode=0o700, parents=True, exist_ok=True)
        return await tool.run(context, tool.arguments.model_validate(call.args))
    except ToolFailed as failed:
        return Answered(failed.detail, "error")
    except Exception:
        # The turn's door: a tool's bug is a result, with its traceback in the log.
        logger.exception("tool %s broke in session %s", call.name, context.session_id)
        return Answered(TOOL_BUG, "error")


def _context(turn: Turn, call: OpenCall) -> ToolContext:
    hold, kit = turn.work.hold, turn.kit
    workspace = kit.workspaces / hold.conversation_id
    return ToolContext(
        hold.session_id, hold.conversation_id, turn.work.owner_id, call.id, workspace, kit.file_limit,
        kit.workspace_limit,
    )  # fmt: skip


async def _fit(turn: Turn, call: OpenCall, output: str) -> tuple[str, bool]:
    """Cut what is too long for the model; the whole goes into a file of the workspace, if there is room."""
    if len(output) <= turn.kit.result_limit:
        return output, False
    kept, name = output[: turn.kit.result_limit], f"results/{call.id}.txt"
    cut = f"{kept}\n… cut after {len(kept)} of {len(output)} characters"
    try:
        await asyncio.to_thread(Workspace.of(_context(turn, call)).write, name, output.encode())
    except ToolFailed:
        return f"{cut}.", True
    return f"{cut}; the whole is in {name}.", True
