"""The demo model: scripted answers that stream like a real model's, chosen from the last message."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass
from typing import Any

from pydantic_ai.exceptions import ModelHTTPError
from pydantic_ai.messages import ModelMessage, ModelRequest, ToolReturnPart, UserPromptPart
from pydantic_ai.models.function import AgentInfo, DeltaToolCall, DeltaToolCalls, FunctionModel

WORDS_PER_SECOND = 40.0
LONGEST = 5000
QUOTE = 200

CONNECT = """\
To connect a real model, set `OPENAI_API_KEY` or `ANTHROPIC_API_KEY`, or `OPENAI_BASE_URL` for a server of your own \
such as vLLM or llama.cpp, and start Branchline again. A local Ollama is found by itself."""

HELP = f"""\
Hello! I am the **demo model**: my answers are scripted, no language model is behind them. They stream like real ones, \
so you can see how this chat works. Try one of these:

- `show me markdown` for a table, code and a task list
- `list files` or `read notes.md` for a tool call
- `make a plan` for a todo list
- `slow 300` for a long answer that you can stop
- `delegate to a researcher`, `delegate to four` or `delegate and fail` for subagents at work

{CONNECT}"""

MARKDOWN = """\
## What Markdown looks like here

A table:

| Part | Does | State |
|:--|:--|--:|
| Ledger | keeps every message and event | 100 % |
| Turn | reads the ledger, does the next right thing | 80 % |
| Feed | brings it to *every* open page | ~~40~~ 60 % |

Some code:

```python
def fibonacci(n: int) -> int:
    a, b = 0, 1
    for _ in range(n):
        a, b = b, a + b
    return a


print([fibonacci(n) for n in range(10)])
```

And a task list:

- [x] stream the answer
- [x] render it while it grows
- [ ] connect a real model

> Scripted, as everything the demo model says."""

TODOS = (
    {"content": "Understand the question", "status": "completed"},
    {"content": "Find the facts", "status": "in_progress"},
    {"content": "Write the answer", "status": "pending"},
)


@dataclass(frozen=True)
class Say:
    text: str


@dataclass(frozen=True)
class Call:
    tool: str
    args: dict[str, Any]


Step = Say | Call
Script = Callable[[re.Match[str]], tuple[Step, ...]]


def _slow(match: re.Match[str]) -> tuple[Step, ...]:
    count = min(int(match["n"] or 200), LONGEST)
    return (Say(" ".join(f"w{number}" for number in range(1, count + 1)) or "Nothing."),)


def _read(match: re.Match[str]) -> tuple[Step, ...]:
    path = match["path"].rstrip(".,;:!?")
    return Say(f"Let me read `{path}`."), Call("read_file", {"path": path})


def _delegate(match: re.Match[str]) -> tuple[Step, ...]:
    """One subagent, four side by side, two of which one fails, or one that has one of its own."""
    how = match["how"].lower()
    if how in ("four", "vier", "4"):
        tasks = [
            ("researcher", "slow 60"),
            ("reviewer", "slow 40"),
            ("writer", "show me markdown"),
            ("planner", "slow 80"),
        ]
        said = "Four can work on this side by side."
    elif how in ("fail", "scheitern"):
        tasks = [("researcher", "slow 40"), ("writer", "fail")]
        said = "Two begin; one of them will fail."
    elif how in ("deeply", "tief"):
        tasks = [("researcher", "delegate to a colleague")]
        said = "A researcher gets this, and may hand it on."
    else:
        tasks = [("researcher", "slow 60")]
        said = "I hand this to a researcher."
    return (Say(said), *(Call("agent_spawn", {"agent_id": name, "task": task}) for name, task in tasks))


SCRIPTS: tuple[tuple[re.Pattern[str], Script], ...] = (
    (re.compile(r"(?i)\b(?:delegate|hand|deleg\w*)\b.*?\b(?P<how>four|vier|4|fail|scheitern|\w+)\W*$"), _delegate),
    (re.compile(r"(?i)\b(?:slow|long|langsame)\b\D*(?P<n>\d{1,6})?"), _slow),
    (re.compile(r"(?i)\b(?:list|show)\b.*\bfiles\b|\bliste\b.*\bdateien\b"),
     lambda _: (Say("Let me look."), Call("list_files", {}))),
    (re.compile(r"(?i)\b(?:read|open)\s+(?:the\s+)?(?:file\s+)?[`'\"]?(?P<path>[^\s`'\"]+)"), _read),
    (re.compile(r"(?i)\bwhat(?:'s| is) in\s+[`'\"]?(?P<path>[^\s`'\"]+\.\w+)"), _read),
    (re.compile(r"(?i)\bwhat(?:'s| is) in\b"), lambda _: (Say("Let me look."), Call("list_files", {}))),
    (re.compile(r"(?i)\b(?:todo|plan)\b"), lambda _: (Say("I keep a list."), Call("todo_write", {"todos": TODOS}))),
    (re.compile(r"(?i)\b(?:markdown|table|code)\b"), lambda _: (Say(MARKDOWN),)),
    (re.compile(r"(?i)^\W*(?:hi|hello|hey|hallo|help|good (?:morning|day|evening))\b|\bwhat can you\b|\bwho are you\b"),
     lambda _: (Say(HELP),)),
)  # fmt: skip


class DemoModel(FunctionModel):
    """`words_per_second` 0 does not wait at all."""

    def __init__(self, words_per_second: float = WORDS_PER_SECOND) -> None:
        super().__init__(stream_function=self._stream, model_name="demo")
        self._pause = 1 / words_per_second if words_per_second else 0.0

    async def _stream(self, messages: list[ModelMessage], info: AgentInfo) -> AsyncIterator[str | DeltaToolCalls]:
        off = (info.model_settings or {}).get("tool_choice") == "none"
        tools = frozenset() if off else frozenset(tool.name for tool in info.function_tools)
        for place, step in enumerate(script(messages, tools)):
            if isinstance(step, Say):
                async for word in self._spoken(step.text):
                    yield word
            else:
                async for delta in self._written(place, step):
                    yield delta

    async def _spoken(self, text: str) -> AsyncIterator[str]:
        for word in re.findall(r"\s*\S+|\s+$", text):
            yield word
            await asyncio.sleep(self._pause)

    async def _written(self, place: int, call: Call) -> AsyncIterator[DeltaToolCalls]:
        args = json.dumps(call.args)
        yield {place: DeltaToolCall(name=call.tool, json_args=args[:1])}
        for start in range(1, len(args), 16):
            await asyncio.sleep(self._pause)
            yield {place: DeltaToolCall(json_args=args[start : start + 16])}


def script(messages: Sequence[ModelMessage], tools: frozenset[str]) -> tuple[Step, ...]:
    """What to do next: always the same for the same last message and results."""
    asked, results = _last_turn(messages)
    if results:
        return (Say(_after(results)),)
    if asked.strip().lower() == "fail":
        raise ModelHTTPError(503, "demo", {"message": "The demo model was asked to fail."})
    for pattern, steps in SCRIPTS:
        if match := pattern.search(asked):
            wanted = steps(match)
            if missing := [step.tool for step in wanted if isinstance(step, Call) and step.tool not in tools]:
                return (Say(f"I would call `{missing[0]}` for this, but that tool is not offered to me now."),)
            return wanted
    return (Say(_echo(asked)),)


def _last_turn(messages: Sequence[ModelMessage]) -> tuple[str, list[ToolReturnPart]]:
    """The person's last words and the results that came since."""
    asked, results = "", list[ToolReturnPart]()
    for message in messages:
        for part in message.parts if isinstance(message, ModelRequest) else ():
            if isinstance(part, UserPromptPart):
                asked, results = part.content if isinstance(part.content, str) else str(part.content[0]), []
            elif isinstance(part, ToolReturnPart):
                results.append(part)
    return asked, results


