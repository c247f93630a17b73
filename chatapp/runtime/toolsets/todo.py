"""The todo list of a conversation: `todo_write` keeps it whole in the workspace, as a file people can read."""

from __future__ import annotations

import asyncio
from typing import Literal

from pydantic import BaseModel, Field

from chatapp.runtime.tools import Answered, Tool, ToolContext
from chatapp.runtime.toolsets.files import Workspace

PATH = "plans/TODO.md"
MARKS = {"pending": "[ ]", "in_progress": "[-]", "completed": "[x]"}


class Todo(BaseModel):
    content: str = Field(min_length=1, max_length=500, description="What is to do, in a few words.")
    status: Literal["pending", "in_progress", "completed"] = "pending"


class TodoWrite(BaseModel):
    todos: list[Todo] = Field(max_length=100, description="The whole list, in order; it replaces the one before.")


async def todo_write(context: ToolContext, args: TodoWrite) -> Answered:
    rows = [f"- {MARKS[todo.status]} {' '.join(todo.content.split())}" for todo in args.todos]
    text = "\n".join(rows)
    await asyncio.to_thread(Workspace.of(context).write, PATH, f"{text}\n".encode(errors="replace"))
    if not rows:
        return Answered("The todo list is empty.")
    done = sum(todo.status == "completed" for todo in args.todos)
    return Answered(f"{done} of {len(rows)} done.\n{text}")


def todo_tools() -> list[Tool]:
    """Marked read-only since it touches nothing but its own list, and running it again changes nothing."""
    return [
        Tool(
            "todo_write",
            "Write the todo list of this conversation. Send the whole list each time, one item in progress.",
            TodoWrite,
            todo_write,
            read_only=True,
            default="allow",
        )
    ]
