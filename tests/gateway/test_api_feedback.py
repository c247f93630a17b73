"""Saying by the API what one thinks of a reply."""

from __future__ import annotations

from typing import Any

import pytest
from django.contrib.auth.models import User

from chatapp.models import Feedback, Message, Session
from chatapp.store import db
from tests.gateway.api_client import Api
from tests.gateway.replies import answered, conversation_of, sent

pytestmark = pytest.mark.django_db(transaction=True)


def _messages(user: User) -> dict[str, str]:
    row: Session = conversation_of(user)
    sent(row)
    answered(row)
    return dict(Message.objects.filter(session=row).values_list("role", "id"))


async def test_the_last_word_counts_and_null_takes_it_back(api: Api, alice: User) -> None:
    address = f"messages/{(await db.run(_messages, alice))['assistant']}/feedback"
    given = await api.post(address, {"value": "up"})
    assert (given.status_code, given.data["value"]) == (200, "up")
    given = await api.post(address, {"value": "down", "reasons": ["wrong"], "comment": "Off by one."})
    row = await Feedback.objects.aget()
    assert (row.value, row.reasons, row.comment) == ("down", ["wrong"], "Off by one.")
    assert row.reply_id == given.data["reply_id"]
    assert (await api.post(address, {"value": None})).data["value"] is None
    assert not await Feedback.objects.aexists()


@pytest.mark.parametrize(
    "body",
    [{}, {"value": "maybe"}, {"value": "up", "reasons": "x"}, {"value": "up", "reasons": ["x"] * 11},
     {"value": "up", "reasons": ["x" * 101]}, {"value": "up", "comment": "x" * 2001},
     {"value": "up", "comment": "\x00"}, {"value": "up", "more": 1}],
)  # fmt: skip
async def test_a_wrong_field_is_refused_and_nothing_stored(api: Api, alice: User, body: dict[str, Any]) -> None:
    message_id = (await db.run(_messages, alice))["assistant"]
    assert (await api.post(f"messages/{message_id}/feedback", body)).status_code == 422
    assert not await Feedback.objects.aexists()


async def test_a_persons_own_message_has_no_opinion(api: Api, alice: User) -> None:
    message_id = (await db.run(_messages, alice))["user"]
    assert (await api.post(f"messages/{message_id}/feedback", {"value": "up"})).status_code == 404
