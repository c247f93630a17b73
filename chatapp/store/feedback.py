"""What people think of replies: kept once for each reply and person."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from chatapp.models import Event, Feedback, Message
from chatapp.runtime.errors import NotFound


@dataclass(frozen=True)
class Opinion:
    """`value`: up, down, or empty for none."""

    value: str
    reasons: Sequence[str] = ()
    comment: str = ""


def opinions(user_id: int, session_id: str, reply_ids: Iterable[str]) -> dict[str, str]:
    """The values of those replies that have one."""
    rows = Feedback.objects.filter(user_id=user_id, session_id=session_id, reply_id__in=list(reply_ids))
    return dict(rows.values_list("reply_id", "value"))


def rate(user_id: int, session_id: str, reply_id: str, opinion: Opinion) -> None:
    """The caller knows that the session is the person's."""
    if not Event.objects.filter(session_id=session_id, reply_id=reply_id).exists():
        raise NotFound("No such reply.")
    if not opinion.value:
        Feedback.objects.filter(session_id=session_id, reply_id=reply_id, user_id=user_id).delete()
        return
    Feedback.objects.update_or_create(
        session_id=session_id, reply_id=reply_id, user_id=user_id,
        defaults={"value": opinion.value, "reasons": list(opinion.reasons), "comment": opinion.comment},
    )  # fmt: skip


def rate_message(user_id: int, message_id: str, opinion: Opinion) -> str:
    """By one of the reply's own messages; answers the reply's id."""
    found = Message.objects.filter(
        pk=message_id, role="assistant", session__owner_id=user_id, session__root__deleted_at=None
    )
    row = found.exclude(reply_id="").first()
    if row is None:
        raise NotFound("No such message of an agent.")
    rate(user_id, row.session_id, row.reply_id, opinion)
    return row.reply_id
