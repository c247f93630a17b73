"""The server's own agents: what ships, the checks, `manage.py agents`, and who may choose which."""

from __future__ import annotations

from collections.abc import Iterator
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from django.contrib.auth.models import Group, User
from django.core.checks import run_checks
from django.core.management import CommandError, call_command

from chatapp import agents
from chatapp.runtime.declarations import SubagentDeclaration
from chatapp.runtime.errors import InvalidField
from chatapp.store.conversations import change_conversation, create_conversation

EVERYBODY = [SubagentDeclaration(agent_id="coder", description="Codes.", prompt="Code.")]


def for_owner(user: User) -> SubagentDeclaration:
    return SubagentDeclaration(agent_id=f"aide-of-{user.username}", description="Aides.")


@pytest.fixture(autouse=True)
def fresh() -> Iterator[None]:
    agents.registry.cache_clear()
    yield
    agents.registry.cache_clear()


@pytest.fixture
def folder(settings: Any, tmp_path: Path) -> Path:
    settings.SUBAGENTS_DIR = tmp_path
    return tmp_path


def listed() -> str:
    out = StringIO()
    call_command("agents", stdout=out)
    return out.getvalue()


def messages() -> list[str]:
    return [f"{message.id} {message.msg}" for message in run_checks(tags=["agents"])]


def test_the_agents_that_ship_are_fine() -> None:
    assert messages() == []
    said = listed()
    for name in ("main", "researcher", "reviewer", "writer", "planner", "general-purpose"):
        assert f"{name} " in said


def test_a_broken_file_is_named_with_its_line_and_stops_nobody(folder: Path) -> None:
    (folder / "good.md").write_text("---\ndescription: Good.\n---\n")
    (folder / "odd.md").write_text("---\ndescription: Odd.\nmood: all\n---\n")
    (folder / "bad.md").write_text("---\ndescription: Bad.\nsteps: many\n---\n")
    found = messages()
    assert [line.split()[0] for line in found] == ["chatapp.E001", "chatapp.W001"]
    assert f"{folder}/bad.md:3: `steps`" in found[0]
    assert f"{folder}/odd.md:3: unknown key `mood`: did you mean `mode`?" in found[1]
    out = StringIO()
    with pytest.raises(CommandError, match="1 of 5 agents is broken"):
        call_command("agents", stdout=out)
    assert "good" in out.getvalue()
    assert f"error: {folder}/bad.md:3" in out.getvalue()


def test_a_missing_folder_leaves_the_built_in_ones(settings: Any, tmp_path: Path) -> None:
    settings.SUBAGENTS_DIR = tmp_path / "nowhere"
    assert messages() == []
    assert list(agents.registry().agents()) == ["main", "general-purpose"]


def test_settings_that_name_nothing_are_errors(settings: Any) -> None:
    settings.BRANCHLINE_AGENT = "nobody"
    assert [line.split()[0] for line in messages()] == ["chatapp.E003"]
    settings.BRANCHLINE_SUBAGENTS = ["tests.nowhere.AGENTS"]
    agents.registry.cache_clear()
    assert [line.split()[0] for line in messages()] == ["chatapp.E002"]


@pytest.mark.django_db
def test_code_declares_for_everybody_and_for_one_owner(settings: Any, alice: User, bob: User) -> None:
    settings.BRANCHLINE_SUBAGENTS = ["tests.chatapp.test_agents.EVERYBODY", "tests.chatapp.test_agents.for_owner"]
    ours, theirs = agents.roster_of(alice), agents.roster_of(bob)
    assert {"coder", "aide-of-alice"} <= set(ours.agents)
    assert "aide-of-alice" not in theirs.agents
    assert "coder" in agents.registry().agents()


@pytest.mark.django_db
def test_a_conversation_starts_with_the_agent_that_is_set_and_keeps_its_snapshot(
    settings: Any, folder: Path, alice: User
) -> None:
    (folder / "host.md").write_text("---\ndescription: Hosts.\nsteps: 3\n---\nBe kind.\n")
    settings.BRANCHLINE_AGENT = "host"
    talk = create_conversation(alice)
    assert (talk.agent_id, talk.declaration["prompt"], talk.declaration["steps"]) == ("host", "Be kind.", 3)
    (folder / "host.md").write_text("---\ndescription: Hosts.\n---\nBe brief, please.\n")
    talk.refresh_from_db()
    assert talk.declaration["prompt"] == "Be kind."
    assert create_conversation(alice).declaration["steps"] == settings.BRANCHLINE_MAX_STEPS


@pytest.mark.django_db
def test_an_agent_is_chosen_by_who_may(folder: Path, alice: User, bob: User) -> None:
    (folder / "guild.md").write_text("---\ndescription: For the guild.\ngroups: [guild]\n---\n")
    (folder / "hand.md").write_text("---\ndescription: Hand.\nmode: subagent\n---\n")
    alice.groups.add(Group.objects.create(name="guild"))
    talk = create_conversation(alice, agent_id="guild")
    changed = change_conversation(alice, talk.pk, {"agent_id": "main"})
    assert changed is not None
    assert (changed.agent_id, changed.declaration["mode"]) == ("main", "primary")
    for user, agent_id in ((bob, "guild"), (alice, "hand"), (alice, "nobody")):
        with pytest.raises(InvalidField):
            create_conversation(user, agent_id=agent_id)
    unknown: dict[str, Any] = {"agent_id": "hand"}
    with pytest.raises(InvalidField):
        change_conversation(alice, talk.pk, unknown)
