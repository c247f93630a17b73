"""Starts and stops the host under servers that speak ASGI's lifespan; Daphne's `serve` does it itself."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from gateway.wiring import Gateway, start_host

App = Callable[[dict[str, Any], Callable[..., Awaitable[Any]], Callable[..., Awaitable[None]]], Awaitable[None]]


def with_lifespan(app: Any) -> App:
    async def application(scope: dict[str, Any], receive: Any, send: Any) -> None:
        if scope["type"] != "lifespan":
            await app(scope, receive, send)
            return
        host: Gateway | None = None
        while True:
            message = await receive()
            if message["type"] == "lifespan.startup":
                host = await start_host()
                await send({"type": "lifespan.startup.complete"})
            else:
                if host is not None:
                    await host.stop()
                await send({"type": "lifespan.shutdown.complete"})
                return

    return application
