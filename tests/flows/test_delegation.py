"""Handing work on: sessions of subagents, what is told of them and in which order, and every way it can end."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from chatapp import agents
from chatapp.models import InboxItem, Message, Session, ToolCall
from chatapp.runtime.errors import ProviderError
from chatapp.store import db, deletion
from gateway import commands
from tests.fakes import Call, Gate
from tests.flows.conftest import Server, eventually
from tests.flows.test_turns import echo, tool

BROKEN = ProviderError("No key.", code="no_key", retryable=False)


def declare(folder: Path, name: str, **keys: Any) -> None:
    front = {"description": f"The {name}.", **keys}
    lines = "\n".join(f"{key}: {json.dumps(value)}" for key, value in front.items())
    (folder / f"{name}.md").write_text(f"---\n{lines}\n---\nYou are the {name}.\n")


@pytest.fixture(autouse=True)
def folder(settings: Any, tmp_path: Path) -> Iterator[Path]:
    settings.SUBAGENTS_DIR = tmp_path
    agents.registry.cache_clear()
    declare(tmp_path, "helper", mode="subagent")
    declare(tmp_path, "other", mode="subagent", tools=["list_files", "agent_spawn"])
    yield tmp_path
    agents.registry.cache_clear()


@pytest.fixture
def deep(folder: Path, conversation: Session) -> Session:
    """A conversation whose agent lets its subagents hand on work too."""
    declare(folder, "nested", mode="subagent", handoff={"max_depth": 3})
    policy = {"handoff": {"max_depth": 3}}
    Session.objects.filter(pk=conversation.pk).update(declaration={**conversation.declaration, **policy})
    return conversation


def spawn(task: str = "Do it", agent_id: str = "helper", **more: Any) -> Call:
    return Call("agent_spawn", json.dumps({"agent_id": agent_id, "task": task, **more}))


def send(message: str, **more: Any) -> Call:
    return Call("agent_send", json.dumps({"message": message, **more}))


async def children(session: Session) -> list[Session]:
    rows = Session.objects.filter(root=session).exclude(parent=None).order_by("created_at")
    return await db.run(lambda: list(rows))


async def results(server: Server, session: Session) -> list[dict[str, Any]]:
    return [e for e in await server.events(session) if e["type"] == "TOOL_RESULT_END" and e["source"] is None]


async def transcript(session: Session) -> list[tuple[str, str]]:
    rows = Message.objects.filter(session=session).order_by("position")
    return await db.run(lambda: list(rows.values_list("role", "text")))


async def test_a_childs_events_lie_inside_its_parents_call(server: Server, conversation: Session) -> None:
    server.models.then("I ask.", spawn()).then("It says four.").asked("Do it", ["Four."])
    await server.send(conversation, "How many?")
    await server.rest(conversation)
    events = await server.events(conversation)
    [child] = await children(conversation)
    own = [e["type"] for e in events if e["session_id"] == conversation.pk]
    assert own[own.index("TOOL_RESULT_START") :][:4] == [
        "TOOL_RESULT_START", "HANDOFF_START", "HANDOFF_END", "TOOL_RESULT_END",
    ]  # fmt: skip
    assert own.count("AGENT_START") == 1
    theirs = [e for e in events if e["session_id"] == child.pk]
    assert [e["type"] for e in theirs] == [
        "USER_MESSAGE", "AGENT_START", "MODEL_CALL_START", "TEXT_BLOCK_START", "TEXT_BLOCK_END", "MODEL_CALL_END",
        "AGENT_END",
    ]  # fmt: skip
    call = next(e for e in events if e["type"] == "HANDOFF_START")
    begin, end = (next(e["seq"] for e in events if e["type"] == f"HANDOFF_{kind}") for kind in ("START", "END"))
    for event in theirs:
        assert begin < event["seq"] < end
        assert (event["source"], event["agent_id"]) == ("main/helper", "helper")
        assert event["metadata"] == {"parentSessionId": conversation.pk, "toolCallId": call["call_id"]}
    assert (theirs[0]["author"], theirs[1]["trigger"]) == ("agent", "agent")
    assert (call["subagent"], call["tool"], call["depth"], call["session_mode"]) == ("helper", "agent_spawn", 1, "new")
    last = next(e for e in events if e["type"] == "HANDOFF_END")
    assert (last["status"], last["attempts"], last["output"], last["error"]) == ("completed", 1, "Four.", None)
    [result] = await results(server, conversation)
    assert result["output"].splitlines() == [
        f"agent_key: agent:helper:{child.pk}", "agent_id: helper", f"session_id: {child.pk}", "status: ok", "reply:",
        "Four.",
    ]  # fmt: skip


async def test_each_session_sees_its_own_messages_only(server: Server, conversation: Session) -> None:
    server.models.then("My secret.", spawn("Count the words")).then("Three.")
    server.models.asked("Count the words", ["I look.", Call("list_files")], ["Three."])
    await server.send(conversation, "How many?")
    await server.rest(conversation)
    first, second = server.models.of("Count the words")
    assert first.texts == ["Count the words"]
    assert "My secret." not in " ".join(second.texts)
    assert "I look." in second.texts
    handed = " ".join(server.models.of("How many?")[1].texts)
    assert "Three." in handed
    assert "I look." not in handed


async def test_a_child_is_its_parents_owners_and_costs_its_conversation(server: Server, conversation: Session) -> None:
    server.models.then(spawn("Do it")).then("Done.")
    await server.send(conversation, "Go")
    await server.rest(conversation)
    [child] = await children(conversation)
    assert (child.owner_id, child.root_id, child.parent_id) == (conversation.owner_id, conversation.pk, conversation.pk)
    assert (child.depth, child.source, child.status, child.requests) == (1, "main/helper", "idle", 1)
    assert child.ended_at is not None
    asked_by = await db.run(ToolCall.objects.get, pk=child.call_id)
    assert asked_by.child_id == child.pk
    assert asked_by.due_at is None


async def test_a_leaf_has_nothing_to_hand_on_with(server: Server, conversation: Session) -> None:
    server.models.then(spawn("Do it", "other")).then("Done.").asked("Do it", [spawn("More")], ["I cannot."])
    await server.send(conversation, "Go")
    await server.rest(conversation)
    parent, child = server.models.requests[0], server.models.of("Do it")[0]
    assert {"agent_spawn", "agent_send", "agent_list", "read_file"} <= set(parent.tools)
    assert child.tools == ["list_files"]
    assert "`helper`: The helper." in parent.instructions
    assert "`main`" not in parent.instructions
    assert "You are a subagent" in child.instructions
    assert "## Subagents" not in child.instructions
    assert len(await children(conversation)) == 1
    refused = [e for e in await server.events(conversation) if e["type"] == "TOOL_RESULT_END" and e["source"]]
    assert [(e["state"], e["output"]) for e in refused] == [("error", "There is no tool named 'agent_spawn'.")]


@pytest.mark.parametrize("parallel", [8, 1, 2])
async def test_results_come_as_they_are_done_and_join_in_the_order_of_the_calls(
    server: Server, conversation: Session, parallel: int
) -> None:
    server.set(parallel_tools=parallel)
    server.offer(tool("echo", echo))
    first = Gate()
    server.models.then(spawn("one"), spawn("two"), Call("echo"), spawn("three", "nobody")).then("Done.")
    server.models.asked("one", [first, "1"]).asked("two", ["2"])
    await server.send(conversation, "Go")
    await asyncio.wait_for(first.reached.wait(), 10)
    if parallel > 1:
        await server.until(conversation, "TOOL_RESULT_END", 3)
    first.opened.set()
    await server.rest(conversation)
    ended = [e["output"].splitlines()[-1] for e in await results(server, conversation)]
    if parallel == 1:
        assert ended == ["1", "2", "echoed", "error: There is no agent 'nobody'."]
    else:
        assert ended[-1] == "1"
    joined = (await transcript(conversation))[2][1]
    places = [joined.index(text) for text in ("reply:\n1", "reply:\n2", "echoed", "nobody")]
    assert places == sorted(places)


async def test_one_that_fails_or_is_refused_breaks_neither_parent_nor_siblings(
    server: Server, conversation: Session
) -> None:
    server.models.then(spawn("good"), spawn("bad"), spawn("x", "main"), spawn("y", "")).then("Still here.")
    server.models.asked("good", ["Fine."]).asked("bad", [BROKEN])
    await server.send(conversation, "Go")
    row = await server.rest(conversation)
    assert row.status == "idle"
    ended = {e["output"].splitlines()[-1]: e["state"] for e in await results(server, conversation)}
    assert ended == {
        "Fine.": "success", "error: No key.": "error", "error: There is no agent ''.": "error",
        "error: 'main' is PRIMARY-only: it answers conversations and cannot be spawned.": "error",
    }  # fmt: skip
    handoffs = [e["status"] for e in await server.events(conversation) if e["type"] == "HANDOFF_END"]
    # What names nobody is no handoff.
    assert sorted(handoffs) == ["completed", "failed"]
    assert (await transcript(conversation))[-1] == ("assistant", "Still here.")


async def test_a_denied_handoff_opens_and_closes_and_starts_nobody(
    server: Server, conversation: Session, folder: Path
) -> None:
    policy = {"handoff": {"denied_tools": ["subagent_helper"]}}
    declaration = {**conversation.declaration, **policy}
    await db.run(lambda: Session.objects.filter(pk=conversation.pk).update(declaration=declaration))
    server.models.then(spawn()).then("So be it.")
    await server.send(conversation, "Go")
    await server.rest(conversation)
    assert await children(conversation) == []
    start, end = (e for e in await server.events(conversation) if e["type"].startswith("HANDOFF"))
    assert start["status"] == "starting"
    assert (end["status"], end["attempts"], end["error"]) == ("failed", 0, "tool is in deniedTools")
    [result] = await results(server, conversation)
    assert (result["state"], result["output"]) == ("denied", "status: denied\nerror: tool is in deniedTools")
    assert "`helper`" not in server.models.requests[0].instructions
    assert "`other`" in server.models.requests[0].instructions


async def test_depth_counts_on_rows_so_parallel_nested_calls_cannot_exceed_it(server: Server, deep: Session) -> None:
    server.models.then(spawn("a", "nested")).then("Done.")
    server.models.asked("a", [spawn("b", "nested"), spawn("c", "nested")], ["A."])
    server.models.asked("b", [spawn("d", "nested"), spawn("e", "nested")], ["B."])
    server.models.asked("c", ["C."]).asked("d", [spawn("f", "nested"), spawn("g", "nested")], ["D."])
    server.models.asked("e", ["E."])
    await server.send(deep, "Go")
    await server.rest(deep, 20)
    found = {child.depth for child in await children(deep)}
    assert found == {1, 2, 3}
    assert len(await children(deep)) == 5
    nested = "main/nested/nested/nested"
    assert nested in {e["source"] for e in await server.events(deep)}
    refused = [e for e in await server.events(deep) if e["type"] == "TOOL_RESULT_END" and e["source"] == nested]
    # At the third level it is a leaf: the tool is not there.
    assert [e["output"] for e in refused] == ["There is no tool named 'agent_spawn'."] * 2


async def test_the_smallest_depth_above_counts(server: Server, deep: Session, folder: Path) -> None:
    declare(folder, "shallow", mode="subagent", handoff={"max_depth": 2})
    server.models.then(spawn("a", "shallow")).then("Done.")
    server.models.asked("a", [spawn("b", "nested")], ["A."]).asked("b", [spawn("c", "nested")], ["B."])
    await server.send(deep, "Go")
    await server.rest(deep)
    assert [child.depth for child in await children(deep)] == [1, 2]


async def test_a_label_is_there_once_in_a_conversation(server: Server, conversation: Session) -> None:
    server.models.then(spawn("one", label=" Scout "), spawn("two", label="scout")).then("Done.")
    server.set(parallel_tools=1)
    await server.send(conversation, "Go")
    await server.rest(conversation)
    [child] = await children(conversation)
    assert child.label == "Scout"
    taken = (await results(server, conversation))[1]
    assert taken["state"] == "error"
    assert "The label 'scout' is used" in taken["output"]
    ends = [e for e in await server.events(conversation) if e["type"] == "HANDOFF_END"]
    assert [(e["status"], e["attempts"]) for e in ends] == [("completed", 1), ("failed", 0)]


async def test_a_label_of_any_letters_is_taken(server: Server, conversation: Session) -> None:
    # In small letters each of these is three.
    server.models.then(spawn("one", label="\ufb03" * 100)).then("Done.")
    await server.send(conversation, "Go")
    await server.rest(conversation)
    [child] = await children(conversation)
    assert child.label_key == "ffi" * 100


async def test_a_message_to_a_finished_child_goes_on_with_its_history(server: Server, conversation: Session) -> None:
    server.models.then(spawn("Remember 7", label="memory")).then(send("Which?", label="MEMORY")).then("Seven.")
    server.models.asked("Remember 7", ["Noted."], ["7."])
    await server.send(conversation, "Go")
    await server.rest(conversation)
    [child] = await children(conversation)
    assert await transcript(child) == [
        ("user", "Remember 7"), ("assistant", "Noted."), ("user", "Which?"), ("assistant", "7."),
    ]  # fmt: skip
    assert (await results(server, conversation))[1]["output"].endswith("status: ok\nreply:\n7.")
    tools = [e["tool"] for e in await server.events(conversation) if e["type"] == "HANDOFF_START"]
    assert tools == ["agent_spawn", "agent_send"]


@pytest.mark.parametrize(
    ("args", "said"),
    [
        ({}, "by one of them"),
        ({"label": "a", "agent_key": "b"}, "by one of them"),
        ({"label": "nobody"}, "no subagent with the label 'nobody'"),
        ({"agent_key": "agent:helper:0"}, "no subagent with the key"),
        ({"label": "a", "message": "  "}, "blank"),
    ],
)
async def test_a_message_to_nobody_says_so(
    server: Server, conversation: Session, args: dict[str, Any], said: str
) -> None:
    server.models.then(send(**{"message": "Hello", **args})).then("Oh.")
    await server.send(conversation, "Go")
    await server.rest(conversation)
    [result] = await results(server, conversation)
    assert result["state"] == "error"
    assert said in result["output"]
    assert "HANDOFF_START" not in await server.types(conversation)


async def test_nobody_reaches_a_subagent_that_is_not_below(server: Server, conversation: Session, alice: Any) -> None:
    from chatapp.store.conversations import create_conversation

    server.models.then(spawn("one", label="mine")).then("Done.")
    await server.send(conversation, "Go")
    await server.rest(conversation)
    [child] = await children(conversation)
    elsewhere = await db.run(create_conversation, alice, model="scripted")
    server.models.then(send("Hi", label="mine"), send("Hi", agent_key=child.agent_key)).then("No.")
    await server.send(elsewhere, "Try")
    await server.rest(elsewhere)
    assert [e["state"] for e in await results(server, elsewhere)] == ["error", "error"]
    assert len(await transcript(child)) == 2


async def test_a_message_to_a_running_child_waits_its_turn(server: Server, conversation: Session) -> None:
    gate = Gate()
    server.models.then(spawn("slow", label="s")).then("Done.").asked("slow", [gate, "First."], ["Second."])
    await server.send(conversation, "Go")
    await asyncio.wait_for(gate.reached.wait(), 10)
    [child] = await children(conversation)
    posted = await commands.send_message(conversation.owner_id, child.pk, _draft("And this"))
    assert posted.state == "queued"
    gate.opened.set()
    await server.rest(conversation)
    await server.rest(child)
    # What the person asked is answered to the person, not to the parent.
    assert [e["output"].splitlines()[-1] for e in await results(server, conversation)] == ["First."]
    assert [text for _role, text in await transcript(child)] == ["slow", "First.", "And this", "Second."]


def _draft(text: str) -> Any:
    from chatapp.store.posts import Draft

    return Draft(text)


async def test_a_child_that_is_only_made_runs_nothing_and_can_be_asked_later(
    server: Server, conversation: Session
) -> None:
    server.models.then(spawn("", label="later")).then(send("Now", label="later")).then("Done.").asked("Now", ["Yes."])
    await server.send(conversation, "Go")
    await server.rest(conversation)
    made, asked = await results(server, conversation)
    assert made["output"].splitlines()[-1] == "status: accepted"
    assert asked["output"].splitlines()[-1] == "Yes."


async def test_a_kept_session_is_gone_on_with(server: Server, conversation: Session, folder: Path) -> None:
    declare(folder, "keeper", mode="subagent", session_mode="reuse")
    server.set(parallel_tools=1)
    calls = [spawn("one", "keeper"), spawn("two", "keeper"), spawn("", "keeper"), spawn("three", "keeper", label="b")]
    server.models.then(*calls).then("Done.").asked("one", ["1"], ["2"]).asked("three", ["3"])
    await server.send(conversation, "Go")
    await server.rest(conversation)
    first, second = await children(conversation)
    assert [text for _role, text in await transcript(first)] == ["one", "1", "two", "2"]
    assert second.label == "b"
    said = [e["output"].splitlines()[-1] for e in await results(server, conversation)]
    assert said == ["1", "2", "status: accepted (reused)", "3"]
    modes = {e["session_mode"] for e in await server.events(conversation) if e["type"] == "HANDOFF_START"}
    assert modes == {"reuse"}


async def test_two_first_calls_to_a_kept_session_make_one(server: Server, conversation: Session, folder: Path) -> None:
    declare(folder, "keeper", mode="subagent", persist_session=True)
    server.models.then(spawn("one", "keeper"), spawn("two", "keeper")).then("Done.")
    await server.send(conversation, "Go")
    await server.rest(conversation)
    assert len(await children(conversation)) == 1
    assert [e["state"] for e in await results(server, conversation)] == ["success", "success"]


async def test_a_wait_that_is_over_answers_timeout_and_stops_the_child(server: Server, conversation: Session) -> None:
    gate = Gate()
    server.models.then(spawn("slow", timeout_seconds=1)).then("Too slow.").asked("slow", ["begun", gate, "late"])
    await server.send(conversation, "Go")
    await server.rest(conversation)
    [child] = await children(conversation)
    await server.rest(child)
    [result] = await results(server, conversation)
    assert result["state"] == "error"
    assert "status: timeout" in result["output"]
    [end] = [e for e in await server.events(conversation) if e["type"] == "HANDOFF_END"]
    assert (end["status"], end["error"]) == ("failed", "timeout")
    assert 900 < end["duration_ms"] < 4000
    assert (await transcript(child))[-1] == ("assistant", "begun")
    open_ = InboxItem.objects.filter(session__root=conversation, state="queued")
    assert await db.run(open_.count) == 0


async def test_stopping_the_parent_stops_its_children(server: Server, deep: Session) -> None:
    gate = Gate()
    server.models.then(spawn("a", "nested")).asked("a", [spawn("b", "nested")]).asked("b", ["half", gate])
    await server.send(deep, "Go")
    await asyncio.wait_for(gate.reached.wait(), 10)
    stopped = await commands.stop(deep.owner_id, deep.pk, "reply")
    assert len(stopped.stopped) == 3
    for session in [deep, *await children(deep)]:
        row = await server.rest(session)
        assert row.status == "idle"
    ends = {e["source"]: e["reason"] for e in await server.events(deep) if e["type"] == "AGENT_END"}
    assert ends == dict.fromkeys([None, "main/nested", "main/nested/nested"], "INTERRUPTED")
    assert {e["status"] for e in await server.events(deep) if e["type"] == "HANDOFF_END"} == {"cancelled"}
    types = await server.types(deep)
    assert types.count("HANDOFF_START") == types.count("HANDOFF_END") == 2
    server.models.then("Back.")
    await server.send(deep, "Again")
    await server.rest(deep)
    assert (await transcript(deep))[-1] == ("assistant", "Back.")


async def test_stopping_a_child_tells_its_parent_and_leaves_its_siblings(server: Server, conversation: Session) -> None:
    gate = Gate()
    server.models.then(spawn("a"), spawn("b")).then("One was stopped.")
    server.models.asked("a", ["half", gate]).asked("b", ["B."])
    await server.send(conversation, "Go")
    await asyncio.wait_for(gate.reached.wait(), 10)
    await server.until(conversation, "HANDOFF_END")
    child = next(c for c in await children(conversation) if c.status == "running")
    await commands.stop(conversation.owner_id, conversation.pk, "reply", child.pk)
    await server.rest(conversation)
    said = {e["state"]: e["output"] for e in await results(server, conversation)}
    assert "status: cancelled" in said["interrupted"]
    assert said["success"].endswith("B.")
    assert (await transcript(conversation))[-1] == ("assistant", "One was stopped.")


async def test_with_lingering_off_the_transcripts_are_the_same(
    server: Server, conversation: Session, alice: Any
) -> None:
    from chatapp.store.conversations import create_conversation

    second = await db.run(create_conversation, alice, model="scripted")
    seen = []
    for session, lingers in ((conversation, True), (second, False)):
        server.set(lingers=lingers)
        server.models.then("I ask.", spawn("one"), spawn("two")).then("Both are back.")
        server.models.asked("one", ["1"]).asked("two", ["2"])
        await server.send(session, "Go")
        await server.rest(session)
        texts = [text for _role, text in await transcript(session)]
        for child in await children(session):
            texts = [text.replace(child.pk, "") for text in texts]
        seen.append(texts)
    assert seen[0] == seen[1]
    reasons = [e["reason"] for e in await server.events(second) if e["type"] == "AGENT_END" and e["source"] is None]
    assert reasons[-1] == "MODEL_STOP"
    assert set(reasons[:-1]) == {"WAITING"}
    triggers = [e["trigger"] for e in await server.events(second) if e["type"] == "AGENT_START" and e["source"] is None]
    assert triggers == ["user", *["resume"] * (len(triggers) - 1)]
    assert len(triggers) == len(reasons)


async def test_a_waiting_parent_holds_nothing_and_is_woken_by_the_answer(server: Server, conversation: Session) -> None:
    server.set(lingers=False)
    gate = Gate()
    server.models.then(spawn("slow", timeout_seconds=60)).then("Done.").asked("slow", [gate, "Late."])
    await server.send(conversation, "Go")
    await asyncio.wait_for(gate.reached.wait(), 10)

    async def waiting() -> Session | None:
        row = await db.run(Session.objects.get, pk=conversation.pk)
        return row if row.status == "waiting" else None

    row = await eventually(waiting)
    assert (row.waiting_for, row.lease_owner, row.lease_until) == ("child", "", None)
    assert row.wake_at is not None
    posted = await server.send(conversation, "Meanwhile")
    assert posted.state == "queued"
    gate.opened.set()
    server.models.then("And that.")
    await server.rest(conversation)
    said = [text for role, text in await transcript(conversation) if role == "assistant"]
    assert said[-2:] == ["Done.", "And that."]


async def test_a_stop_of_a_waiting_parent_is_settled_at_once(server: Server, conversation: Session) -> None:
    server.set(lingers=False)
    gate = Gate()
    server.models.then(spawn("slow")).asked("slow", [gate, "Late."])
    await server.send(conversation, "Go")
    await asyncio.wait_for(gate.reached.wait(), 10)

    async def waiting() -> bool | None:
        return (await db.run(Session.objects.get, pk=conversation.pk)).status == "waiting" or None

    await eventually(waiting)
    await commands.stop(conversation.owner_id, conversation.pk, "reply")
    row = await db.run(Session.objects.get, pk=conversation.pk)
    assert row.status == "idle"
    own = [e for e in await server.events(conversation) if e["source"] is None]
    assert [e["type"] for e in own[-4:]] == ["AGENT_START", "HANDOFF_END", "TOOL_RESULT_END", "AGENT_END"]
    assert own[-4]["trigger"] == "stop"
    [child] = await children(conversation)
    await server.rest(child)


async def test_it_lists_its_subagents(server: Server, conversation: Session) -> None:
    server.set(parallel_tools=1)
    server.models.then(Call("agent_list"), spawn("a", label="Scout"), spawn("b")).then(Call("agent_list")).then("So.")
    await server.send(conversation, "Go")
    await server.rest(conversation)
    listed = [e["output"] for e in await results(server, conversation) if e["tool_name"] == "agent_list"]
    assert listed[0] == "You have no subagents yet."
    one, two = await children(conversation)
    assert listed[1].splitlines() == [
        "You have 2 subagents:",
        f"- agent_key: {one.agent_key}  agent_id: helper  label: Scout  depth: 1  status: idle",
        f"- agent_key: {two.agent_key}  agent_id: helper  depth: 1  status: idle",
    ]


async def test_a_turn_makes_so_many_subagents_and_no_more(server: Server, conversation: Session, settings: Any) -> None:
    settings.BRANCHLINE_SPAWNS_PER_TURN = 2
    server.models.then(*[spawn(f"t{n}") for n in range(3)]).then("Two.")
    await server.send(conversation, "Go")
    await server.rest(conversation)
    assert len(await children(conversation)) == 2
    assert sum("More than 2 subagents" in e["output"] for e in await results(server, conversation)) == 1
    server.models.then(spawn("t3")).then("Again.")
    await server.send(conversation, "More")
    await server.rest(conversation)
    assert len(await children(conversation)) == 3


async def test_a_full_server_still_hosts_the_children_of_its_turns(server: Server, conversation: Session) -> None:
    engine = server.gateway.engine
    assert engine is not None
    engine.turns = 1
    server.models.then(spawn("a"), spawn("b")).then("Done.")
    await server.send(conversation, "Go")
    await server.rest(conversation)
    ends = [e["reason"] for e in await server.events(conversation) if e["type"] == "AGENT_END" and e["source"] is None]
    # It lingered: nobody had to make room.
    assert ends == ["MODEL_STOP"]


async def test_what_a_child_leaves_out_is_its_parents(server: Server, conversation: Session, folder: Path) -> None:
    declare(folder, "hot", mode="subagent", temperature=1.5, steps=3, model="scripted:2")
    declaration = {**conversation.declaration, "temperature": 0.5, "top_p": 0.9, "tools": ["list_files", "agent_spawn"]}
    await db.run(lambda: Session.objects.filter(pk=conversation.pk).update(declaration=declaration))
    server.models.then(spawn("a"), spawn("b", "hot"), spawn("c", "general-purpose")).then("Done.")
    await server.send(conversation, "Go")
    await server.rest(conversation)
    found = {c.agent_id: c for c in await children(conversation)}
    kept = {name: (c.declaration.get("temperature"), c.declaration["steps"], c.model) for name, c in found.items()}
    assert kept == {
        "helper": (0.5, 10, "scripted"), "hot": (1.5, 3, "scripted:2"),
        "general-purpose": (0.5, conversation.declaration["steps"], "scripted"),
    }  # fmt: skip
    assert {tuple(c.declaration["tools"]) for c in found.values()} == {("list_files", "agent_spawn")}
    assert {request.model for request in server.models.of("b")} == {"scripted:2"}
    assert found["general-purpose"].workspace == ""
    assert found["helper"].workspace.startswith("agents/helper/")


async def test_an_isolated_child_has_files_of_its_own_and_a_shared_one_its_parents(
    server: Server, conversation: Session, folder: Path, tmp_path: Path
) -> None:
    declare(folder, "sharing", mode="subagent", workspace={"mode": "shared"})
    server.set(workspaces=tmp_path / "workspaces")
    root = tmp_path / "workspaces" / conversation.pk
    await asyncio.to_thread(root.mkdir, parents=True)
    (root / "note.txt").write_text("the parent's")
    reads: list[list[Any]] = [[Call("read_file", '{"path": "note.txt"}')], ["Read."]]
    server.models.then(spawn("own"), spawn("theirs", "sharing"), spawn("own two")).then("Done.")
    server.models.asked("own", *reads).asked("theirs", *reads).asked("own two", *reads)
    await server.send(conversation, "Go")
    await server.rest(conversation)
    said = {e["source"]: e for e in await server.events(conversation) if e["type"] == "TOOL_RESULT_END"}
    assert said["main/sharing"]["output"] == "the parent's"
    assert said["main/helper"]["state"] == "error"
    one, two = (c for c in await children(conversation) if c.agent_id == "helper")
    # Of the same kind in the same conversation, they work on the same files.
    assert one.workspace == two.workspace
    assert (root / one.workspace).is_dir()


async def test_the_files_of_a_declarations_folder_are_copied_once(
    server: Server, conversation: Session, folder: Path, tmp_path: Path, settings: Any
) -> None:
    settings.BASE_DIR = tmp_path
    kit = tmp_path / "kit"
    await asyncio.to_thread((kit / "deep").mkdir, parents=True)
    for name, text in (("AGENTS.md", "You have a kit."), ("tool.txt", "sharp"), ("deep/more.txt", "x")):
        (kit / name).write_text(text)
    (kit / "link").symlink_to("/etc/passwd")
    (folder / "kitted.md").write_text("---\ndescription: Kitted.\nworkspace: {path: kit}\n---\n")
    agents.registry.cache_clear()
    server.set(workspaces=tmp_path / "workspaces", project=tmp_path)
    calls = [Call("read_file", '{"path": "tool.txt"}'), Call("list_files")]
    server.models.then(spawn("go", "kitted")).then("Done.").asked("go", calls, ["Read."])
    await server.send(conversation, "Go")
    await server.rest(conversation)
    assert server.models.of("go")[0].instructions.startswith("You have a kit.")
    [child] = await children(conversation)
    own = tmp_path / "workspaces" / conversation.pk / child.workspace
    assert sorted(path.name for path in own.rglob("*")) == ["deep", "more.txt", "tool.txt"]
    assert own.stat().st_mode & 0o777 == 0o700
    read = next(e for e in await server.events(conversation) if e.get("tool_name") == "read_file" and "output" in e)
    assert read["output"] == "sharp"
    assert (kit / "AGENTS.md").exists()


async def test_children_go_with_their_conversation(server: Server, conversation: Session) -> None:
    server.models.then(spawn("one", label="a"), spawn("two")).then("Done.")
    await server.send(conversation, "Go")
    await server.rest(conversation)
    await commands.delete_conversation(conversation.owner_id, conversation.pk)
    await db.run(deletion.purge, conversation.pk)
    for rows in (Session, ToolCall, Message, InboxItem):
        assert await db.run(rows.objects.count) == 0


async def test_a_deletion_that_is_taken_back_leaves_nothing_at_work(server: Server, conversation: Session) -> None:
    gate = Gate()
    server.models.then(spawn("slow")).asked("slow", ["half", gate])
    await server.send(conversation, "Go")
    await asyncio.wait_for(gate.reached.wait(), 10)
    await commands.delete_conversation(conversation.owner_id, conversation.pk)
    await commands.restore_conversation(conversation.owner_id, conversation.pk)
    [child] = await children(conversation)
    for session in (conversation, child):
        row = await server.rest(session)
        assert (row.status, row.reply_id, row.wake_at) == ("idle", "", None)
    ends = [e for e in await server.events(conversation) if e["type"] in ("HANDOFF_END", "TOOL_RESULT_END")]
    assert [(e["type"], e.get("status") or e["state"]) for e in ends] == [
        ("HANDOFF_END", "cancelled"), ("TOOL_RESULT_END", "interrupted"),
    ]  # fmt: skip
    server.models.then("Back.")
    await server.send(conversation, "Again")
    await server.rest(conversation)
    assert (await transcript(conversation))[-1] == ("assistant", "Back.")


async def test_a_parent_is_woken_after_its_host_ended_in_order(server: Server, conversation: Session) -> None:
    """As at a restart: the host is told to end while a child works; what comes next is another host's."""
    engine = server.gateway.engine
    assert engine is not None
    gate = Gate()
    server.models.then(spawn("slow")).then("Done.").asked("slow", ["half", gate, " whole."], ["Once more."])
    await server.send(conversation, "Go")
    await asyncio.wait_for(gate.reached.wait(), 10)
    engine.pace = replace(engine.pace, drain=0.3)
    await engine.drain()
    row = await db.run(Session.objects.get, pk=conversation.pk)
    assert (row.status, row.waiting_for, row.lease_owner) == ("waiting", "child", "")
    engine._draining = False
    await db.run(lambda: Session.objects.exclude(lease_owner="").update(lease_until=row.updated_at))
    await engine.sweep()
    await server.rest(conversation)
    [result] = await results(server, conversation)
    assert result["output"].endswith("Once more.")
    assert (await transcript(conversation))[-1] == ("assistant", "Done.")
