"""Branches: a past message written anew, a reply repeated, and going back to another way on."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from django.contrib.auth.models import User

from chatapp.models import Branch, Session
from chatapp.parts import Siblings, Text, UserMessage
from chatapp.runtime.errors import Conflict, InvalidField, NotFound, ProviderError
from chatapp.store import branches, db, reads
from chatapp.store.branches import Forks
from chatapp.views.conversation import _newest
from gateway import commands
from tests.fakes import Call, Gate
from tests.flows.conftest import Server


async def texts(session: Session) -> list[str]:
    """The transcript of the branch that goes on."""
    told = await db.run(reads.transcript, session.owner_id, session.pk, reads.Place(), 100, archived=False)
    return [row.row.text for row in told.rows]


async def ways(server: Server, session: Session) -> list[Siblings]:
    """What stands at the forks of the visible path, in the order of the thread."""
    found: Forks = await db.run(branches.forks, await db.run(Session.objects.get, pk=session.pk))
    return [at for event in await server.events(session) if (at := found.at(event["branch"], event["seq"]))]


async def say(server: Server, session: Session, text: str, answer: str) -> str:
    server.models.then(answer)
    posted = await server.send(session, text)
    await server.rest(session)
    return posted.message_id


async def anew(server: Server, session: Session, message_id: str, text: str, answer: str) -> str:
    server.models.then(answer)
    posted = await commands.branch_message(session.owner_id, message_id, text)
    assert posted.state == "running"
    await server.rest(session)
    return posted.message_id


async def test_a_message_written_anew_leaves_what_came_after_behind(server: Server, conversation: Session) -> None:
    await say(server, conversation, "one", "a1")
    second = await say(server, conversation, "two", "a2")
    await say(server, conversation, "three", "a3")
    await anew(server, conversation, second, "zwei", "b2")
    assert server.models.requests[-1].texts[-1] == "zwei"
    assert await texts(conversation) == ["one", "a1", "zwei", "b2"]
    assert await ways(server, conversation) == [Siblings(2, 2, 0, None)]
    await commands.switch_branch(conversation.owner_id, conversation.pk, 0)
    assert await texts(conversation) == ["one", "a1", "two", "a2", "three", "a3"]
    assert await ways(server, conversation) == [Siblings(1, 2, None, 1)]
    await say(server, conversation, "four", "a4")
    assert server.models.requests[-1].texts == (await texts(conversation))[:-1]


async def test_a_repeated_reply_is_a_sibling_that_answers_the_same(server: Server, conversation: Session) -> None:
    await say(server, conversation, "one", "a1")
    for answer in ("b1", "c1"):
        server.models.then(answer)
        await commands.retry(conversation.owner_id, conversation.pk)
        await server.rest(conversation)
        assert server.models.requests[-1].texts == ["one"]
        assert await texts(conversation) == ["one", answer]
    assert await ways(server, conversation) == [Siblings(3, 3, 1, None)]
    await commands.switch_branch(conversation.owner_id, conversation.pk, 1)
    assert await texts(conversation) == ["one", "b1"]
    assert await ways(server, conversation) == [Siblings(2, 3, 0, 2)]


async def test_a_reply_with_tools_is_repeated_from_the_question(server: Server, conversation: Session) -> None:
    server.models.then(Call("list_files")).then("none")
    await server.send(conversation, "what is there?")
    await server.rest(conversation)
    server.models.then("nothing")
    await commands.retry(conversation.owner_id, conversation.pk)
    await server.rest(conversation)
    assert server.models.requests[-1].texts == ["what is there?"]
    assert await texts(conversation) == ["what is there?", "nothing"]


async def test_a_stopped_reply_without_a_word_can_be_repeated_twice(server: Server, conversation: Session) -> None:
    gate = Gate()
    server.models.then(gate, "never")
    await server.send(conversation, "one")
    await gate.reached.wait()
    await commands.stop(conversation.owner_id, conversation.pk, "reply")
    await server.rest(conversation)
    for answer in ("b", "c"):
        server.models.then(answer)
        await commands.retry(conversation.owner_id, conversation.pk)
        await server.rest(conversation)
        assert await texts(conversation) == ["one", answer]
    assert await ways(server, conversation) == [Siblings(3, 3, 1, None)]


async def test_the_same_message_written_anew_again_is_one_more_of_its_siblings(
    server: Server, conversation: Session
) -> None:
    first = await say(server, conversation, "one", "a1")
    again = await anew(server, conversation, first, "uno", "b1")
    await anew(server, conversation, again, "eins", "c1")
    assert await texts(conversation) == ["eins", "c1"]
    assert await ways(server, conversation) == [Siblings(3, 3, 1, None)]


async def test_going_back_shows_the_newest_way_on_from_there(server: Server, conversation: Session) -> None:
    first = await say(server, conversation, "one", "a1")
    second = await say(server, conversation, "two", "a2")
    await anew(server, conversation, second, "zwei", "b2")
    await anew(server, conversation, first, "uno", "c1")
    assert await ways(server, conversation) == [Siblings(2, 2, 1, None)]
    await commands.switch_branch(conversation.owner_id, conversation.pk, 1)
    assert await texts(conversation) == ["one", "a1", "zwei", "b2"]
    assert await ways(server, conversation) == [Siblings(1, 2, None, 2), Siblings(2, 2, 0, None)]


async def test_a_reply_repeated_within_a_branch_forks_there(server: Server, conversation: Session) -> None:
    first = await say(server, conversation, "one", "a1")
    await anew(server, conversation, first, "uno", "b1")
    server.models.then("b1 again")
    await commands.retry(conversation.owner_id, conversation.pk)
    await server.rest(conversation)
    assert await texts(conversation) == ["uno", "b1 again"]
    assert await ways(server, conversation) == [Siblings(2, 2, 0, None), Siblings(2, 2, 1, None)]


async def test_a_failed_reply_is_tried_again_in_place(server: Server, conversation: Session) -> None:
    server.models.then(ProviderError("No.", code="rejected", retryable=False))
    await server.send(conversation, "one")
    await server.rest(conversation)
    server.models.then("a1")
    await commands.retry(conversation.owner_id, conversation.pk)
    await server.rest(conversation)
    assert await ways(server, conversation) == []
    assert await texts(conversation) == ["one", "a1"]


async def test_nothing_is_branched_while_the_agent_works(server: Server, conversation: Session) -> None:
    first = await say(server, conversation, "one", "a1")
    gate = Gate()
    server.models.then(gate, "a2")
    await server.send(conversation, "two")
    await gate.reached.wait()
    user = conversation.owner_id
    for attempt in (
        commands.branch_message(user, first, "uno"),
        commands.retry(user, conversation.pk),
        commands.switch_branch(user, conversation.pk, 0),
    ):
        with pytest.raises(Conflict) as refused:
            await attempt
        assert refused.value.code == "busy"
    gate.opened.set()
    await server.rest(conversation)
    assert await texts(conversation) == ["one", "a1", "two", "a2"]


async def test_what_joined_a_running_reply_is_not_a_beginning(server: Server, conversation: Session) -> None:
    gate = Gate()
    server.models.then(gate, Call("list_files")).then("done")
    await server.send(conversation, "one")
    await gate.reached.wait()
    steered = await server.send(conversation, "and two", mode="steer")
    gate.opened.set()
    await server.rest(conversation)
    with pytest.raises(Conflict) as refused:
        await commands.branch_message(conversation.owner_id, steered.message_id, "no")
    assert refused.value.code == "not_a_beginning"


async def test_another_persons_branches_are_not_there(server: Server, conversation: Session, bob: User) -> None:
    first = await say(server, conversation, "one", "a1")
    for attempt in (
        commands.branch_message(bob.pk, first, "mine"),
        commands.switch_branch(bob.pk, conversation.pk, 0),
        commands.retry(bob.pk, conversation.pk),
    ):
        with pytest.raises(NotFound):
            await attempt


async def test_a_branch_that_is_not_there_is_refused(server: Server, conversation: Session) -> None:
    with pytest.raises(InvalidField):
        await commands.switch_branch(conversation.owner_id, conversation.pk, 1)
    with pytest.raises(Conflict):
        await commands.retry(conversation.owner_id, conversation.pk)


async def test_a_failure_stays_with_its_branch(server: Server, conversation: Session) -> None:
    first = await say(server, conversation, "one", "a1")
    server.models.then(ProviderError("No.", code="rejected", retryable=False))
    await commands.branch_message(conversation.owner_id, first, "uno")
    assert (await server.rest(conversation)).status == "failed"
    await commands.switch_branch(conversation.owner_id, conversation.pk, 0)
    assert (await server.rest(conversation)).status == "idle"
    assert await texts(conversation) == ["one", "a1"]


def _shown(session: Session) -> list[str]:
    folded = _newest(session).thread
    texts: list[str] = []
    for item in folded.items:
        if isinstance(item, UserMessage):
            texts.append(item.text)
        else:
            texts += [part.text for part in item.parts if isinstance(part, Text | UserMessage) and part.text]
    return texts


async def shown(session: Session) -> list[str]:
    """What a reload of the page shows."""
    return await db.run(lambda: _shown(Session.objects.get(pk=session.pk)))


async def told(session: Session) -> list[str]:
    found = await db.run(reads.transcript, session.owner_id, session.pk, reads.Place(), 100, archived=False)
    return [row.row.text for row in found.rows if row.row.role != "tool" and row.row.text]


async def held_queue(server: Server, conversation: Session) -> tuple[str, str]:
    """A message that waited while the conversation was deleted and taken back, and one written after that."""
    gate = Gate()
    server.models.then(gate, "never")
    await server.send(conversation, "one")
    await gate.reached.wait()
    waited = await server.send(conversation, "waited")
    await commands.delete_conversation(conversation.owner_id, conversation.pk)
    await commands.restore_conversation(conversation.owner_id, conversation.pk)
    await server.rest(conversation)
    server.models.then("a")
    later = await server.send(conversation, "later")
    await server.rest(conversation)
    return waited.message_id, later.message_id


async def test_a_message_that_was_held_stands_on_the_page_where_the_model_reads_it(
    server: Server, conversation: Session
) -> None:
    await held_queue(server, conversation)
    assert await shown(conversation) == await told(conversation)


async def test_a_held_message_written_anew_leaves_no_later_one_on_the_page(
    server: Server, conversation: Session
) -> None:
    waited, _later = await held_queue(server, conversation)
    server.models.then("c")
    await commands.branch_message(conversation.owner_id, waited, "anew")
    await server.rest(conversation)
    assert await told(conversation) == ["one", "anew", "c"]
    assert await shown(conversation) == ["one", "anew", "c"]


async def test_a_message_before_the_one_written_anew_is_seen_as_it_is_sent(
    server: Server, conversation: Session
) -> None:
    _waited, later = await held_queue(server, conversation)
    server.models.then("c")
    await commands.branch_message(conversation.owner_id, later, "anew")
    await server.rest(conversation)
    assert await shown(conversation) == await told(conversation)


async def test_a_held_message_is_named_as_what_stands_in_the_way(server: Server, conversation: Session) -> None:
    gate = Gate()
    server.models.then(gate, "never")
    await server.send(conversation, "one")
    await gate.reached.wait()
    await server.send(conversation, "waited")
    await commands.stop(conversation.owner_id, conversation.pk, "all")
    assert (await server.rest(conversation)).status == "idle"
    with pytest.raises(Conflict) as refused:
        await commands.retry(conversation.owner_id, conversation.pk)
    assert refused.value.code == "queue_waits"


async def test_a_page_that_read_its_row_before_the_first_branch_shows_one_way_only(
    server: Server, conversation: Session
) -> None:
    server.models.then("a1").then("b1")
    first = await server.send(conversation, "one")
    await server.rest(conversation)
    row = await db.run(Session.objects.get, pk=conversation.pk)
    await commands.branch_message(conversation.owner_id, first.message_id, "uno")
    await server.rest(conversation)
    folded = (await db.run(_newest, row)).thread
    users = [item.text for item in folded.items if isinstance(item, UserMessage)]
    branch_event = next(e["seq"] for e in await server.events(conversation) if e.get("name") == "branch")
    # Either it shows one way, or the socket brings the branch event (and the page reloads).
    assert users in (["one"], ["uno"]) or folded.last_seq < branch_event


async def test_a_steer_that_joined_before_the_first_word_is_seen_where_it_is_sent(
    server: Server, conversation: Session
) -> None:
    """A restart in mid-request takes the steer before the model said anything; then the reply is repeated."""
    gate = Gate()
    server.models.then(gate, "never")
    await server.send(conversation, "one")
    await gate.reached.wait()
    await server.send(conversation, "hurry", mode="steer")
    server.models.then("a1")
    # As after kill -9: nobody renews, the sweep takes the session.
    lost = {"lease_owner": "dead", "lease_until": datetime(2020, 1, 1, tzinfo=UTC), "generation": 99}
    await db.run(lambda: Session.objects.filter(pk=conversation.pk).update(**lost))
    await server.rest(conversation, 30)
    server.models.then("b1")
    await commands.retry(conversation.owner_id, conversation.pk)
    await server.rest(conversation)
    assert await shown(conversation) == await told(conversation)


async def test_as_many_branches_as_there_may_be_can_be_read(server: Server, conversation: Session) -> None:
    first = await say(server, conversation, "one", "a1")
    most = branches.BRANCHES_MOST

    def grow() -> None:
        row = Session.objects.get(pk=conversation.pk)
        Branch.objects.bulk_create(
            Branch(session=row, number=n, parent=n - 1, position=10 + n, seq=1000 + n, created_at=row.created_at)
            for n in range(1, most + 1)
        )
        Session.objects.filter(pk=row.pk).update(branch=most, newest_branch=most)

    await db.run(grow)
    assert await shown(conversation) == await told(conversation) == ["one", "a1"]
    with pytest.raises(Conflict) as refused:
        await commands.branch_message(conversation.owner_id, first, "one too many")
    assert refused.value.code == "branches_full"


async def test_an_estimate_counts_the_branch_that_was_sent(server: Server, conversation: Session) -> None:
    server.models.then("a" * 4000)
    first = await server.send(conversation, "x" * 4000)
    await server.rest(conversation)
    gate = Gate()
    server.models.then(gate, "never")
    await commands.branch_message(conversation.owner_id, first.message_id, "uno")
    await gate.reached.wait()
    await commands.delete_conversation(conversation.owner_id, conversation.pk)
    await commands.restore_conversation(conversation.owner_id, conversation.pk)
    await server.rest(conversation)
    ends = [e for e in await server.events(conversation) if e["type"] == "MODEL_CALL_END"]
    assert ends[-1]["usage"]["input_tokens"] < 100
