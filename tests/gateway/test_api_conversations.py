"""The calls on conversations: what they answer, what they refuse, and that a refusal stores nothing."""

from __future__ import annotations

import json
from datetime import timedelta
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.db import OperationalError
from django.test import AsyncClient
from django.utils import timezone

from chatapp.models import Event, InboxItem, Session
from chatapp.store import db, reads
from chatapp.store.deletion import RESTORABLE
from tests.gateway.api_client import Api
from tests.gateway.conftest import TokenFor
from tests.gateway.replies import answered, conversation_of, failed, sent

pytestmark = pytest.mark.django_db(transaction=True)


async def _made(user: User, title: str = "", **fields: Any) -> Session:
    return await db.run(conversation_of, user, title, **fields)


# Make, look, change, delete


async def test_it_makes_a_conversation(api: Api) -> None:
    made = await api.post("conversations", {"title": "  A\n plan ", "agent_id": "main", "model": "demo"})
    assert made.status_code == 201
    assert made.data["title"] == "A plan"
    assert (await api.get(f"conversations/{made.data['id']}")).data == made.data


async def test_it_makes_one_without_a_body(api: Api) -> None:
    made = (await api.post("conversations")).data
    assert (made["title"], made["agent_id"], made["model"], made["state"]) == ("", "main", "demo", "idle")
    assert (made["last_seq"], made["needs_you"], made["archived"], made["expires_at"]) == (0, False, False, None)


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({"title": 5}, "title"),
        ({"title": "x" * 201}, "title"),
        ({"title": "a\x00b"}, "title"),
        ({"title": "a\ud800"}, "title"),
        ({"agent_id": "someone"}, "agent_id"),
        ({"agent_id": ["main"]}, "agent_id"),
        ({"model": "openai:not-offered"}, "model"),
        ({"model": {}}, "model"),
        ({"colour": "red"}, "colour"),
        ([], "body"),
        ("text", "body"),
        (7, "body"),
    ],
)
async def test_it_makes_nothing_of_a_bad_field(api: Api, body: Any, field: str) -> None:
    refused = await api.post("conversations", body)
    assert (refused.status_code, refused.data["code"]) == (422, "invalid")
    assert [error["field"] for error in refused.data["errors"]] == [field]
    assert not await Session.objects.aexists()


@pytest.mark.parametrize("body", [b"{", b"\xff", b'{"title": NaN}', b'{"title": 1e999}', b"[" * 100_000, b"nope"])
async def test_it_refuses_what_is_no_json(api: Api, body: bytes) -> None:
    refused = await api.post("conversations", body)
    assert (refused.status_code, refused.data["code"]) == (400, "not_json")
    assert refused.headers["Content-Type"] == "application/problem+json"
    assert not await Session.objects.aexists()


async def test_it_offers_the_models_that_the_operator_names(api: Api, settings: Any) -> None:
    settings.BRANCHLINE_MODELS = ["openai:other"]
    made = (await api.post("conversations", {"model": "openai:other"})).data
    assert made["model"] == "openai:other"
    back = await api.patch(f"conversations/{made['id']}", {"model": None})
    assert back.data["model"] == "demo"


async def test_it_changes_only_what_is_sent(api: Api, alice: User) -> None:
    row = await _made(alice, "before", pinned=True)
    changed = (await api.patch(f"conversations/{row.pk}", {"archived": True, "wake": False})).data
    assert (changed["title"], changed["pinned"], changed["archived"], changed["wake"]) == ("before", True, True, False)
    assert changed["updated_at"] == row.updated_at.isoformat().replace("+00:00", "Z")


@pytest.mark.parametrize(
    "body", [{"pinned": "yes"}, {"archived": None}, {"wake": 1}, {"model": "x:y"}, {"agent_id": "z"}, {"branch": 2}]
)
async def test_it_changes_nothing_with_a_bad_field(api: Api, alice: User, body: dict[str, Any]) -> None:
    row = await _made(alice, "before")
    refused = await api.patch(f"conversations/{row.pk}", {"title": "after"} | body)
    assert refused.status_code == 422
    assert (await api.get(f"conversations/{row.pk}")).data["title"] == "before"


