"""What the page asks about one reply or call, and older parts with a message to reach."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.test import Client

from chatapp.models import Event, Feedback, Session, ToolCall
from chatapp.store.conversations import create_conversation
from tests.chatapp.test_pages import asked, stored
from tests.chatapp.test_thread import Ledger

pytestmark = pytest.mark.django_db


@pytest.fixture
def page(client: Client, alice: User) -> Client:
    client.force_login(alice)
    return client


@pytest.fixture
def talk(alice: User) -> Session:
    row = create_conversation(alice)
    log = Ledger()
    log.message("u1", "hello", "running")
    log.add("AGENT_START", trigger="user")
    log.add("TEXT_BLOCK_END", block_id="b0", text="gone", state="discarded")
    log.add("TEXT_BLOCK_END", block_id="b1", text="**one**", state="complete")
    log.add("TEXT_BLOCK_END", block_id="b2", text="- two <b>", state="complete")
    log.add("AGENT_END", reason="MODEL_STOP")
    stored(row, log.events)
    return row


def a_call(talk: Session, result: str, **fields: Any) -> ToolCall:
    return ToolCall.objects.create(
        id="c1", session=talk, reply_id="r1", step=0, index=0, name="x", result=result, **fields
    )  # fmt: skip


def test_a_replys_text_is_what_the_model_wrote_plain_and_rich(page: Client, talk: Session) -> None:
    assert page.get(f"/c/{talk.id}/replies/r1/text/").json() == {
        "text/plain": "**one**\n\n- two <b>",
        "text/html": "<p><strong>one</strong></p>\n\n<ul>\n<li>two &lt;b&gt;</li>\n</ul>\n",
    }


def test_an_opinion_is_stored_once_and_taken_back(page: Client, talk: Session) -> None:
    address = f"/c/{talk.id}/replies/r1/feedback/"
    assert b'aria-pressed="true"' in page.post(address, {"value": "up"}).content
    page.post(address, {"value": "down"})
    assert list(Feedback.objects.values_list("reply_id", "value")) == [("r1", "down")]
    assert re.search(r'Bad answer" aria-pressed="true"', page.get(f"/c/{talk.id}/").content.decode())
    assert b'aria-pressed="true"' not in page.post(address, {"value": ""}).content
    assert not Feedback.objects.exists()


def test_an_opinion_that_is_none_and_a_get_are_refused(page: Client, talk: Session) -> None:
    address = f"/c/{talk.id}/replies/r1/feedback/"
    assert page.post(address, {"value": "sideways"}).status_code == 400
    assert page.get(address).status_code == 405
    assert page.post(f"/c/{talk.id}/replies/unknown/feedback/", {"value": "up"}).status_code == 404


def test_another_persons_opinion_is_not_shown(page: Client, talk: Session, bob: User) -> None:
    Feedback.objects.create(session=talk, reply_id="r1", user=bob, value="up")
    assert 'answer" aria-pressed="true"' not in page.get(f"/c/{talk.id}/").content.decode()


def test_a_calls_whole_output_comes_clean_for_the_page_and_raw_as_a_file(page: Client, talk: Session) -> None:
    a_call(talk, "\x1b[31m<b>" + "row\n" * 1000)
    shown = page.get(f"/c/{talk.id}/calls/c1/output/").content.decode()
    assert "&lt;b&gt;" in shown
    assert "\x1b" not in shown
    assert shown.replace("</span><span>", "").count("row") == 1000
    file = page.get(f"/c/{talk.id}/calls/c1/output/?download=1")
    assert file.content.decode().startswith("\x1b[31m<b>")
    assert file["Content-Disposition"] == 'attachment; filename="output-c1.txt"'
    assert file["Content-Type"].startswith("text/plain")


def test_the_file_is_the_whole_output_where_the_workspace_has_it(
    page: Client, talk: Session, settings: Any, tmp_path: Path
) -> None:
    settings.WORKSPACES_DIR = tmp_path
    a_call(talk, "cut", truncated=True)
    address = f"/c/{talk.id}/calls/c1/output/?download=1"
    assert page.get(address).content == b"cut"
    (tmp_path / talk.id / "results").mkdir(parents=True)
    (tmp_path / talk.id / "results" / "c1.txt").write_text("all of it")
    assert page.get(address).content == b"all of it"


def test_arguments_come_whole_and_uncut_by_terminal_tricks(page: Client, talk: Session) -> None:
    a_call(talk, "", args=None, args_text='{"a": "\x1b[8mhidden\x1b[0m')
    shown = page.get(f"/c/{talk.id}/calls/c1/args/").content.decode()
    assert "\u27e8U+001B\u27e9[8mhidden" in shown


def test_a_call_of_another_conversation_is_not_found(page: Client, talk: Session, alice: User) -> None:
    a_call(talk, "secret")
    other = create_conversation(alice)
    assert page.get(f"/c/{other.id}/calls/c1/output/").status_code == 404


def test_a_subagents_call_is_shown_whole_too(page: Client, talk: Session, settings: Any, tmp_path: Path) -> None:
    settings.WORKSPACES_DIR = tmp_path
    child = Session.objects.create(
        owner=talk.owner, root=talk, parent=talk, agent_id="x", depth=1, updated_at=talk.updated_at,
        workspace="agents/x/1",
    )  # fmt: skip
    a_call(child, "cut", truncated=True)
    address = f"/c/{talk.id}/calls/c1/output/?download=1"
    assert page.get(address).content == b"cut"
    (tmp_path / talk.id / "agents/x/1/results").mkdir(parents=True)
    (tmp_path / talk.id / "agents/x/1/results/c1.txt").write_text("all of it")
    assert page.get(address).content == b"all of it"


@pytest.mark.parametrize("to", ["m-u5", "r-r5"])
def test_an_older_part_reaches_back_to_what_is_asked_for(page: Client, alice: User, to: str) -> None:
    row = create_conversation(alice)
    stored(row, asked(200))
    Event.objects.filter(conversation=row, seq=6).update(reply_id="r5")
    html = page.get(f"/c/{row.id}/older/", {"before": "161", "to": to}).content.decode()
    assert [int(n) for n in re.findall(r'id="m-u(\d+)"', html)] == list(range(5, 160))
    assert f"/c/{row.id}/older/?before=6" in html
    first = page.get(f"/c/{row.id}/older/", {"before": "161", "to": "m-u0"}).content.decode()
    assert 'id="m-u0"' in first
    assert "/older/" not in first


@pytest.mark.parametrize("to", ["m-unknown", "r-", "x-u5", "u5"])
def test_an_older_part_with_nothing_to_reach_is_not_found(page: Client, alice: User, to: str) -> None:
    row = create_conversation(alice)
    stored(row, asked(100))
    assert page.get(f"/c/{row.id}/older/", {"before": "61", "to": to}).status_code == 404


def test_nothing_in_an_older_part_can_be_tried_again(page: Client, talk: Session) -> None:
    stored(talk, asked(60))
    html = page.get(f"/c/{talk.id}/older/", {"before": "20"}).content.decode()
    assert "Copy this answer" in html
    assert "message.retry" not in html
