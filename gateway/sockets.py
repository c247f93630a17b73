"""The open sockets of this process, and the look every five seconds at whether each may stay open."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from django.contrib.auth import get_user_model
from django.contrib.sessions.models import Session as LoginSession
from django.db import DatabaseError
from django.db.models import Q
from django.utils import timezone

from chatapp.models import ApiToken, Session
from chatapp.store import db

logger = logging.getLogger(__name__)

CHECK_SECONDS = 5.0
NOT_LOGGED_IN = 4401
NOT_FOUND = 4404
COME_BACK = 1012


@dataclass(frozen=True)
class Credentials:
    """What a socket was opened with. `password` is the stored hash then: another one now means it was changed."""

    user_id: int
    password: str
    conversation_id: str
    session_key: str = ""
    token_id: int | None = None


@dataclass(eq=False)
class Socket:
    credentials: Credentials
    close: Callable[[int], Awaitable[None]]


class Sockets:
    def __init__(self, every: float = CHECK_SECONDS) -> None:
        self.every = every
        self.open: set[Socket] = set()

    async def watch(self) -> None:
        while True:
            await asyncio.sleep(self.every)
            try:
                await self.check()
            except DatabaseError as error:
                logger.warning("open sockets could not be checked: %s", error)

    async def check(self) -> None:
        """Close what may not stay open: logged out, deactivated, password or token changed, conversation gone."""
        sockets = list(self.open)
        if not sockets:
            return
        codes = await db.run(_codes, [socket.credentials for socket in sockets])
        for socket, code in zip(sockets, codes, strict=True):
            if code:
                await _close(socket, code)

    async def close_all(self) -> None:
        """This server goes; another one, or its successor, takes the viewers."""
        for socket in list(self.open):
            await _close(socket, COME_BACK)


async def _close(socket: Socket, code: int) -> None:
    try:
        await socket.close(code)
    except Exception:
        # Servers raise what they like at a connection that is gone; the other sockets must not pay for it.
        logger.exception("a socket could not be closed")


def _codes(all_credentials: list[Credentials]) -> list[int]:
    """For each credential the code to close with, 0 to stay. Four queries however many sockets there are."""
    now = timezone.now()
    users = dict(
        get_user_model().objects.filter(pk__in={c.user_id for c in all_credentials}, is_active=True)
        .values_list("pk", "password")
    )  # fmt: skip
    keys = {c.session_key for c in all_credentials if c.session_key}
    logins = set(LoginSession.objects.filter(pk__in=keys, expire_date__gt=now).values_list("pk", flat=True))
    alive = Q(expires_at=None) | Q(expires_at__gt=now)
    token_ids = {c.token_id for c in all_credentials if c.token_id}
    tokens = set(ApiToken.objects.filter(alive, pk__in=token_ids).values_list("pk", flat=True))
    ids = {c.conversation_id for c in all_credentials}
    conversations = set(Session.objects.filter(pk__in=ids, deleted_at=None).values_list("pk", flat=True))

    def code(c: Credentials) -> int:
        known = users.get(c.user_id) == c.password
        if not known or not (c.token_id in tokens if c.token_id else c.session_key in logins):
            return NOT_LOGGED_IN
        return 0 if c.conversation_id in conversations else NOT_FOUND

    return [code(c) for c in all_credentials]
