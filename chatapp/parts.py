"""What a thread shows, part by part: each made from the event that tells of it, with the template that draws it.

The page folds the stored events; the live edge builds the same parts from single events. Both draw them with the same
templates, so a reload shows what the open page shows.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, ClassVar
from urllib.parse import quote

from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from chatapp.plain import excerpt, plain, visible

Flat = dict[str, Any]
BRIEF_MAX = 80
# What a card shows of a call before someone asks for all of it.
OUTPUT_LINES = 200
OUTPUT_MAX = 20_000
ARGS_MAX = 2_000
# How much longer than what it shows a coloured text may be.
COLOURED = 4
PICTURES = ("image/png", "image/jpeg", "image/gif", "image/webp")
# Calls that make a subagent, whose panel stands below them.
HANDS_ON = ("agent_spawn",)
# A reply goes on after these.
RESTS = ("PERMISSION_ASKING", "WAITING")

# What a failure means, by its code.
FAILURES = {
    "wrong_key": gettext_lazy("The model's provider refused the key."),
    "no_key": gettext_lazy("No key is set for the model's provider."),
    "model_unknown": gettext_lazy("The model is not known."),
    "quota": gettext_lazy("The account with the model's provider has no credit left. The operator must top it up."),
    "rate_limited": gettext_lazy("The model's provider takes no more requests right now."),
    "overloaded": gettext_lazy("The model's provider has trouble at the moment. Try again in a minute."),
    "timeout": gettext_lazy("The model sent nothing for too long. Try again."),
    "connection_lost": gettext_lazy(
        "The model's provider could not be reached, or the connection broke off. Try again; if it stays so, ask the "
        "operator."
    ),
    "garbage": gettext_lazy("The model's answer could not be read. Try again; if it stays so, ask the operator."),
    "content_filtered": gettext_lazy("The provider's content filter withheld the answer. Ask in other words."),
    "context_too_long": gettext_lazy(
        "The conversation is longer than the model can read. Start a new one or pick another model."
    ),
    "rejected": gettext_lazy("The model's provider refused the request."),
    "token_cap": gettext_lazy("A limit on tokens is reached."),
    "empty_reply": gettext_lazy("The model answered with nothing. Try again."),
    "internal": gettext_lazy("Something broke on our side. The id finds it in the server's log."),
}
# Codes whose detail says more than the line above: which key, which model, why, when.
TELLING = ("wrong_key", "no_key", "model_unknown", "rate_limited", "rejected", "token_cap")


@dataclass(frozen=True)
class Siblings:
    """Which of several ways on this is, and the branches of its neighbours."""

    index: int
    count: int
    before: int | None = None
    after: int | None = None


@dataclass(frozen=True)
class Attachment:
    session_id: str
    path: str
    name: str
    size: int
    media_type: str = ""

    @property
    def is_picture(self) -> bool:
        return self.media_type in PICTURES

    @property
    def address(self) -> str:
        return f"/api/sessions/{self.session_id}/files?path={quote(self.path, safe='')}"


@dataclass
class UserMessage:
    template: ClassVar[str] = "chat/parts/user_message.html"
    id: str
    text: str
    steered: bool = False
    at: datetime | None = None
    attachments: list[Attachment] = field(default_factory=list)
    siblings: Siblings | None = None

    @property
    def began(self) -> datetime | None:
        """Named as that of a reply: where a new day begins is asked of both."""
        return self.at


@dataclass
class Text:
    template: ClassVar[str] = "chat/parts/text.html"
    id: str
    text: str = ""
    open: bool = True


@dataclass
class Thinking:
    template: ClassVar[str] = "chat/parts/thinking.html"
    id: str
    text: str = ""
    open: bool = True
    began: datetime | None = None
    took: timedelta | None = None


@dataclass
class ToolCall:
    """`state`: preparing, ready, running, or the result's success, error, interrupted, denied."""

    template: ClassVar[str] = "chat/parts/tool.html"
    id: str
    name: str
    args: str = ""
    brief: str = ""
    state: str = "preparing"
    output: str = ""
    truncated: bool = False
    began: datetime | None = None
    took: timedelta | None = None
    conversation_id: str = ""
    panels: list[Any] = field(default_factory=list)

    @property
    def hands_on(self) -> bool:
        return self.name in HANDS_ON

    @property
    def shown_args(self) -> str:
        """As they are: what would be run must not lose a character."""
        return visible(excerpt(self.args, ARGS_MAX))

    @property
    def has_more_args(self) -> bool:
        return len(self.args) > ARGS_MAX

    @property
    def shown_output(self) -> str:
        return excerpt(self._start_of_output(), OUTPUT_MAX, OUTPUT_LINES)

    @property
    def has_more_output(self) -> bool:
        return len(self.output) > COLOURED * OUTPUT_MAX or self._start_of_output() != self.shown_output

    def _start_of_output(self) -> str:
        return plain(self.output[: COLOURED * OUTPUT_MAX])


