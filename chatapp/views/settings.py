"""A person's settings: what this browser shows, its language, API tokens."""

from __future__ import annotations

from datetime import timedelta

from django.conf import settings
from django.contrib import messages
from django.contrib.auth.decorators import login_required
from django.core.exceptions import BadRequest
from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.urls import path
from django.utils import timezone, translation
from django.utils.translation import gettext as _
from django.views.decorators.http import require_GET, require_POST

from chatapp import accounts
from chatapp.forms import TokenForm
from chatapp.models import ApiToken

# What a new token may do unless the person says otherwise.
USUAL_SCOPES = ["read", "chat"]
A_YEAR = timedelta(days=365)


def _page(request: HttpRequest, form: TokenForm, status: int = 200) -> HttpResponse:
    context = {
        "tokens": ApiToken.objects.filter(user=request.user.pk).order_by("-created_at"),
        # The person's own session carries the token from the form to this one page.
        "fresh": request.session.pop("fresh_token", None),
        "form": form,
        "languages": settings.LANGUAGES,
        "chosen": request.COOKIES.get(settings.LANGUAGE_COOKIE_NAME, ""),
        "now": timezone.now(),
    }
    response = render(request, "chat/settings.html", context, status=status)
    response["Cache-Control"] = "no-store"
    return response


@login_required
@require_GET
def settings_page(request: HttpRequest) -> HttpResponse:
    return _page(request, TokenForm(initial={"scopes": USUAL_SCOPES}))


@login_required
@require_POST
def create_token(request: HttpRequest) -> HttpResponse:
    form = TokenForm(request.POST)
    if not form.is_valid():
        return _page(request, form, status=422)
    assert request.user.is_authenticated
    name, scopes, days = (form.cleaned_data[field] for field in ("name", "scopes", "days"))
    expires_at = timezone.now() + timedelta(days=days) if days else None
    _row, request.session["fresh_token"] = accounts.create_token(request.user, name, scopes, expires_at)
    return redirect("settings")


@login_required
@require_POST
def revoke_token(request: HttpRequest, token_id: int) -> HttpResponse:
    get_object_or_404(ApiToken, pk=token_id, user=request.user.pk).delete()
    messages.success(request, _("The token is revoked."))
    return redirect("settings")


# What a person may choose for the look of the pages; nothing is what is usual.
LOOKS = {"theme": ("", "light", "dark"), "density": ("", "compact")}


@login_required
@require_POST
def look(request: HttpRequest) -> HttpResponse:
    """Kept in this browser's cookies, so that a page is drawn so from its first line on."""
    response = redirect("settings")
    for name, allowed in LOOKS.items():
        wanted = request.POST.get(name, "")
        if wanted not in allowed:
            raise BadRequest("no such look")
        _keep(response, name, wanted)
    messages.success(request, _("The look is saved."))
    return response


def _keep(response: HttpResponse, name: str, value: str) -> None:
    age = A_YEAR if value else timedelta(0)
    response.set_cookie(name, value, age, secure=settings.SESSION_COOKIE_SECURE, httponly=True, samesite="Lax")


@login_required
@require_POST
def language(request: HttpRequest) -> HttpResponse:
    """Keeps the choice in this browser's cookie; without one the browser's own wish counts."""
    code = request.POST.get("language", "")
    if code and code not in dict(settings.LANGUAGES):
        raise BadRequest("no such language")
    name = settings.LANGUAGE_COOKIE_NAME
    request.COOKIES[name] = code
    response = redirect("settings")
    # The answer is in the language just chosen.
    with translation.override(translation.get_language_from_request(request)):
        messages.success(request, _("The language is saved."))
    _keep(response, name, code)
    return response


urlpatterns = [
    path("settings/", settings_page, name="settings"),
    path("settings/look/", look, name="look"),
    path("settings/language/", language, name="language"),
    path("settings/tokens/", create_token, name="create_token"),
    path("settings/tokens/<int:token_id>/revoke/", revoke_token, name="revoke_token"),
]
