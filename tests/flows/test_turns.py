"""Sessions and turns: queue, steer, stop, retry, max steps, provider errors; the order of events as tables."""

from __future__ import annotations

import asyncio
from contextlib import aclosing
from dataclasses import replace

import orjson
import pytest
from django.test import override_settings
from pydantic import BaseModel

from chatapp import workspaces
from chatapp.models import InboxItem, Message, Session, ToolCall
from chatapp.runtime.errors import Conflict, ProviderError, RateLimited, ToolFailed
from chatapp.runtime.tools import Answered, Tool, ToolContext
from chatapp.store import db, reads
from chatapp.store.conversations import create_conversation
from chatapp.store.posts import Draft
from gateway import commands
from gateway.feed import Follower
from tests.fakes import Call, Gate
from tests.flows.conftest import Server, eventually

CUT = ProviderError("The connection broke.", code="connection_lost", retryable=True)
NO_KEY = ProviderError("No key.", code="no_key", retryable=False)

PLAIN = [
    "USER_MESSAGE",
    "AGENT_START",
    "MODEL_CALL_START",
    "TEXT_BLOCK_START",
    "TEXT_BLOCK_END",
    "MODEL_CALL_END",
    "AGENT_END",
]


class Nothing(BaseModel):
    pass


def tool(name: str, run: object, **more: object) -> Tool:
    return Tool(name, "For tests.", Nothing, run, **{"default": "allow", "read_only": False, **more})  # type: ignore[arg-type]


async def echo(context: ToolContext, args: Nothing) -> Answered:
    return Answered("echoed")


async def test_it_tells_a_plain_reply_in_order(server: Server, conversation: Session) -> None:
    server.models.then("Hello ", "there.")
    posted = await server.send(conversation, "Hi")
    row = await server.rest(conversation)
    events = await server.events(conversation)
    assert [e["type"] for e in events] == PLAIN
    assert [e["seq"] for e in events] == list(range(1, len(PLAIN) + 1))
    assert (posted.state, posted.seq) == ("running", 1)
    assert events[4]["text"] == "Hello there."
    assert events[4]["state"] == "complete"
    assert events[6]["reason"] == "MODEL_STOP"
    assert events[6]["usage"]["input_tokens"] == 10
    assert len({e["reply_id"] for e in events[1:]}) == 1
    assert row.status == "idle"
    assert row.title == "Hi"
    assert (row.input_tokens, row.output_tokens, row.requests) == (10, 5, 1)


async def test_it_tells_a_tool_call_in_order(server: Server, conversation: Session) -> None:
    server.offer(tool("echo", echo))
    server.models.then("Let me see.", Call("echo")).then("Done.")
    await server.send(conversation, "Use it")
    await server.rest(conversation)
    assert await server.types(conversation) == [
        *PLAIN[:4], "TOOL_CALL_START", "TEXT_BLOCK_END", "TOOL_CALL_END", "MODEL_CALL_END",
        "TOOL_RESULT_START", "TOOL_RESULT_END",
        "MODEL_CALL_START", "TEXT_BLOCK_START", "TEXT_BLOCK_END", "MODEL_CALL_END", "AGENT_END",
    ]  # fmt: skip
    assert "echoed" in server.models.requests[1].texts


@pytest.mark.parametrize(("script", "limit"), [([["Hello."]], 5), ([["See.", Call("echo")], ["Done."]], 9)])
async def test_it_needs_few_write_transactions(
    server: Server, conversation: Session, monkeypatch: pytest.MonkeyPatch, script: list[list[object]], limit: int
) -> None:
    writes = []
    write = server.gateway.ledger.write

    async def counted(function: object, *args: object, **kwargs: object) -> object:
        writes.append(function)
        return await write(function, *args, **kwargs)  # type: ignore[arg-type]

    monkeypatch.setattr(server.gateway.ledger, "write", counted)
    server.offer(tool("echo", echo))
    for parts in script:
        server.models.then(*parts)  # type: ignore[arg-type]
    await server.send(conversation, "Go")
    await server.rest(conversation)
    assert 0 < len(writes) <= limit


