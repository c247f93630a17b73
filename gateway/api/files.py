"""Calls on a conversation's files: upload, list, download, remove."""

from __future__ import annotations

import asyncio
from typing import Annotated

from django.conf import settings
from django.http import HttpRequest, HttpResponse
from django.utils.http import content_disposition_header
from ninja import File as Sent
from ninja import Query, Router, UploadedFile
from ninja.responses import Status

from chatapp import workspaces
from chatapp.runtime.errors import Conflict, ToolFailed, TooLong
from chatapp.store import db, reads
from gateway.api.auth import CHAT, READ, caller
from gateway.api.objects import File, Page
from gateway.protocol import PATH_MOST, check_storable

FilePath = Annotated[str, Query(max_length=PATH_MOST, description="Relative to the workspace.")]

router = Router(auth=READ, tags=["Files"])


@router.post("/conversations/{id:conversation_id}/files", response={201: File}, auth=CHAT, summary="Upload a file")
async def upload_file(request: HttpRequest, conversation_id: str, file: Sent[UploadedFile]) -> Status[File]:
    """Into the workspace, under `uploads/` and a free name; `attachments` of a message takes its `path`."""
    await db.run(reads.require_conversation, caller(request).user_id, conversation_id)
    if (file.size or 0) > settings.BRANCHLINE_FILE_BYTES:
        raise TooLong("file", f"A file has at most {settings.BRANCHLINE_FILE_BYTES:,} bytes.", code="too_large")
    name = check_storable("file", file.name or "")
    try:
        made = await asyncio.to_thread(workspaces.upload, conversation_id, name, file.read())
    except ToolFailed as failed:
        raise Conflict(failed.detail, code=failed.code) from None
    return Status(201, File(**made))


@router.get("/conversations/{id:conversation_id}/files", response=Page[File], summary="List the files")
async def list_files(request: HttpRequest, conversation_id: str) -> Page[File]:
    """In the order of their paths, at most 500."""
    await db.run(reads.require_conversation, caller(request).user_id, conversation_id)
    found = await asyncio.to_thread(workspaces.described, conversation_id)
    return Page[File](items=[File(**file) for file in found], next=None)


@router.delete("/conversations/{id:conversation_id}/files", response={204: None}, auth=CHAT, summary="Remove a file")
async def remove_file(request: HttpRequest, conversation_id: str, path: FilePath) -> Status[None]:
    await db.run(reads.require_conversation, caller(request).user_id, conversation_id)
    await asyncio.to_thread(workspaces.remove, conversation_id, check_storable("path", path))
    return Status(204, None)


@router.get("/sessions/{id:session_id}/files", summary="Download a file")
async def download_file(
    request: HttpRequest, session_id: str, path: FilePath,
    inline: Annotated[bool, Query(description="Pictures (PNG, JPEG, GIF, WebP) to be shown instead of saved.")] = False,
) -> HttpResponse:  # fmt: skip
    """The bytes. Always as a download, but for pictures that were asked for inline. The path is one of this session's
    own workspace."""
    folder = await db.run(reads.folder, caller(request).user_id, session_id)
    file, content = await asyncio.to_thread(workspaces.fetch, folder, check_storable("path", path))
    shown = inline and file["media_type"] in workspaces.PICTURES
    response = HttpResponse(content, content_type=file["media_type"] if shown else workspaces.ANY)
    response["Content-Disposition"] = content_disposition_header(not shown, file["name"]) or "inline"
    response["Cache-Control"] = "private, no-cache"
    return response
