"""A call to a subagent begins: admission, the child's session, its first message, and the call stays open."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from django.conf import settings

from chatapp.models import InboxItem, Session, ToolCall
from chatapp.runtime.declarations import CHILD_STEPS, GENERAL_PURPOSE, SubagentDeclaration
from chatapp.runtime.delegation import Delegation, Listed, Spawn, worded
from chatapp.runtime.errors import LeaseLost
from chatapp.runtime.events import EventType
from chatapp.runtime.ids import new_id
from chatapp.runtime.policy import HARD_CAP, admit, depth_limit
from chatapp.runtime.ports import Delegated, Hold
from chatapp.store.calls import about_child, announce_message, end_handoff, ring, settle_call, start_handoff
from chatapp.store.turns import BUSY, follow
from chatapp.store.writer import Writer, Written, held

# A child has its declaration's mode; of its parent's only what does not loosen anything.
INHERITED = ("default", "explore", "dont_ask")


@dataclass
class _Call:
    """A call on its way in."""

    writer: Writer
    session: Session
    row: ToolCall
    agent: SubagentDeclaration

    def refuse(self, state: str, error: str, child: Session | None = None) -> None:
        status = "denied" if state == "denied" else "error"
        named = (child.agent_key, child.agent_id, child.pk) if child else ()
        self.settle(state, worded(status, *named, error=error))

    def settle(self, state: str, text: str) -> None:
        settle_call(self.writer, self.session, self.row, state, text, truncated=False)


def delegate(hold: Hold, call_id: str, wish: Delegation) -> Written[Delegated]:
    """Open the call, or settle it with the reason why not. `child_id` of the answer is whom it waits for."""
    with held(hold) as (writer, session):
        row = session.tool_calls.get(pk=call_id)
        if row.status != ToolCall.Status.NEW:
            raise LeaseLost("This call was begun or settled elsewhere.")
        row.started_at = writer.now
        row.save(update_fields=["started_at"])
        writer.event(session, EventType.TOOL_RESULT_START, tool_call_id=row.pk, tool_name=row.name)
        agent = SubagentDeclaration.from_snapshot(session.declaration)
        call = _Call(writer, session, row, agent)
        child = _spawn(call, wish) if isinstance(wish, Spawn) else _send(call, wish.agent_key, wish.label)
        if child is not None:
            text = wish.task if isinstance(wish, Spawn) else wish.message
            _ask(call, child, text, wish.wait)
        open_ = session.tool_calls.filter(joined=False).exclude(status__in=ToolCall.SETTLED).exists()
        following = None if open_ else follow(writer, session)
    return writer.written(Delegated(following, child.pk if child else ""))


def _spawn(call: _Call, wish: Spawn) -> Session | None:
    """The child to ask, linked before its first request; None when the call is settled already."""
    session, declaration = call.session, wish.declaration
    depth, mode = session.depth + 1, "reuse" if declaration.reuses_session else "new"
    about = {"subagent": declaration.agent_id, "depth": depth, "session_mode": mode}
    start_handoff(call.writer, session, call.row, about)
    limit = min(session.depth_limit, depth_limit([call.agent.handoff]))
    if reason := admit(call.agent.handoff, declaration.handoff_name, depth, limit):
        _deny(call, reason, about)
        return None
    key = _reuse_key(session, declaration, wish.label) if declaration.reuses_session else ""
    known = Session.objects.filter(root=session.root, reuse_key=key).first() if key else None
    problem = _label_problem(session, wish.label, known) or _too_many(session)
    if problem:
        end_handoff(call.writer, session, call.row, "failed", error=problem, about=about, attempts=0)
        call.refuse("error", problem)
        return None
    child = call.writer.session(known.pk) if known else _create(call, declaration, wish.label, key, depth, limit)
    if wish.task:
        return child
    end_handoff(call.writer, session, call.row, "completed", about=about_child(child), attempts=0)
    status = "accepted (reused)" if known else "accepted"
    call.settle("success", worded(status, child.agent_key, child.agent_id, child.pk))
    return None


def _deny(call: _Call, reason: str, about: dict[str, Any], child: Session | None = None) -> None:
    end_handoff(call.writer, call.session, call.row, "failed", error=reason, about=about, attempts=0)
    call.refuse("denied", reason, child)


def _send(call: _Call, agent_key: str, label: str) -> Session | None:
    child = _below(call, agent_key, label)
    if child is None:
        named = f"label {label!r}" if label else f"key {agent_key[:200]!r}"
        call.refuse("error", f"You have no subagent with the {named}. `agent_list` names those you have.")
        return None
    about = about_child(child)
    start_handoff(call.writer, call.session, call.row, about)
    name = SubagentDeclaration.from_snapshot(child.declaration).handoff_name
    if reason := admit(call.agent.handoff, name, child.depth, HARD_CAP):
        _deny(call, reason, about, child)
        return None
    return child


def _below(call: _Call, agent_key: str, label: str) -> Session | None:
    """A subagent is addressed by whoever is above it in the tree, and by nobody else."""
    tree = Session.objects.filter(root=call.session.root).exclude(parent=None)
    named = tree.filter(label_key=label.casefold()) if label else tree.filter(pk=agent_key.rpartition(":")[2])
    found = named.first()
    if found is None or (agent_key and found.agent_key != agent_key):
        return None
    above = found.parent
    while above is not None and above.pk != call.session.pk:
        above = above.parent
    return call.writer.session(found.pk) if above is not None else None


def _label_problem(session: Session, label: str, known: Session | None) -> str:
    if not label:
        return ""
    used = Session.objects.filter(root=session.root, label_key=label.casefold()).first()
    if used is None or (known is not None and used.pk == known.pk):
        return ""
    return f"The label {label!r} is used in this conversation already. Choose another one, or `agent_send` to it."


def _too_many(session: Session) -> str:
    limit: int = settings.BRANCHLINE_SPAWNS_PER_TURN
    made = Session.objects.filter(parent=session, call__reply_id=session.reply_id).count()
    return f"More than {limit} subagents in one turn. Go on with those you have." if made >= limit else ""


def _reuse_key(session: Session, declaration: SubagentDeclaration, label: str) -> str:
    return _digest(str(session.owner_id), session.pk, declaration.agent_id, label.casefold())


def _digest(*parts: str) -> str:
    """Each part with its length before it: no two lists of parts are one text."""
    return hashlib.sha256("".join(f"{len(part)}:{part}" for part in parts).encode()).hexdigest()


def _create(
    call: _Call, declaration: SubagentDeclaration, label: str, reuse_key: str, depth: int, limit: int
) -> Session:
    parent, agent = call.session, resolved(declaration, call.agent)
    bucket = _digest(parent.pk, str(parent.owner_id))[:16]
    own = f"agents/{agent.agent_id}/{bucket}"
    inherited = parent.permission_mode if parent.permission_mode in INHERITED else "default"
    child = Session(
        id=new_id(), owner_id=parent.owner_id, root=call.writer.root, parent=parent, call=call.row,
        agent_id=agent.agent_id, declaration=agent.snapshot(), label=label, label_key=label.casefold(),
        reuse_key=reuse_key, source=f"{parent.source or 'main'}/{agent.agent_id}", depth=depth, depth_limit=limit,
        model=declaration.model or parent.model or call.agent.model, lane=parent.lane,
        permission_mode=declaration.permission_mode or inherited, updated_at=call.writer.now,
        workspace=parent.workspace if declaration.workspace.mode == "shared" else own,
    )  # fmt: skip
    child.save(force_insert=True)
    call.writer.add(child)
    return child


def resolved(declaration: SubagentDeclaration, parent: SubagentDeclaration) -> SubagentDeclaration:
    """As a child of this parent: what it leaves out is the parent's, and no tool is its that the parent has not."""
    own, theirs = declaration.tools, parent.tools
    tools = own if theirs is None else theirs if own is None else tuple(name for name in own if name in theirs)
    steps = declaration.steps or (parent.steps if declaration.agent_id == GENERAL_PURPOSE else None) or CHILD_STEPS
    return declaration.model_copy(
        update={
            "tools": tools,
            "steps": steps,
            "temperature": declaration.temperature if declaration.temperature is not None else parent.temperature,
            "top_p": declaration.top_p if declaration.top_p is not None else parent.top_p,
        }
    )