async def test_it_runs_the_same_client_id_once(server: Server, conversation: Session) -> None:
    first, second = await asyncio.gather(
        server.send(conversation, "Hi", client_id="abc"), server.send(conversation, "Hi", client_id="abc")
    )
    await server.rest(conversation)
    assert first == second
    assert len(server.models.requests) == 1
    assert await db.run(Message.objects.filter(role="user").count) == 1


async def test_it_queues_what_comes_during_a_turn_and_answers_it_next(server: Server, conversation: Session) -> None:
    gate = Gate()
    server.models.then("one", gate).then("two")
    await server.send(conversation, "first")
    await gate.reached.wait()
    posted = [await server.send(conversation, text) for text in ("second", "third")]
    assert [p.state for p in posted] == ["queued", "queued"]
    gate.opened.set()
    await server.rest(conversation)
    states = [(e["text"], e["state"]) for e in await server.events(conversation) if e["type"] == "USER_MESSAGE"]
    assert states == [
        ("first", "running"), ("second", "queued"), ("third", "queued"), ("second", "running"), ("third", "running"),
    ]  # fmt: skip
    assert server.models.requests[1].texts == ["first", "one", "second", "third"]
    assert len(server.models.requests) == 2


async def test_it_keeps_messages_with_other_overrides_in_turns_of_their_own(
    server: Server, conversation: Session
) -> None:
    gate = Gate()
    server.models.then("one", gate)
    await server.send(conversation, "first")
    await gate.reached.wait()
    await server.send(conversation, "second")
    await server.send(conversation, "third", overrides={"force_sync": True})
    gate.opened.set()
    await server.rest(conversation)
    assert [len(r.texts) for r in server.models.requests] == [1, 3, 5]


async def test_it_steers_into_the_running_turn(server: Server, conversation: Session) -> None:
    gate = Gate()
    server.offer(tool("echo", echo))
    server.models.then(gate, Call("echo")).then("Done.")
    await server.send(conversation, "first")
    await gate.reached.wait()
    await server.send(conversation, "in Latin please", mode="steer")
    gate.opened.set()
    await server.rest(conversation)
    assert server.models.requests[1].texts[-1] == "in Latin please"
    states = [e["state"] for e in await server.events(conversation) if e["type"] == "USER_MESSAGE"]
    assert states == ["running", "queued", "steered"]
    assert (await server.types(conversation)).count("AGENT_START") == 1


async def test_it_lets_queued_messages_be_edited_and_removed(server: Server, conversation: Session) -> None:
    gate = Gate()
    server.models.then("one", gate)
    first = await server.send(conversation, "first")
    await gate.reached.wait()
    second, third = [await server.send(conversation, text) for text in ("second", "third")]
    await commands.edit_message(conversation.owner_id, second.message_id, "second, better")
    await commands.remove_message(conversation.owner_id, third.message_id)
    with pytest.raises(Conflict):
        await commands.edit_message(conversation.owner_id, first.message_id, "too late")
    gate.opened.set()
    await server.rest(conversation)
    assert server.models.requests[1].texts == ["first", "one", "second, better"]
    with pytest.raises(Conflict):
        await commands.remove_message(conversation.owner_id, second.message_id)


async def test_it_stops_a_reply_and_keeps_its_partial_text(server: Server, conversation: Session) -> None:
    gate = Gate()
    server.models.then("Once upon", gate).then("next")
    await server.send(conversation, "Tell")
    await gate.reached.wait()
    stopped = await commands.stop(conversation.owner_id, conversation.pk, "reply")
    await server.rest(conversation)
    assert [s.pk for s in stopped.stopped] == [conversation.pk]
    events = await server.events(conversation)
    assert [e["type"] for e in events] == PLAIN
    assert (events[4]["state"], events[4]["text"]) == ("partial", "Once upon")
    assert events[6]["reason"] == "INTERRUPTED"
    await server.send(conversation, "Again")
    assert (await server.rest(conversation)).status == "idle"
    assert server.models.requests[1].texts == ["Tell", "Once upon", "Again"]


