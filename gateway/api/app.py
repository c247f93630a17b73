"""The API put together: its routers, its document with every refusal in it, and its addresses."""

from __future__ import annotations

from copy import deepcopy
from functools import cache
from typing import Any

from django.http import HttpRequest, HttpResponse
from django.urls import URLPattern, path, re_path
from django.utils.translation import gettext_noop
from django.views.decorators.csrf import csrf_exempt
from ninja import NinjaAPI
from ninja.openapi.schema import REF_TEMPLATE
from ninja.operation import Operation

from gateway.api import catalog, contents, conversations, files, problems
from gateway.api.docs import docs_page
from gateway.api.inputs import StrictParser
from gateway.api.renderer import Renderer, dumps

REFUSALS = {
    "400": gettext_noop("The body is not JSON."),
    "401": gettext_noop("Nobody is logged in, or the token is bad."),
    "403": gettext_noop("The token lacks the scope, or the CSRF token is missing."),
    "404": gettext_noop("Unknown, or another's."),
    "409": gettext_noop("The state does not allow it now."),
    "413": gettext_noop("The text is too long, or the file too large."),
    "422": gettext_noop("A field is wrong; `errors` says which."),
    "429": gettext_noop("Too many messages; `Retry-After` says how long to wait."),
    "503": gettext_noop("The database or Valkey is away; nothing was stored."),
}
ALWAYS = ("401", "403", "503")


class Api(NinjaAPI):
    def get_openapi_operation_id(self, operation: Operation) -> str:
        return operation.view_func.__name__


api = Api(
    title="Branchline",
    version="1",
    description="Conversations with an agent that delegates. Lists answer `items` and `next`; refusals are problems.",
    openapi_url=None,
    docs_url=None,
    parser=StrictParser(),
    renderer=Renderer(),
    urls_namespace="api",
)
problems.register(api)
for _router in (conversations.router, contents.router, files.router, catalog.router):
    api.add_router("", _router)


@cache
def document() -> dict[str, Any]:
    """The OpenAPI document. The library knows answers only; the refusals come in here."""
    found: dict[str, Any] = deepcopy(dict(api.get_openapi_schema(path_prefix="api/")))
    schema = problems.Problem.model_json_schema(ref_template=REF_TEMPLATE)
    found["components"]["schemas"] |= {**schema.pop("$defs"), "Problem": schema}
    for address, operations in found["paths"].items():
        for method, operation in operations.items():
            answers = {str(status): answer for status, answer in operation["responses"].items()}
            operation["responses"] = answers | {status: _refusal(status) for status in _refusals(address, method)}
    return found


def _refusals(address: str, method: str) -> list[str]:
    """Which refusals an operation has, by what it takes."""
    may = set(ALWAYS)
    if method in ("post", "patch"):
        may |= {"400", "422"}
    if method == "get" and address.split("/")[-1] not in ("me", "agents", "models"):
        may |= {"422"}
    if "{" in address:
        may |= {"404"}
    if address.endswith("/messages") and method == "post":
        may |= {"413", "429"}
    if "/api/messages/" in address and not address.endswith("/feedback"):
        may |= {"409"} if method == "delete" else {"409", "413"}
    if address.endswith("/branch"):
        may |= {"429"}
    if method == "patch":
        may |= {"409"}
    if address.endswith("/files"):
        may |= {"409", "413"} if method == "post" else {"422"}
    if address.endswith("/retry"):
        may |= {"409"}
    return sorted(may)


def _refusal(status: str) -> dict[str, Any]:
    schema = {"$ref": REF_TEMPLATE.format(model="Problem")}
    return {"description": REFUSALS[status], "content": {problems.MEDIA_TYPE: {"schema": schema}}}


def openapi(request: HttpRequest) -> HttpResponse:
    if request.method not in ("GET", "HEAD"):
        return problems.not_allowed(request, "GET, HEAD")
    return HttpResponse(dumps(document()), content_type="application/json")


@csrf_exempt
def nowhere(request: HttpRequest) -> HttpResponse:
    return problems.not_found(request)


def addresses() -> list[URLPattern]:
    """The API's own ones between its document and the end of it all, which answers what no other does."""
    own = [pattern for pattern in api.urls[0] if isinstance(pattern, URLPattern) and pattern.name != "api-root"]
    for pattern in own:
        pattern.callback = problems.speaking_problems(pattern.callback)
    return [
        path("openapi.json", csrf_exempt(openapi), name="openapi"),
        path("docs", docs_page(document), name="api_docs"),
        *own,
        # With any characters, a line end too.
        re_path("", nowhere),
    ]
