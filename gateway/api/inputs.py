"""What callers send: bodies, lists' questions and cursors, checked with the same words as the websocket's frames."""

from __future__ import annotations

import base64
import binascii
import json
import re
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Annotated, Any, NoReturn

from django.conf import settings
from django.http import HttpRequest
from django.http.request import RawPostDataException
from django.urls import register_converter
from ninja import Query
from ninja.parser import Parser
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, WithJsonSchema, model_validator

from chatapp.catalog import offered_names
from chatapp.models import Session
from chatapp.runtime.errors import InvalidField
from chatapp.store.reads import Place
from chatapp.workspaces import ATTACHMENTS_MOST
from gateway import protocol

LIMIT = 100
LIMIT_MOST = 1000
TITLE_MOST = 200
AGENT_ID_MOST = 64
# A database counts no further.
SEQ = re.compile(r"\d{1,18}", re.ASCII)
SOURCE = re.compile(r"main(/[A-Za-z0-9_-]{1,64})*")


class IdConverter:
    """The shape of our ids in a path. Anything else is no address of ours, so no query ever sees it."""

    regex = "[0-9a-z_-]{1,64}"

    def to_python(self, value: str) -> str:
        return value

    def to_url(self, value: str) -> str:
        return value


register_converter(IdConverter, "id")


def _no_number(name: str) -> NoReturn:
    raise ValueError(f"{name} is no JSON")


def _finite(text: str) -> float:
    value = float(text)
    return value if value - value == 0 else _no_number(text)


class StrictParser(Parser):
    """UTF-8 and finite numbers only; halves of surrogate pairs come through, to be refused by field."""

    def parse_body(self, request: HttpRequest) -> dict[str, Any]:
        try:
            body = request.body
        except RawPostDataException:
            raise ValueError("a form was sent where JSON belongs") from None
        parsed: dict[str, Any] = json.loads(body.decode("utf-8"), parse_constant=_no_number, parse_float=_finite)
        return parsed


# Fields


def _checked(check: Callable[[Any], Any], schema: dict[str, Any]) -> tuple[Any, Any]:
    return BeforeValidator(check), WithJsonSchema(schema)


def _title(value: Any) -> str:
    if value is None:
        return ""
    if not isinstance(value, str):
        raise InvalidField("title", "A string is needed here.")
    title = " ".join(protocol.check_storable("title", value).split())
    if len(title) > TITLE_MOST:
        raise InvalidField("title", f"A title has at most {TITLE_MOST} characters.")
    return title


def _model(value: Any) -> str:
    if value is None or value == "":
        return ""
    if value not in offered_names():
        raise InvalidField("model", f"One of {', '.join(offered_names())}.")
    return str(value)


def _agent(value: Any) -> str:
    """Whether this person may choose it is asked where it is taken."""
    if value is None:
        return ""
    if not isinstance(value, str) or len(value) > AGENT_ID_MOST:
        raise InvalidField("agent_id", "The id of an agent.")
    return value


def _flag(name: str) -> Callable[[Any], bool]:
    def check(value: Any) -> bool:
        if not isinstance(value, bool):
            raise InvalidField(name, "true or false.")
        return value

    return check


STRING_OR_NULL = {"type": ["string", "null"]}
Title = Annotated[str, *_checked(_title, STRING_OR_NULL | {"maxLength": TITLE_MOST})]
Model = Annotated[str, *_checked(_model, STRING_OR_NULL)]
AgentId = Annotated[str, *_checked(_agent, STRING_OR_NULL)]
Pinned = Annotated[bool, *_checked(_flag("pinned"), {"type": "boolean"})]
Archived = Annotated[bool, *_checked(_flag("archived"), {"type": "boolean"})]
Wake = Annotated[bool, *_checked(_flag("wake"), {"type": "boolean"})]


BranchNumber = Annotated[int, *_checked(protocol.check_branch, {"type": "integer", "minimum": 0})]


class Body(BaseModel):
    """A JSON object; a field that we do not know is refused, so that a typing error is no silent wish."""

    model_config = ConfigDict(extra="forbid")

    @model_validator(mode="before")
    @classmethod
    def _object(cls, data: Any) -> Any:
        if not isinstance(data, dict):
            raise InvalidField("body", "A JSON object is needed.")
        return data


class NewConversation(Body):
    title: Title = ""
    agent_id: AgentId = ""
    model: Model = ""


class ConversationChange(Body):
    """Only what is sent changes."""

    title: Title = ""
    pinned: Pinned = False
    archived: Archived = False
    wake: Wake = True
    branch: BranchNumber = 0
    agent_id: AgentId = ""
    model: Model = ""


def _text(value: Any) -> str:
    return protocol.check_text(value, settings.BRANCHLINE_MESSAGE_CHARS)


Text = Annotated[str, *_checked(_text, {"type": "string", "minLength": 1})]
ClientId = Annotated[str | None, *_checked(protocol.check_client_id, STRING_OR_NULL | {"maxLength": 200})]
SendMode = Annotated[str, *_checked(protocol.check_mode, {"enum": [*protocol.MODES, None], "type": ["string", "null"]})]
Attachments = Annotated[
    tuple[str, ...],
    *_checked(
        protocol.check_attachments,
        {"type": ["array", "null"], "items": {"type": "string"}, "maxItems": ATTACHMENTS_MOST},
    ),
]
Switch = Annotated[Any, WithJsonSchema({"enum": [True, False, "true", "false", None]})]


