"""The rows: sessions, their messages, tool calls, inbox and event ledger; accounts' tokens and links."""

from __future__ import annotations

from typing import Any

from django.conf import settings
from django.db import models
from django.db.models import F, Q

from chatapp.runtime.ids import new_id
from chatapp.runtime.policy import HARD_CAP


class SessionQuerySet(models.QuerySet["Session"]):
    def conversations_of(self, user: Any) -> SessionQuerySet:
        """Root sessions this user may see, pinned first, then by newest activity."""
        return self.filter(owner=user, parent=None, deleted_at=None).order_by("-pinned", "-updated_at", "-id")


class Session(models.Model):
    """One agent's ledger. A root session (no parent) is a conversation."""

    class Status(models.TextChoices):
        IDLE = "idle"
        QUEUED = "queued"
        RUNNING = "running"
        WAITING = "waiting"
        FAILED = "failed"

    class Lane(models.TextChoices):
        INTERACTIVE = "interactive"
        BACKGROUND = "background"

    id = models.CharField(primary_key=True, max_length=32, default=new_id, editable=False)
    owner = models.ForeignKey(settings.AUTH_USER_MODEL, models.CASCADE, related_name="sessions")
    root = models.ForeignKey("self", models.CASCADE, related_name="tree")
    parent = models.ForeignKey("self", models.CASCADE, null=True, blank=True, related_name="children")
    agent_id = models.CharField(max_length=64)
    declaration = models.JSONField(default=dict)
    label = models.CharField(max_length=200, blank=True)
    label_key = models.CharField(max_length=300, blank=True, help_text="The label in small letters; once a tree.")
    reuse_key = models.CharField(max_length=64, blank=True, help_text="Of a child that its caller goes on with.")
    call = models.ForeignKey(
        "ToolCall", models.SET_NULL, null=True, blank=True, related_name="+", help_text="That spawned it."
    )
    workspace = models.CharField(max_length=300, blank=True, help_text="Its folder below the conversation's.")
    source = models.CharField(max_length=500, blank=True, help_text="Empty for the conversation's own agent.")
    depth = models.PositiveSmallIntegerField(default=0)
    depth_limit = models.PositiveSmallIntegerField(default=HARD_CAP, help_text="What its callers allow below.")
    title = models.CharField(max_length=200, blank=True)
    model = models.CharField(max_length=200, blank=True)
    permission_mode = models.CharField(max_length=20, default="default")
    plan_mode = models.BooleanField(default=False)
    wake = models.BooleanField(default=True)
    branch = models.PositiveIntegerField(default=0, help_text="The one that goes on.")
    newest_branch = models.PositiveIntegerField(default=0)
    pinned = models.BooleanField(default=False)
    archived = models.BooleanField(default=False)

    # Where the turn stands.
    status = models.CharField(max_length=10, choices=Status.choices, default=Status.IDLE)
    waiting_for = models.CharField(max_length=10, blank=True)
    reply_id = models.CharField(max_length=32, blank=True, help_text="The reply that is open, empty at rest.")
    step = models.PositiveIntegerField(default=0, help_text="Model requests answered in this reply.")
    stretch_open = models.BooleanField(default=False, help_text="An AGENT_START without its AGENT_END.")
    model_call_open = models.BooleanField(default=False, help_text="A MODEL_CALL_START without its MODEL_CALL_END.")
    stretch_usage = models.JSONField(default=dict, help_text="Usage since the last AGENT_START.")
    stop = models.CharField(max_length=10, blank=True, help_text="The scope of a stop that its host has not seen yet.")
    queue_held = models.BooleanField(default=False, help_text="A wide stop: the queue waits for the next message.")
    error = models.JSONField(null=True, blank=True, help_text="code, detail, id, retryable of the last failure.")

    # Who works on it. `wake_at` is the doorbell of record, `generation` fences a host that came back late.
    lane = models.CharField(max_length=12, choices=Lane.choices, default=Lane.INTERACTIVE)
    wake_at = models.DateTimeField(null=True, blank=True)
    lease_owner = models.CharField(max_length=32, blank=True)
    lease_until = models.DateTimeField(null=True, blank=True)
    generation = models.PositiveIntegerField(default=0)
    next_seq = models.PositiveBigIntegerField(default=1, help_text="Of a root: the next event's number.")
    log_version = models.PositiveIntegerField(default=0)
    news_seq = models.PositiveBigIntegerField(default=0, help_text="Of the last reply's end.")
    read_seq = models.PositiveBigIntegerField(default=0, help_text="Up to here its owner has looked.")

    input_tokens = models.PositiveBigIntegerField(default=0)
    output_tokens = models.PositiveBigIntegerField(default=0)
    cached_tokens = models.PositiveBigIntegerField(default=0)
    requests = models.PositiveIntegerField(default=0)
    estimated = models.BooleanField(default=False)

    created_at = models.DateTimeField(auto_now_add=True)
    updated_at = models.DateTimeField()
    ended_at = models.DateTimeField(null=True, blank=True, help_text="When its last reply was over.")
    expires_at = models.DateTimeField(null=True, blank=True)
    deleted_at = models.DateTimeField(null=True, blank=True)

    objects = SessionQuerySet.as_manager()

    class Meta:
        indexes = [
            models.Index(fields=["owner", "parent", "-pinned", "-updated_at"], name="session_list"),
            models.Index(fields=["lane", "wake_at"], name="session_due", condition=Q(wake_at__isnull=False)),
            models.Index(fields=["lease_until"], name="session_leased", condition=Q(lease_until__isnull=False)),
        ]
        constraints = [
            models.UniqueConstraint(fields=["root", "label_key"], name="label_once", condition=~Q(label_key="")),
            models.UniqueConstraint(fields=["reuse_key"], name="reuse_once", condition=~Q(reuse_key="")),
        ]

    @property
    def last_seq(self) -> int:
        return self.next_seq - 1

    @property
    def shown_status(self) -> str:
        """For people it is at work while it waits for its subagents."""
        return self.Status.RUNNING.value if self.waiting_for == "child" else self.status

    @property
    def folder(self) -> str:
        """Of its files, below all workspaces."""
        return f"{self.root_id}/{self.workspace}" if self.workspace else self.root_id

    @property
    def agent_key(self) -> str:
        """How agents name it to one another."""
        return f"agent:{self.agent_id}:{self.pk}"

    @property
    def unread(self) -> bool:
        return self.news_seq > self.read_seq


