"""The drawer beside a conversation: the files of its workspace."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from hashlib import blake2b
from pathlib import PurePosixPath

from django.contrib.auth.decorators import login_required
from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.urls import path
from django.utils.translation import gettext as _
from django.views.decorators.http import require_http_methods

from chatapp import workspaces
from chatapp.models import Session
from chatapp.runtime.errors import NotFound
from chatapp.runtime.toolsets.files import MAX_FILES, Entry
from chatapp.views.owner import own
from chatapp.views.uploads import receive

SHOWN_MOST = 500
PICTURES = (".png", ".jpg", ".jpeg", ".gif", ".webp")


@dataclass(frozen=True)
class Row:
    path: str
    size: int
    changed: datetime

    @classmethod
    def of(cls, entry: Entry) -> Row:
        return cls(entry.path, entry.size, datetime.fromtimestamp(entry.changed, UTC))

    @property
    def key(self) -> str:
        """The same at each refresh, so that the focus stays on its row."""
        return blake2b(self.path.encode(), digest_size=8).hexdigest()

    @property
    def name(self) -> str:
        return PurePosixPath(self.path).name

    @property
    def folder(self) -> str:
        parent = str(PurePosixPath(self.path).parent)
        return "" if parent == "." else parent

    @property
    def is_picture(self) -> bool:
        """By the name; what it really is decides the download."""
        return self.path.lower().endswith(PICTURES)


@login_required
@require_http_methods(["GET", "POST", "DELETE"])
def files(request: HttpRequest, conversation_id: str) -> HttpResponse:
    """The files, after the ones that came along are stored or the named one is removed."""
    current = own(request, conversation_id)
    refusals: list[str] = []
    if request.method == "POST":
        _made, refusals = receive(current.pk, request.FILES.getlist("file"))
    elif request.method == "DELETE":
        refusals = _remove(current, request.GET.get("path", ""))
    return _drawn(request, current, refusals)


def _drawn(request: HttpRequest, current: Session, refusals: list[str]) -> HttpResponse:
    entries, more = workspaces.listed(current.pk, MAX_FILES)
    entries.sort(key=lambda entry: (-entry.changed, entry.path))
    context = {
        "conversation": current, "files": [Row.of(entry) for entry in entries[:SHOWN_MOST]], "count": len(entries),
        "more": more, "cut": len(entries) > SHOWN_MOST, "refusals": refusals,
        # The row that was deleted had the focus.
        "focus": request.method == "DELETE",
    }  # fmt: skip
    return render(request, "chat/drawer_files.html", context)


def _remove(current: Session, path: str) -> list[str]:
    try:
        workspaces.remove(current.pk, path)
    except NotFound:
        return [_("This file is no longer there.")]
    return []


urlpatterns = [path("c/<str:conversation_id>/drawer/files/", files, name="drawer_files")]
