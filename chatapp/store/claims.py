"""Who works on a session: claim, renew, hand over, recover, and what is due."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import timedelta

from django.conf import settings
from django.db.models import F, Q

from chatapp.models import Session
from chatapp.runtime.events import EventType
from chatapp.runtime.ports import Hold, Work
from chatapp.store import branches
from chatapp.store.db import database_now
from chatapp.store.recovery import recover
from chatapp.store.turns import follow
from chatapp.store.writer import Writer, Written, conversation, held


def due(lane: str, limit: int) -> list[str]:
    """Sessions whose doorbell of record rang and that nobody holds, and those whose lease lapsed; oldest first."""
    now = database_now()
    lapsed = Q(lease_until__lt=now) | Q(lease_until__gt=now + 2 * lease())
    rang = Q(wake_at__lte=now) | Q(wake_at__gt=now, root__updated_at__gt=now)
    rows = Session.objects.filter(lapsed | Q(rang, lease_until=None), lane=lane, root__deleted_at=None)
    return list(rows.order_by(F("wake_at").asc(nulls_first=True)).values_list("pk", flat=True)[:limit])


def claim(session_id: str, owner: str, lane: str) -> Written[Work | None]:
    """Take the lease and go on where the rows stand. None when it is held, nothing rang, or a limit is reached."""
    row = Session.objects.filter(pk=session_id, lane=lane, root__deleted_at=None).values(
        "root_id", "wake_at", "lease_until"
    )
    found = row.first()
    if found is None or (found["wake_at"] is None and found["lease_until"] is None):
        return Written(None)
    with conversation(found["root_id"]) as writer:
        session = writer.session(session_id)
        if not _claimable(writer, session):
            return Written(None)
        # A subagent runs in its caller's slot.
        if not session.lease_owner and session.parent_id is None and _too_many(writer, session):
            _wait_for_slot(writer, session)
            return writer.written(None)
        writer.set(
            session, lease_owner=owner, lease_until=writer.now + lease(), generation=session.generation + 1,
            wake_at=None, status=Session.Status.RUNNING, waiting_for="",
        )  # fmt: skip
        recover(writer, session)
        held_by = branches.of_messages(branches.visible(session))
        transcript = tuple(session.messages.filter(held_by, archived=False).values_list("payload", flat=True))
        following = follow(writer, session)
        hold = Hold(session.pk, writer.root.pk, owner, session.generation)
        work = Work(hold, session.owner_id, transcript, following, session.parent_id or "", session.workspace)
    return writer.written(work)


def lease() -> timedelta:
    return timedelta(seconds=settings.BRANCHLINE_LEASE_SECONDS)


def _claimable(writer: Writer, session: Session) -> bool:
    """A lease longer than anybody takes one, or a change that is still to come: the clock was set back meanwhile."""
    if session.lease_until is not None:
        return not writer.now <= session.lease_until <= writer.now + 2 * lease()
    set_back = writer.root.updated_at > writer.now
    return session.wake_at is not None and (session.wake_at <= writer.now or set_back)


def _wait_for_slot(writer: Writer, session: Session) -> None:
    """Later again: it must not stand at the head of what is due for everybody else."""
    writer.set(session, wake_at=writer.now + timedelta(seconds=settings.BRANCHLINE_SWEEP_SECONDS))
    if session.status != Session.Status.QUEUED:
        writer.set(session, status=Session.Status.QUEUED)
        writer.event(session, EventType.CUSTOM, name="queued", value={"reason": "user_limit"})


def _too_many(writer: Writer, session: Session) -> bool:
    """A limit on running work queues; the sweep comes back to it."""
    running = Session.objects.filter(owner_id=session.owner_id, parent=None, lease_until__gte=writer.now)
    limit: int = settings.BRANCHLINE_RUNNING_PER_USER
    return running.count() >= limit


def renew(hold: Hold) -> Written[str]:
    """Extend the lease; the id of the reply that somebody asked to stop, or empty."""
    with held(hold) as (writer, session):
        writer.set(session, lease_until=writer.now + lease())
        stop = session.reply_id if session.stop else ""
    return writer.written(stop)


def hand_over(hold: Hold) -> Written[None]:
    """Free the lease in mid-turn with the doorbell rung: the next claim goes on in the same stretch."""
    with held(hold) as (writer, session):
        writer.set(session, lease_owner="", lease_until=None)
        writer.wake(session)
    return writer.written(None)


def free_leases(owners: Iterable[str]) -> None:
    """Processes known to be dead hold nothing: their leases lapse now."""
    Session.objects.filter(lease_owner__in=list(owners)).update(lease_until=database_now() - timedelta(seconds=1))