class Branch(models.Model):
    """A session's other way on from a past message. It shares what its parent branch held before `position` among the
    messages and `seq` among the events; branch 0 has no row."""

    session = models.ForeignKey(Session, models.CASCADE, related_name="branches")
    number = models.PositiveIntegerField()
    parent = models.PositiveIntegerField(help_text="Number of the branch it left.")
    position = models.PositiveIntegerField(help_text="The first message it does not share.")
    seq = models.PositiveBigIntegerField(help_text="The first event it does not share.")
    created_at = models.DateTimeField()

    class Meta:
        ordering = ["number"]
        constraints = [models.UniqueConstraint(fields=["session", "number"], name="branch_number")]


class Message(models.Model):
    """One model message as the library's JSON, with what we must be able to find without parsing it."""

    id = models.CharField(primary_key=True, max_length=32, default=new_id, editable=False)
    session = models.ForeignKey(Session, models.CASCADE, related_name="messages")
    position = models.PositiveIntegerField(help_text="Order within the session.")
    role = models.CharField(max_length=10, help_text="user, assistant or tool")
    sender = models.CharField(max_length=10, help_text="user, agent, reminder or summary")
    payload = models.JSONField()
    format = models.CharField(max_length=20, default="pydantic-ai/2")
    text = models.TextField(blank=True)
    reply_id = models.CharField(max_length=32, blank=True)
    step = models.PositiveIntegerField(default=0)
    seq = models.PositiveBigIntegerField(help_text="The event that told of it.")
    tokens = models.PositiveIntegerField(default=0)
    state = models.CharField(max_length=10, default="complete", help_text="complete or partial")
    synthetic = models.BooleanField(default=False)
    archived = models.BooleanField(default=False)
    branch = models.PositiveIntegerField(default=0)
    created_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        ordering = ["position"]
        constraints = [models.UniqueConstraint(fields=["session", "position"], name="message_position")]


