"""`python -m tests.bench [ROWS…] [--rounds 5] [--quick]`: our figures beside those of a bare relay, as one table.

Figures are read, not tested: it ends with 0 whatever they are. What an issue must reach is the bar.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import os
import resource
import shutil
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from tests.bench import measures, silence
from tests.bench.measures import Bench, Side
from tests.bench.servers import ModelServer, Product, Relay, Server, cores, on
from tests.bench.table import Figures, Round, Seen, table

# Cores in use elsewhere below which the machine counts as calm.
CALM = 0.2


@dataclass(frozen=True)
class Measure:
    """`alone`: the relay has nothing like it. `once`: not in every round."""

    take: Callable[[Bench, Side], Awaitable[Figures]]
    alone: bool = False
    once: bool = False


MEASURES = {
    "delay10": Measure(measures.delay10),
    "delay50": Measure(measures.delay50),
    "burst": Measure(measures.burst),
    "sustained": Measure(measures.sustained),
    "history": Measure(measures.history),
    "opening": Measure(measures.opening, alone=True),
    "tool": Measure(measures.tool, alone=True),
    "subagents": Measure(measures.subagents, alone=True),
    "idle": Measure(silence.idle, once=True),
    "start": Measure(measures.start, alone=True),
}


class Machine:
    """How busy others keep this machine: a figure beside a busy neighbour is a figure about the neighbour."""

    def __init__(self, ours: list[Server]) -> None:
        self.ours = ours
        self.look()

    def look(self) -> None:
        self.began, self.busy = time.monotonic(), self._others()

    def _others(self) -> float:
        fields = [int(n) for n in Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:8]]
        busy = (sum(fields) - fields[3] - fields[4]) / os.sysconf("SC_CLK_TCK")
        return busy - time.process_time() - sum(server.cpu() for server in self.ours)

    def foreign(self) -> float:
        return max(0.0, (self._others() - self.busy) / (time.monotonic() - self.began))

    async def wait_for_others(self, seconds: float) -> None:
        deadline = time.monotonic() + seconds
        calm = 0
        while calm < 2 and time.monotonic() < deadline:
            self.look()
            await asyncio.sleep(0.5)
            calm = calm + 1 if self.foreign() < CALM else 0


async def measure(bench: Bench, name: str, sides: list[Side], machine: Machine, patience: float) -> Round:
    """One round of a measure: one side right after the other."""
    taken = Round()
    for side in sides:
        await machine.wait_for_others(patience)
        machine.look()
        taken.figures[side.NAME] = await MEASURES[name].take(bench, side)
        # What was started anew has clocks of its own: nobody can tell the others' share.
        if name != "start":
            taken.foreign = max(taken.foreign or 0.0, machine.foreign())
    return taken


async def measure_all(
    bench: Bench, chosen: argparse.Namespace, relay: Relay, machine: Machine, seen: dict[str, Seen]
) -> None:
    for number in range(chosen.rounds):
        for name in seen:
            if MEASURES[name].once and number:
                continue
            sides: list[Side] = [bench.product] if MEASURES[name].alone else [bench.product, relay]
            _say(f"round {number + 1} of {chosen.rounds}: {name}")
            ordered = sides if number % 2 else sides[::-1]
            seen[name].all.append(await measure(bench, name, ordered, machine, chosen.quiet))


def _say(line: str) -> None:
    if sys.stderr.isatty():
        print(f"\r{line:60}", end="\r", file=sys.stderr, flush=True)


def options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.bench", description=__doc__)
    parser.add_argument("rows", nargs="*", metavar="ROWS", help=f"of {' '.join(MEASURES)}; default: all")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--quick", action="store_true", help="one round of short streams, to see that it works")
    parser.add_argument("--quiet", type=float, default=0, metavar="SECONDS", help="wait so long for a calm machine")
    chosen = parser.parse_args()
    if chosen.quick:
        chosen.rounds = 1
    if unknown := [name for name in chosen.rows if name not in MEASURES]:
        parser.error(f"no such row: {', '.join(unknown)}; one of {' '.join(MEASURES)}")
    return chosen


async def run(chosen: argparse.Namespace, folder: Path) -> None:
    servers, others = cores()
    if servers == others:
        print("One core only: model and client share it with the server, so figures are worse than they should be.")
    model = ModelServer(folder, others)
    relay, product = Relay(folder, servers, model), Product(folder, servers, model)
    bench, started = Bench(2 if chosen.quick else 4, product), [model, relay, product]
    seen = {name: Seen() for name in MEASURES if name in chosen.rows or not chosen.rows}
    try:
        with on(others):
            for server in started:
                server.start()
            await measure_all(bench, chosen, relay, Machine([*started]), seen)
    finally:
        for server in reversed(started):
            server.stop()
        # Also after Ctrl-C: what the rounds so far gave.
        _say("")
        print("\n".join([*table(seen), *bench.lost]))


def main() -> None:
    if sys.platform != "linux":
        print("make bench reads Linux's clocks and pins cores; there is nothing like it here.")
        return
    chosen = options()
    # Thousands of websockets; what is started takes the limit over.
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    gc.disable()
    folder = Path(tempfile.mkdtemp(prefix="branchline-bench-"))
    try:
        with suppress(KeyboardInterrupt):
            asyncio.run(run(chosen, folder))
    finally:
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()
