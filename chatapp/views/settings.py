"""A person's settings: what this browser shows, the account, API tokens."""

from __future__ import annotations

from django.contrib import messages
from django.contrib.auth.decorators import login_required
from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.urls import path
from django.utils.translation import gettext as _
from django.views.decorators.http import require_GET, require_POST

from chatapp import accounts
from chatapp.models import ApiToken


@login_required
@require_GET
def settings_page(request: HttpRequest) -> HttpResponse:
    # The person's own session carries the token from the form to this one page.
    fresh = request.session.pop("fresh_token", None)
    tokens = ApiToken.objects.filter(user=request.user.pk).order_by("-created_at")
    response = render(request, "chat/settings.html", {"tokens": tokens, "fresh": fresh})
    response["Cache-Control"] = "no-store"
    return response


@login_required
@require_POST
def create_token(request: HttpRequest) -> HttpResponse:
    name = request.POST.get("name", "").replace("\x00", "").strip()
    if not name or len(name) > 100:
        messages.error(request, _("A token needs a name of at most 100 characters."))
    else:
        assert request.user.is_authenticated
        _row, raw = accounts.create_token(request.user, name)
        request.session["fresh_token"] = raw
    return redirect("settings")


@login_required
@require_POST
def revoke_token(request: HttpRequest, token_id: int) -> HttpResponse:
    get_object_or_404(ApiToken, pk=token_id, user=request.user.pk).delete()
    messages.success(request, _("The token is revoked."))
    return redirect("settings")


urlpatterns = [
    path("settings/", settings_page, name="settings"),
    path("settings/tokens/", create_token, name="create_token"),
    path("settings/tokens/<int:token_id>/revoke/", revoke_token, name="revoke_token"),
]
