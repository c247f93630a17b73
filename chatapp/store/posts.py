"""What people post to a session: messages, their edits, a wish to try again or another way on, a stop."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

from django.conf import settings

from chatapp.models import InboxItem, Message, Session, ToolCall
from chatapp.runtime.errors import Conflict, InvalidField, NotFound, RateLimited
from chatapp.runtime.events import EventType
from chatapp.runtime.ids import new_id
from chatapp.store import branches
from chatapp.store.calls import announce_message
from chatapp.store.recovery import recover
from chatapp.store.turns import BUSY, rest
from chatapp.store.writer import Writer, Written, conversation
from chatapp.workspaces import Attachment

TITLE_LENGTH = 60


@dataclass(frozen=True)
class Draft:
    """A checked message on its way in. `overrides` hold for the turn it starts."""

    text: str
    mode: str = "queue"
    client_id: str | None = None
    overrides: dict[str, Any] = field(default_factory=dict)
    attachments: Sequence[Attachment] = ()


@dataclass(frozen=True)
class Posted:
    message_id: str
    seq: int
    state: str


def post_message(user_id: int, session_id: str, draft: Draft) -> Written[Posted]:
    """Store the message before anything else happens; the same `client_id` again is the same answer."""
    root_id = root_of(user_id, session_id)
    with conversation(root_id) as writer:
        session = writer.session(session_id)
        if draft.client_id:
            before = InboxItem.objects.filter(user_id=user_id, session=session, client_id=draft.client_id).first()
            if before:
                return Written(Posted(before.id, before.seq, _first_state(before)))
        _check_rate(writer, user_id)
        # What a wide stop held goes first: a message behind it waits as well, if only for a moment.
        busy = session.status in BUSY or _waiting(session)
        item = InboxItem(
            id=new_id(), session=session, kind=InboxItem.Kind.MESSAGE, user_id=user_id, text=draft.text,
            mode=draft.mode, overrides={**draft.overrides}, client_id=draft.client_id or None, created_at=writer.now,
            attachments=list(draft.attachments), started=not busy,
        )  # fmt: skip
        announce_message(writer, session, item, "queued" if busy else "running")
        item.save()
        if not session.title and session.parent_id is None:
            writer.set(session, title=title_of(draft.text))
        _ring(writer, session)
    return writer.written(Posted(item.id, item.seq, _first_state(item)))


def _first_state(item: InboxItem) -> str:
    return "running" if item.started else "queued"


def root_of(user_id: int, session_id: str) -> str:
    """The conversation of a session that this person may see."""
    root = Session.objects.filter(pk=session_id, owner_id=user_id, root__deleted_at=None).values_list("root_id")
    found = root.first()
    if found is None:
        raise NotFound("No such conversation.")
    return str(found[0])


def _check_rate(writer: Writer, user_id: int) -> None:
    """At most so many messages a person and minute; counted on rows, so it holds across processes."""
    limit = settings.BRANCHLINE_RATE_MESSAGES
    if not limit:
        return
    since = writer.now - timedelta(minutes=1)
    times = list(
        InboxItem.objects.filter(user_id=user_id, created_at__gt=since)
        .order_by("-created_at")
        .values_list("created_at", flat=True)[:limit]
    )
    if len(times) >= limit:
        wait = (times[-1] + timedelta(minutes=1) - writer.now).total_seconds()
        raise RateLimited(f"More than {limit} messages in a minute. Wait a moment and send again.", max(1, round(wait)))


def _ring(writer: Writer, session: Session) -> None:
    """Wake the session unless a host holds it: a host looks into the inbox before it lets go."""
    writer.set(session, queue_held=False)
    if session.lease_owner:
        return
    if session.status not in BUSY:
        writer.set(session, status=Session.Status.RUNNING)
    writer.wake(session)


def title_of(text: str) -> str:
    """The first line, cut at a word."""
    line = " ".join(text.split("\n", 1)[0].split()) or " ".join(text.split())
    if len(line) <= TITLE_LENGTH:
        return line
    cut = line[:TITLE_LENGTH].rsplit(" ", 1)[0]
    return cut.rstrip(",.;:") + "…"


def _queued(user_id: int, message_id: str) -> tuple[str, InboxItem]:
    item = InboxItem.objects.filter(
        id=message_id, kind=InboxItem.Kind.MESSAGE, session__owner_id=user_id, session__root__deleted_at=None
    ).select_related("session")
    found = item.first()
    if found is None:
        raise NotFound("No such message.")
    return found.session.root_id, found


def edit_message(user_id: int, message_id: str, text: str) -> Written[Posted]:
    return _change_queued(user_id, message_id, text)


def remove_message(user_id: int, message_id: str) -> Written[Posted]:
    return _change_queued(user_id, message_id, None)


def _change_queued(user_id: int, message_id: str, text: str | None) -> Written[Posted]:
    """Edit (a text) or remove (None) a message that no turn has taken yet; else Conflict."""
    root_id, found = _queued(user_id, message_id)
    with conversation(root_id) as writer:
        session = writer.session(found.session_id)
        item = InboxItem.objects.get(pk=found.pk)
        if item.state != InboxItem.State.QUEUED or item.announced != "queued":
            raise Conflict("This message is not queued any more: the agent has it.", code="not_queued")
        if text is None:
            item.state = InboxItem.State.REMOVED
            announce_message(writer, session, item, "removed")
        else:
            item.text = text
            item.announced = ""
            announce_message(writer, session, item, "queued")
        item.save(update_fields=["state", "text", "announced"])
    return writer.written(Posted(item.id, writer.events[-1].seq, item.announced))


def branch_message(user_id: int, message_id: str, text: str) -> Written[Posted]:
    """Write a past message anew: the conversation goes on from there in a branch of its own."""
    found = Message.objects.filter(
        pk=message_id, role="user", session__owner_id=user_id, session__root__deleted_at=None
    ).select_related("session")
    message = found.first()
    if message is None:
        raise NotFound("No such message.")
    with conversation(message.session.root_id) as writer:
        session = writer.session(message.session_id)
        _require_rest(session)
        before = InboxItem.objects.filter(id=message.pk).first()
        if before is None or before.announced != "running":
            raise Conflict("Only a message that began a reply can be written anew.", code="not_a_beginning")
        _check_rate(writer, user_id)
        branches.fork(writer, session, message.branch, message.position, message.seq)
        item = InboxItem(
            id=new_id(), session=session, kind=InboxItem.Kind.MESSAGE, user_id=user_id, text=text,
            attachments=before.attachments, created_at=writer.now, started=True,
        )  # fmt: skip
        announce_message(writer, session, item, "running")
        item.save()
        _ring(writer, session)
    return writer.written(Posted(item.id, item.seq, "running"))


def switch_branch(user_id: int, conversation_id: str, number: int) -> Written[None]:
    """Go on in another branch. A failure stays with the branch that it happened in."""
    root_id = root_of(user_id, conversation_id)
    with conversation(root_id) as writer:
        session = writer.root
        _require_rest(session)
        if number and not session.branches.filter(number=number).exists():
            raise InvalidField("branch", "The number of a branch of this conversation.")
        if number != session.branch:
            branches.go_on(writer, session, number)
            writer.set(session, status=Session.Status.IDLE, error=None)
    return writer.written(None)


def _waiting(session: Session) -> bool:
    return session.inbox.filter(state=InboxItem.State.QUEUED).exclude(kind=InboxItem.Kind.ANSWER).exists()


def _require_rest(session: Session) -> None:
    if session.status in BUSY:
        raise Conflict("The agent is at work here. Stop it or wait until it is done.", code="busy")
    if _waiting(session):
        raise Conflict("Messages wait in the queue. Send one, or remove them first.", code="queue_waits")


def retry(user_id: int, session_id: str) -> Written[Posted]:
    """The last reply's input again: in place after a failure, else as a sibling of that reply."""
    root_id = root_of(user_id, session_id)
    with conversation(root_id) as writer:
        session = writer.session(session_id)
        if session.status != Session.Status.FAILED:
            _require_rest(session)
            _leave_last_reply(writer, session)
        item = InboxItem.objects.create(
            session=session, kind=InboxItem.Kind.RETRY, user_id=user_id, created_at=writer.now, started=True
        )
        _ring(writer, session)
        writer.set(session, error=None)
    return writer.written(Posted(item.id, writer.root.last_seq, "running"))


