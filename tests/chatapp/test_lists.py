"""The conversation list and the search page as the server draws them, and what marks a conversation as read."""

from __future__ import annotations

import re
from datetime import datetime, timedelta
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.test import Client
from django.utils import timezone

from chatapp.models import Message, Session
from chatapp.store.conversations import mark_read
from tests.chatapp.test_search import said
from tests.gateway.replies import answered, conversation_of, sent

pytestmark = pytest.mark.django_db


@pytest.fixture
def page(client: Client, alice: User) -> Client:
    client.force_login(alice)
    return client


@pytest.fixture
def talk(alice: User) -> Session:
    return conversation_of(alice, "Trip")


def drawn(page: Client, talk: Session, **query: str) -> str:
    return page.get(f"/c/{talk.pk}/list/", query).content.decode()


def headings(html: str) -> list[str]:
    return [re.sub(r"<[^>]+>", "", found) for found in re.findall(r"<h2[^>]*>(.*?)</h2>", html)]


def titles(html: str) -> list[str]:
    return re.findall(r'<span class="t" dir="auto">(.*?)</span>', html)


def test_groups_stand_in_the_order_of_days(page: Client, alice: User, talk: Session, monkeypatch: Any) -> None:
    now = timezone.make_aware(datetime(2026, 3, 20, 12))  # noqa: DTZ001
    monkeypatch.setattr(timezone, "now", lambda: now)
    for title, days in (("a", 0), ("b", 1), ("c", 2), ("d", 7), ("e", 8), ("f", 40), ("g", 400)):
        conversation_of(alice, title, updated_at=now - timedelta(days=days))
    conversation_of(alice, "p", pinned=True)
    Session.objects.filter(pk=talk.pk).delete()
    html = drawn(page, Session.objects.get(title="a"))
    assert headings(html) == [
        "Pinned", "Today", "Yesterday", "Previous 7 days", "March", "February", "February 2025",
    ]  # fmt: skip
    assert titles(html) == ["p", "a", "b", "c", "d", "e", "f", "g"]
    assert html.index(">d</span>") < html.index("March") < html.index(">e</span>")


def test_a_conversation_that_waits_for_subagents_is_at_work(page: Client, alice: User, talk: Session) -> None:
    conversation_of(alice, "busy", status="waiting", waiting_for="child")
    html = drawn(page, talk)
    assert "replying" in html
    assert "waiting" not in html


def test_who_needs_somebody_comes_first_counted_over_all_of_them(page: Client, alice: User, talk: Session) -> None:
    old = timezone.now() - timedelta(days=90)
    Session.objects.bulk_create(
        Session(id=f"c{n:04}", owner=alice, root_id=f"c{n:04}", agent_id="main", updated_at=timezone.now())
        for n in range(250)
    )
    one, two = (
        conversation_of(alice, "asks", updated_at=old, waiting_for="human"),
        conversation_of(alice, "below", updated_at=old),
    )
    Session.objects.create(
        owner=alice, root=two, parent=two, agent_id="x", depth=1, updated_at=old, waiting_for="human"
    )
    conversation_of(alice, "another", waiting_for="child")
    html = drawn(page, talk)
    assert headings(html)[0] == "Needs you 2"
    assert set(titles(html)[:2]) == {"asks", "below"}
    assert html.count(f'id="row-{one.pk}"') == 1
    assert html.count("needs your OK") == 2
    further = re.search(r'hx-get="([^"]+list/older/[^"]+)"', html)
    assert further
    assert "asks" not in page.get(further[1]).content.decode()


def test_another_persons_question_needs_nobody_here(page: Client, talk: Session, bob: User) -> None:
    conversation_of(bob, "bob's", waiting_for="human")
    assert "Needs you" not in drawn(page, talk)


def test_a_reply_that_nobody_saw_is_new_until_its_page_is_opened(page: Client, alice: User, talk: Session) -> None:
    other = conversation_of(alice, "Other")
    assert ">new</b>" not in drawn(page, other)
    sent(talk)
    answered(talk)
    assert drawn(page, other).count(">new</b>") == 1
    assert ">new</b>" not in drawn(page, talk)
    page.get(f"/c/{talk.pk}/")
    talk.refresh_from_db()
    assert talk.read_seq == talk.last_seq
    assert ">new</b>" not in drawn(page, other)


@pytest.mark.parametrize(("seq", "read"), [(3, 5), (7, 7), (10**17, 9)])
def test_read_goes_up_only_and_never_beyond_the_last(alice: User, talk: Session, seq: int, read: int) -> None:
    Session.objects.filter(pk=talk.pk).update(read_seq=5, next_seq=10)
    mark_read(alice.pk, talk.pk, seq)
    talk.refresh_from_db()
    assert talk.read_seq == read


def test_another_person_marks_nothing_as_read(bob: User, talk: Session) -> None:
    Session.objects.filter(pk=talk.pk).update(next_seq=10)
    mark_read(bob.pk, talk.pk, 9)
    talk.refresh_from_db()
    assert talk.read_seq == 0


