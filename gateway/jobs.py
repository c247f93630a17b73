"""The one function RQ runs: work on the oldest due background session. Tickets may be lost, doubled or late."""

from __future__ import annotations

from gateway.wiring import gateway, settle_model


async def run(ticket: str) -> None:
    """`ticket` is for the dashboard alone: which session is due, the rows say."""
    settle_model()
    worker = gateway()
    engine = worker.host(lane="background", turns=1)
    try:
        await engine.sweep()
        await engine.settled()
    finally:
        await worker.stop()
