"""The harness itself: a token counts once and is as old as it is, and the relay passes all of them on."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.bench.client import Turn
from tests.bench.model import WRAP, age, now, token
from tests.bench.servers import ModelServer, Relay, cores
from tests.bench.table import ROWS, Round, Seen, table


def test_a_token_is_as_old_as_the_time_since_its_writing() -> None:
    stamp = token()
    assert 0 <= age(stamp, now()) < 1000
    assert age(f"{WRAP - 500:09d} ", WRAP + 1500) == 2


def test_a_token_that_comes_again_counts_once() -> None:
    turn = Turn()
    one, two, three = f"{1:09d} ", f"{2:09d} ", f"{3:09d} "
    turn.delta({"offset": 0, "text": one + two}, at=2000)
    turn.delta({"offset": 10, "text": two + three}, at=3000)
    assert len(turn.ages) == 3
    turn.block_end(one + two + three, at=4000)
    assert (len(turn.ages), turn.wrong) == (3, False)


def test_what_no_delta_brought_counts_at_the_end_and_what_differs_is_wrong() -> None:
    turn = Turn()
    turn.delta({"offset": 0, "text": f"{1:09d} "}, at=2000)
    turn.block_end(f"{1:09d} {2:09d} ", at=4000)
    assert (turn.read_at, turn.wrong) == ([2000, 4000], False)
    other = Turn()
    other.delta({"offset": 0, "text": f"{1:09d} "}, at=2000)
    other.block_end(f"{7:09d} ", at=4000)
    assert other.wrong


async def test_the_relay_passes_each_token_on_turn_after_turn(tmp_path: Path) -> None:
    which, _ = cores()
    model = ModelServer(tmp_path, which)
    relay = Relay(tmp_path, which, model)
    try:
        model.start()
        relay.start()
        chat = await relay.chat()
        for _ in range(2):
            turn = await chat.ask(n=300)
            assert (len(turn.ages), turn.frames, turn.text.count(" ")) == (300, 300, 300)
        assert relay.cpu() > 0
        chat.close()
    finally:
        relay.stop()
        model.stop()


def _burst(ours: float, relay: float, foreign: float) -> Round:
    return Round({"ours": {"rate": ours, "cpu": 0.5}, "relay": {"rate": relay, "cpu": 0.1}}, foreign)


def test_noisy_rounds_count_only_where_there_is_no_other() -> None:
    seen = Seen()
    seen.all = [_burst(10, 1000, 1.5)]
    assert seen.ratio("rate") == pytest.approx(0.01)
    assert "noisy" in table({"burst": seen})[1]
    seen.all += [_burst(100, 1000, 0.0), _burst(300, 1000, 0.1), _burst(200, 1000, 0.0)]
    assert seen.median("ours", "rate") == 200
    assert seen.ratio("rate") == pytest.approx(0.2)
    line = table({"burst": seen})[1]
    assert "yes" in line
    assert "3 of 4" in line
    assert "noisy" not in line


def test_a_bar_is_of_ours_or_of_the_ratio() -> None:
    rows = {(row.measure, row.figure): row for row in ROWS}
    assert rows["sustained", "chats"].reached(100, None)
    assert not rows["sustained", "chats"].reached(50, 1.0)
    assert rows["tool", "ms"].reached(30, None)
    assert not rows["burst", "rate"].reached(10_000, 0.07)
