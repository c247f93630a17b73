"""Another's object answers exactly as an unknown one, on every address with an id in it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.core.files.uploadedfile import SimpleUploadedFile
from django.test import AsyncClient
from django.test.client import BOUNDARY, MULTIPART_CONTENT, encode_multipart
from django.urls import URLPattern, URLResolver, get_resolver
from django.utils import timezone

from chatapp.accounts import create_token
from chatapp.models import Event, InboxItem, Session, ToolCall
from chatapp.store import db
from gateway.api.app import document
from tests.gateway.api_client import Api
from tests.gateway.conftest import TokenFor
from tests.gateway.replies import conversation_of, sent

pytestmark = pytest.mark.django_db(transaction=True)

UNKNOWN = "0" * 32

# Every call of the API with an id in its address, and a body that its owner could send.
CALLS: dict[tuple[str, str], Any] = {
    ("GET", "/api/conversations/{conversation_id}"): None,
    ("PATCH", "/api/conversations/{conversation_id}"): {"title": "mine"},
    ("DELETE", "/api/conversations/{conversation_id}"): None,
    ("POST", "/api/conversations/{conversation_id}/restore"): None,
    ("POST", "/api/conversations/{conversation_id}/messages"): {"text": "hello", "client_id": "known"},
    ("POST", "/api/conversations/{conversation_id}/retry"): None,
    ("POST", "/api/conversations/{conversation_id}/stop"): {"scope": "all"},
    ("GET", "/api/conversations/{conversation_id}/events"): None,
    ("GET", "/api/conversations/{conversation_id}/sessions"): None,
    ("GET", "/api/sessions/{session_id}/messages"): None,
    ("POST", "/api/conversations/{conversation_id}/files"): b"a file",
    ("GET", "/api/conversations/{conversation_id}/files"): None,
    ("DELETE", "/api/conversations/{conversation_id}/files"): None,
    ("GET", "/api/sessions/{session_id}/files"): None,
    ("PATCH", "/api/messages/{message_id}"): {"text": "mine"},
    ("DELETE", "/api/messages/{message_id}"): None,
    ("POST", "/api/messages/{message_id}/branch"): {"text": "mine"},
    ("POST", "/api/messages/{message_id}/feedback"): {"value": "up"},
}

# Every other address with something variable in it: how a stranger asks, by GET or POST.
PAGES: dict[str, str] = {
    "c/<str:conversation_id>/": "GET",
    "c/<str:conversation_id>/change/": "POST",
    "c/<str:conversation_id>/delete/": "POST",
    "c/<str:conversation_id>/attachments/": "POST",
    "c/<str:conversation_id>/menu/": "GET",
    "c/<str:conversation_id>/list/": "GET",
    "c/<str:conversation_id>/list/older/": "GET",
    "c/<str:conversation_id>/older/": "GET",
    "c/<str:conversation_id>/replies/<str:reply_id>/text/": "GET",
    "c/<str:conversation_id>/replies/<str:reply_id>/feedback/": "POST",
    "c/<str:conversation_id>/calls/<str:call_id>/output/": "GET",
    "c/<str:conversation_id>/calls/<str:call_id>/args/": "GET",
    "c/<str:conversation_id>/restore/": "POST",
    "c/<str:conversation_id>/drawer/files/": "POST",
    "c/<str:conversation_id>/model/": "POST",
    "settings/tokens/<int:token_id>/revoke/": "POST",
}

# Nobody's own: staff pages behind their own login, one-time secrets, files, and the end of the API.
NO_OBJECTS = ("admin/", "accounts/once/<str:secret>", "api/<path:rest>", "^static/")


def _addresses(resolver: URLResolver, prefix: str = "") -> Iterator[str]:
    for pattern in resolver.url_patterns:
        address = prefix + str(pattern.pattern)
        if isinstance(pattern, URLResolver):
            yield from _addresses(pattern, address)
        elif isinstance(pattern, URLPattern):
            yield address


def test_every_address_with_an_id_stands_in_a_table() -> None:
    calls = {
        (method.upper(), address)
        for address, operations in document()["paths"].items()
        for method in operations
        if "{" in address
    }
    assert calls == set(CALLS)
    variable = {a for a in _addresses(get_resolver()) if "<" in a and not a.startswith(NO_OBJECTS)}
    routed = {re.sub(r"<id:(\w+)>", r"{\1}", f"/{a}") for a in variable if a.startswith("api/")}
    assert routed == {address for _, address in CALLS}
    assert {a for a in variable if not a.startswith("api/")} == set(PAGES)


def _ids(owner: User) -> dict[str, str]:
    row = conversation_of(owner)
    sent(row)
    token, _ = create_token(owner, "hers")
    reply = Event.objects.create(
        conversation=row, session=row, seq=99, type="AGENT_START", agent_id="main", reply_id="hers",
        created_at=timezone.now(),
    )  # fmt: skip
    call = ToolCall.objects.create(id="herscall", session=row, reply_id="hers", step=0, index=0, name="x", result="y")
    return {
        "reply_id": reply.reply_id, "call_id": call.pk,
        "conversation_id": row.pk, "session_id": row.pk, "message_id": sent(row, "waits").message_id,
        "token_id": str(token.pk),
    }  # fmt: skip


def _filled(address: str, ids: dict[str, str]) -> str:
    return re.sub(r"[{<](?:\w+:)?(\w+)[}>]", lambda found: ids[found[1]], address)


NAMES = ("conversation_id", "session_id", "message_id", "reply_id", "call_id")
UNKNOWN_IDS = dict.fromkeys(NAMES, UNKNOWN) | {"token_id": "999999"}


@pytest.mark.parametrize(("method", "address"), list(CALLS), ids=lambda value: value)
@pytest.mark.parametrize("door", ["token", "cookie"])
async def test_a_strangers_call_is_one_for_nothing(
    running: object, alice: User, bob: User, api_of: TokenFor, method: str, address: str, door: str
) -> None:
    ids = await db.run(_ids, alice)
    before = await Event.objects.acount()
    client = AsyncClient()
    await client.aforce_login(bob)
    stranger = Api(client=client) if door == "cookie" else await db.run(api_of, bob)
    answers = []
    for whose in (ids, UNKNOWN_IDS):
        path = _filled(address, whose).removeprefix("/api/")
        body, query = CALLS[method, address], {"path": "uploads/a"} if address.endswith("/files") else None
        if isinstance(body, bytes):
            form = encode_multipart(BOUNDARY, {"file": SimpleUploadedFile("a", body)})
            answer = await stranger.call(method, path, form, content_type=MULTIPART_CONTENT)
        else:
            answer = await stranger.call(method, path, body, query=query)
        assert answer.status_code == 404
        answers.append(answer.data | {"id": ""})
    assert answers[0] == answers[1]
    assert await Event.objects.acount() == before
    assert (await Session.objects.aget(pk=ids["conversation_id"])).deleted_at is None


async def test_a_stranger_cannot_follow_or_stop_by_naming_a_session(
    running: object, alice: User, bob: User, api_of: TokenFor
) -> None:
    ids = await db.run(_ids, alice)
    own = await db.run(conversation_of, bob)
    stranger = await db.run(api_of, bob)
    stream = {"accept": "text/event-stream"}
    events = await stranger.call("GET", f"conversations/{ids['conversation_id']}/events", headers=stream)
    stop = await stranger.post(f"conversations/{own.pk}/stop", {"session_id": ids["session_id"]})
    nothing = await stranger.post(f"conversations/{own.pk}/stop", {"session_id": UNKNOWN})
    assert [answer.status_code for answer in (events, stop, nothing)] == [404, 404, 404]
    assert stop.data | {"id": ""} == nothing.data | {"id": ""}
    listed = await stranger.get(f"conversations/{own.pk}/events", session=ids["session_id"])
    assert listed.data["items"] == []
    assert await InboxItem.objects.filter(state="queued").acount() == 2


@pytest.mark.parametrize("address", list(PAGES))
async def test_a_strangers_page_is_one_of_nothing(running: object, alice: User, bob: User, address: str) -> None:
    ids = await db.run(_ids, alice)
    client = AsyncClient()
    await client.aforce_login(bob)
    answers = []
    for whose in (ids, UNKNOWN_IDS):
        answer: Any = await client.generic(PAGES[address], f"/{_filled(address, whose)}", query_params={"before": "5"})
        assert answer.status_code == 404
        answers.append(answer.content)
    assert answers[0] == answers[1]
