"""Accounts: login and its limit, the one-time link, passwords, sign-up, tokens, and what the log shows of them."""

from __future__ import annotations

import io
import ipaddress
import logging
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest
from django.conf import settings as configured
from django.contrib.auth.models import User
from django.core.cache import cache
from django.core.management import CommandError, call_command
from django.test import AsyncClient, Client
from django.utils import timezone

from chatapp.accounts import (
    administrator_without_password,
    authenticate_token,
    consume_link,
    create_link,
    create_token,
)
from chatapp.logs import OneRecord, Redact
from chatapp.models import ApiToken, LoginLink

pytestmark = pytest.mark.django_db
NEW = "a-new-and-long-password"


def log_in(client: Client, name: str, password: str) -> Any:
    return client.post("/accounts/login/", {"username": name, "password": password})


def test_it_logs_in_with_a_new_session_key_and_out_by_post_only(client: Client, alice: User) -> None:
    client.get("/accounts/login/")
    before = client.session.session_key
    assert log_in(client, "alice", "alice-has-a-password").status_code == 302
    assert client.session.session_key != before
    assert client.get("/accounts/logout/").status_code == 405
    assert client.post("/accounts/logout/").status_code == 302
    assert "_auth_user_id" not in client.session


def test_it_never_redirects_to_another_site_after_login(client: Client, alice: User) -> None:
    data = {"username": "alice", "password": "alice-has-a-password", "next": "https://evil.example/"}
    assert client.post("/accounts/login/", data)["Location"] == "/"


def test_it_answers_429_after_ten_failures_of_one_name_from_one_address(client: Client, alice: User, bob: User) -> None:
    answers = [log_in(client, "alice", "wrong").status_code for _ in range(10)]
    assert answers[:9] == [200] * 9
    locked = log_in(client, "alice", "alice-has-a-password")
    assert locked.status_code == 429
    assert locked["Retry-After"] == "900"
    assert "Too many attempts" in locked.content.decode()
    assert log_in(Client(), "bob", "bob-has-a-password").status_code == 302
    elsewhere = Client(REMOTE_ADDR="192.0.2.7")
    assert log_in(elsewhere, "alice", "alice-has-a-password").status_code == 302


def test_it_does_not_take_a_forged_forwarding_header_for_another_address(client: Client, alice: User) -> None:
    data = {"username": "alice", "password": "wrong"}
    for number in range(10):
        client.post("/accounts/login/", data, HTTP_X_FORWARDED_FOR=f"192.0.2.{number}")
    assert client.post("/accounts/login/", data, HTTP_X_FORWARDED_FOR="192.0.2.99").status_code == 429


@pytest.mark.django_db(transaction=True)
async def test_it_answers_429_also_under_asgi(async_client: AsyncClient) -> None:
    data = {"username": "nobody", "password": "wrong"}
    answers = [(await async_client.post("/accounts/login/", data)).status_code for _ in range(11)]
    assert answers[-1] == 429


def test_a_link_logs_in_once_and_asks_for_a_password(client: Client, alice: User) -> None:
    alice.set_unusable_password()
    alice.save()
    secret = create_link(alice)
    answer = client.get(f"/accounts/once/{secret}")
    assert (answer.status_code, answer["Location"]) == (302, "/accounts/password/")
    assert answer["Referrer-Policy"] == "no-referrer"
    assert Client().get(f"/accounts/once/{secret}").status_code == 410
    assert "old_password" not in client.get("/accounts/password/").content.decode()
    client.post("/accounts/password/", {"new_password1": NEW, "new_password2": NEW})
    assert client.get("/accounts/password/").status_code == 200  # The session goes on.
    assert log_in(Client(), "alice", NEW).status_code == 302


def test_after_the_first_password_the_old_one_is_asked_for(client: Client, alice: User) -> None:
    client.get(f"/accounts/once/{create_link(alice)}")
    client.post("/accounts/password/", {"new_password1": NEW, "new_password2": NEW})
    answer = client.post("/accounts/password/", {"new_password1": NEW + "2", "new_password2": NEW + "2"})
    assert answer.status_code == 200
    alice.refresh_from_db()
    assert alice.check_password(NEW)


def test_a_new_password_ends_the_other_sessions(client: Client, alice: User) -> None:
    other = Client()
    for one in (client, other):
        log_in(one, "alice", "alice-has-a-password")
    data = {"old_password": "alice-has-a-password", "new_password1": NEW, "new_password2": NEW}
    assert client.post("/accounts/password/", data).status_code == 302
    assert client.get("/accounts/password/").status_code == 200
    assert other.get("/accounts/password/").status_code == 302


def test_a_link_is_over_after_ten_minutes_and_for_inactive_people(alice: User, bob: User) -> None:
    late, gone = create_link(alice), create_link(bob)
    LoginLink.objects.filter(user=alice).update(expires_at=timezone.now() - timedelta(seconds=1))
    User.objects.filter(pk=bob.pk).update(is_active=False)
    assert consume_link(late) is None
    assert consume_link(gone) is None


def test_a_link_is_kept_as_a_hash_only(alice: User) -> None:
    secret = create_link(alice)
    assert secret not in str(LoginLink.objects.values().get())
    assert len(secret) >= 43


def test_the_first_administrator_is_made_once_and_only_while_none_can_log_in() -> None:
    admin = administrator_without_password()
    assert admin is not None
    assert (admin.username, admin.is_superuser, admin.has_usable_password()) == ("admin", True, False)
    assert administrator_without_password() == admin
    admin.set_password(NEW)
    admin.save()
    assert administrator_without_password() is None