@dataclass
class Note:
    """A quiet line."""

    template: ClassVar[str] = "chat/parts/note.html"
    id: str
    text: str


@dataclass
class Failure:
    """A reply that failed: our line, and what the provider said where that adds something.

    `last` while nothing came after it, so that trying again makes sense.
    """

    template: ClassVar[str] = "chat/parts/failure.html"
    id: str
    error_id: str
    code: str
    line: str
    detail: str = ""
    last: bool = True


@dataclass
class Reply:
    """`over`: no stretch of it is to come; `last` while trying it again makes sense; `value` what the reader thinks.
    `agent` is the subagent whose it is, empty for the conversation's own."""

    template: ClassVar[str] = "chat/parts/reply.html"
    id: str
    parts: list[Any] = field(default_factory=list)
    conversation_id: str = ""
    began: datetime | None = None
    ended: datetime | None = None
    over: bool = False
    last: bool = False
    value: str = ""
    siblings: Siblings | None = None
    agent: str = ""

    def put(self, part: Any) -> None:
        """In the place of the part with its id, else at the end."""
        for index, known in enumerate(self.parts):
            if known.id == part.id:
                self.parts[index] = part
                return
        self.parts.append(part)

    def drop(self, part_id: str) -> None:
        self.parts = [part for part in self.parts if part.id != part_id]

    def drop_unfinished(self) -> None:
        """Calls that the model had begun to write when its answer broke off; nobody will run them."""
        self.parts = [part for part in self.parts if not (isinstance(part, ToolCall) and part.state == "preparing")]


def is_own(event: Flat) -> bool:
    """Of the conversation's own agent."""
    return not event.get("source")


def text_block(event: Flat) -> Text:
    return Text(event["block_id"], event.get("text") or "", open=event["type"] == "TEXT_BLOCK_START")


def user_message(event: Flat, siblings: Siblings | None = None) -> UserMessage:
    attachments = [
        Attachment(event.get("session_id") or "", a["path"], a.get("name") or a["path"], a.get("size") or 0,
                   a.get("media_type") or "")
        for a in event.get("attachments") or ()
    ]  # fmt: skip
    steered = event["state"] == "steered"
    return UserMessage(event["message_id"], event.get("text") or "", steered, moment(event), attachments, siblings)


def reply(event: Flat, siblings: Siblings | None = None) -> Reply:
    """As it begins with this event."""
    whose = event.get("conversation_id") or ""
    # A delta names no agent; the last part of its source is its name.
    agent = (event.get("source") or "").rpartition("/")[2]
    key = event.get("reply_id") or ""
    return Reply(key, conversation_id=whose, began=moment(event), siblings=siblings, agent=agent)


