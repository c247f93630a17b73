"""The OpenAPI document and the page that shows it."""

from __future__ import annotations

from typing import Any

import pytest
from django.contrib.auth.models import User
from django.test import AsyncClient, Client

from gateway.api.app import document

pytestmark = pytest.mark.django_db(transaction=True)

FAR = {"REMOTE_ADDR": "203.0.113.9"}


async def test_the_document_names_every_call_and_its_refusals() -> None:
    response = await AsyncClient().get("/api/openapi.json")
    found: dict[str, Any] = response.json()
    assert found["openapi"] == "3.1.0"
    sending = found["paths"]["/api/conversations/{conversation_id}/messages"]["post"]
    assert set(sending["responses"]) == {"202", "400", "401", "403", "404", "413", "422", "429", "503"}
    events = found["paths"]["/api/conversations/{conversation_id}/events"]["get"]["responses"]["200"]["content"]
    assert set(events) == {"application/json", "text/event-stream"}
    assert found["components"]["securitySchemes"]["Bearer"] == {"type": "http", "scheme": "bearer"}


def test_every_reference_in_the_document_leads_somewhere() -> None:
    schemas = document()["components"]["schemas"]

    def walk(value: Any) -> None:
        if isinstance(value, dict):
            if "$ref" in value:
                assert value["$ref"].rsplit("/", 1)[-1] in schemas
            for item in value.values():
                walk(item)
        elif isinstance(value, list):
            for item in value:
                walk(item)

    walk(document())


def test_the_page_is_for_staff_or_this_very_machine(alice: User, sue: User) -> None:
    client = Client()
    assert client.get("/api/docs").status_code == 200
    assert client.get("/api/docs", **FAR).status_code == 403  # type: ignore[arg-type]
    client.force_login(alice)
    assert client.get("/api/docs", **FAR).status_code == 403  # type: ignore[arg-type]
    client.force_login(sue)
    assert client.get("/api/docs", **FAR).status_code == 200  # type: ignore[arg-type]


def test_the_page_shows_every_call_and_needs_no_script_or_inline_style() -> None:
    html = Client().get("/api/docs").content.decode()
    for operations in document()["paths"].values():
        for operation in operations.values():
            assert f'id="{operation["operationId"]}"' in html
    for name in ("Conversation", "Problem", "NewMessage"):
        assert f'id="o-{name}"' in html
    assert " style=" not in html
    assert "<style" not in html
    assert "<script" not in html