class ToolCall(models.Model):
    """One call a model asked for. `id` is ours; the provider's id is unique within its step at best."""

    class Status(models.TextChoices):
        NEW = "new"
        STARTED = "started"
        CHILD = "child"
        DONE = "done"
        FAILED = "failed"
        DENIED = "denied"

    SETTLED = (Status.DONE, Status.FAILED, Status.DENIED)

    id = models.CharField(primary_key=True, max_length=32, editable=False)
    session = models.ForeignKey(Session, models.CASCADE, related_name="tool_calls")
    reply_id = models.CharField(max_length=32)
    step = models.PositiveIntegerField()
    index = models.PositiveSmallIntegerField()
    provider_call_id = models.CharField(max_length=200)
    name = models.CharField(max_length=200)
    args = models.JSONField(null=True, help_text="Null when what the model wrote did not parse.")
    args_text = models.TextField(blank=True)
    status = models.CharField(max_length=10, choices=Status.choices, default=Status.NEW)
    read_only = models.BooleanField(default=False)
    state = models.CharField(max_length=12, blank=True, help_text="success, error, interrupted or denied")
    result = models.TextField(blank=True, help_text="What the model is told.")
    truncated = models.BooleanField(default=False)
    joined = models.BooleanField(default=False, help_text="Its result stands in the transcript.")
    child = models.ForeignKey(
        Session, models.SET_NULL, null=True, blank=True, related_name="calls_to", help_text="Who answers it."
    )
    due_at = models.DateTimeField(null=True, help_text="Until then it stays open; set while its clock runs.")
    wait_left = models.FloatField(null=True, help_text="Seconds that are left while its clock stands.")
    started_at = models.DateTimeField(null=True)
    ended_at = models.DateTimeField(null=True)

    class Meta:
        ordering = ["step", "index"]
        constraints = [models.UniqueConstraint(fields=["session", "reply_id", "step", "index"], name="call_index")]
        indexes = [models.Index(fields=["session"], name="call_open", condition=Q(joined=False))]


class Event(models.Model):
    """The ledger: what happened in a conversation, numbered from 1 without gaps."""

    id = models.CharField(primary_key=True, max_length=32, default=new_id, editable=False)
    conversation = models.ForeignKey(Session, models.CASCADE, related_name="events")
    session = models.ForeignKey(Session, models.CASCADE, related_name="own_events")
    seq = models.PositiveBigIntegerField()
    type = models.CharField(max_length=30)
    source = models.CharField(max_length=500, blank=True)
    agent_id = models.CharField(max_length=64)
    reply_id = models.CharField(max_length=32, blank=True)
    branch = models.PositiveIntegerField(default=0)
    created_at = models.DateTimeField()
    metadata = models.JSONField(default=dict)
    data = models.JSONField(default=dict)

    class Meta:
        ordering = ["seq"]
        constraints = [models.UniqueConstraint(fields=["conversation", "seq"], name="event_seq")]
        indexes = [models.Index(fields=["session", "seq"], name="event_session")]