async def test_it_goes_on_with_the_queue_after_a_stop(server: Server, conversation: Session) -> None:
    gate = Gate()
    server.models.then("one", gate).then("two")
    await server.send(conversation, "first")
    await gate.reached.wait()
    await server.send(conversation, "second")
    await commands.stop(conversation.owner_id, conversation.pk, "reply")
    await server.rest(conversation)
    reasons = [e["reason"] for e in await server.events(conversation) if e["type"] == "AGENT_END"]
    assert reasons == ["INTERRUPTED", "MODEL_STOP"]


async def test_it_stops_a_running_tool_and_calls_its_outcome_unknown(server: Server, conversation: Session) -> None:
    reached, cancelled = asyncio.Event(), asyncio.Event()

    async def slow(context: ToolContext, args: Nothing) -> Answered:
        reached.set()
        try:
            await asyncio.Event().wait()
        finally:
            cancelled.set()
        raise AssertionError

    server.offer(tool("slow", slow))
    server.models.then(Call("slow")).then("next")
    await server.send(conversation, "Go")
    await reached.wait()
    await commands.stop(conversation.owner_id, conversation.pk, "reply")
    await server.rest(conversation)
    assert cancelled.is_set()
    end = next(e for e in await server.events(conversation) if e["type"] == "TOOL_RESULT_END")
    assert (end["state"], "unknown" in end["output"]) == ("interrupted", True)
    await server.send(conversation, "Go on")
    await server.rest(conversation)
    assert any("unknown" in text for text in server.models.requests[1].texts)


async def test_it_stops_nothing_at_rest(server: Server, conversation: Session) -> None:
    stopped = await commands.stop(conversation.owner_id, conversation.pk, "reply")
    assert stopped.stopped == ()
    await server.send(conversation, "Hi")
    assert (await server.rest(conversation)).status == "idle"


async def test_it_writes_the_last_answer_without_tools_at_max_steps(server: Server, conversation: Session) -> None:
    await db.run(
        Session.objects.filter(pk=conversation.pk).update, declaration={**conversation.declaration, "steps": 2}
    )
    server.offer(tool("echo", echo))
    server.models.then(Call("echo")).then(Call("echo")).then("That is all.")
    await server.send(conversation, "Go")
    await server.rest(conversation)
    types = await server.types(conversation)
    assert [r.tools_off for r in server.models.requests] == [False, False, True]
    assert types.index("EXCEED_MAX_ITERS") == len(types) - 6
    assert (await server.events(conversation))[-1]["reason"] == "MAX_ITERATIONS"


async def test_it_retries_a_broken_stream_twice_and_then_fails_visibly(server: Server, conversation: Session) -> None:
    for _ in range(3):
        server.models.then("half an ans", CUT)
    await server.send(conversation, "Hi")
    row = await server.rest(conversation)
    events = await server.events(conversation)
    cut = ["MODEL_CALL_START", "TEXT_BLOCK_START", "TEXT_BLOCK_END", "MODEL_CALL_END"]
    assert [e["type"] for e in events] == [
        "USER_MESSAGE", "AGENT_START", *cut, "MODEL_RETRY", *cut, "MODEL_RETRY", *cut, "RUN_FAILED", "AGENT_END",
    ]  # fmt: skip
    assert {e["state"] for e in events if e["type"] == "TEXT_BLOCK_END"} == {"discarded"}
    assert [e["attempt"] for e in events if e["type"] == "MODEL_RETRY"] == [1, 2]
    assert (events[-2]["code"], events[-2]["retryable"], events[-1]["reason"]) == ("connection_lost", True, "FAILED")
    assert row.status == "failed"
    assert row.error
    assert row.error["id"] == events[-2]["error_id"]


async def test_it_goes_on_after_one_broken_stream(server: Server, conversation: Session) -> None:
    server.models.then("half", CUT).then("whole")
    await server.send(conversation, "Hi")
    assert (await server.rest(conversation)).status == "idle"
    texts = [m.text for m in await db.run(lambda: list(Message.objects.filter(role="assistant")))]
    assert texts == ["whole"]


async def test_it_does_not_repeat_what_again_cannot_help(server: Server, conversation: Session) -> None:
    server.models.then(NO_KEY)
    await server.send(conversation, "Hi")
    assert (await server.failure(conversation))["code"] == "no_key"
    assert len(server.models.requests) == 1


