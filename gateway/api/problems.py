"""Problems in the shape of RFC 9457: one for each refusal, with an id that stands in the log."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from functools import wraps
from http import HTTPStatus
from typing import Any

import orjson
from django.core.exceptions import BadRequest, RequestDataTooBig, SuspiciousOperation
from django.db import InterfaceError, OperationalError
from django.http import Http404, HttpRequest, HttpResponse
from django.http.multipartparser import MultiPartParserError
from django.http.response import HttpResponseBase
from ninja import NinjaAPI
from ninja.errors import AuthenticationError, HttpError, ValidationError
from pydantic import BaseModel

from chatapp.runtime.errors import (
    BranchlineError,
    Conflict,
    InvalidField,
    NotFound,
    RateLimited,
    TooLong,
    Unavailable,
)
from chatapp.runtime.ids import new_id
from gateway.api.auth import Forbidden, Unauthorized
from gateway.bus import AWAY

logger = logging.getLogger(__name__)

MEDIA_TYPE = "application/problem+json"
# One text for all of them: which of several ids is the unknown one says something about the others.
NOWHERE = "There is nothing here, or it is not yours."
STATUS: dict[type[BranchlineError], int] = {
    Unauthorized: 401,
    Forbidden: 403,
    NotFound: 404,
    Conflict: 409,
    TooLong: 413,
    InvalidField: 422,
    RateLimited: 429,
    Unavailable: 503,
}
AWAY_ERRORS: tuple[type[Exception], ...] = (OperationalError, InterfaceError, *AWAY)


class FieldError(BaseModel):
    field: str
    detail: str


class Problem(BaseModel):
    """What every refusal answers; `errors` with 422 only."""

    type: str
    title: str
    status: int
    detail: str
    code: str
    id: str
    errors: list[FieldError] | None = None


def problem(
    request: HttpRequest, status: int, code: str, detail: str,
    *, errors: list[dict[str, str]] | None = None, headers: Mapping[str, str] | None = None,
    cause: BaseException | None = None,
) -> HttpResponse:  # fmt: skip
    """The answer to a refused call; its id finds the line in the log."""
    number = new_id()
    level = logging.ERROR if status == 500 else logging.WARNING if status > 500 else logging.INFO
    logger.log(level, "problem id=%s %s %s %s %s", number, status, code, request.method, request.path, exc_info=cause)
    body: dict[str, Any] = {
        "type": "about:blank", "title": HTTPStatus(status).phrase, "status": status, "detail": detail, "code": code,
        "id": number,
    }  # fmt: skip
    if errors is not None:
        body["errors"] = errors
    return HttpResponse(orjson.dumps(body), status=status, content_type=MEDIA_TYPE, headers=dict(headers or {}))


def not_found(request: HttpRequest) -> HttpResponse:
    return problem(request, 404, NotFound.code, NOWHERE)


def not_allowed(request: HttpRequest, allow: str) -> HttpResponse:
    detail = f"This address answers {allow}."
    return problem(request, 405, "method_not_allowed", detail, headers={"Allow": allow})


def _refused(request: HttpRequest, error: BranchlineError) -> HttpResponse:
    status = next((STATUS[kind] for kind in type(error).__mro__ if kind in STATUS), 500)
    if status == 404:
        return not_found(request)
    headers, errors = {}, None
    if status == 401:
        headers["WWW-Authenticate"] = "Bearer"
    if isinstance(error, RateLimited):
        headers["Retry-After"] = str(error.retry_after)
    if status == 422 and isinstance(error, InvalidField):
        errors = [{"field": error.field, "detail": error.detail}]
    return problem(request, status, error.code, error.detail, errors=errors, headers=headers)


def _invalid(request: HttpRequest, error: ValidationError) -> HttpResponse:
    errors = [{"field": _field(found["loc"]), "detail": str(found["msg"])} for found in error.errors]
    return problem(request, 422, InvalidField.code, errors[0]["detail"], errors=errors)


def _field(place: tuple[Any, ...]) -> str:
    """The path of a field without where it came from and what our function calls it."""
    names = place[2:] if place[:1] == ("body",) else place[1:]
    return ".".join(str(name) for name in names) or str(place[0])


def _away(request: HttpRequest, error: Exception) -> HttpResponse:
    detail = "The database or Valkey is away; nothing was stored. Try again in a moment."
    return problem(request, 503, Unavailable.code, detail, headers={"Retry-After": "1"}, cause=error)


def _http(request: HttpRequest, error: HttpError) -> HttpResponse:
    """The library's own: what is no JSON, and nobody logged in."""
    if isinstance(error, AuthenticationError):
        return _refused(request, Unauthorized("Log in, or send a token in the Authorization header."))
    code = "not_json" if error.status_code == 400 else "refused"
    detail = "The body is not JSON." if error.status_code == 400 else error.message
    return problem(request, error.status_code, code, detail)


def _broken(request: HttpRequest, error: Exception) -> HttpResponse:
    return problem(request, 500, "internal", "Something broke on our side. The id finds it in the log.", cause=error)


def _bad_request(request: HttpRequest, error: Exception) -> HttpResponse:
    return problem(request, 400, "bad_request", "The request is malformed.")


def _too_big(request: HttpRequest, error: Exception) -> HttpResponse:
    return problem(request, 413, TooLong.code, "The body is too large.")


def register(api: NinjaAPI) -> None:
    """Every way a call can fail ends in a problem; the handler of the nearest class answers."""
    handlers: dict[type[Exception], Any] = {
        BranchlineError: _refused,
        ValidationError: _invalid,
        HttpError: _http,
        Http404: lambda request, error: not_found(request),
        SuspiciousOperation: _bad_request,
        BadRequest: _bad_request,
        MultiPartParserError: _bad_request,
        RequestDataTooBig: _too_big,
        **dict.fromkeys(AWAY_ERRORS, _away),
        Exception: _broken,
    }
    for kind, handler in handlers.items():
        api.add_exception_handler(kind, handler)


def speaking_problems(view: Any) -> Any:
    """The library answers a wrong method in plain text; here it is a problem like the others."""

    @wraps(view)
    async def wrapped(request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponseBase:
        response: HttpResponseBase = await view(request, *args, **kwargs)
        return not_allowed(request, response.headers["Allow"]) if response.status_code == 405 else response

    return wrapped