async def test_a_deleted_conversation_is_gone(api: Api, alice: User) -> None:
    row = await _made(alice)
    gone = await api.delete(f"conversations/{row.pk}")
    assert (gone.status_code, gone.content) == (204, b"")
    assert (await api.get(f"conversations/{row.pk}")).status_code == 404
    assert (await api.delete(f"conversations/{row.pk}")).status_code == 404
    assert (await api.get("conversations")).data["items"] == []


async def test_a_deleted_conversation_is_taken_back(api: Api, alice: User) -> None:
    row = await _made(alice)
    await api.delete(f"conversations/{row.pk}")
    back = await api.post(f"conversations/{row.pk}/restore")
    assert (back.status_code, back.data["id"]) == (200, row.pk)
    assert (await api.post(f"conversations/{row.pk}/restore")).status_code == 200
    await api.delete(f"conversations/{row.pk}")
    await Session.objects.filter(pk=row.pk).aupdate(deleted_at=timezone.now() - RESTORABLE)
    assert (await api.post(f"conversations/{row.pk}/restore")).status_code == 404


async def test_usage_sums_the_tree(api: Api, alice: User) -> None:
    row = await _made(alice, input_tokens=10, requests=1)
    await Session.objects.acreate(
        owner=alice, root=row, parent=row, agent_id="x", depth=1, updated_at=timezone.now(), input_tokens=5,
        estimated=True,
    )  # fmt: skip
    used = (await api.get(f"conversations/{row.pk}")).data["usage"]
    assert used == {"input_tokens": 15, "output_tokens": 0, "cached_tokens": 0, "requests": 1, "estimated": True}
    listed = (await api.get("conversations")).data["items"]
    assert [item["usage"] for item in listed] == [used]


# The list


async def _titles(api: Api, **query: Any) -> list[str]:
    return [item["title"] for item in (await api.get("conversations", **query)).data["items"]]


async def test_the_list_has_pinned_ones_first_and_then_the_newest(api: Api, alice: User, bob: User) -> None:
    now = timezone.now()
    await _made(alice, "old", updated_at=now - timedelta(hours=2))
    await _made(alice, "pinned", pinned=True, updated_at=now - timedelta(hours=3))
    await _made(alice, "new", updated_at=now)
    await _made(bob, "another's")
    assert await _titles(api) == ["pinned", "new", "old"]


async def test_pages_follow_each_other_also_where_times_are_equal(api: Api, alice: User) -> None:
    now = timezone.now()
    for number in range(7):
        await _made(alice, str(number), pinned=number < 3, updated_at=now - timedelta(minutes=number // 2))
    whole = await _titles(api)
    paged, cursor = [], ""
    while cursor is not None:
        page = (await api.get("conversations", limit=2, cursor=cursor)).data
        paged += [item["title"] for item in page["items"]]
        cursor = page["next"]
    assert paged == whole
    assert len(whole) == 7


async def test_the_list_is_narrowed_by_state_archive_and_title(api: Api, alice: User) -> None:
    await _made(alice, "50% of Ärger_x", status="failed")
    await _made(alice, "500 of arger-x")
    await _made(alice, "put away", archived=True)
    assert await _titles(api, state="failed") == ["50% of Ärger_x"]
    assert await _titles(api, archived="true") == ["put away"]
    assert await _titles(api, q="0% OF") == ["50% of Ärger_x"]
    assert await _titles(api, q="äRGER_") == ["50% of Ärger_x"]
    assert await _titles(api, q=".*") == []


@pytest.mark.parametrize(("limit", "count"), [(0, 1), (-5, 1), (2, 2), (10**30, 3)])
async def test_the_limit_is_clamped(api: Api, alice: User, limit: int, count: int) -> None:
    for _ in range(3):
        await _made(alice)
    assert len(await _titles(api, limit=limit)) == count


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("state", "asleep"),
        ("archived", "perhaps"),
        ("limit", "many"),
        ("q", "x" * 201),
        ("q", "\x00"),
        ("cursor", "nonsense"),
        ("cursor", "W10"),
        ("cursor", "WzEsMiwzXQ"),
        ("cursor", "é"),
    ],
)
async def test_the_list_refuses_a_bad_question(api: Api, field: str, value: str) -> None:
    refused = await api.get("conversations", **{field: value})
    assert (refused.status_code, [e["field"] for e in refused.data["errors"]]) == (422, [field])


# Send, stop, try again


