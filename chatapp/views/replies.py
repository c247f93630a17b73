"""What the page asks about one reply or one tool call: its whole text, an opinion of it, its arguments and result."""

from __future__ import annotations

from django.conf import settings
from django.contrib.auth.decorators import login_required
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseBadRequest, JsonResponse
from django.shortcuts import get_object_or_404, render
from django.urls import path
from django.views.decorators.http import require_GET, require_POST

from chatapp import markdown, parts
from chatapp.models import Event, ToolCall
from chatapp.plain import plain, visible
from chatapp.runtime.errors import NotFound, ToolFailed
from chatapp.runtime.toolsets.files import Workspace
from chatapp.store import feedback
from chatapp.views.owner import own

# What a page takes of one value; a browser lays a line out in pieces faster than as one.
WHOLE_MAX = 1_000_000
PIECE = 2_000


@login_required
@require_GET
def reply_text(request: HttpRequest, conversation_id: str, reply_id: str) -> HttpResponse:
    """Its text parts for the clipboard, by type: the Markdown as the model wrote it, and what it looks like."""
    current = own(request, conversation_id)
    events = Event.objects.filter(session=current, reply_id=reply_id).order_by("seq")
    if not events.exists():
        raise Http404
    blocks = events.filter(type="TEXT_BLOCK_END").values_list("data", flat=True)
    texts = [data.get("text") or "" for data in blocks if data.get("state") != "discarded"]
    rich = "\n".join(markdown.bare(text) for text in texts)
    return JsonResponse({"text/plain": "\n\n".join(texts), "text/html": rich})


@login_required
@require_POST
def reply_feedback(request: HttpRequest, conversation_id: str, reply_id: str) -> HttpResponse:
    current = own(request, conversation_id)
    value = request.POST.get("value", "")
    if value not in ("", "up", "down"):
        return HttpResponseBadRequest()
    try:
        feedback.rate(current.owner_id, current.pk, reply_id, feedback.Opinion(value))
    except NotFound:
        raise Http404 from None
    part = parts.Reply(reply_id, conversation_id=current.pk, value=value)
    return render(request, "chat/parts/feedback.html", {"part": part})


@login_required
@require_GET
def call_value(request: HttpRequest, conversation_id: str, call_id: str, what: str) -> HttpResponse:
    """A call's `args` or `output`: the page's part with all of it, or a file."""
    current = own(request, conversation_id)
    # A subagent's too: its cards stand in the panels of this page.
    call = get_object_or_404(ToolCall, pk=call_id, session__root=current)
    text = call.result if what == "output" else parts.args_text(call.args, call.args_text)
    if request.GET.get("download"):
        return _file(call, _everything(call) or text if what == "output" else text, what)
    shown = text[:WHOLE_MAX]
    clean = plain(shown) if what == "output" else visible(shown)
    context = {
        "call": call.pk, "what": what, "address": request.path, "cut": len(text) > WHOLE_MAX,
        "pieces": [clean[at : at + PIECE] for at in range(0, len(clean), PIECE)],
    }  # fmt: skip
    return render(request, "chat/parts/tool_whole.html", context)


def _everything(call: ToolCall) -> str | bytes | None:
    """The whole of an output that was too long for the model, where the workspace had room for it."""
    if not call.truncated:
        return None
    root = settings.WORKSPACES_DIR / call.session.folder
    try:
        return Workspace(root, settings.BRANCHLINE_FILE_BYTES, settings.BRANCHLINE_WORKSPACE_BYTES).read(
            f"results/{call.pk}.txt"
        )
    except (ToolFailed, OSError):
        return None


def _file(call: ToolCall, content: str | bytes, what: str) -> HttpResponse:
    response = HttpResponse(content, content_type="text/plain; charset=utf-8")
    response["Content-Disposition"] = f'attachment; filename="{what}-{call.pk}.txt"'
    return response


urlpatterns = [
    path("c/<str:conversation_id>/replies/<str:reply_id>/text/", reply_text, name="reply_text"),
    path("c/<str:conversation_id>/replies/<str:reply_id>/feedback/", reply_feedback, name="reply_feedback"),
    path("c/<str:conversation_id>/calls/<str:call_id>/output/", call_value, {"what": "output"}, name="call_output"),
    path("c/<str:conversation_id>/calls/<str:call_id>/args/", call_value, {"what": "args"}, name="call_args"),
]
