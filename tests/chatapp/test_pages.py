"""The pages: whose they are, what they show, and how little they ask of the database."""

from __future__ import annotations

import re
from datetime import timedelta
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.test import Client
from django.utils import timezone
from pytest_django import DjangoAssertNumQueries

from chatapp.models import ApiToken, Event, Session
from chatapp.runtime.ids import new_id
from chatapp.store.conversations import create_conversation
from tests.chatapp.test_thread import a_conversation

pytestmark = pytest.mark.django_db

# What the form of a new token sends.
TOKEN = {"name": "laptop", "scopes": ["read", "chat"], "days": ""}


def stored(conversation: Session, events: list[dict[str, Any]]) -> None:
    """Event rows as the ledger writes them, after those that are there."""
    envelope = ("seq", "id", "type", "source", "reply_id", "branch", "created_at")
    first = conversation.next_seq
    Event.objects.bulk_create(
        Event(
            conversation=conversation, session=conversation, seq=first + number, type=event["type"], agent_id="main",
            reply_id=event["reply_id"] or "", created_at=timezone.now(),
            data={key: value for key, value in event.items() if key not in envelope},
        )
        for number, event in enumerate(events)
    )  # fmt: skip
    conversation.next_seq = first + len(events)
    conversation.save()


@pytest.fixture
def page(client: Client, alice: User) -> Client:
    """A browser in which alice is logged in."""
    client.force_login(alice)
    return client


@pytest.fixture
def talk(alice: User) -> Session:
    return create_conversation(alice, title="Trip & <b>")


def test_it_asks_for_a_login_first(client: Client, talk: Session) -> None:
    for path in ("/", f"/c/{talk.id}/", "/settings/"):
        assert client.get(path)["Location"].startswith("/accounts/login/")


def test_home_opens_the_newest_conversation(page: Client, alice: User) -> None:
    old, new = create_conversation(alice), create_conversation(alice)
    Session.objects.filter(pk=old.pk).update(pinned=True)
    assert page.get("/")["Location"] == f"/c/{new.id}/"


def test_home_makes_the_first_conversation(page: Client, alice: User) -> None:
    location = page.get("/")["Location"]
    assert location == f"/c/{Session.objects.get(owner=alice).id}/"


def test_new_makes_one_conversation_however_often_it_is_pressed(page: Client, alice: User) -> None:
    assert page.post("/c/new/")["Location"] == page.post("/c/new/")["Location"]
    assert Session.objects.filter(owner=alice).count() == 1


def test_new_is_not_made_by_a_link(page: Client) -> None:
    assert page.get("/c/new/").status_code == 405


@pytest.mark.parametrize("path", ["/c/{}/", "/c/{}/list/", "/c/{}/older/?before=5", "/c/{}/list/older/"])
def test_another_persons_conversation_answers_as_an_unknown_one(
    client: Client, talk: Session, bob: User, path: str
) -> None:
    client.force_login(bob)
    foreign, unknown = client.get(path.format(talk.id)), client.get(path.format("0" * 32))
    assert foreign.status_code == unknown.status_code == 404
    assert foreign.content == unknown.content


def test_a_deleted_conversation_is_gone(page: Client, talk: Session) -> None:
    Session.objects.filter(pk=talk.pk).update(deleted_at=timezone.now())
    assert page.get(f"/c/{talk.id}/").status_code == 404


def test_it_shows_the_thread_and_where_the_socket_goes_on(page: Client, talk: Session) -> None:
    stored(talk, a_conversation())
    html = page.get(f"/c/{talk.id}/").content.decode()
    assert f'hx-ws:connect="/ws/c/{talk.id}/?after={talk.last_seq}"' in html
    assert "I look <strong>there</strong>." in html
    assert "hello &lt;b&gt;" in html
    assert "stopped by you" in html
    assert "<title>Trip &amp; &lt;b&gt; – Branchline</title>" in html


