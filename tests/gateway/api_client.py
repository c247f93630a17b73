"""A caller of the API whose every answer is held against the OpenAPI document."""

from __future__ import annotations

import json
import re
from typing import Any

from django.http import HttpResponse
from django.test import AsyncClient

from gateway.api.app import document

Schema = dict[str, Any]


class Api:
    """Calls with a bearer token, or as whom the given client is logged in."""

    def __init__(self, token: str = "", client: AsyncClient | None = None) -> None:
        self.client = client or AsyncClient(raise_request_exception=False)
        self.headers = {"authorization": f"Bearer {token}"} if token else {}

    async def get(self, path: str, **query: Any) -> Any:
        return await self.call("GET", path, query=query)

    async def post(self, path: str, body: Any = None, **more: Any) -> Any:
        return await self.call("POST", path, body, **more)

    async def patch(self, path: str, body: Any = None) -> Any:
        return await self.call("PATCH", path, body)

    async def delete(self, path: str) -> Any:
        return await self.call("DELETE", path)

    async def call(
        self,
        method: str,
        path: str,
        body: Any = None,
        *,
        query: Any = None,
        headers: dict[str, str] | None = None,
        content_type: str = "application/json",
    ) -> Any:
        """The answer with its parsed JSON at `.data`; bytes go out as they are."""
        raw = body if isinstance(body, bytes) else b"" if body is None else json.dumps(body).encode()
        response: Any = await self.client.generic(
            method, f"/api/{path}", raw, content_type, query_params=query or {},
            headers={**self.headers, **(headers or {})},
        )  # fmt: skip
        if not response.streaming:
            response.data = json.loads(response.content) if response.content else None
            check_answer(method, f"/api/{path}", response)
        return response


def check_answer(method: str, path: str, response: HttpResponse) -> None:
    """The status is one the document names for this call, and the body is what it says."""
    operation = _operation(method, path)
    if operation is None:
        return
    answer = operation["responses"].get(str(response.status_code))
    assert answer, f"{method} {path} answered {response.status_code}, which its document does not name"
    media_type = response.headers["Content-Type"].split(";")[0]
    if response.content:
        check(answer["content"][media_type]["schema"], json.loads(response.content))
    else:
        assert "content" not in answer


def _operation(method: str, path: str) -> Schema | None:
    for address, operations in document()["paths"].items():
        if re.fullmatch(re.sub(r"\{\w+\}", "[0-9a-z_-]+", address), path):
            found: Schema | None = operations.get(method.lower())
            return found
    return None


def check(schema: Schema, value: Any, place: str = "answer") -> None:
    """The part of JSON Schema that our document uses. A field that it does not name is a mistake too."""
    if "$ref" in schema:
        name = schema["$ref"].rsplit("/", 1)[-1]
        return check(document()["components"]["schemas"][name], value, f"{place}:{name}")
    if "anyOf" in schema:
        return _any_of(schema["anyOf"], value, place)
    if "enum" in schema:
        assert value in schema["enum"], f"{place} is {value!r}"
    kinds: dict[str, Any] = {
        "object": dict, "array": list, "string": str, "integer": int, "number": (int, float), "boolean": bool,
        "null": type(None),
    }  # fmt: skip
    kind = schema.get("type")
    if kind:
        assert isinstance(value, kinds[kind]), f"{place} is {value!r}, no {kind}"
        assert kind == "boolean" or not isinstance(value, bool), f"{place} is {value!r}, no {kind}"
    if schema.get("format") == "date-time":
        assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z", value), f"{place} is {value!r}"
    if kind == "array":
        for item in value:
            check(schema["items"], item, f"{place}[]")
    if kind == "object":
        _object(schema, value, place)
    return None


def _any_of(schemas: list[Schema], value: Any, place: str) -> None:
    failures = []
    for schema in schemas:
        try:
            return check(schema, value, place)
        except AssertionError as error:
            failures.append(str(error))
    raise AssertionError("; ".join(failures))


def _object(schema: Schema, value: dict[str, Any], place: str) -> None:
    known = schema.get("properties", {})
    assert set(schema.get("required", ())) <= set(value), f"{place} lacks {set(schema['required']) - set(value)}"
    if not schema.get("additionalProperties"):
        assert set(value) <= set(known), f"{place} has {set(value) - set(known)}"
    for name, field in known.items():
        if name in value:
            check(field, value[name], f"{place}.{name}")