def test_archived_ones_have_a_list_of_their_own(page: Client, alice: User, talk: Session) -> None:
    conversation_of(alice, "put away", archived=True)
    html = drawn(page, talk)
    assert titles(html) == ["Trip"]
    assert 'id="archived"' in html
    away = drawn(page, talk, archived="1")
    assert titles(away) == ["put away"]
    assert 'id="unarchived"' in away
    assert 'id="archived"' not in away


def test_older_archived_ones_follow_archived_ones(page: Client, alice: User, talk: Session) -> None:
    Session.objects.bulk_create(
        Session(
            id=f"c{n:04}", owner=alice, root_id=f"c{n:04}", agent_id="main", title=f"t{n}", archived=True,
            updated_at=timezone.now() - timedelta(minutes=n),
        )
        for n in range(210)
    )  # fmt: skip
    first = drawn(page, talk, archived="1")
    further = re.search(r'hx-get="([^"]+list/older/[^"]+)"', first)
    assert further
    rest = page.get(further[1].replace("&amp;", "&")).content.decode()
    assert titles(first) + titles(rest) == [f"t{n}" for n in range(210)]


def test_a_list_of_none_says_so(page: Client, talk: Session) -> None:
    Session.objects.update(archived=True)
    assert "No conversations yet" in drawn(page, talk)
    Session.objects.update(archived=False)
    assert "Nothing is archived" in drawn(page, talk, archived="1")


def test_a_search_narrows_the_list_and_marks_what_it_found(page: Client, alice: User, talk: Session) -> None:
    other = conversation_of(alice, "Other", archived=True)
    message = said(other, "a <b>trip</b>")
    html = drawn(page, talk, q=" TRIP ", archived="1", until="end")
    assert titles(html) == ["Trip", "Other"]
    assert f'href="/c/{other.pk}/#m-{message.pk}"' in html
    assert "a &lt;b&gt;<mark>trip</mark>&lt;/b&gt;" in html
    assert "archived ·" in html
    assert "Nothing found for “&lt;x”" in drawn(page, talk, q="<x")


def test_the_search_page_groups_by_conversation_and_goes_on(page: Client, alice: User, talk: Session) -> None:
    other = conversation_of(alice, "Other")
    for number in range(60):
        said(
            (talk, other)[number % 2],
            f"needle {number}.",
            **({"role": "assistant", "reply_id": f"r{number}"} if number % 2 else {}),
        )
    html = page.get("/search/", {"q": "needle"}).content.decode()
    assert html.count("<section") == 2
    assert html.count('class="hit"') == 50
    assert "<mark>needle</mark> 59." in html
    assert f'href="/c/{other.pk}/#r-r59"' in html
    assert f'href="/c/{talk.pk}/#m-{Message.objects.get(text="needle 58.").pk}"' in html
    older = re.search(r'href="([^"]+after=[^"]+)"', html)
    assert older
    rest = page.get(older[1].replace("&amp;", "&")).content.decode()
    assert rest.count('class="hit"') == 10
    assert "after=" not in rest.split("</form>")[1]


def test_the_search_page_finds_titles_first(page: Client, alice: User, talk: Session) -> None:
    html = page.get("/search/", {"q": "trip"}).content.decode()
    assert "In titles" in html
    assert f'href="/c/{talk.pk}/"' in html
    assert "Nothing found" in page.get("/search/", {"q": "nowhere"}).content.decode()
    assert "Nothing found" not in page.get("/search/").content.decode()


@pytest.mark.parametrize("words", ["\x00", "a" * 900, "%", "\U0001f600", "( ["])
def test_odd_words_are_no_error(page: Client, talk: Session, words: str) -> None:
    assert page.get("/search/", {"q": words}).status_code == 200
    assert page.get(f"/c/{talk.pk}/list/", {"q": words}).status_code == 200


def test_a_bad_place_in_the_results_is_not_found(page: Client) -> None:
    assert page.get("/search/", {"q": "a", "after": "x"}).status_code == 404


def test_the_menu_offers_what_can_be_done_now(page: Client, talk: Session) -> None:
    shown = page.get(f"/c/{talk.id}/menu/").content.decode()
    assert 'name="pinned" value="1"' in shown
    Session.objects.filter(pk=talk.pk).update(pinned=True, archived=True, title='"> <b>')
    shown = page.get(f"/c/{talk.id}/menu/").content.decode()
    assert 'name="pinned" value="0"' in shown
    assert 'name="archived" value="0"' in shown
    field = page.get(f"/c/{talk.id}/menu/?rename").content.decode()
    assert 'value="&quot;&gt; &lt;b&gt;"' in field


def test_tab_reaches_one_row_of_the_list(page: Client, alice: User, talk: Session) -> None:
    conversation_of(alice, "other")
    html = page.get(f"/c/{talk.id}/list/").content.decode()
    rows = re.findall(r'id="row-(\w+)" href="[^"]*"( tabindex="-1")?', html)
    assert [row for row, past in rows if not past] == [talk.pk]
    found = page.get(f"/c/{talk.id}/list/", {"q": "other"}).content.decode()
    assert 'tabindex="-1"' not in found