def _leave_last_reply(writer: Writer, session: Session) -> None:
    """A new branch that holds what the last reply answered, and not that reply."""
    shown = branches.visible(session)
    starts = session.own_events.filter(branches.of_events(shown), type=EventType.AGENT_START)
    last = starts.order_by("-seq").first()
    if last is None:
        raise Conflict("There is no reply to try again.", code="nothing_to_retry")
    first = starts.filter(reply_id=last.reply_id).order_by("seq")[0]
    began = InboxItem.objects.filter(session=session, announced="running").values("id")
    said = session.messages.filter(reply_id=first.reply_id).exclude(pk__in=began).order_by("position").first()
    position = said.position if said else session.log_version
    branches.fork(writer, session, first.branch, position, first.seq)


@dataclass(frozen=True)
class Stopped:
    """Whom a stop reaches, and whom it leaves running."""

    stopped: tuple[Session, ...]
    continues: tuple[Session, ...] = ()


def stop(user_id: int, session_id: str, scope: str = "reply") -> Written[Stopped]:
    """Stop this session's reply, and what it waits for below it. A living host sees the flag by doorbell or at its
    next renewal; where there is none, the reply is settled here."""
    root_id = root_of(user_id, session_id)
    with conversation(root_id) as writer:
        session = writer.session(session_id)
        if session.status not in BUSY:
            return Written(Stopped(()))
        below = [one for one in _below(writer, session, wide=scope != "reply") if one.status in BUSY]
        for one in (session, *below):
            writer.set(one, stop=scope)
            if one.reply_id:
                writer.hushed.append(one.reply_id)
        # The deepest first: who waits for one that is settled here must not be told of it and go on.
        for one in (*reversed(below), session):
            if one.lease_until is not None and one.lease_until >= writer.now:
                writer.wakes.append(one.pk)
            else:
                _settle(writer, one)
    return writer.written(Stopped((session, *below)))


def _below(writer: Writer, session: Session, *, wide: bool) -> list[Session]:
    """The subagents whose answers it waits for and theirs, from above to below; the whole tree of a wide stop."""
    waits = session.tool_calls.filter(joined=False, status=ToolCall.Status.CHILD)
    rows = Session.objects.filter(parent=session) if wide else Session.objects.filter(pk__in=waits.values("child"))
    found = []
    for pk in rows.values_list("pk", flat=True):
        child = writer.session(pk)
        found += [child, *_below(writer, child, wide=wide)]
    return found


def _settle(writer: Writer, session: Session) -> None:
    """Nobody hosts it: end the reply under the lock. A host that comes back late is fenced."""
    writer.set(session, generation=session.generation + 1, lease_owner="", lease_until=None)
    recover(writer, session)
    if not session.queue_held and _waiting(session):
        writer.wake(session)
    else:
        rest(writer, session)
