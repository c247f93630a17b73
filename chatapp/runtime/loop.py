"""The turn: `advance` takes a claimed session from where its rows stand to rest, one checkpoint after another."""

from __future__ import annotations

from chatapp.runtime.messages import load_all
from chatapp.runtime.model_phase import model_phase
from chatapp.runtime.ports import Next, Request, Rested, Work
from chatapp.runtime.signals import Signals
from chatapp.runtime.tool_phase import tool_phase
from chatapp.runtime.turn import Kit, Near, Turn


async def advance(work: Work, kit: Kit, signals: Signals, near: Near) -> None:
    """Go on until the session rests. Starting, resuming and recovering are this same call."""
    turn = Turn(work, kit, signals, near, load_all(work.transcript))
    following: Next = work.next
    while not isinstance(following, Rested):
        if signals.draining:
            await kit.ledger.hand_over(work.hold)
            return
        signals.enter(following.reply_id)
        if isinstance(following, Request):
            turn.transcript += load_all(following.appended)
            following = await model_phase(turn, following)
        else:
            following = await tool_phase(turn, following)
