"""The websocket's frames: what a client may say, parsed without I/O, and how we answer."""

from __future__ import annotations

import json
import math
import re
from dataclasses import dataclass, field
from typing import Any, Literal

import orjson

from chatapp.runtime.errors import BranchlineError, InvalidField, NotFound, TooLong
from chatapp.workspaces import ATTACHMENTS_MOST

Mode = Literal["queue", "steer", "decline"]
MODES = ("queue", "steer", "decline")
DEEPEST = 32
PATH_MOST = 1000
# A database counts no further.
COUNT_END = 10**18
ID = re.compile(r"[a-z0-9_-]{1,64}")
OVERRIDES = ("expose_to_user", "force_sync", "force_sync_timeout_seconds", "attributes")


class BadFrame(BranchlineError):
    """What came is no frame; the client's author acts."""

    code = "bad_frame"


@dataclass(frozen=True)
class SendMessage:
    text: str
    client_id: str | None = None
    mode: str = "queue"
    overrides: dict[str, Any] = field(default_factory=dict)
    attachments: tuple[str, ...] = ()
    ref: Any = None


@dataclass(frozen=True)
class EditMessage:
    message_id: str
    text: str
    ref: Any = None


@dataclass(frozen=True)
class DeleteMessage:
    message_id: str
    ref: Any = None


@dataclass(frozen=True)
class BranchMessage:
    message_id: str
    text: str
    ref: Any = None


@dataclass(frozen=True)
class SwitchBranch:
    branch: int
    ref: Any = None


@dataclass(frozen=True)
class Retry:
    ref: Any = None


@dataclass(frozen=True)
class StopRun:
    scope: str = "reply"
    session_id: str = ""
    ref: Any = None


@dataclass(frozen=True)
class MarkRead:
    seq: int
    ref: Any = None


@dataclass(frozen=True)
class Ping:
    ref: Any = None


@dataclass(frozen=True)
class Seen:
    frames: int
    ref: Any = None


ClientFrame = (
    SendMessage | EditMessage | DeleteMessage | BranchMessage | SwitchBranch | Retry | StopRun | MarkRead | Ping | Seen
)


def _decode(raw: str | bytes) -> Any:
    """JSON. The slower reader takes half a surrogate pair, so that the field which has it can be named."""
    try:
        return orjson.loads(raw)
    except orjson.JSONDecodeError as error:
        try:
            return json.loads(raw, parse_constant=_no_number)
        except (ValueError, RecursionError):
            raise BadFrame(f"This is not JSON: {error}") from None


def _deep(value: Any) -> bool:
    """Nested beyond what we would say back. A loop: how deep it is, is the sender's choice."""
    todo = [(value, 0)]
    while todo:
        item, depth = todo.pop()
        if depth > DEEPEST:
            return True
        if isinstance(item, dict | list):
            todo += [(inner, depth + 1) for inner in (item.values() if isinstance(item, dict) else item)]
    return False


def _no_number(name: str) -> None:
    raise ValueError(f"{name} is no JSON")


def reference(raw: str | bytes) -> Any:
    """The `ref` of a frame that was refused, so that its sender knows which one."""
    try:
        data = _decode(raw)
    except BadFrame:
        return None
    ref = data.get("ref") if isinstance(data, dict) else None
    return None if _deep(ref) else ref


def parse(raw: str | bytes, limit: int) -> ClientFrame:
    """A client's frame. Raises BadFrame, or InvalidField for a field of a known one. `limit` in characters."""
    data = _decode(raw)
    if not isinstance(data, dict):
        raise BadFrame("A frame is a JSON object.")
    kind = data.get("kind")
    if _deep(data.get("ref")):
        raise BadFrame(f"`ref` is nested more than {DEEPEST} deep.")
    build = BUILDERS.get(kind) if isinstance(kind, str) else None
    if build is None:
        raise BadFrame(f"Unknown kind; one of {', '.join(BUILDERS)}.")
    frame: ClientFrame = build(data, limit)
    return frame


def _send(data: dict[str, Any], limit: int) -> SendMessage:
    if data.get("subagent_id"):
        # Nobody is exposed yet; the text must not reach somebody else.
        raise NotFound("No such subagent.")
    return SendMessage(
        check_text(data.get("text"), limit),
        check_client_id(data.get("client_id")),
        check_mode(data.get("mode")),
        check_overrides(data, data.get("mode")),
        check_attachments(data.get("attachments")),
        data.get("ref"),
    )


def _edit(data: dict[str, Any], limit: int) -> EditMessage:
    return EditMessage(_id(data, "message_id"), check_text(data.get("text"), limit), data.get("ref"))


def _branch(data: dict[str, Any], limit: int) -> BranchMessage:
    return BranchMessage(_id(data, "message_id"), check_text(data.get("text"), limit), data.get("ref"))


def _switch(data: dict[str, Any], limit: int) -> SwitchBranch:
    return SwitchBranch(check_branch(data.get("branch")), data.get("ref"))


def _stop(data: dict[str, Any], limit: int) -> StopRun:
    session_id = _id(data, "session_id") if data.get("session_id") else ""
    return StopRun(check_scope(data.get("scope", "reply")), session_id, data.get("ref"))


def _read(data: dict[str, Any], limit: int) -> MarkRead:
    return MarkRead(_count(data, "seq", "The number of the last event that was looked at."), data.get("ref"))


