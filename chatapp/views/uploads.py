"""Files that come in from a page: stored, or refused in words for a person."""

from __future__ import annotations

from collections.abc import Sequence

from django.conf import settings
from django.core.files.uploadedfile import UploadedFile
from django.template.defaultfilters import filesizeformat
from django.utils.translation import gettext as _

from chatapp import workspaces
from chatapp.runtime.errors import ToolFailed
from chatapp.workspaces import Attachment


def receive(conversation_id: str, files: Sequence[UploadedFile[bytes]]) -> tuple[list[Attachment], list[str]]:
    """What was stored, and why the others were not."""
    made: list[Attachment] = []
    refusals: list[str] = []
    for file in files:
        name, size = file.name or "", file.size or 0
        if not size:
            refusals.append(_("“%s” is empty.") % name)
        elif size > settings.BRANCHLINE_FILE_BYTES:
            most = filesizeformat(settings.BRANCHLINE_FILE_BYTES)
            refusals.append(_("“%(name)s” is larger than %(most)s.") % {"name": name, "most": most})
        else:
            try:
                made.append(workspaces.upload(conversation_id, name, file.read()))
            except ToolFailed as failed:
                refusals.append(_reason(failed, name))
    return made, refusals


def _reason(failed: ToolFailed, name: str) -> str:
    if failed.code != "workspace_full":
        return failed.detail
    return _("There is no room for “%s”: this conversation's folder is full.") % name
