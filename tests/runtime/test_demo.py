"""The demo model: scripted, the same each time, behind the same door as every other."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest

from chatapp.runtime.messages import CallResult, Completion, Payload, Piece, load_all, tool_results, user_message
from chatapp.runtime.providers import Models, ProviderSettings
from chatapp.runtime.toolsets.todo import todo_tools
from chatapp.runtime.toolsets.workspace import workspace_tools

TOOLS = [*workspace_tools(), *todo_tools()]


async def say(
    text: str, then: Sequence[Payload] = (), pieces: list[Piece] | None = None, tools_off: bool = False, pace: float = 0
) -> Completion:
    models = Models(ProviderSettings({}, demo_words_per_second=pace))
    history = load_all([user_message(text), *then])
    async with models.stream("demo", history, instructions="Be kind.", tools=TOOLS, tools_off=tools_off) as stream:
        async for piece in stream:
            if pieces is not None:
                pieces.append(piece)
        return stream.completion()


@pytest.mark.parametrize("text", ["hello", "Hi!", "help", "what can you do?"])
async def test_it_says_that_it_is_scripted_and_how_to_connect_a_model(text: str) -> None:
    done = await say(text)
    assert "scripted" in done.text
    assert "OPENAI_API_KEY" in done.text
    assert done.calls == ()


async def test_it_shows_markdown() -> None:
    text = (await say("show me some markdown")).text
    assert all(sign in text for sign in ("| Part |", "```python", "- [x]", "## "))


@pytest.mark.parametrize(
    ("text", "tool", "args"),
    [
        ("list files", "list_files", {}),
        ("What is in here?", "list_files", {}),
        ("please read notes.md", "read_file", {"path": "notes.md"}),
        ("what is in `sub/notes.md`?", "read_file", {"path": "sub/notes.md"}),
        ("read the file a.txt.", "read_file", {"path": "a.txt"}),
    ],
)
async def test_it_calls_file_tools_and_speaks_about_the_result(text: str, tool: str, args: dict[str, str]) -> None:
    first = await say(text)
    (call,) = first.calls
    assert (call.name, call.args) == (tool, args)
    assert first.text
    assert first.payload is not None
    result = tool_results([CallResult(call.provider_call_id, tool, "first line\nsecond", ok=True)])
    second = await say(text, [first.payload, result])
    assert second.calls == ()
    assert "first line" in second.text or "2 lines" in second.text


async def test_it_tells_of_a_call_that_failed() -> None:
    first = await say("read gone.md")
    assert first.payload is not None
    result = tool_results(
        [CallResult(first.calls[0].provider_call_id, "read_file", "There is no file gone.md.", ok=False)]
    )
    assert "There is no file gone.md." in (await say("read gone.md", [first.payload, result])).text


async def test_it_writes_a_todo_list() -> None:
    (call,) = (await say("make a plan")).calls
    assert call.name == "todo_write"
    todo = next(tool for tool in TOOLS if tool.name == "todo_write")
    todo.arguments.model_validate(call.args)


@pytest.mark.parametrize(("text", "count"), [("slow", 200), ("slow 120", 120), ("a long answer of 30 words", 30)])
async def test_it_counts_slowly(text: str, count: int) -> None:
    pieces: list[Piece] = []
    done = await say(text, pieces=pieces)
    assert done.text == " ".join(f"w{number}" for number in range(1, count + 1))
    assert len(pieces) == count


async def test_it_is_the_same_each_time() -> None:
    assert (await say("tell me more")).text == (await say("tell me more")).text


async def test_it_quotes_what_it_has_no_script_for() -> None:
    assert "> tell me more" in (await say("tell me\nmore")).text


async def test_it_calls_nothing_when_tools_are_off() -> None:
    done = await say("list files", tools_off=True)
    assert done.calls == ()
    assert "list_files" in done.text


async def test_it_estimates_its_usage() -> None:
    usage = (await say("slow 40")).usage
    assert usage.estimated
    assert usage.output_tokens > 10


async def test_it_speaks_at_its_pace() -> None:
    started = asyncio.get_running_loop().time()
    await say("slow 20", pace=100)
    assert 0.18 <= asyncio.get_running_loop().time() - started < 2