def _after(results: Sequence[ToolReturnPart]) -> str:
    if len(results) > 1 or results[-1].tool_name == "agent_spawn":
        return _joined(results)
    last = results[-1]
    output = str(last.content)
    if last.outcome != "success":
        return f"That did not work: {_quoted(output)}"
    lines = [line for line in output.splitlines() if line.strip()]
    if last.tool_name == "todo_write":
        return "The list is written. With a real model I would now work through it, step by step."
    if last.tool_name == "list_files":
        return f"The workspace shows {len(lines)} line{'' if len(lines) == 1 else 's'}; unfold the call above for them."
    first = f" It begins: {_quoted(lines[0])}" if lines else " It is empty."
    return f"`{last.tool_name}` answered with {len(output)} characters.{first}"


def _joined(results: Sequence[ToolReturnPart]) -> str:
    """What several, or a subagent, came back with."""
    lines = []
    for result in results:
        text = str(result.content)
        named = re.search(r"^agent_id: (.+)$", text, re.MULTILINE)
        said = text.rpartition("reply:\n")[2] if result.outcome == "success" else text.rpartition("error: ")[2]
        how = "" if result.outcome == "success" else "did not manage: "
        lines.append(f"- **{named[1] if named else result.tool_name}** {how}{_quoted(said)[:80]}")
    back = "It is back" if len(results) == 1 else f"All {len(results)} are back"
    return f"{back}:\n\n" + "\n".join(lines)


def _echo(asked: str) -> str:
    return (
        f"You wrote:\n\n> {_quoted(asked) or 'nothing that I can quote'}\n\n"
        f"I am the demo model: my answers are scripted, and I have none for this. Say `help` to see what I know. "
        f"{CONNECT}"
    )


def _quoted(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= QUOTE else line[:QUOTE] + "…"
