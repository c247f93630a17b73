"""The calls on what a conversation holds: events, the tree, transcripts; and what is on offer."""

from __future__ import annotations

from typing import Any

import pytest
from django.contrib.auth.models import User
from django.utils import timezone

from chatapp.models import Message, Session
from chatapp.store import db, reads
from chatapp.store.reads import Place
from gateway.api import objects
from tests.gateway.api_client import Api
from tests.gateway.conftest import TokenFor
from tests.gateway.replies import answered, answered_with_calls, conversation_of, sent

pytestmark = pytest.mark.django_db(transaction=True)


def _talked(user: User, turns: int = 1) -> Session:
    row = conversation_of(user)
    for number in range(turns):
        sent(row, f"question {number}")
        answered(row, f"answer {number}", f"block-{number}")
    return row


def _child(row: Session, agent_id: str, **fields: Any) -> Session:
    return Session.objects.create(
        owner=row.owner, root=row.root, parent=row, agent_id=agent_id, depth=row.depth + 1,
        source=f"{row.source or 'main'}/{agent_id}", updated_at=timezone.now(), **fields,
    )  # fmt: skip


# Events


async def test_events_come_by_number_and_the_pages_join(api: Api, alice: User) -> None:
    row = await db.run(_talked, alice, 3)
    whole = (await api.get(f"conversations/{row.pk}/events", limit=1000)).data
    assert [event["seq"] for event in whole["items"]] == list(range(1, len(whole["items"]) + 1))
    assert whole["next"] is None
    paged, after = [], "0"
    while after is not None:
        page = (await api.get(f"conversations/{row.pk}/events", limit=4, after=after)).data
        paged += page["items"]
        after = page["next"]
    assert paged == whole["items"]


async def test_events_are_those_behind_a_number(api: Api, alice: User) -> None:
    row = await db.run(_talked, alice)
    items = (await api.get(f"conversations/{row.pk}/events", after=5)).data["items"]
    assert items[0]["seq"] == 6
    for nothing in ("latest", 10**17):
        assert (await api.get(f"conversations/{row.pk}/events", after=nothing)).data == {"items": [], "next": None}


async def test_events_are_narrowed_by_source_and_session(api: Api, alice: User) -> None:
    row = await db.run(_talked, alice)
    child = await db.run(_child, row, "researcher")
    await db.run(sent, child, "from the child")

    async def sources(**query: Any) -> set[str | None]:
        return {e["source"] for e in (await api.get(f"conversations/{row.pk}/events", **query)).data["items"]}

    assert await sources() == {None, "main/researcher"}
    assert await sources(source="main") == {None}
    assert await sources(source="main/researcher") == await sources(session=child.pk) == {"main/researcher"}
    assert await sources(source="main/research") == await sources(session="unknown") == set()


@pytest.mark.parametrize(
    ("field", "value"),
    [("after", "-1"), ("after", "x"), ("after", "9" * 19), ("source", "other"), ("source", "main/\x00"),
     ("session", "\x00"), ("limit", "1.5")],
)  # fmt: skip
async def test_events_refuse_a_bad_question(api: Api, alice: User, field: str, value: str) -> None:
    row = await db.run(_talked, alice)
    refused = await api.get(f"conversations/{row.pk}/events", **{field: value})
    assert [error["field"] for error in refused.data["errors"]] == [field]


# The tree


async def test_the_tree_has_parents_before_children(api: Api, alice: User) -> None:
    row = await db.run(conversation_of, alice)
    child = await db.run(_child, row, "researcher", label="facts")
    grandchild = await db.run(_child, child, "reader")
    sibling = await db.run(_child, row, "writer")
    items = (await api.get(f"conversations/{row.pk}/sessions")).data["items"]
    assert [item["id"] for item in items] == [row.pk, child.pk, sibling.pk, grandchild.pk]
    assert [item["parent_id"] for item in items] == [None, row.pk, row.pk, child.pk]
    assert (items[0]["source"], items[0]["label"], items[1]["label"]) == (None, None, "facts")
    paged, cursor = [], ""
    while cursor is not None:
        page = (await api.get(f"conversations/{row.pk}/sessions", limit=1, cursor=cursor)).data
        paged += page["items"]
        cursor = page["next"]
    assert paged == items


