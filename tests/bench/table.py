"""The rows with their bars, what the rounds gave for them, and the table."""

from __future__ import annotations

import statistics
from dataclasses import dataclass, field

Figures = dict[str, float]
# A round in which others used more cores than this is left out while there is another.
NOISE = 0.5


@dataclass(frozen=True)
class Row:
    """One line of the table: a figure of a measure and its bar, on ours or (`of_relay`) on its ratio to the relay."""

    measure: str
    figure: str
    title: str
    bar: float
    at_least: bool = False
    of_relay: bool = False
    digits: int = 1

    def reached(self, ours: float, ratio: float | None) -> bool:
        value = ratio if self.of_relay else ours
        return value is not None and (value >= self.bar if self.at_least else value <= self.bar)

    @property
    def bar_text(self) -> str:
        return f"{'≥' if self.at_least else '≤'} {self.bar:g}{' × relay' if self.of_relay else ''}"


ROWS = (
    Row("delay10", "p50", "added delay, 10 chats of 50 tokens/s, p50, ms", 3),
    Row("delay10", "p99", "  p99, ms", 60),
    Row("delay10", "first", "first token beyond the provider's, 10 chats, ms", 15),
    Row("delay50", "p50", "added delay, 50 chats of 50 tokens/s, p50, ms", 10),
    Row("delay50", "p99", "  p99, ms", 100),
    Row("delay50", "cpu", "CPU s per 1,000 tokens, 50 chats", 0.35, digits=3),
    Row("burst", "rate", "burst, 10 chats × 500 tokens, tokens/s", 0.08, at_least=True, of_relay=True, digits=0),
    Row("burst", "cpu", "CPU s per 1,000 tokens, burst", 13, of_relay=True, digits=3),
    Row("sustained", "chats", "chats of 50 tokens/s sustained on one core", 100, at_least=True, digits=0),
    Row("history", "first", "first token at 1,000 messages, ms", 60),
    Row("opening", "ms", "opening a conversation of 1,000 messages, ms", 300),
    Row("tool", "ms", "a turn with one tool call, ms", 30),
    Row("subagents", "ms", "a turn with 4 parallel subagents of 20 tokens, ms", 120),
    Row("idle", "KB", "idle websocket, KB each at 2,000", 60),
    Row("idle", "storm", "500 come back at once, s", 5),
    Row("start", "s", "start again to the first page, s", 5),
)


@dataclass
class Round:
    """A measure's figures by side, and how many cores others used meanwhile, where that could be seen."""

    figures: dict[str, Figures] = field(default_factory=dict)
    foreign: float | None = None

    @property
    def noisy(self) -> bool:
        return self.foreign is not None and self.foreign > NOISE

    def ratio(self, figure: str) -> float | None:
        ours, relay = (self.figures.get(side, {}).get(figure) for side in ("ours", "relay"))
        return ours / relay if ours is not None and relay else None


class Seen:
    """A measure's rounds. Noisy ones count only where there is no other."""

    def __init__(self) -> None:
        self.all: list[Round] = []

    @property
    def noisy(self) -> bool:
        return all(one.noisy for one in self.all)

    @property
    def rounds(self) -> list[Round]:
        return [one for one in self.all if self.noisy or not one.noisy]

    def median(self, side: str, figure: str) -> float | None:
        found = [one.figures[side][figure] for one in self.rounds if figure in one.figures.get(side, {})]
        return statistics.median(found) if found else None

    def ratio(self, figure: str) -> float | None:
        """The median of the rounds' own ratios: both sides of one saw the same machine."""
        found = [ratio for one in self.rounds if (ratio := one.ratio(figure)) is not None]
        return statistics.median(found) if found else None


def table(seen: dict[str, Seen]) -> list[str]:
    lines = [f"{'':50}{'relay':>9}{'ours':>9}{'ratio':>8}  {'bar':15}{'reached':9}rounds  others' cores"]
    for row in ROWS:
        found = seen.get(row.measure) or Seen()
        ours, ratio = found.median("ours", row.figure), found.ratio(row.figure)
        if ours is None:
            continue
        foreign = [one.foreign for one in found.rounds if one.foreign is not None]
        cells = [_number(found.median("relay", row.figure), row.digits), _number(ours, row.digits), _number(ratio, 3)]
        cells.append(_number(statistics.median(foreign) if foreign else None, 2))
        reached = "yes" if row.reached(ours, ratio) else "NO"
        lines.append(
            f"{row.title:50}{cells[0]:>9}{cells[1]:>9}{cells[2]:>8}  {row.bar_text:15}{reached:9}"
            f"{len(found.rounds)} of {len(found.all)}  {cells[3]}{'  noisy, do not trust' if found.noisy else ''}"
        )
    return lines


def _number(value: float | None, digits: int) -> str:
    return "–" if value is None else f"{value:,.{digits}f}"
