"""The websocket of a conversation: who may join, replay and follow, frames handed over; no decisions."""

from __future__ import annotations

import asyncio
import json
import logging
from collections import deque
from collections.abc import AsyncIterator
from contextlib import aclosing, suppress
from typing import Any, Protocol
from urllib.parse import parse_qs, urlsplit

import orjson
from channels.auth import get_user
from channels.generic.websocket import AsyncWebsocketConsumer
from django.conf import settings
from django.http import HttpRequest
from django.http.request import validate_host
from django.utils import translation

from chatapp.accounts import authenticate_token
from chatapp.models import ApiToken, Session
from chatapp.runtime.errors import BranchlineError
from chatapp.runtime.ids import new_id
from chatapp.store import branches, db
from gateway import commands, protocol
from gateway.ending import end
from gateway.feed import Follower, Frame
from gateway.render import PageRenderer
from gateway.sockets import COME_BACK, NOT_FOUND, NOT_LOGGED_IN, Credentials, Socket
from gateway.wiring import DATABASE_AWAY, gateway

logger = logging.getLogger(__name__)

BAD_FRAMES = 4400
TOO_SLOW = 4408
AHEAD_ACKNOWLEDGING = 256 * 1024
AHEAD_SILENT = 8 * 1024 * 1024
SLOW_SECONDS = 30.0
LONG_TEXT = 16 * 1024
FORKED = ("USER_MESSAGE", "AGENT_START", "AGENT_END")
JSON = "branchline.json.v1"
HTML = "branchline.html.v1"


class Face(Protocol):
    """How a batch of frames looks on the wire."""

    async def wire(self, batch: list[Frame]) -> list[bytes]: ...


class JsonFace:
    """Flat frames, one message each; `status` is the page's alone."""

    async def wire(self, batch: list[Frame]) -> list[bytes]:
        return [orjson.dumps(frame) for frame in batch if frame["kind"] != "status"]


class HtmlFace:
    """One message a batch: the partials of its events and deltas; what is no content follows as it is."""

    def __init__(self, conversation_id: str, after: int, language: str) -> None:
        self.renderer = PageRenderer(conversation_id)
        self.seq = after
        self.language = language

    async def wire(self, batch: list[Frame]) -> list[bytes]:
        with translation.override(self.language):
            return await self._wire(batch)

    async def _wire(self, batch: list[Frame]) -> list[bytes]:
        parts, plain = [], []
        for frame in merged(batch):
            if frame["kind"] == "event":
                self.seq = frame["seq"]
                parts.append(await self._event(frame))
                if frame.get("name") == "branch":
                    plain.append(orjson.dumps({"kind": "branch", "seq": frame["seq"]}))
            elif frame["kind"] == "delta":
                parts.append(self.renderer.delta(frame))
            else:
                plain.append(orjson.dumps(frame))
        content = "".join(parts)
        html = {"kind": "html", "seq": self.seq, "content": content, "swap": "none"}
        return ([orjson.dumps(html)] if content else []) + plain

    async def _event(self, event: Frame) -> str:
        """Long Markdown leaves the event loop: every other chat would wait for it."""
        if event.get("branch") and event["type"] in FORKED:
            key = event.get("message_id") or event["reply_id"]
            if siblings := await db.run(branches.siblings_of, event["session_id"], event):
                self.renderer.siblings[key] = siblings
        if len(event.get("text") or "") > LONG_TEXT:
            return await asyncio.to_thread(self.renderer.event, event)
        return self.renderer.event(event)


def merged(batch: list[Frame]) -> list[Frame]:
    """Neighbouring deltas of one block as one: who is behind renders once for all of them."""
    out: list[Frame] = []
    for frame in batch:
        last = out[-1] if out else frame
        ends = last.get("offset", 0) + len(last.get("text") or "")
        same = last["kind"] == frame["kind"] == "delta" and last is not frame
        if same and _block(last) == _block(frame) and ends == frame["offset"]:
            out[-1] = {**last, "text": last["text"] + frame["text"]}
        else:
            out.append(frame)
    return out