def test_an_ordinary_account_named_admin_does_not_become_an_administrator() -> None:
    User.objects.create_user("admin", password=NEW)
    assert administrator_without_password() is None
    assert not User.objects.get().is_superuser


def test_sign_up_is_closed_unless_opened(client: Client, settings: Any) -> None:
    assert client.get("/accounts/signup/").status_code == 404
    settings.BRANCHLINE_SIGNUP = "open"
    data = {"username": "charlie", "password1": NEW, "password2": NEW}
    assert client.post("/accounts/signup/", data).status_code == 302
    assert client.session["_auth_user_id"] == str(User.objects.get(username="charlie").pk)


def sign_up(address: str, number: int, **headers: str) -> Any:
    data = {"username": f"new{number}", "password1": NEW, "password2": NEW if number % 2 else "different"}
    return Client(REMOTE_ADDR=address).post("/accounts/signup/", data, headers=headers)


@pytest.fixture
def open_signup(settings: Any) -> Iterator[Any]:
    cache.clear()
    settings.BRANCHLINE_SIGNUP = "open"
    yield settings
    cache.clear()


def test_it_answers_429_after_ten_sign_ups_from_one_address(open_signup: Any) -> None:
    first = [sign_up("192.0.2.7", number).status_code for number in range(10)]
    assert first == [200, 302] * 5
    refused = sign_up("192.0.2.7", 11, **{"X-Forwarded-For": "192.0.2.99"})
    assert (refused.status_code, refused["Retry-After"]) == (429, "900")
    assert "Too many attempts" in refused.content.decode()
    assert not User.objects.filter(username="new11").exists()
    assert Client(REMOTE_ADDR="192.0.2.7").get("/accounts/signup/").status_code == 200
    assert sign_up("192.0.2.8", 13).status_code == 302


def test_behind_a_trusted_proxy_each_person_has_their_own_ten(open_signup: Any) -> None:
    open_signup.TRUSTED_PROXIES = [ipaddress.ip_network("192.0.2.7")]
    answers = [
        sign_up("192.0.2.7", number, **{"X-Forwarded-For": f"198.51.100.{number}"}).status_code for number in range(11)
    ]
    assert 429 not in answers


def test_one_network_of_ipv6_is_one_address(open_signup: Any) -> None:
    answers = [sign_up(f"2001:db8::{number}", number).status_code for number in range(11)]
    assert answers[-1] == 429
    assert sign_up("2001:db8:0:1::1", 13).status_code == 302


def test_a_token_is_shown_once_and_kept_as_a_hash(alice: User) -> None:
    row, raw = create_token(alice, "laptop")
    assert raw.startswith(row.prefix)
    assert raw not in str(ApiToken.objects.values().get())
    found = authenticate_token(raw)
    assert found is not None
    assert (found.user, found.scopes) == (alice, ["read", "chat", "approve"])


@pytest.mark.parametrize("raw", ["", "bl_unknown", "\ud800", "x" * 10_000])
def test_a_wrong_token_is_nobody(alice: User, raw: str) -> None:
    create_token(alice, "laptop")
    assert authenticate_token(raw) is None


def test_an_expired_token_and_an_inactive_persons_token_are_nobody(alice: User, bob: User) -> None:
    _, expired = create_token(alice, "old", expires_at=timezone.now() - timedelta(seconds=1))
    _, gone = create_token(bob, "gone")
    User.objects.filter(pk=bob.pk).update(is_active=False)
    assert authenticate_token(expired) is None
    assert authenticate_token(gone) is None


def test_a_tokens_last_use_is_written_once_a_minute(alice: User) -> None:
    row, raw = create_token(alice, "laptop")
    authenticate_token(raw)
    row.refresh_from_db()
    first = row.last_used_at
    assert first is not None
    authenticate_token(raw)
    row.refresh_from_db()
    assert row.last_used_at == first


def test_the_token_command_prints_the_token_last(alice: User) -> None:
    out = io.StringIO()
    call_command("api_token", "alice", "--scope", "read", "--days", "1", stdout=out)
    token = authenticate_token(out.getvalue().splitlines()[-1])
    assert token is not None
    assert token.scopes == ["read"]
    with pytest.raises(CommandError, match="no active user"):
        call_command("api_token", "nobody")


def test_the_link_command_prints_a_link_that_works(client: Client, alice: User) -> None:
    out = io.StringIO()
    call_command("login_link", "alice", stdout=out)
    link = out.getvalue().strip()
    assert link.startswith(f"{configured.PUBLIC_URL}/accounts/once/")
    assert client.get(link.removeprefix(configured.PUBLIC_URL)).status_code == 302


@pytest.mark.parametrize(
    ("said", "hidden"),
    [
        ("GET /accounts/once/abcDEF-123?x=1", "abcDEF-123"),
        ("headers {'Authorization': 'Bearer bl_verysecret'}", "verysecret"),
        ("Cookie: sessionid=abcdef0123; csrftoken=zzz", "abcdef0123"),
        ("provider said: Incorrect API key provided: sk-proj-abcdefghijklmnopqrst", "abcdefghijklmnop"),
        ("postgres://user:hunter22@db/name", "hunter22"),
        ("the key is " + "only-for-tests-" * 4, "only-for-tests"),
        ("a line\nERROR forged", "\n"),
        ("\x1b[2J", "\x1b"),
    ],
)
def test_the_log_hides_secrets_and_keeps_one_line(said: str, hidden: str) -> None:
    record = logging.LogRecord("x", logging.INFO, "f", 1, "%s", (said,), None)
    Redact().filter(record)
    assert hidden not in OneRecord().format(record)