async def test_it_asks_the_fallback_model_last(server: Server, conversation: Session) -> None:
    engine = server.gateway.engine
    assert engine is not None
    engine.kit = replace(engine.kit, fallback_model="spare")
    server.models.then(NO_KEY).then("from the spare")
    await server.send(conversation, "Hi")
    assert (await server.rest(conversation)).status == "idle"
    assert [r.model for r in server.models.requests] == ["scripted", "spare"]


async def test_it_tries_a_failed_reply_again_in_place(server: Server, conversation: Session) -> None:
    server.models.then(NO_KEY).then("now it works")
    await server.send(conversation, "Hi")
    await server.rest(conversation)
    await commands.retry(conversation.owner_id, conversation.pk)
    assert (await server.rest(conversation)).status == "idle"
    assert server.models.requests[1].texts == ["Hi"]
    assert await db.run(Message.objects.filter(role="user").count) == 1


async def test_it_fails_an_empty_answer_instead_of_showing_nothing(server: Server, conversation: Session) -> None:
    for _ in range(3):
        server.models.then("")
    await server.send(conversation, "Hi")
    assert (await server.failure(conversation))["code"] == "empty_reply"


@pytest.mark.parametrize(
    ("call", "state", "words"),
    [
        (Call("nowhere"), "error", "no tool named"),
        (Call("read_file", '{"path": 3}'), "error", "Invalid arguments"),
        (Call("read_file", "{not json"), "error", "not a JSON object"),
        (Call("read_file", '{"path": 12345678901234567890123}'), "error", "not a JSON object"),
        (Call("read_file", '{"path":' + "[" * 300 + "]" * 300 + "}"), "error", "not a JSON object"),
        (Call("x" * 5000), "error", "no tool named"),
        (Call("write_file", '{"path": "a", "content": "b"}'), "denied", "needs a person's OK"),
    ],
)
async def test_it_refuses_a_call_with_a_line_the_model_can_act_on(
    server: Server, conversation: Session, call: Call, state: str, words: str
) -> None:
    server.models.then(call).then("I see.")
    await server.send(conversation, "Go")
    await server.rest(conversation)
    events = [e for e in await server.events(conversation) if e["type"].startswith("TOOL_RESULT")]
    assert [e["type"] for e in events] == ["TOOL_RESULT_START", "TOOL_RESULT_END"]
    assert events[1]["state"] == state
    assert words in events[1]["output"]
    assert any(words in text for text in server.models.requests[1].texts)


async def test_it_settles_parallel_calls_as_they_finish_and_joins_them_in_order(
    server: Server, conversation: Session
) -> None:
    late = asyncio.Event()

    async def slow(context: ToolContext, args: Nothing) -> Answered:
        await late.wait()
        return Answered("slow result")

    async def quick(context: ToolContext, args: Nothing) -> Answered:
        return Answered("quick result")

    async def broken(context: ToolContext, args: Nothing) -> Answered:
        raise KeyError("a bug")

    async def failing(context: ToolContext, args: Nothing) -> Answered:
        raise ToolFailed("no such thing")

    server.offer(tool("slow", slow), tool("quick", quick), tool("broken", broken), tool("failing", failing))
    server.models.then(Call("slow"), Call("quick"), Call("broken"), Call("failing")).then("Done.")
    await server.send(conversation, "Go")
    await server.until(conversation, "TOOL_RESULT_END", 3)
    late.set()
    await server.rest(conversation)
    ends = [e for e in await server.events(conversation) if e["type"] == "TOOL_RESULT_END"]
    assert ends[-1]["tool_name"] == "slow"
    assert [e["state"] for e in ends if e["tool_name"] in ("broken", "failing")] == ["error", "error"]
    results = server.models.requests[1].texts[-4:]
    assert [r[:5] for r in results] == ["slow ", "quick", "This ", "no su"]