async def test_a_message_is_taken_and_its_client_id_makes_it_one(api: Api, alice: User) -> None:
    row = await _made(alice)
    body = {"text": "hello", "client_id": "one"}
    first = await api.post(f"conversations/{row.pk}/messages", body)
    again = await api.post(f"conversations/{row.pk}/messages", body)
    assert (first.status_code, first.data["seq"], first.data["state"]) == (202, 1, "running")
    assert again.data == first.data
    assert await Event.objects.acount() == 1


async def test_the_second_message_is_queued_with_what_it_carries(api: Api, alice: User) -> None:
    row = await _made(alice)
    await db.run(sent, row)
    more = {"force_sync": "true", "attributes": {"tone": "dry"}}
    queued = await api.post(f"conversations/{row.pk}/messages", {"text": "next", "mode": "queue"} | more)
    assert queued.data["state"] == "queued"
    item = await InboxItem.objects.aget(id=queued.data["message_id"])
    assert item.overrides == {"force_sync": True, "attributes": {"tone": "dry"}}


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({}, "text"),
        ({"text": " \n"}, "text"),
        ({"text": None}, "text"),
        ({"text": "a\x00"}, "text"),
        ({"text": "\udc00"}, "text"),
        ({"text": "a", "client_id": 5}, "client_id"),
        ({"text": "a", "client_id": "x" * 201}, "client_id"),
        ({"text": "a", "mode": "shout"}, "mode"),
        ({"text": "a", "mode": "steer", "force_sync": True}, "force_sync"),
        ({"text": "a", "expose_to_user": "maybe"}, "expose_to_user"),
        ({"text": "a", "force_sync_timeout_seconds": "9"}, "force_sync_timeout_seconds"),
        ({"text": "a", "attributes": []}, "attributes"),
        ({"text": "a", "attributes": {"k": ["\x00"]}}, "attributes"),
        ({"text": "a", "attributes": {"\ud800": 1}}, "attributes"),
        ({"text": "a", "attributes": {"k": json.loads("[" * 40 + "]" * 40)}}, "attributes"),
        ({"text": "a", "subject": "b"}, "subject"),
    ],
)
async def test_a_bad_message_is_refused_and_not_stored(api: Api, alice: User, body: Any, field: str) -> None:
    row = await _made(alice)
    refused = await api.post(f"conversations/{row.pk}/messages", body)
    assert (refused.status_code, [e["field"] for e in refused.data["errors"]]) == (422, [field])
    assert not await InboxItem.objects.aexists()
    assert not await Event.objects.aexists()


async def test_a_text_that_is_too_long_is_413(api: Api, alice: User, settings: Any) -> None:
    row = await _made(alice)
    settings.BRANCHLINE_MESSAGE_CHARS = 10
    assert (await api.post(f"conversations/{row.pk}/messages", {"text": "x" * 10})).status_code == 202
    refused = await api.post(f"conversations/{row.pk}/messages", {"text": "x" * 11})
    assert (refused.status_code, refused.data["code"]) == (413, "too_long")
    settings.DATA_UPLOAD_MAX_MEMORY_SIZE = 100
    refused = await api.post(f"conversations/{row.pk}/messages", {"text": "x" * 101})
    assert (refused.status_code, refused.data["code"]) == (413, "too_long")
    assert await InboxItem.objects.acount() == 1


async def test_too_many_messages_are_told_when_to_come_back(api: Api, alice: User, settings: Any) -> None:
    row = await _made(alice)
    settings.BRANCHLINE_RATE_MESSAGES = 1
    await db.run(sent, row)
    refused = await api.post(f"conversations/{row.pk}/messages", {"text": "more"})
    assert (refused.status_code, refused.data["code"]) == (429, "rate_limited")
    assert 0 < int(refused.headers["Retry-After"]) <= 60


async def test_a_stop_names_what_it_stops(api: Api, alice: User) -> None:
    row = await _made(alice)
    assert (await api.post(f"conversations/{row.pk}/stop")).data == {"stopped": [], "continues": []}
    await db.run(sent, row)
    stopped = await api.post(f"conversations/{row.pk}/stop", {"scope": "all", "session_id": row.pk})
    assert stopped.status_code == 202
    assert stopped.data["stopped"] == [{"session_id": row.pk, "agent_id": "main", "label": None, "task_id": None}]


