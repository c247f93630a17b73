"""Finding conversations and messages by their words."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.utils import timezone

from chatapp.models import Message, Session
from chatapp.store import search
from chatapp.store.search import Hit, marked, words_of
from tests.gateway.replies import conversation_of

pytestmark = pytest.mark.django_db


def said(talk: Session, text: str, **fields: Any) -> Message:
    position = Message.objects.filter(session=talk).count()
    more = {"role": "user", "sender": "user", "payload": {}, "seq": position + 1, **fields}
    return Message.objects.create(session=talk, position=position, text=text, **more)


def titles(alice: User, text: str) -> list[str]:
    return [hit.conversation.title for hit in search.conversations(alice.pk, words_of(text))]


def found(alice: User, text: str) -> list[str]:
    return [hit.message.text for hit in search.messages(alice.pk, words_of(text), None, 100) if hit.message]


def test_titles_come_first_and_every_conversation_once(alice: User) -> None:
    told = conversation_of(alice, "Other")
    said(told, "about a trip")
    said(told, "the trip again")
    named = conversation_of(alice, "Trip", updated_at=timezone.now() - timedelta(days=1))
    said(named, "trip")
    assert titles(alice, "trip") == ["Trip", "Other"]
    (_, hit) = search.conversations(alice.pk, ["trip"])
    assert hit.message
    assert hit.message.text == "the trip again"


@pytest.mark.parametrize("text", ["HOTEL ledger", "ledger hotel", "über HOTEL", "ÜBER ledger", "  hotel\n hotel "])
def test_all_words_must_occur_in_any_case_and_order(alice: User, text: str) -> None:
    said(conversation_of(alice, "one"), "Hotel ledger, Über alles")
    said(conversation_of(alice, "two"), "a hostel, a ledge")
    assert titles(alice, text) == ["one"]
    assert found(alice, text) == ["Hotel ledger, Über alles"]


@pytest.mark.parametrize("text", ["100%", "a_b", "c\\d", "(x", "it's"])
def test_signs_mean_themselves(alice: User, text: str) -> None:
    said(conversation_of(alice, "yes"), f"so {text} it is")
    said(conversation_of(alice, "no"), "so 1005 axb cd x its it is")
    assert titles(alice, text) == ["yes"]


def test_it_finds_only_ones_own_that_are_not_deleted_and_archived_too(alice: User, bob: User) -> None:
    said(conversation_of(alice, "archived", archived=True), "needle")
    said(conversation_of(alice, "needle deleted", deleted_at=timezone.now()), "needle")
    said(conversation_of(bob, "needle of bob"), "needle")
    assert titles(alice, "needle") == ["archived"]
    assert found(alice, "needle") == ["needle"]


def test_what_tools_answered_is_not_found(alice: User) -> None:
    said(conversation_of(alice, "talk"), "needle", role="tool", sender="agent")
    assert titles(alice, "needle") == []
    assert found(alice, "needle") == []


def test_nothing_asked_is_nothing_found(alice: User) -> None:
    said(conversation_of(alice, "talk"), "text")
    assert titles(alice, "  ") == found(alice, " ") == []


def test_it_stops_at_fifty_conversations(alice: User) -> None:
    for number in range(60):
        said(conversation_of(alice, f"needle {number}" if number % 2 else "talk"), "needle")
    assert len(titles(alice, "needle")) == 50
    assert titles(alice, "needle")[29:31] == ["needle 1", "talk"]


def test_pages_of_messages_follow_each_other(alice: User) -> None:
    talk = conversation_of(alice)
    wanted = [said(talk, f"needle {number}").text for number in range(7)][::-1]
    seen: list[str] = []
    after = None
    while page := search.messages(alice.pk, ["needle"], after, 3):
        rows = [hit.message for hit in page[:3] if hit.message]
        seen += [row.text for row in rows]
        after = (rows[-1].created_at, rows[-1].pk)
    assert seen == wanted


def shown(hit: Hit | str, *words: str) -> str:
    pieces = marked(hit, words) if isinstance(hit, str) else hit.pieces
    return "".join(f"[{piece.text}]" if piece.hit else piece.text for piece in pieces)


def test_a_snippet_marks_every_hit_and_cuts_around_the_first() -> None:
    assert shown("A Trip to\n\n the trip desk", "trip") == "A [Trip] to the [trip] desk"
    long = shown("before " * 50 + "needle" + " after" * 100, "needle")
    assert long.startswith("…before ")
    assert "[needle] after" in long
    assert long.endswith("…")
    assert len(long) < 200


def test_a_word_that_begins_another_does_not_hide_it() -> None:
    assert shown("a tripod", "trip", "tripod") == "a [tripod]"


def test_a_snippet_of_one_endless_word_stays_short() -> None:
    assert len(shown("x" * 10_000 + "needle" + "y" * 10_000, "needle")) < 250
