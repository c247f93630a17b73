"""Agents as files: every key with its default, alias, a good and a bad value; what is wrong, and on which line."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from chatapp.runtime.declarations import SubagentDeclaration
from chatapp.runtime.specs import SPEC_BYTES, Spec, parse_spec, read_spec

NOWHERE = Path("/nonexistent")


def spec(head: str, body: str = "Do it.", project: Path = NOWHERE) -> Spec:
    return parse_spec("helper", f"---\ndescription: Helps.\n{head}\n---\n{body}\n", project)


def good(head: str, **more: Any) -> SubagentDeclaration:
    found = spec(head, **more)
    assert found.declaration is not None, found.problems
    return found.declaration


def value(declaration: SubagentDeclaration, key: str) -> Any:
    found: Any = declaration
    for name in key.split("."):
        found = getattr(found, name)
    return found


DEFAULTS = {
    "mode": "all", "hidden": False, "tools": None, "model": "", "steps": None, "temperature": None, "top_p": None,
    "variant": "", "workspace.mode": "isolated", "workspace.path": "", "expose_to_user": None, "tool": False,
    "tool_name": "", "session_mode": None, "persist_session": None, "inherit_parent_permissions": True,
    "permission_mode": "", "permissions.deny": (), "permissions.ask": (), "permissions.allow": (),
    "handoff.enabled": True, "handoff.max_depth": 1, "handoff.max_retries": 0, "handoff.timeout_seconds": 0,
    "handoff.allowed_tools": (), "handoff.denied_tools": (), "handoff.on_denied": "fail", "handoff.on_error": "fail",
    "handoff.input_filter": "", "parallel_tools": None, "groups": (), "recall": "", "compaction.trigger": "",
    "compaction.strategy": "", "token_cap": None, "url": "", "headers": {}, "protocol": "agent-protocol",
    "remote_streaming": True, "remote_stream_detail": "FULL", "remote_ask_policy": "DENY",
    "remote_context_attributes": {}, "remote_plan_mode": False,
}  # fmt: skip


def test_a_file_of_a_description_has_every_default() -> None:
    found = good("")
    assert (found.agent_id, found.description, found.prompt) == ("helper", "Helps.", "Do it.")
    assert {key: value(found, key) for key in DEFAULTS} == DEFAULTS
    named = {key.partition(".")[0] for key in DEFAULTS} | {"agent_id", "description", "prompt"}
    assert named == set(SubagentDeclaration.model_fields)


@pytest.mark.parametrize(
    ("head", "key", "wanted"),
    [
        ("mode: primary", "mode", "primary"),
        ("hidden: true", "hidden", True),
        ("tools: [read_file, list_files]", "tools", ("read_file", "list_files")),
        ("tools: read_file, list_files", "tools", ("read_file", "list_files")),
        ('tools: "[read_file]"', "tools", ("read_file",)),
        ("tools: []", "tools", ()),
        ("model: openai:gpt", "model", "openai:gpt"),
        ("steps: 7", "steps", 7),
        ("maxIters: 7", "steps", 7),
        ("max_iters: 7\nsteps: 3", "steps", 3),
        ("steps: 3\nmax_iters: 7", "steps", 3),
        ("temperature: 0.3", "temperature", 0.3),
        ('temperature: "0.3"', "temperature", 0.3),
        ("top_p: 0.5", "top_p", 0.5),
        ("topP: 0.5", "top_p", 0.5),
        ("variant: fast", "variant", "fast"),
        ("workspace:\n  mode: shared", "workspace.mode", "shared"),
        ("expose_to_user: false", "expose_to_user", False),
        ("exposeToUser: true", "expose_to_user", True),
        ("tool: true", "tool", True),
        ("tool_name: ask_helper", "tool_name", "ask_helper"),
        ("toolName: ask_helper", "tool_name", "ask_helper"),
        ("session_mode: reuse", "session_mode", "reuse"),
        ("sessionMode: new", "session_mode", "new"),
        ("persistSession: true", "persist_session", True),
        ("inheritParentPermissions: false", "inherit_parent_permissions", False),
        ("permission_mode: explore", "permission_mode", "explore"),
        ("permissions:\n  deny: [write_file]", "permissions.deny", ("write_file",)),
        ("permissions:\n  ask:\n  - write_file: notes/**", "permissions.ask", ("write_file: notes/**",)),
        ('permissions:\n  allow: ["write_file: a"]', "permissions.allow", ("write_file: a",)),
        ("handoff:\n  enabled: false", "handoff.enabled", False),
        ("handoff:\n  maxDepth: 2", "handoff.max_depth", 2),
        ("handoff:\n  max_retries: 1", "handoff.max_retries", 1),
        ("handoff:\n  timeoutSeconds: 1.5", "handoff.timeout_seconds", 1.5),
        ("handoff:\n  allowed_tools: subagent_a", "handoff.allowed_tools", ("subagent_a",)),
        ("handoff:\n  deniedTools: [subagent_a]", "handoff.denied_tools", ("subagent_a",)),
        ("handoff:\n  on_denied: fallback_to_primary", "handoff.on_denied", "fallback_to_primary"),
        ("handoff:\n  on_error: fallback_to_primary", "handoff.on_error", "fallback_to_primary"),
        ("handoff:\n  input_filter: a.b", "handoff.input_filter", "a.b"),
        ("parallel_tools: 2", "parallel_tools", 2),
        ("groups: [editors]", "groups", ("editors",)),
        ("recall: user", "recall", "user"),
        ("compaction:\n  trigger: turns(20), tokens(9000)", "compaction.trigger", "turns(20), tokens(9000)"),
        ("compaction:\n  strategy: summary(4, 1)", "compaction.strategy", "summary(4, 1)"),
        ("token_cap: 1000", "token_cap", 1000),
        ("headers:\n  X-Key: env:BRANCHLINE_REMOTE_KEY", "headers", {"X-Key": "env:BRANCHLINE_REMOTE_KEY"}),
        ("protocol: a2a", "protocol", "a2a"),
        ("remoteStreaming: false", "remote_streaming", False),
        ("remote_stream_detail: STATUS", "remote_stream_detail", "STATUS"),
        ("remote_ask_policy: PROPAGATE", "remote_ask_policy", "PROPAGATE"),
        ("remote_context_attributes: {a: 1}", "remote_context_attributes", {"a": 1}),
        ("remote_plan_mode: true", "remote_plan_mode", True),
    ],
)
def test_a_good_value_is_taken(head: str, key: str, wanted: object) -> None:
    assert value(good(head), key) == wanted
    assert value(SubagentDeclaration.from_snapshot(good(head).snapshot()), key) == wanted


def test_a_remote_agent_has_no_prompt_here() -> None:
    assert value(good("url: https://agents.example/a", body=""), "url") == "https://agents.example/a"
    [problem] = spec("url: https://agents.example/a").problems
    assert "leave out the body" in problem.text


@pytest.mark.parametrize(
    ("head", "named", "line"),
    [
        ("mode: boss", "`mode`", 3),
        ("hidden: yes please", "`hidden`", 3),
        ("tools: {a: b}", "`tools`", 3),
        ("model: [a]", "`model`", 3),
        ('steps: "7"', "`steps`", 3),
        ("steps: 0", "`steps`", 3),
        ("mode: all\nmaxIters: x", "`steps`", 4),
        ("temperature: warm", "`temperature`", 3),
        ("top_p: 0", "`top_p`", 3),
        ("topP: 2", "`top_p`", 3),
        ("variant: [a]", "`variant`", 3),
        ("workspace:\n  mode: mine", "`workspace.mode`", 4),
        ("workspace: mine", "`workspace`", 3),
        ("expose_to_user: maybe", "`expose_to_user`", 3),
        ("tool: 1", "`tool`", 3),
        ("tool_name: a b", "`tool_name`", 3),
        ("session_mode: old", "`session_mode`", 3),
        ("session_mode: new\npersist_session: true", "contradict", 1),
        ("session_mode: reuse\npersist_session: false", "contradict", 1),
        ("inherit_parent_permissions: 0", "`inherit_parent_permissions`", 3),
        ("permission_mode: bypass", "`permission_mode`", 3),
        ("permissions:\n  deny: [a b c]", "`permissions.deny`", 4),
        ("permissions:\n  deny:\n  - a: 1\n    b: 2", "`permissions.deny`", 4),
        ("handoff:\n  enabled: perhaps", "`handoff.enabled`", 4),
        ("handoff:\n  max_depth: -1", "`handoff.max_depth`", 4),
        ("handoff:\n  maxRetries: many", "`handoff.max_retries`", 4),
        ("handoff:\n  timeout_seconds: soon", "`handoff.timeout_seconds`", 4),
        ("handoff:\n  allowed_tools: 3", "`handoff.allowed_tools`", 4),
        ("handoff:\n  denied_tools: 3", "`handoff.denied_tools`", 4),
        ("handoff:\n  on_denied: shrug", "`handoff.on_denied`", 4),
        ("handoff:\n  on_error: shrug", "`handoff.on_error`", 4),
        ("handoff:\n  input_filter: rm -rf", "`handoff.input_filter`", 4),
        ("parallel_tools: 0", "`parallel_tools`", 3),
        ("groups: {a: b}", "`groups`", 3),
        ("recall: everybody", "`recall`", 3),
        ("compaction:\n  trigger: often", "`compaction.trigger`", 4),
        ("compaction:\n  strategy: forget(all)", "`compaction.strategy`", 4),
        ("token_cap: 0", "`token_cap`", 3),
        ("url: ftp://x", "`url`", 3),
        ("headers:\n  X-Key: secret", "`headers.X-Key`", 4),
        ("headers:\n  X-Key: env:SECRET_KEY", "`headers.X-Key`", 4),
        ("protocol: carrier-pigeon", "`protocol`", 3),
        ("remote_streaming: 1", "`remote_streaming`", 3),
        ("remote_stream_detail: ALL", "`remote_stream_detail`", 3),
        ("remote_ask_policy: SHRUG", "`remote_ask_policy`", 3),
        ("remote_context_attributes: [a]", "`remote_context_attributes`", 3),
        ("remote_plan_mode: 1", "`remote_plan_mode`", 3),
    ],
)
def test_a_bad_value_is_an_error_with_its_line(head: str, named: str, line: int) -> None:
    found = spec(head)
    assert found.declaration is None
    assert [(named in problem.text, problem.line) for problem in found.problems] == [(True, line)], found.problems


@pytest.mark.parametrize(
    ("head", "said", "line"),
    [
        ("name: other", "the file's name is the agent's", 3),
        ("skills: [a]", "not supported", 3),
        ("temprature: 1", "did you mean `temperature`?", 3),
        ("handoff:\n  maxDeth: 2", "did you mean `maxDepth`?", 4),
        ("prompt: hello", "unknown key `prompt`", 3),
        ("agent_id: other", "unknown key `agent_id`", 3),
    ],
)
def test_an_unknown_key_is_a_warning_with_the_nearest_name(head: str, said: str, line: int) -> None:
    found = spec(head)
    assert found.declaration is not None
    [problem] = found.problems
    assert said in problem.text
    assert (problem.line, problem.warning) == (line, True)


@pytest.mark.parametrize(
    ("text", "said", "line"),
    [
        ("", "must come first", 1),
        ("Just a prompt.", "must come first", 1),
        ("\n---\ndescription: x\n---\n", "must come first", 1),
        ("---\ndescription: x\n", "must come first", 1),
        ("---\n- a\n---\n", "keys with values", 2),
        ("---\n---\n", "keys with values", 2),
        ("---\ndescription: [\n---\n", "front matter", 3),
        ("---\nmode: all\n---\n", "`description` is missing", 1),
        ("---\ndescription: ' '\n---\n", "blank", 1),
        ("---\ndescription: ''\n---\n", "`description`", 2),
    ],
)
def test_a_file_that_is_no_agent_says_why(text: str, said: str, line: int) -> None:
    found = parse_spec("helper", text, NOWHERE)
    assert found.declaration is None
    assert said in found.problems[0].text
    assert found.problems[0].line == line


def test_a_rule_line_may_hold_dashes_and_the_file_a_byte_order_mark() -> None:
    text = "\ufeff---\r\ndescription: a --- b\r\n---\r\nOne.\r\n\r\n---\r\nTwo."
    found = parse_spec("helper", text, NOWHERE).declaration
    assert found is not None
    assert (found.description, found.prompt) == ("a --- b", "One.\r\n\r\n---\r\nTwo.")


def test_the_prompt_comes_from_the_path_or_else_from_the_body(tmp_path: Path) -> None:
    (tmp_path / "kit").mkdir()
    (tmp_path / "kit" / "AGENTS.md").write_text("From the path.\n")
    assert good("workspace: {path: kit}", body="", project=tmp_path).prompt == "From the path."
    both = spec("workspace: {path: kit}", "From the body.", tmp_path)
    assert both.declaration is not None
    assert both.declaration.prompt == "From the path."
    assert "the body is ignored" in both.problems[0].text
    (tmp_path / "kit" / "AGENTS.md").unlink()
    instead = spec("workspace: {path: kit}", "From the body.", tmp_path)
    assert instead.declaration is not None
    assert instead.declaration.prompt == "From the body."
    assert "the body is used" in instead.problems[0].text
    assert spec("workspace: {path: kit}", "", tmp_path).declaration is None


@pytest.mark.parametrize("path", ["..", "../other", "/etc"])
def test_a_path_outside_the_project_is_refused(tmp_path: Path, path: str) -> None:
    [problem] = spec(f"workspace: {{path: {path}}}", "", tmp_path).problems
    assert "outside the project" in problem.text


def test_a_file_that_cannot_be_read_is_broken_alone(tmp_path: Path) -> None:
    (tmp_path / "latin.md").write_bytes(b"---\ndescription: caf\xe9\n---\n")
    assert read_spec(tmp_path / "latin.md", tmp_path).problems[0].text == "not UTF-8"
    (tmp_path / "large.md").write_bytes(b"x" * (SPEC_BYTES + 1))
    assert "larger than" in read_spec(tmp_path / "large.md", tmp_path).problems[0].text
    (tmp_path / "folder.md").mkdir()
    assert "cannot be read" in read_spec(tmp_path / "folder.md", tmp_path).problems[0].text
    assert read_spec(tmp_path / "gone.md", tmp_path).declaration is None