class InboxItem(models.Model):
    """Something that wants a session's attention, in order; a user's message lives here until a turn takes it."""

    class Kind(models.TextChoices):
        MESSAGE = "message"
        RETRY = "retry"
        ANSWER = "answer"

    class State(models.TextChoices):
        QUEUED = "queued"
        TAKEN = "taken"
        REMOVED = "removed"

    number = models.BigAutoField(primary_key=True)
    id = models.CharField(max_length=32, unique=True, default=new_id, editable=False)
    session = models.ForeignKey(Session, models.CASCADE, related_name="inbox")
    kind = models.CharField(max_length=10, choices=Kind.choices)
    state = models.CharField(max_length=10, choices=State.choices, default=State.QUEUED)
    announced = models.CharField(max_length=10, blank=True, help_text="State of its last USER_MESSAGE.")
    started = models.BooleanField(default=False, help_text="It found its session at rest: the answer said running.")
    author = models.CharField(max_length=10, default="user")
    user = models.ForeignKey(settings.AUTH_USER_MODEL, models.CASCADE, null=True, related_name="+")
    text = models.TextField(blank=True)
    mode = models.CharField(max_length=10, default="queue")
    overrides = models.JSONField(default=dict)
    attachments = models.JSONField(default=list, help_text="path, name, size, media_type of files in the workspace.")
    reply_to = models.ForeignKey(
        ToolCall, models.CASCADE, null=True, related_name="+", help_text="The call that it asks for, or answers."
    )
    reply_id = models.CharField(max_length=32, blank=True, help_text="The reply that took it.")
    outcome = models.CharField(max_length=12, blank=True, help_text="Of an answer: ok, error or cancelled.")
    client_id = models.CharField(max_length=200, null=True)  # noqa: DJ001 - null keeps it out of the constraint
    seq = models.PositiveBigIntegerField(default=0, help_text="Of its first USER_MESSAGE.")
    created_at = models.DateTimeField()

    class Meta:
        ordering = ["number"]
        constraints = [
            models.UniqueConstraint(fields=["user", "session", "client_id"], name="client_id_once"),
        ]
        indexes = [
            models.Index(fields=["session", "number"], name="inbox_open", condition=Q(state="queued")),
            models.Index(fields=["user", "created_at"], name="inbox_rate"),
        ]


class Feedback(models.Model):
    """What a person thinks of a reply."""

    class Value(models.TextChoices):
        UP = "up"
        DOWN = "down"

    session = models.ForeignKey(Session, models.CASCADE, related_name="feedback")
    reply_id = models.CharField(max_length=32)
    user = models.ForeignKey(settings.AUTH_USER_MODEL, models.CASCADE, related_name="+")
    value = models.CharField(max_length=4, choices=Value.choices)
    reasons = models.JSONField(default=list)
    comment = models.TextField(blank=True)
    created_at = models.DateTimeField(auto_now_add=True)
    updated_at = models.DateTimeField(auto_now=True)

    class Meta:
        constraints = [models.UniqueConstraint(fields=["session", "reply_id", "user"], name="feedback_once")]


class UsageDay(models.Model):
    """Tokens one person's sessions used on one UTC day; the daily cap reads it."""

    user = models.ForeignKey(settings.AUTH_USER_MODEL, models.CASCADE, related_name="+")
    day = models.DateField()
    tokens = models.PositiveBigIntegerField(default=0)

    class Meta:
        constraints = [models.UniqueConstraint(fields=["user", "day"], name="usage_day_once")]

    @classmethod
    def add(cls, user_id: int, day: Any, tokens: int) -> None:
        """Only under the conversation's lock or for one user at a time: creation may race, the sum may not."""
        row, _ = cls.objects.get_or_create(user_id=user_id, day=day)
        cls.objects.filter(pk=row.pk).update(tokens=F("tokens") + tokens)


class ApiToken(models.Model):
    """A bearer token: 256 bits, kept as SHA-256 only."""

    SCOPES = ("read", "chat", "approve")

    user = models.ForeignKey(settings.AUTH_USER_MODEL, models.CASCADE, related_name="api_tokens")
    name = models.CharField(max_length=100)
    prefix = models.CharField(max_length=12)
    digest = models.CharField(max_length=64, unique=True)
    scopes = models.JSONField(default=list)
    created_at = models.DateTimeField(auto_now_add=True)
    last_used_at = models.DateTimeField(null=True, blank=True)
    expires_at = models.DateTimeField(null=True, blank=True)


class LoginLink(models.Model):
    """A one-time login link: 256 bits, kept as SHA-256 only; the first use wins."""

    user = models.ForeignKey(settings.AUTH_USER_MODEL, models.CASCADE, related_name="+")
    digest = models.CharField(max_length=64, unique=True)
    expires_at = models.DateTimeField()
    used_at = models.DateTimeField(null=True, blank=True)