def _block(delta: Frame) -> Any:
    return delta.get("block_id") or delta.get("tool_call_id")


class Window:
    """How far we are ahead of our client, in bytes: Daphne has no back-pressure of its own."""

    def __init__(self) -> None:
        self.sizes: deque[int] = deque()
        self.ahead = 0
        self.acknowledging = False
        self.moved = asyncio.Event()

    def sent(self, size: int) -> None:
        self.sizes.append(size)
        self.ahead += size

    def seen(self, frames: int) -> None:
        self.acknowledging = True
        for _ in range(min(frames, len(self.sizes))):
            self.ahead -= self.sizes.popleft()
        self.moved.set()

    @property
    def full(self) -> bool:
        return self.ahead > (AHEAD_ACKNOWLEDGING if self.acknowledging else AHEAD_SILENT)


class ChatConsumer(AsyncWebsocketConsumer):  # type: ignore[misc]
    """Refuses a wrong origin or token before the handshake; anything else is accepted first and then closed with a
    44xx code, since a refused handshake makes browsers come back for ever."""

    async def connect(self) -> None:
        self.reader: asyncio.Task[None] | None = None
        self.socket: Socket | None = None
        self.window = Window()
        self.bad = 0
        self.gone = False
        self.conversation_id: str = self.scope["url_route"]["kwargs"]["conversation_id"]
        headers = dict(self.scope["headers"])
        bearer = _bearer(headers)
        token = await db.run(authenticate_token, bearer) if bearer else None
        if (bearer and not may_read(token)) or not origin_is_ours(self.scope, required=not bearer):
            await self.close()
            return
        user = token.user if token else await get_user(self.scope)
        offered = self.scope.get("subprotocols") or []
        chosen = next((p for p in offered if p in (JSON, HTML)), None)
        await self.accept(subprotocol=chosen)
        if not user.is_authenticated:
            await self.close(code=NOT_LOGGED_IN)
            return
        if not await db.run(_owns, user.pk, self.conversation_id):
            await self.close(code=NOT_FOUND)
            return
        self.user_id = user.pk
        self.may_chat = token is None or "chat" in token.scopes
        self._join(user, token, as_json=chosen == JSON)

    def _join(self, user: Any, token: Any, *, as_json: bool) -> None:
        session_key = "" if token else self.scope["session"].session_key or ""
        credentials = Credentials(user.pk, user.password, self.conversation_id, session_key, token and token.pk)
        self.socket = Socket(credentials, lambda code: self.close(code=code))
        gateway().sockets.open.add(self.socket)
        after = _after(parse_qs(self.scope["query_string"].decode()).get("after", ["0"])[0])
        # The page says from its first frame on what it has seen; a program may never do it.
        self.window.acknowledging = not as_json
        face = JsonFace() if as_json else HtmlFace(self.conversation_id, after or 0, language_of(self.scope))
        self.reader = asyncio.create_task(self._follow(face, after))

    async def _follow(self, face: Face, after: int | None) -> None:
        """The socket's door: pull, send, wait when too far ahead."""
        follower = Follower(gateway().bus, self.conversation_id, after)
        try:
            # Closed here and now: a cancel that comes while we send would leave its doorbell to the garbage collector.
            async with aclosing(follower.frames()) as batches:
                await self._hand_over(face, batches)
        except DATABASE_AWAY as error:
            logger.warning("viewer of %s is told to come back, the database is away: %s", self.conversation_id, error)
            await self.close(code=COME_BACK)
        except Exception:
            if self.gone:
                # Servers raise what they like at a send that comes after the close.
                return
            logger.exception("socket of conversation %s broke", self.conversation_id)
            await self.close(code=1011)

    async def _hand_over(self, face: Face, batches: AsyncIterator[list[Frame]]) -> None:
        async for batch in batches:
            for data in await face.wire(batch):
                # Counted first: a quick client's `seen` may come while we send.
                self.window.sent(len(data))
                await self.send(text_data=data.decode())
                if self.window.full and not await self._caught_breath():
                    await self.close(code=TOO_SLOW)
                    return

    async def _caught_breath(self) -> bool:
        with suppress(TimeoutError):
            async with asyncio.timeout(SLOW_SECONDS):
                while self.window.full:
                    self.window.moved.clear()
                    await self.window.moved.wait()
        return not self.window.full

    async def receive(self, text_data: str | None = None, bytes_data: bytes | None = None) -> None:
        if self.reader is None:
            return
        raw = text_data if text_data is not None else bytes_data or b""
        try:
            frame = protocol.parse(raw, settings.BRANCHLINE_MESSAGE_CHARS)
            if isinstance(frame, protocol.Seen):
                self.window.seen(frame.frames)
                return
            if not self.may_chat and not isinstance(frame, protocol.Ping):
                raise BranchlineError("This token may read only.", code="forbidden")
            made = await commands.dispatch(self.user_id, self.conversation_id, frame)
        except BranchlineError as problem:
            await self._refuse(raw, problem)
            return
        except Exception:
            # The socket's door for what comes up: an answer in any case, and the socket stays.
            broken = BranchlineError(f"Something here broke, error id {new_id()[:12]}.", code="internal")
            logger.exception("a frame of conversation %s broke: %s", self.conversation_id, broken.detail)
            await self._refuse(raw, broken)
            return
        self.bad = 0
        await self._send_small(protocol.ack(frame.ref, **made))

    async def _refuse(self, raw: str | bytes, problem: BranchlineError) -> None:
        await self._send_small(protocol.error(protocol.reference(raw), problem))
        self.bad = self.bad + 1 if isinstance(problem, protocol.BadFrame) else 0
        if self.bad >= 5:
            await self.close(code=BAD_FRAMES)

    async def _send_small(self, frame: Frame) -> None:
        # In ASCII: a client's `ref` comes back whatever characters it holds.
        text = json.dumps(frame)
        self.window.sent(len(text))
        await self.send(text_data=text)

    async def disconnect(self, code: int) -> None:
        self.gone = True
        if self.socket is not None:
            gateway().sockets.open.discard(self.socket)
        if self.reader is not None and self.reader is not asyncio.current_task():
            await end([self.reader])


