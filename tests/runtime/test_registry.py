"""Which agents there are: what outranks what, what is re-read, what is broken alone, and who may see it."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chatapp.runtime.declarations import SubagentDeclaration, WorkspaceChoice, normalised
from chatapp.runtime.policy import HandoffPolicy, admit, depth_limit
from chatapp.runtime.registry import Roster, SubagentRegistry


def write(folder: Path, name: str, head: str = "description: Helps.", body: str = "Do it.") -> None:
    (folder / f"{name}.md").write_text(f"---\n{head}\n---\n{body}\n")


def code(agent_id: str, **fields: object) -> SubagentDeclaration:
    return SubagentDeclaration.model_validate({"agent_id": agent_id, "description": "By code.", **fields})


def registry(folder: Path, *declared: SubagentDeclaration) -> SubagentRegistry:
    return SubagentRegistry(folder, folder, lambda: declared, {"read_file"})


def test_files_outrank_what_is_built_in_and_code_outranks_files(tmp_path: Path) -> None:
    write(tmp_path, "general-purpose", "description: Ours.")
    write(tmp_path, "writer", "description: By file.")
    agents = registry(tmp_path, code("writer")).agents()
    assert {name: one.origin for name, one in agents.items()} == {
        "main": "built-in", "writer": "code", "general-purpose": "file",
    }  # fmt: skip
    [problem] = agents["writer"].problems
    assert "code wins" in problem.text
    assert problem.warning
    # The last to be chosen by a model: it fits everything.
    assert list(agents)[-1] == "general-purpose"


def test_files_are_read_again_when_they_change_and_what_breaks_keeps_its_last_good_version(tmp_path: Path) -> None:
    write(tmp_path, "writer", "description: First.")
    found = registry(tmp_path)
    write(tmp_path, "broken", "mode: all")
    assert found.agents()["broken"].broken
    assert found.agents()["writer"].declaration is not None
    write(tmp_path, "writer", "description: Second one.")
    assert found.roster().agents["writer"].description == "Second one."
    write(tmp_path, "writer", "descr: Third.")
    assert found.agents()["writer"].broken
    assert found.roster().agents["writer"].description == "Second one."
    (tmp_path / "writer.md").unlink()
    assert "writer" not in found.roster().agents


def test_the_same_size_at_the_same_time_is_seen_too(tmp_path: Path) -> None:
    write(tmp_path, "writer", "description: aa")
    found = registry(tmp_path)
    assert found.roster().agents["writer"].description == "aa"
    before = (tmp_path / "writer.md").stat()
    write(tmp_path, "other", "description: bb")
    os.replace(tmp_path / "other.md", tmp_path / "writer.md")
    os.utime(tmp_path / "writer.md", ns=(before.st_atime_ns, before.st_mtime_ns))
    assert found.roster().agents["writer"].description == "bb"


def test_a_handoff_name_is_there_once_and_the_earlier_one_goes_on(tmp_path: Path) -> None:
    write(tmp_path, "z", "description: Z.\ntool_name: ask")
    found = registry(tmp_path)
    assert not found.agents()["z"].broken
    write(tmp_path, "a", "description: A.\ntool_name: ask")
    agents = found.agents()
    assert not agents["z"].broken
    [problem] = agents["a"].problems
    assert problem.text.startswith("duplicate subagent tool name")
    assert "'a'" in problem.text
    assert "'z'" in problem.text
    write(tmp_path, "b", "description: B.\ntool_name: read_file")
    assert "read_file" in found.agents()["b"].problems[0].text


def test_two_origins_in_code_are_an_error(tmp_path: Path) -> None:
    both = code("both", prompt="x", workspace=WorkspaceChoice(path="kit"))
    missing = code("missing", workspace=WorkspaceChoice(path="kit"))
    agents = registry(tmp_path, both, missing).agents()
    assert "two origins" in agents["both"].problems[0].text
    assert "AGENTS.md" in agents["missing"].problems[0].text


def test_only_those_meant_for_it_can_be_spawned_chosen_or_seen() -> None:
    agents = [
        code("boss", mode="primary"),
        code("both"),
        code("hand", mode="subagent"),
        code("ghost", mode="subagent", hidden=True),
        code("guild", groups=["editors"]),
    ]
    roster = Roster({one.agent_id: one for one in agents})
    assert [one.agent_id for one in roster.choosable()] == ["boss", "both"]
    assert [one.agent_id for one in roster.listed(HandoffPolicy(), 1, 1)] == ["both", "hand"]
    assert isinstance(roster.spawnable(" ghost "), SubagentDeclaration)
    assert "PRIMARY-only" in str(roster.spawnable("boss"))
    for unknown in ("", "nobody", "guild", "BOTH"):
        assert "There is no agent" in str(roster.spawnable(unknown))
    assert isinstance(Roster(roster.agents, frozenset({"editors"})).spawnable("guild"), SubagentDeclaration)
    refusing = HandoffPolicy(denied_tools=("subagent_both",))
    assert [one.agent_id for one in roster.listed(refusing, 1, 1)] == ["hand"]
    assert roster.listed(HandoffPolicy(), 2, 1) == []


@pytest.mark.parametrize(
    ("policy", "depth", "reason"),
    [
        (HandoffPolicy(), 1, ""),
        (HandoffPolicy(), 2, "handoff depth 2 exceeds maxDepth 1"),
        (HandoffPolicy(max_depth=0), 3, ""),
        (HandoffPolicy(max_depth=0), 4, "handoff depth 4 exceeds maxDepth 3"),
        (HandoffPolicy(max_depth=9), 4, "handoff depth 4 exceeds maxDepth 3"),
        (HandoffPolicy(allowed_tools=("other",)), 1, "tool is not in allowedTools"),
        (HandoffPolicy(allowed_tools=("subagent_a",)), 1, ""),
        (HandoffPolicy(allowed_tools=("agent_send",)), 1, ""),
        (HandoffPolicy(denied_tools=("subagent_a",)), 9, "tool is in deniedTools"),
        (HandoffPolicy(denied_tools=("agent_spawn",)), 1, "tool is in deniedTools"),
        (HandoffPolicy(enabled=False, denied_tools=("subagent_a",)), 3, ""),
        (HandoffPolicy(enabled=False, denied_tools=("subagent_a",)), 4, "handoff depth 4 exceeds maxDepth 3"),
    ],
)
def test_admission(policy: HandoffPolicy, depth: int, reason: str) -> None:
    assert admit(policy, "subagent_a", depth, depth_limit([policy])) == reason


def test_the_smallest_depth_on_the_chain_counts() -> None:
    assert depth_limit([HandoffPolicy(max_depth=3), HandoffPolicy(max_depth=1)]) == 1
    assert depth_limit([HandoffPolicy(max_depth=0), HandoffPolicy(max_depth=2)]) == 2


@pytest.mark.parametrize(
    ("name", "plain"),
    [("Code Reviewer", "code_reviewer"), ("2nd-opinion", "agent_2nd_opinion"), ("__x__", "x"),
     ("review/QA v2.0", "review_qa_v2_0"), ("研究", "agent")],
)  # fmt: skip
def test_a_handoff_name_is_made_from_the_agents(name: str, plain: str) -> None:
    assert normalised(name) == plain


@given(st.text(max_size=80))
def test_a_made_name_is_always_a_tools(name: str) -> None:
    assert normalised(name).replace("_", "a").isalnum()
    assert normalised(normalised(name)) == normalised(name)