def test_it_opens_with_at_most_eight_queries(
    page: Client, talk: Session, django_assert_max_num_queries: DjangoAssertNumQueries
) -> None:
    stored(talk, a_conversation() * 20)
    with django_assert_max_num_queries(8):
        page.get(f"/c/{talk.id}/")


def asked(count: int) -> list[dict[str, Any]]:
    return [
        {"type": "USER_MESSAGE", "reply_id": None, "message_id": f"u{n}", "text": f"question {n}.", "state": "running"}
        for n in range(count)
    ]


def test_a_long_thread_shows_its_end_and_the_older_part_when_asked(page: Client, talk: Session) -> None:
    stored(talk, asked(100))
    html = page.get(f"/c/{talk.id}/").content.decode()
    assert "question 99." in html
    assert "question 59." not in html
    assert f"/c/{talk.id}/older/?before=61" in html
    older = page.get(f"/c/{talk.id}/older/?before=61").content.decode()
    assert "question 59." in older
    assert "question 60." not in older
    oldest = page.get(f"/c/{talk.id}/older/?before=21").content.decode()
    assert "question 0." in oldest
    assert "/older/" not in oldest


@pytest.mark.parametrize("before", ["", "x", "-1", "9" * 30, "\u0663"])
def test_a_bad_place_in_the_thread_is_not_found(page: Client, talk: Session, before: str) -> None:
    assert page.get(f"/c/{talk.id}/older/", {"before": before}).status_code == 404


def test_the_list_names_states_and_marks_the_current(page: Client, talk: Session, alice: User) -> None:
    Session.objects.filter(pk=create_conversation(alice, title="Figures").pk).update(status="failed")
    html = page.get(f"/c/{talk.id}/list/").content.decode()
    assert '<span class="word failed">failed</span>' in html
    assert html.count('aria-current="page"') == 1
    assert 'hx-target="#title" hx-swap="innerHTML">Trip &amp; &lt;b&gt;<' in html


