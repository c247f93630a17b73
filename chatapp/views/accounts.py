"""Login, logout, passwords, the one-time link, sign-up, and what a refused person sees."""

from __future__ import annotations

import ipaddress
from datetime import timedelta
from typing import Any

from django.conf import settings
from django.contrib import messages
from django.contrib.auth import login as log_in
from django.contrib.auth import update_session_auth_hash
from django.contrib.auth.decorators import login_required
from django.contrib.auth.models import User
from django.contrib.auth.views import LoginView, LogoutView
from django.core.cache import cache
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseBase
from django.shortcuts import redirect, render
from django.utils.translation import gettext as _
from django.views.decorators.cache import never_cache
from django.views.decorators.debug import sensitive_post_parameters, sensitive_variables
from django.views.decorators.http import require_http_methods

from chatapp.accounts import consume_link
from chatapp.forms import ChangePasswordForm, FirstPasswordForm, LoginForm, SignupForm

BACKEND = "django.contrib.auth.backends.ModelBackend"
# Set by the one-time link: the next password needs no old one.
MAY_SET = "may_set_password"


class _Login(LoginView):
    authentication_form = LoginForm
    redirect_authenticated_user = True
    template_name = "registration/login.html"

    def get_context_data(self, **kwargs: Any) -> dict[str, Any]:
        return super().get_context_data(**kwargs) | {"signup_open": settings.BRANCHLINE_SIGNUP == "open"}


login = _Login.as_view()
logout = LogoutView.as_view()


@sensitive_variables("secret")
@never_cache
@require_http_methods(["GET"])
def once(request: HttpRequest, secret: str) -> HttpResponse:
    """The first use logs in and goes on to the password; each later one says why not."""
    user = consume_link(secret)
    if user is None:
        response = render(request, "accounts/link_over.html", status=410)
    else:
        log_in(request, user, backend=BACKEND)
        request.session[MAY_SET] = True
        response = redirect("password")
    response["Referrer-Policy"] = "no-referrer"
    return response


@sensitive_post_parameters()
@never_cache
@login_required
@require_http_methods(["GET", "POST"])
def password(request: HttpRequest) -> HttpResponse:
    assert isinstance(request.user, User)
    first = bool(request.session.get(MAY_SET)) or not request.user.has_usable_password()
    form = (FirstPasswordForm if first else ChangePasswordForm)(request.user, request.POST or None)
    if form.is_valid():
        form.save()
        request.session.pop(MAY_SET, None)
        # Other sessions of this person end with the old hash; this one stays.
        update_session_auth_hash(request, request.user)
        messages.success(request, _("Your password is set."))
        return redirect("/")
    return render(request, "accounts/password.html", {"form": form, "first": first})


@sensitive_post_parameters()
@never_cache
@require_http_methods(["GET", "POST"])
def signup(request: HttpRequest) -> HttpResponse:
    if settings.BRANCHLINE_SIGNUP != "open":
        raise Http404
    if request.user.is_authenticated:
        return redirect("/")
    if request.method == "POST" and _tries(request) > settings.SIGNUP_LIMIT:
        return _too_many(request, settings.SIGNUP_WINDOW)
    form = SignupForm(request.POST or None)
    if form.is_valid():
        log_in(request, form.save(), backend=BACKEND)
        return redirect("/")
    return render(request, "accounts/signup.html", {"form": form})


def _tries(request: HttpRequest) -> int:
    """How often this address tried to sign up since its first try, this one counted, for one window."""
    key = f"signup:{_network(request.META.get('REMOTE_ADDR', ''))}"
    cache.add(key, 0, settings.SIGNUP_WINDOW.total_seconds())
    try:
        return cache.incr(key)
    except ValueError:
        # It ran out just now.
        return 1


def _network(address: str) -> str:
    """An IPv4 address; of IPv6 the /64, since one customer has all of it to try from."""
    try:
        ip = ipaddress.ip_address(address)
        if ip.version == 6 and not ip.ipv4_mapped:
            return str(ipaddress.ip_network((int(ip), 64), strict=False))
    except ValueError:
        return "unknown"
    return str(getattr(ip, "ipv4_mapped", None) or ip)


def locked_out(request: HttpRequest, *_args: object) -> HttpResponse:
    """Called by django-axes, with or without the first answer, after too many failures."""
    return _too_many(request, settings.AXES_COOLOFF_TIME)


def _too_many(request: HttpRequest, wait: timedelta) -> HttpResponse:
    minutes = int(wait.total_seconds() // 60)
    response = render(request, "accounts/locked.html", {"minutes": minutes}, status=429)
    response["Retry-After"] = str(minutes * 60)
    return response


def csrf_failed(request: HttpRequest, reason: str = "") -> HttpResponseBase:
    """A form that was open too long, or posted from elsewhere."""
    return render(request, "403.html", {"stale_form": True}, status=403)
