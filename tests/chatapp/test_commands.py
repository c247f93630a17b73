"""The operator's commands that work on conversations and agents."""

from __future__ import annotations

import io
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.core.management import CommandError, call_command

from chatapp.models import Message, Session
from chatapp.store.conversations import create_conversation
from chatapp.store.posts import Draft, post_message


@pytest.mark.django_db(transaction=True)
def test_sweep_answers_what_is_due_without_a_server_and_ends(alice: User, valkey_url: str) -> None:
    conversation = create_conversation(alice)
    post_message(alice.pk, conversation.pk, Draft("hello"))
    out = io.StringIO()
    call_command("sweep", stdout=out)
    assert out.getvalue() == "sessions worked on: 1\n"
    conversation.refresh_from_db()
    assert conversation.status == Session.Status.IDLE
    assert [row.role for row in Message.objects.filter(session=conversation)] == ["user", "assistant"]


def test_agents_lists_them_and_misses_one_that_is_named_but_unknown(settings: Any) -> None:
    out = io.StringIO()
    call_command("agents", stdout=out)
    assert out.getvalue().startswith("main  primary  ")
    settings.BRANCHLINE_AGENT = "nobody"
    with pytest.raises(CommandError, match="BRANCHLINE_AGENT is 'nobody'; allowed"):
        call_command("agents", stdout=out)
