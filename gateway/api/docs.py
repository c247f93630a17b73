"""The page at /api/docs: the OpenAPI document to read, without a script, so that our content policy holds."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from django.core.exceptions import PermissionDenied
from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.utils.html import escape
from django.utils.safestring import SafeString, mark_safe
from django.utils.translation import gettext
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_safe

from chatapp.views.health import may_operate

Schema = dict[str, Any]
METHODS = ("get", "post", "patch", "delete")


def docs_page(document: Callable[[], Schema]) -> Callable[..., HttpResponse]:
    @never_cache
    @require_safe
    def page(request: HttpRequest) -> HttpResponse:
        if not may_operate(request):
            raise PermissionDenied
        return render(request, "api/docs.html", readable(document()))

    return page


def readable(document: Schema) -> dict[str, Any]:
    """Groups of calls and the objects they speak of, as the template shows them."""
    groups: dict[str, list[Schema]] = {}
    for address, operations in document["paths"].items():
        for method in METHODS:
            if method in operations:
                operation = operations[method]
                groups.setdefault(operation["tags"][0], []).append(_call(address, method, operation))
    schemas = document["components"]["schemas"]
    shown = {name: schema for name, schema in sorted(schemas.items()) if not name.startswith("Page_")}
    return {
        "groups": groups,
        "objects": [
            {"name": name, "about": marked(schema.get("description", "")), "fields": _fields(schema)}
            for name, schema in shown.items()
        ],
    }


def _call(address: str, method: str, operation: Schema) -> Schema:
    body = operation.get("requestBody", {}).get("content", {}).get("application/json", {}).get("schema")
    return {
        "method": method.upper(),
        "address": address,
        "id": operation["operationId"],
        "summary": operation["summary"],
        "about": marked(operation.get("description", "")),
        "query": [
            {"name": given["name"], "type": kind(given["schema"]), "about": marked(given.get("description", ""))}
            for given in operation.get("parameters", ())
            if given["in"] == "query"
        ],
        "body": kind(body) if body else "",
        "answers": [_answer(status, answer) for status, answer in operation["responses"].items()],
    }


def _answer(status: str, answer: Schema) -> Schema:
    content = answer.get("content", {}).values()
    return {
        "status": status,
        "about": marked(gettext(answer["description"])),
        "type": next((kind(c["schema"]) for c in content), ""),
    }


def _fields(schema: Schema) -> list[Schema]:
    required = schema.get("required", ())
    return [
        {"name": name, "type": kind(field), "about": marked(field.get("description", "")), "required": name in required}
        for name, field in schema.get("properties", {}).items()
    ]


def marked(text: str) -> SafeString:
    """What stands between backticks as code."""
    return mark_safe(re.sub(r"`([^`]+)`", r"<code>\1</code>", escape(text)))


def kind(schema: Schema) -> str:
    """A type in a few words: `string or null`, `list of Event`."""
    if "$ref" in schema:
        name = str(schema["$ref"]).rsplit("/", 1)[-1]
        return f"list of {name[5:-1]}" if name.startswith("Page_") else name
    for several in ("anyOf", "allOf", "oneOf"):
        if several in schema:
            return " or ".join(dict.fromkeys(kind(one) for one in schema[several]))
    if "enum" in schema:
        return ", ".join(str(value) if value is not None else "null" for value in schema["enum"])
    if "const" in schema:
        return str(schema["const"])
    if schema.get("type") == "array":
        return f"list of {kind(schema.get('items', {}))}"
    if isinstance(schema.get("type"), list):
        return " or ".join(schema["type"])
    return {"date-time": "time"}.get(schema.get("format", ""), str(schema.get("type", "any")))