def _after(value: str) -> int | None:
    """`latest` is None; anything that is no number is 0."""
    if value == "latest":
        return None
    return int(value[:18]) if value.isascii() and value.isdigit() else 0


def _bearer(headers: dict[bytes, bytes]) -> str:
    scheme, _, token = headers.get(b"authorization", b"").decode("latin-1").partition(" ")
    return token.strip() if scheme.lower() == "bearer" else ""


def _owns(user_id: int, conversation_id: str) -> bool:
    return Session.objects.filter(pk=conversation_id, owner_id=user_id, parent=None, deleted_at=None).exists()


def may_read(token: ApiToken | None) -> bool:
    return token is not None and "read" in token.scopes


def language_of(scope: dict[str, Any]) -> str:
    """The page's language: found in the handshake as `LocaleMiddleware` finds it in a request."""
    request = HttpRequest()
    request.COOKIES = scope["cookies"]
    accepted = dict(scope["headers"]).get(b"accept-language", b"")
    request.META["HTTP_ACCEPT_LANGUAGE"] = accepted.decode("latin-1")
    return translation.get_language_from_request(request)


def origin_is_ours(scope: dict[str, Any], *, required: bool) -> bool:
    """This very host, or one that the settings trust. With the cookie it is required; a program may leave it out."""
    headers = dict(scope["headers"])
    origin = headers.get(b"origin", b"").decode("latin-1")
    host = headers.get(b"host", b"").decode("latin-1")
    if not origin and not required:
        return True
    parts = urlsplit(origin)
    if parts.scheme not in ("http", "https") or not parts.netloc:
        return False
    if origin in settings.CSRF_TRUSTED_ORIGINS:
        return True
    return parts.netloc == host and validate_host(parts.hostname or "", settings.ALLOWED_HOSTS)
