"""The tools for a conversation's files: list, read and search without asking; write, edit and delete with."""

from __future__ import annotations

import asyncio

from pydantic import BaseModel, Field

from chatapp.runtime.errors import ToolFailed
from chatapp.runtime.tools import Answered, Tool, ToolContext
from chatapp.runtime.toolsets.files import Workspace, is_binary, lines

MAX_ENTRIES = 500
MAX_HITS = 200
MAX_LINE = 300
MAX_OUTPUT = 40_000


class ListFiles(BaseModel):
    path: str = Field(default=".", max_length=1000, description="A folder, relative to the workspace.")


class ReadFile(BaseModel):
    path: str = Field(max_length=1000, description="A text file, relative to the workspace.")
    offset: int = Field(default=1, ge=1, description="The first line wanted, counted from 1.")
    limit: int = Field(default=1000, ge=1, le=10_000, description="How many lines at most.")


class GrepFiles(BaseModel):
    pattern: str = Field(min_length=1, max_length=1000, description="Literal text to look for, whatever its case.")
    path: str = Field(default=".", max_length=1000, description="A file or folder, relative to the workspace.")


class WriteFile(BaseModel):
    path: str = Field(max_length=1000, description="The file to create or replace, relative to the workspace.")
    content: str = Field(description="The whole new text.")


class EditFile(BaseModel):
    path: str = Field(max_length=1000, description="The file to change, relative to the workspace.")
    old: str = Field(min_length=1, description="The exact text to replace; it must stand in the file once.")
    new: str = Field(description="What to put in its place.")


class DeleteFile(BaseModel):
    path: str = Field(max_length=1000, description="The file to delete, relative to the workspace.")


async def list_files(context: ToolContext, args: ListFiles) -> Answered:
    found, more = await asyncio.to_thread(Workspace.of(context).entries, args.path, MAX_ENTRIES)
    rows = [f"{entry.path}/" if entry.is_folder else f"{entry.path} ({entry.size:,} bytes)" for entry in found]
    if more:
        rows.append("… and more; list one of the folders.")
    return Answered("\n".join(rows) or "No files here.")


async def read_file(context: ToolContext, args: ReadFile) -> Answered:
    content = await asyncio.to_thread(Workspace.of(context).read, args.path)
    if is_binary(content):
        raise ToolFailed(f"{args.path} is a binary file of {len(content):,} bytes; only text can be read.")
    return Answered(_page(lines(content), args))


async def grep_files(context: ToolContext, args: GrepFiles) -> Answered:
    hits, more = await asyncio.to_thread(Workspace.of(context).grep, args.pattern, args.path, MAX_HITS)
    rows = [f"{hit.path}:{hit.line}: {hit.text.strip()[:MAX_LINE]}" for hit in hits]
    if more:
        rows.append("… and maybe more; search in a smaller part.")
    return Answered("\n".join(rows) or "Nothing found.")


async def write_file(context: ToolContext, args: WriteFile) -> Answered:
    content = args.content.encode(errors="replace")
    await asyncio.to_thread(Workspace.of(context).write, args.path, content)
    return Answered(f"Wrote {args.path}, {len(content):,} bytes.")


async def edit_file(context: ToolContext, args: EditFile) -> Answered:
    new = args.new.encode(errors="replace").decode()
    await asyncio.to_thread(Workspace.of(context).edit, args.path, args.old, new)
    return Answered(f"Changed {args.path}.")


async def delete_file(context: ToolContext, args: DeleteFile) -> Answered:
    await asyncio.to_thread(Workspace.of(context).delete, args.path)
    return Answered(f"Deleted {args.path}.")


def workspace_tools() -> list[Tool]:
    return [
        Tool(
            "list_files",
            "List the files and folders of the workspace, or of one of its folders, with sizes.",
            ListFiles,
            list_files,
            read_only=True,
            default="allow",
        ),
        Tool(
            "read_file",
            "Read a text file of the workspace, or some of its lines.",
            ReadFile,
            read_file,
            read_only=True,
            default="allow",
        ),
        Tool(
            "grep_files",
            "Find the lines of the workspace's text files that contain a text (no regular expressions).",
            GrepFiles,
            grep_files,
            read_only=True,
            default="allow",
        ),
        Tool("write_file", "Create a file of the workspace or replace its whole text.", WriteFile, write_file),
        Tool("edit_file", "Replace one passage of a text file of the workspace.", EditFile, edit_file),
        Tool("delete_file", "Delete a file of the workspace.", DeleteFile, delete_file),
    ]


def _page(rows: list[str], args: ReadFile) -> str:
    """The lines asked for, as many as fit, and where to go on."""
    if not rows:
        return "The file is empty."
    if args.offset > len(rows):
        raise ToolFailed(f"{args.path} has {len(rows)} lines only.")
    page: list[str] = []
    room = MAX_OUTPUT
    for row in rows[args.offset - 1 : args.offset - 1 + args.limit]:
        if page and len(row) > room:
            break
        page.append(row if len(row) <= MAX_OUTPUT else f"{row[:MAX_OUTPUT]}… (line cut)")
        room -= len(row) + 1
    shown = args.offset - 1 + len(page)
    if shown < len(rows):
        page.append(f"… {len(rows) - shown} more lines; go on with offset={shown + 1}.")
    return "\n".join(page)