@pytest.mark.parametrize(
    ("body", "field"), [({"scope": "half"}, "scope"), ({"scope": None}, "scope"), ({"session_id": 4}, "session_id")]
)
async def test_a_bad_stop_is_refused(api: Api, alice: User, body: Any, field: str) -> None:
    row = await _made(alice)
    refused = await api.post(f"conversations/{row.pk}/stop", body)
    assert [e["field"] for e in refused.data["errors"]] == [field]


async def test_a_stop_of_another_conversations_session_is_404(api: Api, alice: User) -> None:
    row, other = await _made(alice), await _made(alice)
    assert (await api.post(f"conversations/{row.pk}/stop", {"session_id": other.pk})).status_code == 404


async def test_a_reply_is_tried_again_once_there_is_one_and_nothing_runs(api: Api, alice: User) -> None:
    row = await _made(alice)
    refused = await api.post(f"conversations/{row.pk}/retry")
    assert (refused.status_code, refused.data["code"]) == (409, "nothing_to_retry")
    await db.run(sent, row)
    await db.run(failed, row)
    assert (await api.get(f"conversations/{row.pk}")).data["state"] == "failed"
    tried = await api.post(f"conversations/{row.pk}/retry")
    assert (tried.status_code, tried.data["state"]) == (202, "running")
    refused = await api.post(f"conversations/{row.pk}/retry")
    assert (refused.status_code, refused.data["code"]) == (409, "busy")
    await db.run(answered, row)
    again = await api.post(f"conversations/{row.pk}/retry")
    assert again.status_code == 202
    assert (await api.get(f"conversations/{row.pk}")).data["branch"] == 1


async def test_a_message_is_written_anew_and_the_branch_changed_back(api: Api, alice: User) -> None:
    row = await _made(alice)
    first = await db.run(sent, row)
    await db.run(answered, row)
    made = await api.post(f"messages/{first.message_id}/branch", {"text": "anew"})
    assert (made.status_code, made.data["state"]) == (202, "running")
    refused = await api.patch(f"conversations/{row.pk}", {"branch": 0})
    assert (refused.status_code, refused.data["code"]) == (409, "busy")
    await db.run(answered, row)
    changed = await api.patch(f"conversations/{row.pk}", {"branch": 0, "title": "old"})
    assert (changed.data["branch"], changed.data["title"]) == (0, "old")
    for wrong in (7, -1, "x", True, None, 1.5):
        answer = await api.patch(f"conversations/{row.pk}", {"branch": wrong})
        assert answer.status_code == 422, wrong


# Queued messages


async def _queued(user: User) -> tuple[Session, str]:
    row = await _made(user)
    await db.run(sent, row)
    return row, (await db.run(sent, row, "second")).message_id


async def test_a_queued_message_is_changed_and_removed(api: Api, alice: User) -> None:
    _, message_id = await _queued(alice)
    changed = await api.patch(f"messages/{message_id}", {"text": "better"})
    assert (changed.status_code, changed.data["message_id"], changed.data["state"]) == (200, message_id, "queued")
    assert (await InboxItem.objects.aget(id=message_id)).text == "better"
    assert (await api.delete(f"messages/{message_id}")).status_code == 204
    assert (await InboxItem.objects.aget(id=message_id)).state == "removed"


async def test_a_message_that_the_agent_has_is_left_alone(api: Api, alice: User) -> None:
    row, message_id = await _queued(alice)
    await db.run(answered, row)
    for refused in (
        await api.patch(f"messages/{message_id}", {"text": "x"}),
        await api.delete(f"messages/{message_id}"),
    ):
        assert (refused.status_code, refused.data["code"]) == (409, "not_queued")


@pytest.mark.parametrize("body", [{}, {"text": ""}, {"text": "a", "mode": "steer"}])
async def test_a_bad_change_of_a_message_is_refused(api: Api, alice: User, body: Any) -> None:
    _, message_id = await _queued(alice)
    assert (await api.patch(f"messages/{message_id}", body)).status_code == 422
    assert (await InboxItem.objects.aget(id=message_id)).text == "second"


# Who calls


async def test_nobody_is_told_to_log_in(api: Api) -> None:
    for anonymous in (Api(), Api("bl_unknown"), Api("")):
        refused = await anonymous.get("conversations")
        assert (refused.status_code, refused.data["code"]) == (401, "unauthorized")
        assert refused.headers["WWW-Authenticate"] == "Bearer"


async def test_a_token_counts_in_the_header_only(api: Api, alice: User) -> None:
    token = api.headers["authorization"].split()[1]
    assert (await Api().get("me", token=token, access_token=token)).status_code == 401


