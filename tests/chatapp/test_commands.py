"""The operator's commands that work on conversations and agents."""

from __future__ import annotations

import io
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.core.management import call_command

from chatapp.management.commands.serve import unusable_models
from chatapp.management.commands.up import Command as Up
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


@pytest.mark.django_db(transaction=True)
def test_sweep_finds_the_default_model_itself(alice: User, valkey_url: str, settings: Any) -> None:
    settings.BRANCHLINE_MODEL = ""
    # Nobody listens there, so that a local Ollama of whoever runs this decides nothing.
    settings.PROVIDERS = {"OLLAMA_BASE_URL": "http://127.0.0.1:9"}
    conversation = create_conversation(alice)
    post_message(alice.pk, conversation.pk, Draft("hello"))
    call_command("sweep", stdout=io.StringIO())
    conversation.refresh_from_db()
    assert (conversation.status, conversation.error) == (Session.Status.IDLE, None)


@pytest.mark.django_db(transaction=True)
def test_sweep_counts_every_session_however_short_its_turn(alice: User, valkey_url: str, settings: Any) -> None:
    settings.BRANCHLINE_HOSTED_TURNS = 1
    for _ in range(3):
        conversation = create_conversation(alice)
        # A model that nobody serves ends the turn before anyone can look.
        Session.objects.filter(pk=conversation.pk).update(model="nobody:x")
        post_message(alice.pk, conversation.pk, Draft("hello"))
    out = io.StringIO()
    call_command("sweep", stdout=out)
    assert out.getvalue() == "sessions worked on: 3\n"


@pytest.mark.django_db
def test_the_greeting_sends_to_createsuperuser_when_an_ordinary_account_has_the_administrators_name() -> None:
    User.objects.create_user("admin", password="an-ordinary-password")
    out = io.StringIO()
    Up(stdout=out).greet("127.0.0.1", "http://127.0.0.1:8000")
    assert "manage.py createsuperuser" in out.getvalue()
    assert "/accounts/once/" not in out.getvalue()


@pytest.mark.django_db
def test_the_greeting_says_nothing_of_it_when_there_is_an_administrator(sue: User) -> None:
    out = io.StringIO()
    Up(stdout=out).greet("127.0.0.1", "http://127.0.0.1:8000")
    assert out.getvalue() == "Branchline runs at http://127.0.0.1:8000/\n"


def test_a_model_without_its_key_is_a_warning_and_one_with_it_is_none(settings: Any) -> None:
    settings.BRANCHLINE_MODEL, settings.BRANCHLINE_FALLBACK_MODEL = "openai:gpt", ""
    settings.BRANCHLINE_MODELS = ["anthropic:claude", "demo"]
    settings.PROVIDERS = {"OPENAI_API_KEY": "sk-only-for-tests"}
    (line,) = unusable_models()
    assert line.startswith("anthropic:claude")
    assert "ANTHROPIC_API_KEY" in line
