"""What the menu of a conversation does, and the line that answers."""

from __future__ import annotations

from typing import Any

import pytest
from django.contrib.auth.models import User
from django.test import AsyncClient
from django.utils import timezone

from chatapp.models import Session
from chatapp.store import db
from chatapp.store.deletion import RESTORABLE
from tests.gateway.replies import conversation_of

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
async def page(running: object, alice: User) -> AsyncClient:
    client = AsyncClient()
    await client.aforce_login(alice)
    return client


@pytest.fixture
async def talk(alice: User) -> Session:
    return await db.run(conversation_of, alice, "Trip <b>")


async def post(page: AsyncClient, talk: Session, what: str, *, at: str = "", **fields: str) -> tuple[int, str]:
    """`at` is the address of the page that asks."""
    headers = {"HX-Current-URL": f"http://testserver/c/{at}/"} if at else {}
    answer: Any = await page.post(f"/c/{talk.pk}/{what}/", fields, headers=headers)
    await talk.arefresh_from_db()
    return answer.status_code, answer.headers.get("HX-Redirect") or answer.content.decode()


@pytest.mark.parametrize(
    ("given", "title"),
    [
        ("  A\n plan ", "A plan"),
        ("", ""),
        (" \t", ""),
        ("x" * 300, "x" * 200),
        ("a\x00b", "ab"),
        ("\u202eمرحبا 👨‍👩‍👧", "\u202eمرحبا 👨‍👩‍👧"),
    ],
)
async def test_it_renames(page: AsyncClient, talk: Session, given: str, title: str) -> None:
    status, _ = await post(page, talk, "change", title=given)
    assert (status, talk.title) == (200, title)


async def test_it_pins_and_says_so_in_the_status_region_only(page: AsyncClient, talk: Session) -> None:
    for value, word in (("1", "Pinned"), ("1", "Pinned"), ("0", "Unpinned")):
        _, html = await post(page, talk, "change", pinned=value)
        assert talk.pinned is (value == "1")
        assert f"{word} “Trip &lt;b&gt;”" in html
        assert "#toast" not in html
    assert talk.title == "Trip <b>"


async def test_it_archives_with_an_undo(page: AsyncClient, talk: Session) -> None:
    _, html = await post(page, talk, "change", archived="1")
    assert talk.archived
    assert f'hx-post="/c/{talk.pk}/change/"' in html
    _, html = await post(page, talk, "change", archived="0")
    assert not talk.archived
    assert "hx-post" not in html


async def test_it_deletes_and_brings_back(page: AsyncClient, talk: Session) -> None:
    for _ in range(2):
        _, html = await post(page, talk, "delete", here="another")
        assert talk.deleted_at
        assert "Deleted “Trip &lt;b&gt;”" in html
    for _ in range(2):
        status, html = await post(page, talk, "restore")
        assert (status, talk.deleted_at) == (200, None)
    assert "“Trip &lt;b&gt;” is back." in html


async def test_deleting_the_open_one_goes_to_another_that_offers_the_undo(
    page: AsyncClient, talk: Session, alice: User
) -> None:
    other = await db.run(conversation_of, alice, "Other")
    assert await post(page, talk, "delete", at=talk.pk) == (204, "/")
    home: Any = await page.get("/", follow=True)
    assert home.redirect_chain[-1][0] == f"/c/{other.pk}/"
    assert "Deleted “Trip &lt;b&gt;”" in home.content.decode()
    again: Any = await page.get(f"/c/{other.pk}/")
    assert "Deleted" not in again.content.decode()
    assert await post(page, talk, "restore", open="1") == (204, f"/c/{talk.pk}/")


async def test_after_its_time_the_undo_says_that_it_is_gone(page: AsyncClient, talk: Session) -> None:
    await post(page, talk, "delete")
    await Session.objects.filter(pk=talk.pk).aupdate(deleted_at=timezone.now() - RESTORABLE)
    status, html = await post(page, talk, "restore")
    assert status == 404
    assert "gone for good" in html
    assert talk.deleted_at


async def test_nothing_is_changed_by_a_link_or_without_its_token(running: object, alice: User, talk: Session) -> None:
    client = AsyncClient(enforce_csrf_checks=True)
    await client.aforce_login(alice)
    for what in ("change", "delete", "restore"):
        assert (await client.get(f"/c/{talk.pk}/{what}/")).status_code == 405
        assert (await client.post(f"/c/{talk.pk}/{what}/", {"title": "x"})).status_code == 403
    await talk.arefresh_from_db()
    assert (talk.title, talk.deleted_at) == ("Trip <b>", None)