async def test_a_token_does_only_what_its_scopes_allow(api: Api, alice: User, api_of: TokenFor) -> None:
    reader, writer = await db.run(api_of, alice, "read"), await db.run(api_of, alice, "chat")
    assert (await reader.get("conversations")).status_code == 200
    assert (await writer.post("conversations")).status_code == 201
    for refused in (await reader.post("conversations"), await writer.get("conversations")):
        assert (refused.status_code, refused.data["code"]) == (403, "forbidden")
    assert await Session.objects.acount() == 1


async def test_a_bad_token_is_not_helped_by_a_good_cookie(api: Api, alice: User) -> None:
    client = AsyncClient()
    await client.aforce_login(alice)
    assert (await Api(client=client).get("me")).status_code == 200
    assert (await Api("bl_unknown", client).get("me")).status_code == 401


async def test_a_cookie_needs_the_csrf_token_to_change_something(api: Api, alice: User) -> None:
    client = AsyncClient(enforce_csrf_checks=True)
    await client.aforce_login(alice)
    cookie = Api(client=client)
    assert (await cookie.get("conversations")).status_code == 200
    refused = await cookie.post("conversations")
    assert (refused.status_code, refused.data["code"]) == (403, "csrf")
    assert not await Session.objects.aexists()
    client.cookies["csrftoken"] = secret = "a" * 32
    assert (await cookie.post("conversations", headers={"x-csrftoken": secret})).status_code == 201


async def test_a_form_with_a_cookie_is_no_way_in(api: Api, alice: User) -> None:
    client = AsyncClient(enforce_csrf_checks=True)
    await client.aforce_login(alice)
    for kind in ("multipart/form-data; boundary=x", "multipart/form-data", "application/x-www-form-urlencoded"):
        response: Any = await client.generic("POST", "/api/conversations", b"a=b", kind)
        assert response.status_code in (400, 403)
        assert response.headers["Content-Type"] == "application/problem+json"


# Whatever goes wrong is a problem


async def test_an_unknown_address_and_a_wrong_method_are_problems(api: Api) -> None:
    for method, path, status in [
        ("GET", "nowhere", 404), ("POST", "nowhere/at/all", 404), ("GET", "", 404), ("GET", "conversations/", 404),
        ("GET", "conversations/Not%00An%20Id", 404), ("PUT", "conversations", 405), ("DELETE", "me", 405),
        ("POST", "openapi.json", 405),
    ]:  # fmt: skip
        refused = await api.call(method, path) if status == 404 else await _raw(api, method, path)
        assert refused.status_code == status, (method, path)
        assert refused.headers["Content-Type"] == "application/problem+json"
    assert refused.headers["Allow"] == "GET, HEAD"


async def _raw(api: Api, method: str, path: str) -> Any:
    return await api.client.generic(method, f"/api/{path}", headers=api.headers)


async def test_a_problem_has_its_fields_and_its_id_stands_in_the_log(
    api: Api, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level("INFO", "gateway.api.problems"):
        body = (await api.get("conversations/none")).data
    assert body | {"id": ""} == {
        "type": "about:blank", "title": "Not Found", "status": 404, "code": "not_found", "id": "",
        "detail": "There is nothing here, or it is not yours.",
    }  # fmt: skip
    assert body["id"] in caplog.text


async def test_a_database_that_is_away_is_503(api: Api, alice: User, monkeypatch: pytest.MonkeyPatch) -> None:
    def away(*args: Any, **kwargs: Any) -> None:
        raise OperationalError("no connection")

    monkeypatch.setattr(reads, "conversations", away)
    monkeypatch.setattr("chatapp.store.posts.post_message", away)
    row = await _made(alice)
    for refused in (await api.get("conversations"), await api.post(f"conversations/{row.pk}/messages", {"text": "a"})):
        assert (refused.status_code, refused.data["code"]) == (503, "unavailable")
        assert "no connection" not in refused.data["detail"]


async def test_a_bug_is_a_problem_without_its_details(
    api: Api, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def bug(*args: Any, **kwargs: Any) -> None:
        raise LookupError("secret detail")

    monkeypatch.setattr(reads, "conversations", bug)
    broken: Any = await _raw(api, "GET", "conversations")
    assert broken.status_code == 500
    assert b"secret detail" not in broken.content
    assert "secret detail" in caplog.text
