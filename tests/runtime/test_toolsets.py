"""The first tools as the model meets them: schema, permission, answers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from chatapp.runtime.errors import ToolFailed
from chatapp.runtime.tools import Answered, Tool, ToolContext
from chatapp.runtime.toolsets.todo import todo_tools
from chatapp.runtime.toolsets.workspace import MAX_OUTPUT, workspace_tools

TOOLS = {tool.name: tool for tool in (*workspace_tools(), *todo_tools())}


async def use(root: Path, name: str, **args: Any) -> str:
    tool = TOOLS[name]
    context = ToolContext("s", "c", 1, "t", root)
    answer = await tool.run(context, tool.arguments.model_validate(args))
    assert isinstance(answer, Answered)
    return answer.output


def test_it_asks_before_it_changes_a_file() -> None:
    rights = {name: (tool.default, tool.read_only) for name, tool in TOOLS.items()}
    assert {name for name, right in rights.items() if right == ("allow", True)} == {
        "list_files",
        "read_file",
        "grep_files",
        "todo_write",
    }
    assert {name for name, right in rights.items() if right == ("ask", False)} == {
        "write_file",
        "edit_file",
        "delete_file",
    }


@pytest.mark.parametrize("tool", TOOLS.values(), ids=TOOLS)
def test_it_describes_its_arguments(tool: Tool) -> None:
    assert tool.json_schema()["type"] == "object"
    assert tool.description


async def test_it_lists_files_with_sizes(tmp_path: Path) -> None:
    assert await use(tmp_path, "list_files") == "No files here."
    await use(tmp_path, "write_file", path="sub/a.txt", content="abc")
    assert await use(tmp_path, "list_files") == "sub/\nsub/a.txt (3 bytes)"
    assert await use(tmp_path, "list_files", path="sub") == "sub/a.txt (3 bytes)"


async def test_it_reads_a_page_and_says_where_to_go_on(tmp_path: Path) -> None:
    await use(tmp_path, "write_file", path="a", content="1\r\n2\u2028x\r3\n4\n")
    assert await use(tmp_path, "read_file", path="a") == "1\n2\u2028x\n3\n4"
    assert (
        await use(tmp_path, "read_file", path="a", offset=2, limit=1)
        == "2\u2028x\n… 2 more lines; go on with offset=3."
    )
    with pytest.raises(ToolFailed, match="4 lines only"):
        await use(tmp_path, "read_file", path="a", offset=5)


async def test_it_cuts_what_is_too_much_for_a_model(tmp_path: Path) -> None:
    await use(tmp_path, "write_file", path="a", content=f"{'x' * (MAX_OUTPUT + 5)}\nend")
    output = await use(tmp_path, "read_file", path="a")
    assert len(output) < MAX_OUTPUT + 100
    assert output.endswith("go on with offset=2.")


async def test_it_says_that_a_file_is_binary_or_empty(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"\x00\x01")
    (tmp_path / "b").touch()
    with pytest.raises(ToolFailed, match="binary file of 2 bytes"):
        await use(tmp_path, "read_file", path="a")
    assert await use(tmp_path, "read_file", path="b") == "The file is empty."


async def test_it_finds_lines(tmp_path: Path) -> None:
    await use(tmp_path, "write_file", path="a", content="one\nHotel 12\n")
    assert await use(tmp_path, "grep_files", pattern="hotel") == "a:2: Hotel 12"
    assert await use(tmp_path, "grep_files", pattern="nowhere") == "Nothing found."


async def test_it_edits_and_deletes(tmp_path: Path) -> None:
    await use(tmp_path, "write_file", path="a", content="one")
    await use(tmp_path, "edit_file", path="a", old="one", new="two")
    assert (tmp_path / "a").read_text() == "two"
    await use(tmp_path, "delete_file", path="a")
    assert not (tmp_path / "a").exists()


async def test_it_keeps_a_todo_list_that_people_can_read(tmp_path: Path) -> None:
    todos = [
        {"content": "look\nup", "status": "completed"},
        {"content": "write", "status": "in_progress"},
        {"content": "x"},
    ]
    output = await use(tmp_path, "todo_write", todos=todos)
    assert output == "1 of 3 done.\n- [x] look up\n- [-] write\n- [ ] x"
    assert (tmp_path / "plans" / "TODO.md").read_text() == "- [x] look up\n- [-] write\n- [ ] x\n"
    assert await use(tmp_path, "todo_write", todos=todos) == output
    assert await use(tmp_path, "todo_write", todos=[]) == "The todo list is empty."


@pytest.mark.parametrize("todo", [{"content": ""}, {"content": "x", "status": "done"}, {"status": "pending"}])
def test_it_refuses_a_todo_without_content_or_with_another_status(todo: dict[str, str]) -> None:
    with pytest.raises(ValidationError):
        TOOLS["todo_write"].arguments.model_validate({"todos": [todo]})
