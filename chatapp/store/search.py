"""Finding conversations and messages by words: all of them, in any case, and only one's own."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime

from django.db import connection
from django.db.models import Exists, OuterRef, Q, QuerySet, Subquery

from chatapp.models import Message, Session

FOUND_MOST = 50
BEFORE, AFTER = 40, 140


@dataclass(frozen=True)
class Piece:
    """A part of a snippet; `hit` where a word was found."""

    text: str
    hit: bool


@dataclass(frozen=True)
class Hit:
    """A message that has the words, or a conversation whose title has them: then there is no message."""

    conversation: Session
    message: Message | None
    pieces: list[Piece]

    @property
    def snippet(self) -> str:
        return "".join(piece.text for piece in self.pieces)


def words_of(text: str) -> list[str]:
    return list(dict.fromkeys(text.split()))


def _has(field: str, words: Iterable[str]) -> Q:
    """SQLite's LIKE ignores the case of ASCII letters only; its regular expressions are Python's, and slower."""
    found = Q()
    for word in words:
        by_pattern = connection.vendor == "sqlite" and not word.isascii()
        found &= Q(**{f"{field}__iregex": re.escape(word)}) if by_pattern else Q(**{f"{field}__icontains": word})
    return found


def _spoken(words: Iterable[str]) -> QuerySet[Message]:
    """What people and agents said; tools' results are no conversation."""
    return Message.objects.filter(_has("text", words), role__in=("user", "assistant"), synthetic=False)


def conversations(user_id: int, words: Sequence[str]) -> list[Hit]:
    """Those whose titles have the words, then those with a message that has them, each the newest first."""
    if not words:
        return []
    hits = titled(user_id, words)
    said = _spoken(words).filter(session__root=OuterRef("pk")).order_by("-position")
    others = _newest(user_id).exclude(pk__in=[hit.conversation.pk for hit in hits]).filter(Exists(said))
    newest = others.annotate(hit=Subquery(said.values("pk")[:1])).values_list("hit", flat=True)
    return hits + _hits(list(newest[: FOUND_MOST - len(hits)]), words)


def titled(user_id: int, words: Sequence[str]) -> list[Hit]:
    """Conversations whose titles have the words, the newest first."""
    rows = _newest(user_id).filter(_has("title", words))[:FOUND_MOST] if words else []
    return [Hit(row, None, []) for row in rows]


def _newest(user_id: int) -> QuerySet[Session]:
    return Session.objects.conversations_of(user_id).order_by("-updated_at", "-id")


def _hits(ids: Sequence[str], words: Sequence[str]) -> list[Hit]:
    found = Message.objects.defer("payload").select_related("session__root").in_bulk(ids)
    rows = [found[pk] for pk in ids if pk in found]
    return [Hit(row.session.root, row, marked(row.text, words)) for row in rows]


def messages(user_id: int, words: Sequence[str], after: tuple[datetime, str] | None, limit: int) -> list[Hit]:
    """Messages with the words, the newest first; one more than asked for when there are more."""
    if not words:
        return []
    rows = _spoken(words).filter(session__owner=user_id, session__root__deleted_at=None)
    if after:
        time, last = after
        rows = rows.filter(Q(created_at__lt=time) | Q(created_at=time, pk__lt=last))
    # The order is made of ids alone: long texts would be carried through it.
    ids = list(rows.order_by("-created_at", "-pk").values_list("pk", flat=True)[: limit + 1])
    return _hits(ids, words)


def marked(text: str, words: Iterable[str]) -> list[Piece]:
    """The place of the first hit with what stands around it, on one line."""
    # Longer words first: one that begins another must not hide it.
    pattern = re.compile("|".join(re.escape(word) for word in sorted(words, key=len, reverse=True)), re.IGNORECASE)
    first = pattern.search(text)
    begin = max(0, first.start() - BEFORE) if first else 0
    if begin and (space := text.find(" ", begin, first.start() if first else begin)) >= 0:
        begin = space + 1
    end = (first.end() if first else 0) + AFTER
    line = ("…" if begin else "") + " ".join(text[begin:end].split()) + ("…" if end < len(text) else "")
    pieces, at = [], 0
    for found in pattern.finditer(line):
        pieces += [Piece(line[at : found.start()], False), Piece(found[0], True)]
        at = found.end()
    return [piece for piece in [*pieces, Piece(line[at:], False)] if piece.text]