async def test_a_cursor_of_another_list_is_refused(api: Api, alice: User) -> None:
    for _ in range(2):
        row = await db.run(conversation_of, alice)
    cursor = (await api.get("conversations", limit=1)).data["next"]
    assert (await api.get(f"conversations/{row.pk}/sessions", cursor=cursor)).status_code == 422


# Transcripts


async def test_a_transcript_tells_text_calls_and_results_with_our_ids(api: Api, alice: User) -> None:
    row = await db.run(conversation_of, alice)
    message_id = (await db.run(sent, row, "read a")).message_id
    await db.run(answered_with_calls, row, "read_file", "list_files")
    asked, called, results, done = (await api.get(f"sessions/{row.pk}/messages")).data["items"]
    assert (asked["id"], asked["role"], asked["sender"]) == (message_id, "user", "user")
    assert asked["parts"] == [{"type": "text", "text": "read a"}]
    assert [part["tool_call_id"] for part in called["parts"]] == ["call-read_file", "call-list_files"]
    assert called["parts"][0] == {
        "type": "tool_call", "tool_call_id": "call-read_file", "tool_name": "read_file", "args": {"path": "a"},
    }  # fmt: skip
    assert [part["output"] for part in results["parts"]] == ["read_file says so", "list_files says so"]
    assert (results["role"], results["parts"][0]["state"], results["tool_call_id"]) == ("tool", "success", None)
    assert (done["text"], done["parts"]) == ("done", [{"type": "text", "text": "done"}])
    assert len({message["reply_id"] for message in (asked, called, results, done)}) == 1
    assert "provider-" not in str((asked, called, results, done))


async def test_a_result_names_its_call_when_it_is_the_only_one(api: Api, alice: User) -> None:
    row = await db.run(conversation_of, alice)
    await db.run(sent, row)
    await db.run(answered_with_calls, row, "read_file")
    items = (await api.get(f"sessions/{row.pk}/messages")).data["items"]
    assert [item["tool_call_id"] for item in items] == [None, None, "call-read_file", None]


async def test_a_transcript_comes_in_pages_that_join(api: Api, alice: User) -> None:
    row = await db.run(conversation_of, alice)
    await db.run(sent, row)
    await db.run(answered_with_calls, row, "read_file", "list_files")
    whole = (await api.get(f"sessions/{row.pk}/messages")).data["items"]
    paged, after = [], "0"
    while after is not None:
        page = (await api.get(f"sessions/{row.pk}/messages", limit=1, after=after)).data
        paged += page["items"]
        after = page["next"]
    assert paged == whole
    behind = (await api.get(f"sessions/{row.pk}/messages", after=whole[1]["seq"])).data["items"]
    assert behind == whole[2:]


async def test_archived_messages_are_told_when_asked_for(api: Api, alice: User) -> None:
    row = await db.run(_talked, alice)
    await Message.objects.filter(session=row, role="user").aupdate(archived=True)
    assert len((await api.get(f"sessions/{row.pk}/messages")).data["items"]) == 1
    assert len((await api.get(f"sessions/{row.pk}/messages", include_archived="true")).data["items"]) == 2


@pytest.mark.parametrize("after", ["-1", "1.", "1.x", "latest", ".", "1." + "9" * 10])
async def test_a_transcript_refuses_a_bad_place(api: Api, alice: User, after: str) -> None:
    row = await db.run(_talked, alice)
    refused = await api.get(f"sessions/{row.pk}/messages", after=after)
    assert (refused.status_code, refused.data["errors"][0]["field"]) == (422, "after")


# What the lists cost


