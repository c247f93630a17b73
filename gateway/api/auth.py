"""Who calls the API: a login's cookie with its CSRF token, or a bearer token with a scope, in the header only."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, cast

from asgiref.sync import sync_to_async
from django.contrib.auth.models import User
from django.http import HttpRequest
from ninja.utils import check_csrf

from chatapp.accounts import authenticate_token
from chatapp.models import ApiToken
from chatapp.runtime.errors import BranchlineError
from chatapp.store import db
from gateway.sockets import Credentials

MULTIPART = "multipart/form-data"


class Unauthorized(BranchlineError):
    """Nobody, or a token that is unknown or expired; the caller logs in."""

    code = "unauthorized"


class Forbidden(BranchlineError):
    """Known, but not allowed to do this."""

    code = "forbidden"


@dataclass(frozen=True)
class Caller:
    """The person a request acts for, and what with."""

    user: User
    session_key: str = ""
    token: ApiToken | None = None

    @property
    def user_id(self) -> int:
        return self.user.pk

    @property
    def scopes(self) -> tuple[str, ...]:
        return ApiToken.SCOPES if self.token is None else tuple(self.token.scopes)

    @property
    def staff(self) -> bool:
        """Never by a token: it has its owner's powers as an ordinary user."""
        return self.token is None and self.user.is_staff

    def credentials(self, conversation_id: str) -> Credentials:
        """What a stream that stays open is looked at for."""
        token_id = self.token.pk if self.token else None
        return Credentials(self.user.pk, self.user.password, conversation_id, self.session_key, token_id)


def caller(request: HttpRequest) -> Caller:
    return cast(Caller, request.auth)  # type: ignore[attr-defined]


class Bearer:
    """A token in the Authorization header; a bad one is refused, whatever cookie comes with it."""

    openapi_security_schema = {"type": "http", "scheme": "bearer"}

    def __init__(self, scope: str) -> None:
        self.scope = scope

    async def __call__(self, request: HttpRequest) -> Caller | None:
        scheme, _, raw = request.headers.get("Authorization", "").partition(" ")
        if scheme.lower() != "bearer":
            return None
        token = await db.run(authenticate_token, raw.strip())
        if token is None:
            raise Unauthorized("This token is unknown, expired or revoked.")
        if self.scope not in token.scopes:
            raise Forbidden(f"This token lacks the scope “{self.scope}”.")
        return Caller(token.user, token=token)


class Cookie:
    """The login's cookie. What changes something needs the CSRF token too."""

    openapi_security_schema = {"type": "apiKey", "in": "cookie", "name": "sessionid"}

    async def __call__(self, request: HttpRequest) -> Caller | None:
        user: Any = await request.auser()
        if not user.is_authenticated:
            return None
        if request.content_type != MULTIPART:
            # Kept first: looking for the CSRF token in a form would use up the body.
            _ = request.body
        if await sync_to_async(check_csrf)(request) is not None:
            raise Forbidden("The CSRF token is missing or wrong.", code="csrf")
        return Caller(user, session_key=request.session.session_key or "")


READ: list[Any] = [Bearer("read"), Cookie()]
CHAT: list[Any] = [Bearer("chat"), Cookie()]
