"""Credentials that are no passwords: API tokens and one-time login links, both kept as hashes only."""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Sequence
from datetime import datetime, timedelta

from django.contrib.auth.models import User
from django.db import transaction
from django.db.models import Q
from django.utils import timezone

from chatapp.models import ApiToken, LoginLink

LINK_LIFE = timedelta(minutes=10)
# Writing each use would cost a transaction a request.
LAST_USED_GRAIN = timedelta(minutes=1)
PREFIX_CHARS = 8


def _digest(raw: str) -> str:
    """Plain SHA-256 is enough: what is hashed is 256 random bits, not a word somebody chose."""
    return hashlib.sha256(raw.encode("utf-8", "surrogatepass")).hexdigest()


def create_token(
    user: User, name: str, scopes: Sequence[str] = ApiToken.SCOPES, expires_at: datetime | None = None
) -> tuple[ApiToken, str]:
    """The row and the token itself, which nobody can read again."""
    raw = f"bl_{secrets.token_urlsafe(32)}"
    row = ApiToken.objects.create(
        user=user, name=name, prefix=raw[:PREFIX_CHARS], digest=_digest(raw), scopes=list(scopes), expires_at=expires_at
    )
    return row, raw


def authenticate_token(raw: str) -> ApiToken | None:
    """The token's row with its user, or None when unknown, expired or its user is not active."""
    now = timezone.now()
    alive = Q(expires_at=None) | Q(expires_at__gt=now)
    token = ApiToken.objects.select_related("user").filter(alive, digest=_digest(raw), user__is_active=True).first()
    if token and (token.last_used_at is None or token.last_used_at < now - LAST_USED_GRAIN):
        ApiToken.objects.filter(pk=token.pk).update(last_used_at=now)
        token.last_used_at = now
    return token


def create_link(user: User) -> str:
    """The secret of a one-time link for `user`."""
    raw = secrets.token_urlsafe(32)
    now = timezone.now()
    LoginLink.objects.filter(expires_at__lt=now).delete()
    LoginLink.objects.create(user=user, digest=_digest(raw), expires_at=now + LINK_LIFE)
    return raw


def consume_link(raw: str) -> User | None:
    """The link's user, once: one conditional update decides between two that come together."""
    now = timezone.now()
    open_links = LoginLink.objects.filter(digest=_digest(raw), used_at=None, expires_at__gt=now, user__is_active=True)
    if not open_links.update(used_at=now):
        return None
    return LoginLink.objects.select_related("user").get(digest=_digest(raw)).user


def administrator_without_password() -> User | None:
    """Whom the first login link is for; None when some administrator can log in with a password."""
    with transaction.atomic():
        admins = list(User.objects.filter(is_superuser=True, is_active=True).order_by("pk"))
        if any(admin.has_usable_password() for admin in admins):
            return None
        if admins:
            return admins[0]
        if User.objects.filter(username="admin").exists():
            # Somebody's ordinary account has the name; it must not become an administrator by a restart.
            return None
        return User.objects.create_superuser("admin", password=None)