def end(ending: Reply, event: Flat) -> Reply:
    """`ending` as AGENT_END leaves it. One that failed has its own way to try again."""
    ending.over = event.get("reason") not in RESTS
    ending.last = event.get("reason") != "FAILED"
    ending.ended = moment(event)
    return ending


def thinking_block(event: Flat, began: datetime | None = None) -> Thinking:
    """From its START, or from its END with the time of its START."""
    block = Thinking(event["block_id"], event.get("text") or "", open=event["type"] == "THINKING_BLOCK_START")
    block.began = moment(event) if block.open else began
    block.took = None if block.open else between(began, event)
    return block


def between(began: datetime | None, event: Flat) -> timedelta | None:
    ended = moment(event)
    return ended - began if ended and began else None


def new_call(event: Flat) -> ToolCall:
    name, conversation_id = event.get("tool_name") or "", event.get("conversation_id") or ""
    return ToolCall(event["tool_call_id"], name, conversation_id=conversation_id)


def tool_call(event: Flat) -> ToolCall:
    """From TOOL_CALL_START, or from TOOL_CALL_END with its arguments."""
    call = new_call(event)
    if event["type"] == "TOOL_CALL_END":
        args = event.get("args")
        call.state = "ready"
        call.args = args_text(args, event.get("args_text") or "")
        call.brief = _brief(args)
    return call


def args_text(args: Any, unparsed: str) -> str:
    """Arguments as a person reads them; what did not parse as it came."""
    return json.dumps(args, indent=2, ensure_ascii=False) if args is not None else unparsed


def _brief(args: Any) -> str:
    """The first short value, which nearly always says what the call is about."""
    values = args.values() if isinstance(args, dict) else ()
    text = next((str(value) for value in values if isinstance(value, str | int | float) and str(value)), "")
    line = text.splitlines()[0] if text.strip() else ""
    return line if len(line) <= BRIEF_MAX else line[: BRIEF_MAX - 1] + "…"


def tool_result(call: ToolCall, event: Flat) -> ToolCall:
    """`call` as TOOL_RESULT_START or TOOL_RESULT_END leaves it."""
    if event["type"] == "TOOL_RESULT_START":
        call.state, call.began = "running", moment(event)
    else:
        call.took = between(call.began, event)
        output = event.get("output")
        call.state = event.get("state") or "success"
        call.output = output if isinstance(output, str) else json.dumps(output, indent=2, ensure_ascii=False)
        call.truncated = bool(event.get("truncated"))
    return call


def moment(event: Flat) -> datetime | None:
    """When it happened: a row has the time itself, a frame its text."""
    value = event.get("created_at")
    return datetime.fromisoformat(value) if isinstance(value, str) else value


def stopped_note(event: Flat) -> Note:
    """One for a reply, whichever event tells of the stop first."""
    return Note(f"{event.get('reply_id')}-stopped", _("stopped by you"))


def retry_note(event: Flat) -> Note:
    if event.get("reason") == "restarted":
        return Note(event["id"], _("The server was restarted; going on."))
    return Note(event["id"], _("The model's answer broke off; trying again (attempt %s).") % event.get("attempt", ""))


def limit_note(event: Flat) -> Note:
    return Note(
        event["id"], _("Reached the limit of %s steps; finishing without more tools.") % event.get("max_iters", "")
    )


def custom_note(event: Flat) -> Note | None:
    """Names that say nothing to a person have none."""
    if event.get("name") == "cut_off":
        return Note(event["id"], _("The answer hit the model's length limit."))
    return None


def waits(event: Flat) -> bool:
    """The turn has no free slot yet."""
    return event["type"] == "CUSTOM" and event.get("name") == "queued"


def failure(event: Flat) -> Failure:
    code, detail = event.get("code") or "", event.get("detail") or ""
    line = str(FAILURES[code]) if code in FAILURES else detail or _("The reason is not known.")
    more = detail if code in TELLING else ""
    return Failure(event["id"], event.get("error_id") or event["id"], code, line, more)
