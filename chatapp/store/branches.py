"""Branches of a session: what each holds, making one at a past message, and the ways on at each fork."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from django.db.models import Min, Q

from chatapp.models import Branch, Event, Session
from chatapp.parts import Siblings
from chatapp.runtime.errors import Conflict
from chatapp.runtime.events import EventType
from chatapp.store.writer import Writer

# What a database takes in one condition, with room to spare.
BRANCHES_MOST = 300


@dataclass(frozen=True)
class Stretch:
    """What one branch of a path contributes: rows before `position` and `seq`; all of its own where they are None."""

    branch: int
    position: int | None = None
    seq: int | None = None


def path(branches: Iterable[Branch], number: int) -> list[Stretch]:
    """From a branch back to the first one, each cut where the next one left it."""
    rows = {row.number: row for row in branches}
    found = [Stretch(number)]
    while number in rows:
        row = rows[number]
        found.append(Stretch(row.parent, row.position, row.seq))
        number = row.parent
    return found


def visible(session: Session) -> list[Stretch] | None:
    """The path of the branch that goes on; None where there is but one."""
    return path(session.branches.all(), session.branch) if session.newest_branch else None


def of_messages(stretches: list[Stretch] | None) -> Q:
    """Which messages a path holds."""
    return _any(stretches, "position")


def of_events(stretches: list[Stretch] | None) -> Q:
    """Which of the session's own events a path holds."""
    return _any(stretches, "seq")


def _any(stretches: list[Stretch] | None, column: str) -> Q:
    found = Q()
    for stretch in stretches or ():
        limit = getattr(stretch, column)
        found |= Q(branch=stretch.branch) & (Q() if limit is None else Q(**{f"{column}__lt": limit}))
    return found


def fork(writer: Writer, session: Session, branch: int, position: int, seq: int) -> None:
    """Leave `branch` before a message and go on in a new one. Where that message is the first of its branch, the new
    one leaves where that one left: they are siblings."""
    if session.newest_branch >= BRANCHES_MOST:
        raise Conflict(
            f"A conversation has at most {BRANCHES_MOST} branches. Go on in a new one.", code="branches_full"
        )
    row = session.branches.filter(number=branch).first() if branch else None
    if row is not None and not session.messages.filter(branch=branch, position__lt=position).exists():
        branch, position, seq = row.parent, row.position, row.seq
    writer.set(session, newest_branch=session.newest_branch + 1)
    made = session.branches.create(
        number=session.newest_branch, parent=branch, position=position, seq=seq, created_at=writer.now
    )
    go_on(writer, session, made.number)


def go_on(writer: Writer, session: Session, number: int) -> None:
    """The page draws the thread anew when it hears of this."""
    writer.set(session, branch=number)
    writer.event(session, EventType.CUSTOM, name="branch", value={"branch": number})


Place = tuple[int, int]


@dataclass
class Forks:
    """The forks along the visible path, found by the item that stands there: by its event's branch and number."""

    _places: dict[Place, Siblings] = field(default_factory=dict)

    def at(self, branch: int, seq: int) -> Siblings | None:
        return self._places.get((branch, seq))


ITEMS = (EventType.USER_MESSAGE.value, EventType.AGENT_START.value)


def forks(session: Session) -> Forks:
    """Two queries, none where nothing was ever branched."""
    if not session.newest_branch:
        return Forks()
    rows = list(session.branches.all())
    firsts = dict(
        Event.objects.filter(session=session, branch__gt=0, type__in=ITEMS)
        .order_by()
        .values_list("branch")
        .annotate(first=Min("seq"))
    )
    shown = path(rows, session.branch)
    return Forks(dict(_places(rows, shown, firsts)))


def siblings_of(session_id: str, event: dict[str, Any]) -> Siblings | None:
    """Those of the message that this event tells of, or of the reply that it begins or ends."""
    found = forks(Session.objects.get(pk=session_id))
    if event["type"] == EventType.USER_MESSAGE:
        return found.at(event["branch"], event["seq"])
    starts = Event.objects.filter(session_id=session_id, type=EventType.AGENT_START, reply_id=event["reply_id"])
    first = starts.order_by("seq").values_list("branch", "seq").first()
    return found.at(*first) if first else None


def _places(rows: list[Branch], shown: list[Stretch], firsts: dict[int, int]) -> Iterator[tuple[Place, Siblings]]:
    after = {stretch.branch: below for below, stretch in zip(shown, shown[1:], strict=False)}
    limits = {stretch.branch: stretch.seq for stretch in shown}
    for parent, seq in {(row.parent, row.seq) for row in rows}:
        limit = limits.get(parent)
        if parent not in limits or (limit is not None and seq > limit):
            continue
        options = [parent, *(row.number for row in rows if (row.parent, row.seq) == (parent, seq))]
        current = after[parent].branch if limit == seq else parent
        index = options.index(current)
        ways = [_newest(rows, option, parent, seq) for option in options]
        place = (parent, seq) if current == parent else (current, firsts.get(current, 0))
        before = ways[index - 1] if index else None
        behind = ways[index + 1] if ways[index + 1 :] else None
        yield place, Siblings(index + 1, len(ways), before, behind)


def _newest(rows: list[Branch], option: int, parent: int, seq: int) -> int:
    """The newest branch that goes this way at a fork: where somebody last was when they went it."""
    own = {option}
    for row in rows:
        stays = option != parent or row.parent != parent or row.seq > seq
        if row.parent in own and stays:
            own.add(row.number)
    return max(own)