def many(alice: User, count: int) -> None:
    """Conversations with equal times among them, a few pinned."""
    now = timezone.now()
    Session.objects.bulk_create(
        Session(
            id=f"c{n:04}", owner=alice, root_id=f"c{n:04}", agent_id="main", title=f"talk {n}.", pinned=n % 100 == 0,
            updated_at=now - timedelta(minutes=n // 3),
        )
        for n in range(count)
    )  # fmt: skip


def listed(html: str) -> list[str]:
    return re.findall(r'href="/c/(c\d+)/"', html)


def further(html: str) -> str:
    """Where the button at the end leads."""
    found = re.search(r'hx-get="([^"]+list/older/[^"]+)"', html)
    return found[1] if found else ""


def reached(html: str) -> str:
    found = re.search(r'name="until" value="([^"]*)"', html)
    assert found
    return found[1]


def test_more_conversations_than_the_list_takes_follow_when_asked(page: Client, alice: User) -> None:
    many(alice, 300)
    first = page.get("/c/c0007/").content.decode()
    rest = page.get(further(first)).content.decode()
    assert len(listed(first)) == 200
    assert further(rest) == ""
    wanted = Session.objects.conversations_of(alice).values_list("pk", flat=True)
    assert listed(first) + listed(rest) == list(wanted)
    assert rest.count(" autofocus") == 1


def test_what_follows_pinned_conversations_is_pinned_ones_first(page: Client, alice: User) -> None:
    many(alice, 300)
    Session.objects.filter(pk__lt="c0250").update(pinned=True)
    first = page.get("/c/c0007/").content.decode()
    rest = page.get(further(first)).content.decode()
    wanted = Session.objects.conversations_of(alice).values_list("pk", flat=True)
    assert listed(first) + listed(rest) == list(wanted)


def test_a_refreshed_list_keeps_what_its_page_has_reached(page: Client, alice: User) -> None:
    many(alice, 500)
    first = page.get("/c/c0007/").content.decode()
    second = page.get(further(first)).content.decode()
    Session.objects.filter(pk="c0499").update(updated_at=timezone.now())
    again = page.get("/c/c0007/list/", {"until": reached(second)}).content.decode()
    assert sorted(listed(again)) == sorted([*listed(first), *listed(second), "c0499"])
    assert further(again) == further(second)
    third = page.get(further(again)).content.decode()
    assert set(listed(again)).isdisjoint(listed(third))
    assert len(listed(again) + listed(third)) == 500
    whole = page.get("/c/c0007/list/", {"until": reached(third)}).content.decode()
    assert len(listed(whole)) == 500
    assert further(whole) == ""


def test_a_heading_stands_once_however_the_list_is_cut(page: Client, alice: User) -> None:
    many(alice, 300)
    Session.objects.filter(owner=alice).update(updated_at=timezone.now() - timedelta(days=9), pinned=False)
    first = page.get("/c/c0007/list/").content.decode()
    assert first.count("<h2>") == 1
    assert "<h2>" not in page.get(further(first)).content.decode()


@pytest.mark.parametrize("cursor", ["", "x", "bnVsbA", "WzEsMiwzXQ", "W3RydWUsICIyMDI2LTAxLTAxIiwgIngiXQ", "\u0663"])
def test_a_bad_place_in_the_list_is_not_found(page: Client, talk: Session, cursor: str) -> None:
    assert page.get(f"/c/{talk.id}/list/older/", {"after": cursor}).status_code == 404


def test_a_conversation_that_waits_for_a_slot_says_so(page: Client, talk: Session) -> None:
    assert "waiting for a free slot" not in page.get(f"/c/{talk.id}/").content.decode()
    Session.objects.filter(pk=talk.pk).update(status="queued")
    assert "waiting for a free slot" in page.get(f"/c/{talk.id}/").content.decode()


def test_the_page_says_when_answers_are_scripted(page: Client, alice: User) -> None:
    scripted, real = create_conversation(alice, model="demo"), create_conversation(alice, model="openai:gpt-5")
    assert "answers here are scripted" in page.get(f"/c/{scripted.id}/").content.decode()
    assert "answers here are scripted" not in page.get(f"/c/{real.id}/").content.decode()


def test_a_new_token_is_shown_once(page: Client, alice: User) -> None:
    assert page.post("/settings/tokens/", TOKEN)["Location"] == "/settings/"
    token = ApiToken.objects.get(user=alice)
    first, second = page.get("/settings/").content.decode(), page.get("/settings/").content.decode()
    assert '<code class="token">bl_' in first
    assert '<code class="token">' not in second
    assert token.prefix in second


@pytest.mark.parametrize("name", ["", "  ", "x" * 101, "\x00"])
def test_a_token_needs_a_name(page: Client, name: str) -> None:
    refused = page.post("/settings/tokens/", TOKEN | {"name": name})
    assert refused.status_code == 422
    assert not ApiToken.objects.exists()
    assert 'id="id_name_error"' in refused.content.decode()


def test_a_token_may_what_was_chosen_until_it_expires(page: Client, alice: User) -> None:
    page.post("/settings/tokens/", TOKEN | {"scopes": ["read"], "days": "30"})
    token = ApiToken.objects.get(user=alice)
    assert token.scopes == ["read"]
    assert token.expires_at is not None
    assert timedelta(days=29) < token.expires_at - timezone.now() < timedelta(days=31)
    assert "expires " in page.get("/settings/").content.decode()


@pytest.mark.parametrize("change", [{"scopes": []}, {"scopes": ["admin"]}, {"days": "1000000"}, {"days": "-1"}])
def test_a_token_is_not_made_of_a_bad_choice_and_the_form_keeps_its_name(page: Client, change: dict[str, Any]) -> None:
    refused = page.post("/settings/tokens/", TOKEN | change)
    assert refused.status_code == 422
    assert not ApiToken.objects.exists()
    assert 'value="laptop"' in refused.content.decode()


def test_a_token_says_when_it_has_expired(page: Client, alice: User) -> None:
    page.post("/settings/tokens/", TOKEN | {"days": "7"})
    assert "has expired" not in page.get("/settings/").content.decode()
    ApiToken.objects.update(expires_at=timezone.now())
    assert "has expired" in page.get("/settings/").content.decode()


def test_a_token_is_revoked_by_its_owner_only(page: Client, client: Client, alice: User, bob: User) -> None:
    page.post("/settings/tokens/", TOKEN)
    token = ApiToken.objects.get(user=alice)
    stranger = Client()
    stranger.force_login(bob)
    assert stranger.post(f"/settings/tokens/{token.id}/revoke/").status_code == 404
    page.post(f"/settings/tokens/{token.id}/revoke/")
    assert not ApiToken.objects.exists()


MESSAGES = 1000


def long_talk(alice: User) -> tuple[Session, str]:
    """Short questions and answers; and the id of the first one."""
    talk = create_conversation(alice)
    rows: list[Event] = []

    def add(kind: str, reply_id: str = "", **data: object) -> None:
        rows.append(
            Event(
                id=new_id(), conversation=talk, session=talk, seq=len(rows) + 1, type=kind, source="", agent_id="main",
                reply_id=reply_id, branch=0, created_at=timezone.now(), metadata={}, data=data,
            )
        )  # fmt: skip

    ids = [new_id() for _ in range(MESSAGES)]
    for number, message_id in enumerate(ids):
        reply_id = new_id()
        add("USER_MESSAGE", message_id=message_id, text=f"question {number}", state="running", author="user")
        add("AGENT_START", reply_id, name="main", trigger="user")
        add("TEXT_BLOCK_END", reply_id, block_id=new_id(), text=f"answer {number} " * 20, state="complete")
        add("AGENT_END", reply_id, reason="MODEL_STOP", usage={})
    Event.objects.bulk_create(rows)
    Session.objects.filter(pk=talk.pk).update(next_seq=len(rows) + 1, title="long")
    return talk, ids[0]


def test_a_link_to_the_first_message_brings_no_whole_conversation(page: Client, alice: User) -> None:
    talk, first = long_talk(alice)
    html = page.get(f"/c/{talk.pk}/older/", {"before": str(4 * MESSAGES - 160), "to": f"m-{first}"}).content.decode()
    assert f'id="m-{first}"' in html
    assert "question 39<" in html
    assert "question 40<" not in html
    assert 'id="older"' not in html
    gap = re.search(r'id="gap-(\d+)" hx-get="([^"]+)"', html)
    assert gap
    between = page.get(gap[2].replace("&amp;", "&")).content.decode()
    assert f'hx-target="#gap-{gap[1]}"' in between
    assert "question 40<" in between
    assert "question 79<" in between
    assert "question 80<" not in between
    assert between.count('id="gap-') == 1
    last = page.get(
        f"/c/{talk.pk}/older/", {"after": 4 * MESSAGES - 179, "before": 4 * MESSAGES - 159}
    ).content.decode()
    assert last.count('class="msg user"') == 5
    assert 'id="gap-' not in last.split(">", 1)[1]


def test_the_look_is_kept_in_the_browser_and_drawn_from_the_first_line(page: Client, talk: Session) -> None:
    page.post("/settings/look/", {"theme": "dark", "density": "compact"})
    assert page.cookies["theme"]["httponly"]
    assert 'data-theme="dark" data-density="compact"' in page.get(f"/c/{talk.id}/").content.decode()
    page.post("/settings/look/", {"theme": "", "density": ""})
    assert 'data-theme="" data-density=""' in page.get(f"/c/{talk.id}/").content.decode()
    assert page.post("/settings/look/", {"theme": "pink"}).status_code == 400