class NewMessage(Body):
    """`mode`: `queue` waits for its turn, `steer` joins the running one before its next model request, `decline` denies
    what waits for your OK and goes on. The other fields hold for the turn it starts; a steer has none of them."""

    text: Text
    client_id: ClientId = Field(None, description="Sent again, it is the same message: nothing runs twice.")
    mode: SendMode = "queue"
    expose_to_user: Switch = None
    force_sync: Switch = None
    attachments: Attachments = ()
    force_sync_timeout_seconds: Annotated[Any, WithJsonSchema({"type": ["number", "null"]})] = None
    attributes: Annotated[Any, WithJsonSchema({"type": ["object", "null"]})] = None

    def overrides(self) -> dict[str, Any]:
        given = {name: getattr(self, name) for name in protocol.OVERRIDES}
        return protocol.check_overrides(given, self.mode)


class MessageChange(Body):
    text: Text


REASONS_MOST, REASON_MOST, COMMENT_MOST = 10, 100, 2000


def _opinion(value: Any) -> str:
    if value not in (None, "up", "down"):
        raise InvalidField("value", "up, down or null.")
    return value or ""


def _reasons(value: Any) -> list[str]:
    if not isinstance(value, list) or len(value) > REASONS_MOST:
        raise InvalidField("reasons", f"A list of at most {REASONS_MOST} strings.")
    if not all(isinstance(reason, str) and len(reason) <= REASON_MOST for reason in value):
        raise InvalidField("reasons", f"A reason is a string of at most {REASON_MOST} characters.")
    return [protocol.check_storable("reasons", reason) for reason in value]


def _comment(value: Any) -> str:
    if not isinstance(value, str) or len(value) > COMMENT_MOST:
        raise InvalidField("comment", f"A string of at most {COMMENT_MOST} characters.")
    return protocol.check_storable("comment", value)


REASONS_SCHEMA = {
    "type": "array", "maxItems": REASONS_MOST, "items": {"type": "string", "maxLength": REASON_MOST}
}  # fmt: skip


class Rating(Body):
    value: Annotated[str, *_checked(_opinion, {"enum": ["up", "down", None], "type": ["string", "null"]})]
    reasons: Annotated[list[str], *_checked(_reasons, REASONS_SCHEMA)] = []
    comment: Annotated[str, *_checked(_comment, {"type": "string", "maxLength": COMMENT_MOST})] = ""


def _session_id(value: Any) -> str:
    if value is None or value == "":
        return ""
    if not isinstance(value, str) or not re.fullmatch(IdConverter.regex, value):
        raise InvalidField("session_id", "The id of a session of this conversation.")
    return value


class StopWish(Body):
    """`reply` stops the answer and what it waits for; `foreground` also what runs beside it; `all` also tasks."""

    scope: Annotated[str, *_checked(protocol.check_scope, {"enum": ["reply", "foreground", "all"]})] = "reply"
    session_id: Annotated[str, *_checked(_session_id, STRING_OR_NULL)] = ""


# Lists


def clamped(limit: int) -> int:
    return max(1, min(limit, LIMIT_MOST))


Limit = Annotated[int, Query(description=f"At most so many; above {LIMIT_MOST} it is {LIMIT_MOST}.")]


def check_state(value: str) -> str:
    if value and value not in Session.Status.values:
        raise InvalidField("state", f"One of {', '.join(Session.Status.values)}.")
    return value


def check_search(value: str) -> str:
    if len(value) > TITLE_MOST:
        raise InvalidField("q", f"At most {TITLE_MOST} characters.")
    return protocol.check_storable("q", value)


def check_source(value: str) -> str:
    if value and (len(value) > 500 or not SOURCE.fullmatch(value)):
        raise InvalidField("source", "`main`, or a path below it such as `main/researcher`.")
    return value


def check_session(value: str) -> str:
    if value and not re.fullmatch(IdConverter.regex, value):
        raise InvalidField("session", "The id of a session.")
    return value


def check_after(value: str) -> int | None:
    """An event's number; `latest` is None."""
    if value == "latest":
        return None
    if not SEQ.fullmatch(value):
        raise InvalidField("after", "The number of an event, or `latest`.")
    return int(value)


def check_place(value: str) -> Place:
    """An event's number, or the `next` of the page before."""
    seq, dot, position = value.partition(".")
    if not SEQ.fullmatch(seq) or (dot and not re.fullmatch(r"\d{1,9}", position, re.ASCII)):
        raise InvalidField("after", "The number of an event, or the `next` of the page before.")
    return Place(int(seq), int(position) if dot else None)


def cursor(*values: Any) -> str:
    """Where the next page begins, in a form nobody takes for more than that."""
    plain = [value.isoformat() if isinstance(value, datetime) else value for value in values]
    return base64.urlsafe_b64encode(json.dumps(plain).encode()).decode().rstrip("=")


def check_cursor(value: str, first: type) -> tuple[Any, datetime, str] | None:
    """What `cursor` made of one value of the type `first`, a time and an id."""
    if not value:
        return None
    try:
        kind, time, row_id = json.loads(base64.b64decode(value + "=" * (-len(value) % 4), b"-_", validate=True))
        moment = datetime.fromisoformat(time)
        in_utc = moment.astimezone(UTC)
    except (binascii.Error, ValueError, TypeError, RecursionError, OverflowError):
        raise InvalidField("cursor", "The `next` of the page before.") from None
    good = type(kind) is first and isinstance(row_id, str) and re.fullmatch(IdConverter.regex, row_id)
    if not good or moment.tzinfo is None or (first is int and not 0 <= kind <= 1000):
        raise InvalidField("cursor", "The `next` of the page before.")
    return kind, in_utc, row_id
