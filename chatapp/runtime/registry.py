"""The agents of this server: built-in ones, files and code in one registry; what of it may be chosen or spawned."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from chatapp.runtime.declarations import GENERAL_PURPOSE, SubagentDeclaration, built_in
from chatapp.runtime.policy import HandoffPolicy, admit
from chatapp.runtime.specs import Problem, Spec, agents_md, read_spec

Origin = Literal["built-in", "file", "code"]
Sign = tuple[int, int, int]


@dataclass(frozen=True)
class Agent:
    """One entry: what works of it, where it comes from, and what is wrong with it."""

    agent_id: str
    declaration: SubagentDeclaration | None
    origin: Origin
    path: Path | None = None
    problems: tuple[Problem, ...] = ()

    @property
    def broken(self) -> bool:
        return any(not problem.warning for problem in self.problems)


@dataclass(frozen=True)
class Roster:
    """What one turn works with: the usable declarations by id, in the order in which they are listed."""

    agents: Mapping[str, SubagentDeclaration] = field(default_factory=dict)
    groups: frozenset[str] = frozenset()

    def mine(self, declaration: SubagentDeclaration) -> bool:
        return not declaration.groups or bool(self.groups.intersection(declaration.groups))

    def choosable(self) -> list[SubagentDeclaration]:
        """For a conversation: everything but what can be spawned only."""
        return [one for one in self.agents.values() if one.mode != "subagent" and self.mine(one) and not one.hidden]

    def spawnable(self, agent_id: str) -> SubagentDeclaration | str:
        """The declaration, or why there is none, worded for a model."""
        found = self.agents.get(agent_id.strip())
        if found is None or not self.mine(found):
            return f"There is no agent {agent_id.strip()[:100]!r}."
        if found.mode == "primary":
            return f"{found.agent_id!r} is PRIMARY-only: it answers conversations and cannot be spawned."
        return found

    def listed(self, policy: HandoffPolicy, depth: int, limit: int) -> list[SubagentDeclaration]:
        """What a model is told of: spawnable, not hidden, and not refused by its policy whatever it asks."""
        return [
            one
            for one in self.agents.values()
            if one.mode != "primary"
            and not one.hidden
            and self.mine(one)
            and not admit(policy, one.handoff_name, depth, limit)
        ]


class SubagentRegistry:
    """Files are read again when they change; one that breaks keeps its last good version.

    `code` gives what settings declare for everybody; it outranks a file of the same name, which is reported.
    """

    def __init__(
        self,
        folder: Path,
        project: Path,
        code: Callable[[], Iterable[SubagentDeclaration]] = lambda: (),
        tool_names: Collection[str] = (),
    ) -> None:
        self._folder = folder
        self._project = project
        self._code = code
        self._tool_names = frozenset(tool_names)
        self._signs: dict[Path, Sign] | None = None
        self._specs: dict[Path, Spec] = {}
        self._good: dict[str, SubagentDeclaration] = {}
        self._agents: dict[str, Agent] = {}

    def agents(self) -> dict[str, Agent]:
        """All entries by id, broken ones too, as the files are now."""
        signs = self._look()
        if signs != self._signs:
            self._read(signs)
        return self._agents

    def roster(self, groups: frozenset[str] = frozenset(), more: Iterable[SubagentDeclaration] = ()) -> Roster:
        """For one owner. `more` is what code declares for this owner alone."""
        found = {name: one.declaration for name, one in self.agents().items() if one.declaration is not None}
        found.update({one.agent_id: one for one in more})
        return Roster(found, groups)

    def _look(self) -> dict[Path, Sign]:
        signs = {}
        for path in sorted(self._folder.glob("*.md")):
            try:
                info = path.stat()
            except OSError:
                continue
            signs[path] = (info.st_mtime_ns, info.st_size, info.st_ino)
        return signs

    def _read(self, signs: dict[Path, Sign]) -> None:
        old = self._signs or {}
        self._specs = {
            path: self._specs[path] if old.get(path) == sign and path in self._specs else read_spec(path, self._project)
            for path, sign in signs.items()
        }
        agents = {one.agent_id: Agent(one.agent_id, one, "built-in") for one in built_in()}
        for path, spec in self._specs.items():
            agents[spec.agent_id] = self._from_file(path, spec)
        for declaration in self._code():
            agents[declaration.agent_id] = self._from_code(declaration, agents.get(declaration.agent_id))
        self._agents = self._without_clashes(agents)
        self._good = {name: one.declaration for name, one in self._agents.items() if one.declaration is not None}
        self._signs = signs

    def _from_file(self, path: Path, spec: Spec) -> Agent:
        declaration = spec.declaration or self._good.get(spec.agent_id)
        return Agent(spec.agent_id, declaration, "file", path, spec.problems)

    def _from_code(self, declaration: SubagentDeclaration, replaced: Agent | None) -> Agent:
        problems: tuple[Problem, ...] = ()
        if replaced is not None and replaced.origin != "built-in":
            problems = (Problem(f"{declaration.agent_id!r} is declared twice; code wins", warning=True),)
        path = declaration.workspace.path
        if path and declaration.prompt:
            problems += (Problem("two origins of the prompt: `workspace.path` and `prompt`"),)
            return Agent(declaration.agent_id, None, "code", None, problems)
        if path:
            try:
                declaration = declaration.model_copy(update={"prompt": agents_md(path, self._project)})
            except ValueError as missing:
                return Agent(declaration.agent_id, None, "code", None, (*problems, Problem(str(missing))))
        return Agent(declaration.agent_id, declaration, "code", None, problems)

    def _without_clashes(self, agents: dict[str, Agent]) -> dict[str, Agent]:
        """Each handoff name once: who had it goes on, the later one is broken."""
        held = {one.handoff_name: name for name, one in self._good.items()}
        taken: dict[str, str] = {}
        order = sorted(agents, key=lambda name: (name not in held.values(), name))
        out: dict[str, Agent] = {}
        for name in order:
            one = agents[name]
            handoff = one.declaration.handoff_name if one.declaration else ""
            other = f"the built-in tool {handoff!r}" if handoff in self._tool_names else taken.get(handoff, "")
            if handoff and other:
                said = f"duplicate subagent tool name {handoff!r}: {name!r} and {other}"
                one = Agent(name, None, one.origin, one.path, (*one.problems, Problem(said)))
            elif handoff:
                taken[handoff] = repr(name)
            out[name] = one
        return {name: out[name] for name in sorted(out, key=lambda name: (name == GENERAL_PURPOSE, name))}