@pytest.mark.parametrize("count", [1, 12])
def test_lists_cost_the_same_for_few_and_for_many(alice: User, count: int, django_assert_num_queries: Any) -> None:
    row = _talked(alice, count)
    for number in range(count):
        _child(row, f"agent-{number}")
        conversation_of(alice)
    with django_assert_num_queries(2):
        reads.conversations(alice.pk, reads.Wanted(), None, 100)
    with django_assert_num_queries(2):
        reads.tree(alice.pk, row.pk, None, 100)
    with django_assert_num_queries(2):
        reads.events(alice.pk, row.pk, 0, "", "", 1000)
    with django_assert_num_queries(4):
        reads.transcript(alice.pk, row.pk, Place(), 100, archived=False)


# What is on offer


async def test_the_agents_and_models_are_named(api: Api, settings: Any) -> None:
    settings.BRANCHLINE_MODELS = ["demo", "openai:gpt", "nobody:x"]
    agents = (await api.get("agents")).data["items"]
    assert [(agent["agent_id"], agent["mode"], agent["problem"]) for agent in agents] == [
        ("main", "primary", None), ("planner", "subagent", None), ("researcher", "subagent", None),
        ("reviewer", "subagent", None), ("writer", "subagent", None), ("general-purpose", "subagent", None),
    ]  # fmt: skip
    demo, keyless, unknown = (await api.get("models")).data["items"]
    assert (demo["model"], demo["default"], demo["problem"]) == ("demo", True, None)
    assert (keyless["provider"], keyless["default"]) == ("OpenAI", False)
    assert "OPENAI_API_KEY" in keyless["problem"]
    assert unknown["problem"]


async def test_a_token_has_no_staff_powers(running: object, sue: User, api_of: TokenFor) -> None:
    reader = await db.run(api_of, sue, "read")
    assert (await reader.get("me")).data == {"username": "sue", "staff": False, "scopes": ["read"]}


def test_the_objects_have_the_contracts_fields() -> None:
    contract: dict[Any, str] = {
        objects.Conversation: "id, title, agent_id, model, permission_mode, plan_mode, wake, branch, state, needs_you, "
        "pinned, archived, last_seq, usage, created_at, updated_at, expires_at",
        objects.SessionNode: "id, session_id, parent_id, agent_id, label, source, depth, status, waiting_for, "
        "tool_call_id, subagent_id, task_id, usage, started_at, ended_at",
        objects.TranscriptMessage: "id, session_id, role, sender, text, parts, tool_call_id, reply_id, seq, state, "
        "synthetic, archived, branch, created_at",
        objects.Agent: "id, agent_id, description, mode, model, tool_name, session_mode, problem",
        objects.Usage: "input_tokens, output_tokens, cached_tokens, requests, estimated",
    }
    for kind, fields in contract.items():
        assert list(kind.model_fields) == fields.split(", ")


# Search


async def test_it_finds_messages_and_pages_through_them(api: Api, alice: User, bob: User) -> None:
    for person, text in ((alice, "Needle one"), (alice, "needle two"), (bob, "needle of bob")):
        row = await db.run(conversation_of, person, "Trip")
        await db.run(sent, row, text)
        await db.run(answered, row)
    first = (await api.get("search", q="NEEDLE", limit=1)).data
    second = (await api.get("search", q="NEEDLE", limit=1, cursor=first["next"])).data
    assert [page["items"][0]["snippet"] for page in (first, second)] == ["needle two", "Needle one"]
    assert second["next"] is None
    (item,) = second["items"]
    assert (item["title"], item["role"], item["session_id"]) == ("Trip", "user", item["conversation_id"])
    assert (await api.get("search")).data == {"items": [], "next": None}


@pytest.mark.parametrize("query", [{"q": "a\x00"}, {"q": "x" * 201}, {"q": "a", "cursor": "x"}])
async def test_a_bad_search_is_refused(api: Api, query: dict[str, str]) -> None:
    assert (await api.get("search", **query)).status_code == 422
