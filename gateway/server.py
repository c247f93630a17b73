"""`manage.py serve`: Daphne in this process with the host of the turns beside it on one loop."""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import signal
import sys
from collections.abc import Coroutine
from typing import Any, Protocol

# First of all: it installs the asyncio reactor, which nothing may have replaced before.
from daphne.server import Server as DaphneServer  # isort: skip
from daphne.endpoints import build_endpoint_description_strings
from daphne.http_protocol import WebRequest
from daphne.ws_protocol import WebSocketProtocol
from django.conf import settings
from twisted.internet import reactor

# More than the engine gives running turns to reach a checkpoint: the viewers are called back after that.
STOP_SECONDS = 11.0
# Applications that do not end when cancelled are left behind after this.
LAST_SECONDS = 3.0
# The longest text with each character escaped in JSON as a surrogate pair, and the rest of the frame.
FRAME_BYTES = 12 * settings.BRANCHLINE_MESSAGE_CHARS + 1024 * 1024
# The largest body that any page or call reads: a file in a form, or a message as above.
BODY_BYTES = max(settings.BRANCHLINE_FILE_BYTES + 1024 * 1024, FRAME_BYTES)
TOO_LARGE = b"HTTP/1.1 413 Content Too Large\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
QUIET = ("/static/", "/healthz", "/readyz", "/metrics")
logger = logging.getLogger(__name__)
access = logging.getLogger("gateway.access")


class Host(Protocol):
    async def stop(self) -> None: ...


def _log_request(protocol: str, action: str, details: dict[str, Any]) -> None:
    path = details.get("path", "")
    if path.startswith(QUIET):
        return
    if protocol == "http" and action == "complete":
        access.info("%s %s %s %.0f ms", details["method"], path, details["status"], details["time_taken"] * 1000)
    elif protocol == "websocket" and action in {"connected", "disconnected", "rejected"}:
        access.info("websocket %s %s", action, path)


class _Socket(WebSocketProtocol):  # type: ignore[misc]
    """Says 1012 when asked to; the base class refuses each code but 1000 and those of applications."""

    def serverClose(self, code: int | None = None) -> None:
        self.sendCloseFrame(code=code or 1000)


class _Request(WebRequest):  # type: ignore[misc]
    """Takes no body larger than anything here reads, and leaves its parsing to Django, which does it in a thread: the
    base class parses forms a second time, on the loop that everybody shares."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._parsePOSTFormSubmission = False
        self.refused = False
        self.taken = 0

    def gotLength(self, length: int | None) -> None:
        super().gotLength(length)
        self._take(length or 0)
        self.taken = 0

    def handleContentChunk(self, data: bytes) -> None:
        self._take(len(data))
        if not self.refused:
            super().handleContentChunk(data)

    def _take(self, size: int) -> None:
        self.taken += size
        if self.taken > BODY_BYTES and not self.refused:
            self.refused = True
            self.channel.transport.write(TOO_LARGE)
            self.channel.loseConnection()


def _use_our_requests(factory: Any) -> None:
    """The base class makes the factory where it begins to listen, and no other can be given to it."""
    build = factory.buildProtocol

    def build_protocol(addr: Any) -> Any:
        protocol = build(addr)
        protocol.requestFactory = _Request
        return protocol

    factory.buildProtocol = build_protocol


class Server(DaphneServer):  # type: ignore[misc]
    """Daphne that can stop listening first, keeps its host, and leaves in order on SIGTERM."""

    def __init__(self, application: Any, host: str, port: int) -> None:
        super().__init__(
            application,
            endpoints=build_endpoint_description_strings(host=host, port=port),
            signal_handlers=False,
            action_logger=_log_request,
            websocket_timeout=-1,
            websocket_max_message_size=FRAME_BYTES,
            websocket_max_frame_size=FRAME_BYTES,
            server_name="branchline",
        )
        self.ports: list[Any] = []
        self.host: Host | None = None
        self.starting: asyncio.Task[None] | None = None
        self.leaving: asyncio.Task[None] | None = None
        self.exit_code = 0

    def listen_success(self, port: Any) -> None:
        super().listen_success(port)
        self.ports.append(port)

    def listen_error(self, failure: Any) -> None:
        sys.stderr.write(f"Branchline cannot start: {failure.getErrorMessage()}\n")
        self.exit_code = 1
        self.stop()

    def serve(self) -> int:
        reactor.callWhenRunning(self._running)
        self.run()
        return self.exit_code

    def _running(self) -> None:
        self.ws_factory.protocol = _Socket
        _use_our_requests(self.http_factory)
        loop = asyncio.get_event_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._asked_to_stop)
        self.starting = loop.create_task(self._guard(self._start_host()))

    async def _start_host(self) -> None:
        from gateway.wiring import start_host

        self.host = await start_host()
        # What is loaded now stays; a full collection over it would stop every chat for a tenth of a second.
        gc.collect()
        gc.freeze()
        gc.set_threshold(50_000, 20, 100)

    async def _guard(self, work: Coroutine[Any, Any, None]) -> None:
        """A server whose host did not start would take messages that nobody answers: better it ends, loudly."""
        try:
            await work
        except asyncio.CancelledError:
            raise
        except BaseException:
            logger.critical("the server's host did not start", exc_info=True)
            self.exit_code = 1
            self.stop()
            raise

    def _asked_to_stop(self) -> None:
        if self.leaving is None:
            self.leaving = asyncio.get_event_loop().create_task(self._leave())

    async def _leave(self) -> None:
        for port in self.ports:
            port.stopListening()
        if self.starting and not self.starting.done():
            self.starting.cancel()
        if self.host:
            try:
                await asyncio.wait_for(self.host.stop(), STOP_SECONDS)
            except TimeoutError:
                logger.warning("the host did not stop in time; recovery takes what it left")
        asyncio.get_event_loop().call_later(LAST_SECONDS, os._exit, self.exit_code)
        self.stop()

    def kill_all_applications(self) -> Any:
        # The base class trips over connections whose application is gone already.
        gone = [protocol for protocol, details in self.connections.items() if "application_instance" not in details]
        for protocol in gone:
            del self.connections[protocol]
        return super().kill_all_applications()