def _ask(call: _Call, child: Session, text: str, wait: float) -> None:
    """The task lies in the child's inbox and says which call it answers."""
    busy = child.status in BUSY or child.inbox.filter(state=InboxItem.State.QUEUED).exists()
    item = InboxItem(
        id=new_id(), session=child, kind=InboxItem.Kind.MESSAGE, author="agent", text=text, reply_to=call.row,
        started=not busy, created_at=call.writer.now,
    )  # fmt: skip
    announce_message(call.writer, child, item, "queued" if busy else "running")
    item.save()
    call.row.status, call.row.child = ToolCall.Status.CHILD, child
    call.row.due_at = call.writer.now + timedelta(seconds=wait)
    call.row.save(update_fields=["status", "child", "due_at"])
    if child.status not in BUSY:
        call.writer.set(child, status=Session.Status.RUNNING)
    call.writer.set(child, queue_held=False)
    ring(call.writer, child)


def subagents(session_id: str) -> list[Listed]:
    """All that are below a session in its tree, in the order in which they were made."""
    root_id = Session.objects.values_list("root_id", flat=True).get(pk=session_id)
    rows = list(Session.objects.filter(root_id=root_id).exclude(parent=None).order_by("created_at", "id"))
    below = {session_id}
    found = []
    for row in rows:
        if row.parent_id in below:
            below.add(row.pk)
            found.append(Listed(row.agent_key, row.agent_id, row.label, row.depth, row.status))
    return found
