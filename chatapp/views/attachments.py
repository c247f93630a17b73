"""The files that go with the next message: uploaded, drawn as chips beside the box, taken away again."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress

from django.contrib.auth.decorators import login_required
from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.urls import path
from django.utils.translation import gettext as _
from django.views.decorators.http import require_http_methods

from chatapp import parts, workspaces
from chatapp.models import Session
from chatapp.runtime.errors import InvalidField, NotFound
from chatapp.views.owner import own
from chatapp.views.uploads import receive
from chatapp.workspaces import ATTACHMENTS_MOST, Attachment


@login_required
@require_http_methods(["GET", "POST", "DELETE"])
def attachments(request: HttpRequest, conversation_id: str) -> HttpResponse:
    """The chips of the files that come along, or of those that a draft names; a DELETE takes one away."""
    current = own(request, conversation_id)
    if request.method == "DELETE":
        _remove(current, request.GET.get("path", ""))
        return HttpResponse()
    if request.method == "GET":
        return _drawn(request, current, _still_there(current.pk, request.GET.getlist("path")), [])
    room = max(ATTACHMENTS_MOST - len(request.POST.getlist("attachments")), 0)
    files = request.FILES.getlist("file")
    made, refusals = receive(current.pk, files[:room])
    if len(files) > room:
        refusals.append(_("At most %d files go with a message.") % ATTACHMENTS_MOST)
    return _drawn(request, current, made, refusals)


def _drawn(
    request: HttpRequest, current: Session, files: Sequence[Attachment], refusals: Sequence[str]
) -> HttpResponse:
    drawn = [parts.Attachment(current.pk, **file) for file in files]
    return render(request, "chat/attached.html", {"conversation": current, "files": drawn, "refusals": refusals})


def _still_there(conversation_id: str, paths: Sequence[str]) -> list[Attachment]:
    found: list[Attachment] = []
    for path_ in paths[:ATTACHMENTS_MOST]:
        with suppress(InvalidField):
            found += workspaces.attachments(conversation_id, [path_])
    return found


def _remove(current: Session, path_: str) -> None:
    """What an older draft holds may have gone with a message from another tab; that stays."""
    sent = current.inbox.exclude(attachments=[]).values_list("attachments", flat=True)
    if any(file["path"] == path_ for files in sent for file in files):
        return
    with suppress(NotFound):
        workspaces.remove(current.pk, path_)


urlpatterns = [path("c/<str:conversation_id>/attachments/", attachments, name="attachments")]