def _seen(data: dict[str, Any], limit: int) -> Seen:
    frames = _count(data, "frames", "The number of frames read since the last one; 0 or more.")
    return Seen(frames, data.get("ref"))


def _count(data: dict[str, Any], name: str, meaning: str) -> int:
    value = data.get(name)
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < COUNT_END:
        raise InvalidField(name, meaning)
    return value


BUILDERS: dict[str, Any] = {
    "message.send": _send,
    "message.edit": _edit,
    "message.delete": lambda data, limit: DeleteMessage(_id(data, "message_id"), data.get("ref")),
    "message.branch": _branch,
    "branch.switch": _switch,
    "message.retry": lambda data, limit: Retry(data.get("ref")),
    "run.stop": _stop,
    "conversation.read": _read,
    "ping": lambda data, limit: Ping(data.get("ref")),
    "seen": _seen,
}


def _id(data: dict[str, Any], name: str) -> str:
    value = data.get(name)
    if not isinstance(value, str) or not ID.fullmatch(value):
        raise InvalidField(name, "An id: lower-case letters, digits, - and _.")
    return value


def check_text(value: Any, limit: int, name: str = "text") -> str:
    """A message's text: a string, not blank, storable (no NUL, no lone surrogate), not too long."""
    if not isinstance(value, str):
        raise InvalidField(name, "A string is needed here.")
    if len(value) > limit:
        raise TooLong(name, f"The text has {len(value)} characters; at most {limit} are taken.")
    if not value.strip():
        raise InvalidField(name, "The text is blank.")
    return check_storable(name, value)


def check_client_id(value: Any) -> str | None:
    if value is None or value == "":
        return None
    if not isinstance(value, str) or len(value) > 200 or not value.isprintable():
        raise InvalidField("client_id", "A printable string of at most 200 characters.")
    return value


def check_mode(value: Any) -> str:
    if value is None:
        return "queue"
    if value not in MODES:
        raise InvalidField("mode", f"One of {', '.join(MODES)}.")
    return str(value)


def check_scope(value: Any) -> str:
    if value not in ("reply", "foreground", "all"):
        raise InvalidField("scope", "One of reply, foreground, all.")
    return str(value)


def check_branch(value: Any) -> int:
    """A branch's number; a form of the page sends it as text."""
    number = int(value) if isinstance(value, str) and re.fullmatch(r"\d{1,9}", value, re.ASCII) else value
    if isinstance(number, bool) or not isinstance(number, int) or not 0 <= number < 10**9:
        raise InvalidField("branch", "The number of a branch; 0 or more.")
    return number


def check_overrides(data: dict[str, Any], mode: Any) -> dict[str, Any]:
    """The overrides a message carries for the turn it starts; `true` and `"true"` are the same. A steer has none."""
    given = {name: data[name] for name in OVERRIDES if data.get(name) is not None}
    if given and mode == "steer":
        raise InvalidField(next(iter(given)), "A steer joins a running turn and carries no overrides.")
    for name in ("expose_to_user", "force_sync"):
        if name in given:
            given[name] = _flag(name, given[name])
    timeout = given.get("force_sync_timeout_seconds")
    number = isinstance(timeout, int | float) and not isinstance(timeout, bool)
    if timeout is not None and not (number and abs(timeout) <= 10**9):
        raise InvalidField("force_sync_timeout_seconds", "A number of seconds.")
    if "attributes" in given:
        check_attributes(given["attributes"])
    return given


def check_attributes(value: Any) -> None:
    """A JSON object that a database takes: every string and name storable, numbers finite, not nested too deep."""
    if not isinstance(value, dict):
        raise InvalidField("attributes", "A JSON object.")
    if _deep(value):
        raise InvalidField("attributes", f"Nested more than {DEEPEST} deep.")
    todo: list[Any] = [value]
    while todo:
        item = todo.pop()
        if isinstance(item, str):
            check_storable("attributes", item)
        elif isinstance(item, float) and not math.isfinite(item):
            raise InvalidField("attributes", "Numbers must be finite.")
        elif isinstance(item, dict):
            todo += [*item, *item.values()]
        elif isinstance(item, list):
            todo += item


def check_attachments(value: Any) -> tuple[str, ...]:
    """Paths of files in the conversation's workspace."""
    good = isinstance(value, list) and all(isinstance(path, str) and len(path) <= PATH_MOST for path in value)
    if value is not None and not (good and len(value) <= ATTACHMENTS_MOST):
        raise InvalidField("attachments", f"A list of at most {ATTACHMENTS_MOST} paths of files in the workspace.")
    return tuple(check_storable("attachments", path) for path in value or ())


def check_storable(name: str, value: str) -> str:
    if "\x00" in value or any("\ud800" <= c <= "\udfff" for c in value):
        raise InvalidField(name, "A NUL character or half of a surrogate pair cannot be stored.")
    return value


def _flag(name: str, value: Any) -> bool:
    if isinstance(value, bool):
        return value
    if value in ("true", "false"):
        return bool(value == "true")
    raise InvalidField(name, "true or false.")


def ack(ref: Any, **made: Any) -> dict[str, Any]:
    return {"kind": "ack", "ref": ref, **made}


def error(ref: Any, problem: BranchlineError) -> dict[str, Any]:
    return {
        "kind": "error", "ref": ref, "code": problem.code, "detail": problem.detail, "retryable": problem.retryable,
    }  # fmt: skip
