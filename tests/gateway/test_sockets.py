"""Which open sockets may stay: looked at every few seconds, with four queries however many there are."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from django.contrib.auth.models import User
from django.contrib.sessions.backends.db import SessionStore
from django.utils import timezone
from pytest_django import DjangoAssertNumQueries

from chatapp.accounts import create_token
from chatapp.models import ApiToken, Session
from chatapp.store.conversations import create_conversation
from chatapp.store.deletion import delete_conversation
from gateway.sockets import NOT_FOUND, NOT_LOGGED_IN, Credentials, Socket, Sockets, _codes

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def conversation(alice: User) -> Session:
    return create_conversation(alice)


@pytest.fixture
def login(alice: User) -> SessionStore:
    store = SessionStore()
    store.create()
    return store


@pytest.fixture
def token(alice: User) -> ApiToken:
    return create_token(alice, "program")[0]


@pytest.fixture
def by_cookie(alice: User, conversation: Session, login: SessionStore) -> Credentials:
    return Credentials(alice.pk, alice.password, conversation.pk, login.session_key or "")


@pytest.fixture
def by_token(alice: User, conversation: Session, token: ApiToken) -> Credentials:
    return Credentials(alice.pk, alice.password, conversation.pk, token_id=token.pk)


def test_it_leaves_alone_what_may_stay(by_cookie: Credentials, by_token: Credentials) -> None:
    assert _codes([by_cookie, by_token]) == [0, 0]


def deactivate(alice: User) -> None:
    User.objects.filter(pk=alice.pk).update(is_active=False)


def change_password(alice: User) -> None:
    alice.set_password("another one")
    alice.save()


@pytest.mark.parametrize("change", [deactivate, change_password])
def test_it_ends_all_sockets_of_a_person(
    alice: User, by_cookie: Credentials, by_token: Credentials, change: Callable[[User], None]
) -> None:
    change(alice)
    assert _codes([by_cookie, by_token]) == [NOT_LOGGED_IN] * 2


def test_it_ends_a_logged_out_socket_only(login: SessionStore, by_cookie: Credentials, by_token: Credentials) -> None:
    login.delete()
    assert _codes([by_cookie, by_token]) == [NOT_LOGGED_IN, 0]


def test_it_ends_the_sockets_of_a_revoked_or_expired_token(
    token: ApiToken, by_cookie: Credentials, by_token: Credentials
) -> None:
    ApiToken.objects.update(expires_at=timezone.now())
    assert _codes([by_cookie, by_token]) == [0, NOT_LOGGED_IN]
    token.delete()
    assert _codes([by_cookie, by_token]) == [0, NOT_LOGGED_IN]


def test_it_ends_the_sockets_of_a_deleted_conversation(alice: User, by_cookie: Credentials) -> None:
    delete_conversation(alice.pk, by_cookie.conversation_id)
    assert _codes([by_cookie]) == [NOT_FOUND]


def test_it_asks_no_more_for_many(
    by_cookie: Credentials, by_token: Credentials, django_assert_num_queries: DjangoAssertNumQueries
) -> None:
    with django_assert_num_queries(4):
        _codes([by_cookie, by_token] * 50)


async def test_it_goes_on_when_one_socket_cannot_be_closed() -> None:
    closed: list[int] = []

    async def broken(code: int) -> None:
        raise RuntimeError("gone already")

    async def fine(code: int) -> None:
        closed.append(code)

    sockets = Sockets()
    nobody = Credentials(0, "", "")
    sockets.open = {Socket(nobody, broken), Socket(nobody, fine)}
    await sockets.close_all()
    assert closed == [1012]
