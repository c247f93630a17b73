"""Prints the code's figures and fails when one is over its bar.

Code is `chatapp` and `gateway` without migrations, templates and static files; tests are all of `tests`. Every
line of a file counts, blank ones and comments too; a function counts from its `def` to its last line, one inside
another also on its own.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
P90_LINES, MOST_LINES, MODULE_LINES = 30, 60, 400


def modules(*folders: str) -> list[Path]:
    found = [path for folder in folders for path in sorted((ROOT / folder).rglob("*.py"))]
    return [path for path in found if "migrations" not in path.parts]


def functions(path: Path) -> Iterator[tuple[int, str]]:
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.end_lineno:
            yield node.end_lineno - node.lineno + 1, f"{path.relative_to(ROOT)}:{node.lineno} {node.name}"


def lines(paths: list[Path]) -> int:
    return sum(len(path.read_text().splitlines()) for path in paths)


def main() -> int:
    code, tests = modules("chatapp", "gateway"), modules("tests")
    lengths = sorted(length for path in code for length, _ in functions(path))
    p90 = lengths[int(len(lengths) * 0.9)]
    too_long = [f"{length} lines: {name}" for path in code for length, name in functions(path) if length > MOST_LINES]
    too_big = [f"{size} lines: {path.relative_to(ROOT)}" for path in code if (size := lines([path])) > MODULE_LINES]
    largest = max(code, key=lambda path: lines([path]))
    print(f"functions: {len(lengths)}, p90 {p90} lines (bar {P90_LINES}), longest {lengths[-1]} (bar {MOST_LINES})")
    print(f"modules: {len(code)}, largest {lines([largest])} lines, {largest.relative_to(ROOT)} (bar {MODULE_LINES})")
    print(f"lines: code {lines(code)}, tests {lines(tests)}, tests : code {lines(tests) / lines(code):.2f}")
    for line in (*too_long, *too_big):
        print(f"over the bar: {line}")
    return 1 if too_long or too_big or p90 > P90_LINES else 0


if __name__ == "__main__":
    sys.exit(main())
