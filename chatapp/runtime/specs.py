"""Agents as Markdown files: front matter and body become a declaration, or problems with their lines."""

from __future__ import annotations

import difflib
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any, get_args

import yaml
from pydantic import BaseModel, ValidationError
from pydantic.alias_generators import to_camel

from chatapp.runtime.declarations import SubagentDeclaration

FENCE = re.compile(r"\A\ufeff?---[ \t]*\r?\n(?P<head>.*?)^---[ \t]*\r?$\n?(?P<body>.*)\Z", re.DOTALL | re.MULTILINE)
SPEC_BYTES = 256 * 1024
# Steps by their old name; a file's own name is its agent's.
RENAMED = {"maxIters": "steps", "max_iters": "steps"}
NOT_HERE = {
    "name": "the file's name is the agent's; this is ignored",
    "skills": "skills are not supported here; this is ignored",
}


@dataclass(frozen=True)
class Problem:
    """What is wrong with a declaration. `line` 0 is no line of a file; a warning leaves the agent usable."""

    text: str
    line: int = 0
    warning: bool = False


@dataclass(frozen=True)
class Spec:
    """What a file says: its declaration unless it is broken, and what is to be said about it."""

    agent_id: str
    declaration: SubagentDeclaration | None
    problems: tuple[Problem, ...] = ()


class _Lines:
    """On which line of the file each key stands."""

    def __init__(self, head: str) -> None:
        self._lines: dict[tuple[str, ...], int] = {}
        self._walk(yaml.compose(head, Loader=yaml.SafeLoader), ())

    def _walk(self, node: yaml.Node | None, path: tuple[str, ...]) -> None:
        if not isinstance(node, yaml.MappingNode):
            return
        for key, value in node.value:
            name = str(key.value)
            # The fence is the file's first line.
            self._lines[*path, RENAMED.get(name, name)] = self._lines[*path, name] = key.start_mark.line + 2
            self._walk(value, (*path, name))

    def of(self, path: tuple[Any, ...]) -> int:
        """Of the key, in snake or camel case, or of the nearest one above it."""
        names = tuple(str(part) for part in path)
        for spelt in (names, tuple(map(to_camel, names))):
            if line := self._lines.get(spelt):
                return line
        return self.of(path[:-1]) if path else 1


def read_spec(path: Path, project: Path) -> Spec:
    """The agent in this file. Whatever is wrong with the file is a problem of this agent alone."""
    agent_id = path.stem
    try:
        with path.open("rb") as file:
            raw = file.read(SPEC_BYTES + 1)
        if len(raw) > SPEC_BYTES:
            return _broken(agent_id, Problem(f"the file is larger than {SPEC_BYTES // 1024} KB", 1))
        return parse_spec(agent_id, raw.decode("utf-8"), project)
    except UnicodeDecodeError as error:
        return _broken(agent_id, Problem("not UTF-8", raw[: error.start].count(b"\n") + 1))
    except OSError as error:
        return _broken(agent_id, Problem(f"cannot be read: {error.strerror}"))


def parse_spec(agent_id: str, text: str, project: Path) -> Spec:
    found = FENCE.match(text)
    if found is None:
        return _broken(agent_id, Problem("front matter between two lines of `---` must come first", 1))
    try:
        data, lines = yaml.safe_load(found["head"]), _Lines(found["head"])
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        what = getattr(error, "problem", None) or "this is no YAML"
        return _broken(agent_id, Problem(f"front matter: {what}", mark.line + 2 if mark else 1))
    if not isinstance(data, dict):
        return _broken(agent_id, Problem("front matter: keys with values are expected", 2))
    problems: list[Problem] = []
    fields = _known(SubagentDeclaration, data, (), lines, problems)
    prompt = _prompt(fields, found["body"].strip(), project, lines, problems)
    try:
        declaration = SubagentDeclaration.model_validate({**fields, "prompt": prompt, "agent_id": agent_id})
    except ValidationError as error:
        return _broken(agent_id, *_errors(error, lines), *problems)
    fine = all(problem.warning for problem in problems)
    return Spec(agent_id, declaration if fine else None, tuple(problems))


def _broken(agent_id: str, *problems: Problem) -> Spec:
    return Spec(agent_id, None, problems)


def _known(
    model: type[BaseModel], data: dict[Any, Any], path: tuple[str, ...], lines: _Lines, problems: list[Problem]
) -> dict[str, Any]:
    """By their snake-case names what the model knows; a warning for each key that it does not."""
    names = {spelt: name for name in model.model_fields for spelt in (name, to_camel(name))}
    names = {spelt: name for spelt, name in names.items() if path or name not in ("agent_id", "prompt")}
    out: dict[str, Any] = {}
    for key, value in data.items():
        name = names.get(str(key)) or (None if path else RENAMED.get(str(key)))
        if name is None:
            problems.append(Problem(_unknown(str(key), names, path), lines.of((*path, key)), warning=True))
            continue
        inner = _model(model, name)
        if inner is not None and isinstance(value, dict):
            value = _known(inner, value, (*path, name), lines, problems)
        if str(key) not in RENAMED or name not in out:
            out[name] = value
    return out


def _model(model: type[BaseModel], name: str) -> type[BaseModel] | None:
    kind = model.model_fields[name].annotation
    kinds = [kind, *get_args(kind)]
    return next((one for one in kinds if isinstance(one, type) and issubclass(one, BaseModel)), None)


def _unknown(key: str, names: dict[str, str], path: tuple[str, ...]) -> str:
    if not path and key in NOT_HERE:
        return f"`{key}`: {NOT_HERE[key]}"
    near = difflib.get_close_matches(key, names, n=1)
    return f"unknown key `{key}`" + (f": did you mean `{near[0]}`?" if near else "")


def _prompt(fields: dict[str, Any], body: str, project: Path, lines: _Lines, problems: list[Problem]) -> str:
    """The AGENTS.md at the path if there is one, else the body."""
    workspace = fields.get("workspace")
    path = workspace.get("path") if isinstance(workspace, dict) else None
    if not isinstance(path, str) or not path:
        return body
    line = lines.of(("workspace", "path"))
    try:
        prompt = agents_md(path, project)
    except ValueError as missing:
        instead = "; the body is used" if body else ""
        problems.append(Problem(f"{missing}{instead}", line, warning=bool(body)))
        return body
    if body:
        problems.append(Problem("the body is ignored: `workspace.path` has an AGENTS.md", line, warning=True))
    return prompt


def agents_md(path: str, project: Path) -> str:
    """The prompt of a declaration that has it in a folder of the project. ValueError says why there is none."""
    folder = (project / path).resolve()
    if not folder.is_relative_to(project.resolve()):
        raise ValueError(f"`workspace.path` {path!r} is outside the project")
    try:
        return (folder / "AGENTS.md").read_text("utf-8").strip()
    except (OSError, UnicodeDecodeError):
        raise ValueError(f"there is no AGENTS.md in `workspace.path` {path!r}") from None


def _errors(error: ValidationError, lines: _Lines) -> list[Problem]:
    return [Problem(_worded(one), lines.of(_named(one["loc"]))) for one in error.errors()]


def _named(loc: tuple[Any, ...]) -> tuple[str, ...]:
    """Without positions in lists; validation names a field as it was given, which is snake case here."""
    return tuple(part for part in loc if isinstance(part, str))


def _worded(error: Any) -> str:
    names = ".".join(_named(error["loc"]))
    if error["type"] == "missing":
        return f"`{names}` is missing"
    message = error["msg"].removeprefix("Value error, ")
    return f"`{names}`: {message}" if names else message