async def test_it_keeps_no_more_side_by_side_than_it_may(server: Server, conversation: Session) -> None:
    engine = server.gateway.engine
    assert engine is not None
    engine.kit = replace(engine.kit, parallel_tools=1)
    running, most = 0, 0

    async def count(context: ToolContext, args: Nothing) -> Answered:
        nonlocal running, most
        running += 1
        most = max(most, running)
        await asyncio.sleep(0)
        running -= 1
        return Answered("x")

    server.offer(tool("count", count))
    server.models.then(*[Call("count")] * 4).then("Done.")
    await server.send(conversation, "Go")
    await server.rest(conversation)
    assert most == 1
    assert await db.run(ToolCall.objects.filter(status="done").count) == 4


async def test_it_cuts_a_huge_result_and_keeps_the_whole_in_a_file(server: Server, conversation: Session) -> None:
    async def huge(context: ToolContext, args: Nothing) -> Answered:
        return Answered("x" * 60_000)

    server.offer(tool("huge", huge))
    server.models.then(Call("huge")).then("Done.")
    await server.send(conversation, "Go")
    await server.rest(conversation)
    end = next(e for e in await server.events(conversation) if e["type"] == "TOOL_RESULT_END")
    assert end["truncated"]
    assert len(end["output"]) < 51_000
    engine = server.gateway.engine
    assert engine is not None
    files = list((engine.kit.workspaces / conversation.pk / "results").iterdir())
    assert [f.stat().st_size for f in files] == [60_000]


@override_settings(BRANCHLINE_RATE_MESSAGES=2)
async def test_it_limits_messages_a_minute(server: Server, conversation: Session) -> None:
    for _ in range(2):
        await server.send(conversation, "Hi")
    with pytest.raises(RateLimited) as limited:
        await server.send(conversation, "Hi")
    assert 1 <= limited.value.retry_after <= 60
    assert await db.run(InboxItem.objects.count) == 2


@override_settings(BRANCHLINE_RUNNING_PER_USER=1)
async def test_it_queues_what_is_over_the_limit_and_never_refuses_it(server: Server, conversation: Session) -> None:
    gate = Gate()
    server.models.then("one", gate).then("two")
    other = await db.run(lambda: create_conversation(conversation.owner, model="scripted"))
    await server.send(conversation, "first")
    await gate.reached.wait()
    await server.send(other, "second")

    queued = Session.objects.filter(pk=other.pk, status="queued")
    await eventually(lambda: db.run(queued.exists))
    gate.opened.set()
    assert (await server.rest(other)).status == "idle"


@override_settings(BRANCHLINE_TOKEN_CAP_SESSION=15)
async def test_it_ends_a_turn_at_the_token_cap(server: Server, conversation: Session) -> None:
    for _ in range(2):
        await server.send(conversation, "Hi")
        row = await server.rest(conversation)
    assert row.error
    assert row.error["code"] == "token_cap"
    assert len(server.models.requests) == 1


