"""The tool phase of a turn: run a step's calls side by side, wait for subagents, settle each result as it comes."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import replace
from typing import Literal

from pydantic import ValidationError

from chatapp.runtime.errors import ToolFailed
from chatapp.runtime.messages import clean
from chatapp.runtime.ports import Calls, NewCall, Next, OpenCall, Request
from chatapp.runtime.signals import Stopped
from chatapp.runtime.tools import Answered, Open, Tool, ToolContext
from chatapp.runtime.toolsets.files import make
from chatapp.runtime.turn import Turn

logger = logging.getLogger(__name__)

NEEDS_OK = "Not executed: this tool needs a person's OK, and nobody can be asked for it here yet."
TOOL_BUG = "This tool broke: a fault of the tool, not of the arguments. Do not call it the same way again."
# A lingering host looks so often whether its subagents still run here.
LOOK_SECONDS = 1.0


def judge(turn: Turn, request: Request, new: NewCall) -> NewCall:
    """The loop's verdict on a call: it starts with the response's transaction, waits its turn, or is refused."""
    tool = _tool(turn.tools(request.agent, request.delegates), new.name)
    if len(new.args_text) > turn.kit.args_limit:
        new = replace(new, args=None, args_text=new.args_text[:200] + "…")
        return _refused(new, "error", f"The arguments are longer than {turn.kit.args_limit} characters. Send less.")
    problem = _problem(tool, new)
    if tool is None or problem:
        return _refused(new, "error", problem)
    if tool.default == "ask":
        return _refused(new, "denied", NEEDS_OK)
    at_once = not tool.opens and new.index < turn.kit.parallel_tools
    return replace(new, read_only=tool.read_only, verdict="started" if at_once else "new")


def _refused(new: NewCall, verdict: Literal["error", "denied"], output: str) -> NewCall:
    return replace(new, verdict=verdict, output=output)


def _tool(tools: list[Tool], name: str) -> Tool | None:
    return next((tool for tool in tools if tool.name == name), None)


def _problem(tool: Tool | None, call: NewCall) -> str:
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
    """Run what is open; the result that is settled last says what is next."""
    try:
        async with asyncio.TaskGroup() as group:
            return await _Step(turn, phase, group).run()
    except BaseExceptionGroup as several:
        # Stopped, or one that ends the turn: the engine tells them apart by their own class.
        first = several.exceptions[0]
        if isinstance(first, Stopped):
            return await turn.ledger.interrupt(turn.work.hold, phase.reply_id, None, [], None)
        raise first from None


class _Step:
    """A fork-join barrier over the calls of one step. A call to a subagent keeps its place until it is answered."""

    def __init__(self, turn: Turn, phase: Calls, group: asyncio.TaskGroup) -> None:
        self.turn = turn
        self.group = group
        self.tools = turn.tools(phase.agent, phase.delegates)
        own = phase.agent.workspace
        self.model = turn.kit.project / own.path if own.path and own.mode == "isolated" else None
        self.limit = min(turn.kit.parallel_tools, phase.agent.parallel_tools or turn.kit.parallel_tools)
        self.pending = list(phase.calls)
        self.running = 0
        self.waiting = set(phase.waiting)
        self.due_in = phase.due_in
        self.following: Next | None = None
        # Two that settle at once must not both look what is next.
        self.order = asyncio.Lock()

    async def run(self) -> Next:
        signals = self.turn.signals
        for child in self.waiting:
            self.turn.near.host(child)
        while self.following is None:
            while self.pending and self.running + len(self.waiting) < self.limit:
                self.running += 1
                self.group.create_task(self._one(self.pending.pop(0)))
            if self.waiting and not self.running and not self._lingers():
                await self._settle(lambda: self.turn.ledger.wait(self.turn.work.hold))
            elif self.waiting and signals.bell:
                signals.bell = False
                await self._settle(lambda: self.turn.ledger.hear_answers(self.turn.work.hold))
            else:
                await signals.unless_stopped(self._rung())
        return self.following

    def _lingers(self) -> bool:
        turn = self.turn
        near = any(turn.near.busy(child) for child in self.waiting)
        return near and turn.kit.lingers and not turn.signals.draining

    async def _rung(self) -> None:
        """Until the doorbell, the end of a call that runs here, or the time to look."""
        rang = self.turn.signals.rang
        if not self.waiting:
            await rang.wait()
        else:
            with suppress(TimeoutError):
                async with asyncio.timeout(min(LOOK_SECONDS, max(0.0, self.due_in or LOOK_SECONDS))):
                    await rang.wait()
            # The clock of a call may be over.
            self.turn.signals.bell = True
        rang.clear()

    async def _settle(self, write: Callable[[], Awaitable[Next | None]]) -> None:
        async with self.order:
            if self.following is not None:
                return
            found = await write()
            if isinstance(found, Calls):
                self.waiting, self.due_in = set(found.waiting), found.due_in
            else:
                self.following = found

    async def _one(self, call: OpenCall) -> None:
        """`started` is a row before the side effect; whatever the tool does, the call gets one result.

        Only the tool itself can be stopped: a settle that was broken off would lose what comes next.
        """
        ledger, hold = self.turn.ledger, self.turn.work.hold
        tool = _tool(self.tools, call.name)
        if not call.started and not (tool and tool.opens):
            await ledger.start_call(hold, call.id)
        answer = await self.turn.signals.unless_stopped(self._answer(tool, call))
        if isinstance(answer, Open):
            await self._delegate(call, answer)
        else:
            if tool and tool.opens:
                await ledger.start_call(hold, call.id)
            output, truncated = await self._fit(call, clean(answer.output))
            await self._settle(lambda: ledger.settle(hold, call.id, answer.state, output, truncated))
        # Not before: a step in which nothing runs may rest.
        self.running -= 1
        self.turn.signals.rang.set()

    async def _delegate(self, call: OpenCall, answer: Open) -> None:
        async def opened() -> Next | None:
            made = await self.turn.ledger.delegate(self.turn.work.hold, call.id, answer.wish)
            if made.child_id:
                self.waiting.add(made.child_id)
                self.turn.near.host(made.child_id)
            return made.next

        await self._settle(opened)

    async def _answer(self, tool: Tool | None, call: OpenCall) -> Answered | Open:
        if tool is None:
            return Answered(f"There is no tool named {call.name[:100]!r} any more.", "error")
        try:
            context = await self._context(tool, call)
            await asyncio.to_thread(make, context.workspace, self.model)
            return await tool.run(context, tool.arguments.model_validate(call.args))
        except ToolFailed as failed:
            return Answered(failed.detail, "error")
        except Exception:
            # The turn's door: a tool's bug is a result, with its traceback in the log.
            logger.exception("tool %s broke in session %s", call.name, self.turn.work.hold.session_id)
            return Answered(TOOL_BUG, "error")

    async def _context(self, tool: Tool, call: OpenCall) -> ToolContext:
        turn, kit = self.turn, self.turn.kit
        hold = turn.work.hold
        context = ToolContext(
            hold.session_id, hold.conversation_id, turn.work.owner_id, call.id, turn.folder, kit.file_limit,
            kit.workspace_limit,
        )  # fmt: skip
        return replace(context, roster=await turn.agents()) if tool.opens else context

    async def _fit(self, call: OpenCall, output: str) -> tuple[str, bool]:
        """Cut what is too long for the model; the whole goes into a file of the workspace, if there is room."""
        limit = self.turn.kit.result_limit
        if len(output) <= limit:
            return output, False
        kept, name = output[:limit], f"results/{call.id}.txt"
        cut = f"{kept}\n… cut after {len(kept)} of {len(output)} characters"
        try:
            await asyncio.to_thread(self.turn.files().write, name, output.encode())
        except ToolFailed:
            return f"{cut}.", True
        return f"{cut}; the whole is in {name}.", True