async def test_it_shows_no_delta_of_a_stopped_reply_even_if_its_host_goes_on(
    server: Server, conversation: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    gate, late = Gate(), Gate()
    server.models.then("before", gate, " after", late)
    engine = server.gateway.engine
    assert engine is not None
    texts: list[str] = []
    async with aclosing(Follower(server.gateway.bus, conversation.pk, 0).frames()) as batches:
        await server.send(conversation, "Hi")
        async for batch in batches:
            texts += [frame["text"] for frame in batch if frame["kind"] == "delta"]
            if texts and not gate.opened.is_set():
                monkeypatch.setattr(engine, "ring", lambda session_id: None)
                await commands.stop(conversation.owner_id, conversation.pk, "reply")
                gate.opened.set()
                await late.reached.wait()
                # Longer than any gathering window: what is to be sent of it, is.
                await asyncio.sleep(0.1)
                late.opened.set()
            if any(frame.get("type") == "AGENT_END" for frame in batch):
                break
    assert texts == ["before"]


async def test_it_declines_nothing_and_just_queues_where_nobody_is_asked(server: Server, conversation: Session) -> None:
    gate = Gate()
    server.models.then("one", gate)
    await server.send(conversation, "first")
    await gate.reached.wait()
    await server.send(conversation, "second", mode="decline")
    gate.opened.set()
    await server.rest(conversation)
    assert server.models.requests[1].texts[-1] == "second"


async def test_it_starts_a_turn_with_a_steer_that_finds_nothing_running(server: Server, conversation: Session) -> None:
    await server.send(conversation, "Hi", mode="steer")
    await server.rest(conversation)
    assert server.models.requests[0].texts == ["Hi"]


async def test_it_fails_when_the_fallback_fails_too(server: Server, conversation: Session) -> None:
    engine = server.gateway.engine
    assert engine is not None
    engine.kit = replace(engine.kit, fallback_model="spare")
    for _ in range(4):
        server.models.then("half", CUT)
    await server.send(conversation, "Hi")
    assert (await server.failure(conversation))["code"] == "connection_lost"
    assert [r.model for r in server.models.requests] == ["scripted"] * 3 + ["spare"]


@override_settings(BRANCHLINE_TOKEN_CAP_USER_DAY=15)
async def test_it_ends_a_turn_at_the_persons_cap_for_the_day(server: Server, conversation: Session) -> None:
    other = await db.run(lambda: create_conversation(conversation.owner, model="scripted"))
    await server.send(conversation, "Hi")
    await server.rest(conversation)
    await server.send(other, "Hi")
    assert (await server.failure(other))["code"] == "token_cap"


async def test_it_queues_what_is_over_one_servers_turns(server: Server, conversation: Session) -> None:
    engine = server.gateway.engine
    assert engine is not None
    engine.turns = 1
    gate = Gate()
    server.models.then("one", gate).then("two")
    other = await db.run(lambda: create_conversation(conversation.owner, model="scripted"))
    await server.send(conversation, "first")
    await gate.reached.wait()
    await server.send(other, "second")
    gate.opened.set()
    await server.rest(other)
    assert server.models.requests[1].texts == ["second"]


async def test_it_refuses_arguments_that_are_longer_than_an_event_may_be(server: Server, conversation: Session) -> None:
    engine = server.gateway.engine
    assert engine is not None
    engine.kit = replace(engine.kit, args_limit=100)
    server.models.then(Call("read_file", '{"path": "' + "x" * 200 + '"}')).then("I see.")
    await server.send(conversation, "Go")
    await server.rest(conversation)
    end = next(e for e in await server.events(conversation) if e["type"] == "TOOL_CALL_END")
    assert end["args"] is None
    assert len(end["args_text"]) < 300


@pytest.mark.parametrize(
    "part", [Call("na\ud800me"), Call("read_file", '{"path": "a\ud800"}'), Call("read_file", '{"path": "a\\ud800"}')]
)
async def test_it_keeps_a_conversation_readable_whatever_a_model_writes(
    server: Server, conversation: Session, part: Call
) -> None:
    server.models.then(part).then("Done.")
    await server.send(conversation, "Go")
    await server.rest(conversation)
    for event in await server.events(conversation):
        orjson.dumps(event)
    await server.send(conversation, "And again")
    assert (await server.rest(conversation)).status == "idle"


async def test_it_rolls_back_what_no_client_could_be_told(server: Server, conversation: Session) -> None:
    server.models.then(ProviderError("bad \ud800", code="rejected", retryable=False)).then("fine")
    await server.send(conversation, "Go")
    assert (await server.failure(conversation))["code"] == "internal"
    assert orjson.dumps(await server.events(conversation))


@pytest.mark.parametrize(("model", "items"), [("sees:it", 3), ("blind:it", 2)])
async def test_an_attached_picture_reaches_a_model_that_looks_at_pictures(
    server: Server, conversation: Session, model: str, items: int
) -> None:
    await db.run(Session.objects.filter(pk=conversation.pk).update, model=model)
    picture = workspaces.upload(conversation.pk, "a.png", b"\x89PNG\r\n\x1a\n")
    server.models.then("A picture.")
    await commands.send_message(conversation.owner_id, conversation.pk, Draft("Look"), [picture["path"]])
    await server.rest(conversation)
    asked = server.models.requests[0].messages[0].parts[0]
    assert len(asked.content) == items  # type: ignore[union-attr, arg-type]
    assert (await server.events(conversation))[0]["attachments"] == [picture]
    told = await db.run(reads.transcript, conversation.owner_id, conversation.pk, reads.Place(), 10, archived=False)
    assert told.rows[0].parts == [{"type": "text", "text": "Look"}, {"type": "attachment", **picture}]
