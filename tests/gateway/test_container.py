"""The Containerfile, read and not built: its sources are there, are enough to run, and none of it runs as root."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from django.conf import settings

ROOT = Path(settings.BASE_DIR)
INSTRUCTIONS = frozenset(
    "FROM COPY RUN WORKDIR USER ENV VOLUME EXPOSE STOPSIGNAL HEALTHCHECK ENTRYPOINT CMD".split()  # noqa: SIM905
)


def instructions() -> list[tuple[str, str]]:
    """Name and arguments of each, the lines of one joined."""
    text = re.sub(r"^#.*\n", "", (ROOT / "Containerfile").read_text(), flags=re.MULTILINE)
    lines = [line for line in text.replace("\\\n", "").splitlines() if line.strip()]
    return [(name, rest.strip()) for name, _, rest in (line.partition(" ") for line in lines)]


def last_stage() -> list[tuple[str, str]]:
    every = instructions()
    return every[max(number for number, (name, _) in enumerate(every) if name == "FROM") :]


def copied() -> list[str]:
    """What the last stage takes from the checkout."""
    rows = [rest.split() for name, rest in last_stage() if name == "COPY" and "--from" not in rest]
    return [source for row in rows for source in row[:-1]]


def one(name: str) -> str:
    (rest,) = [rest for found, rest in last_stage() if found == name]
    return rest


def test_it_is_made_of_instructions_that_exist_and_of_files_that_are_there() -> None:
    assert {name for name, _ in instructions()} <= INSTRUCTIONS
    assert (ROOT / "requirements.lock").exists()
    assert all((ROOT / source).exists() for source in copied())


def test_it_installs_by_hash_and_leaves_nothing_to_build_with() -> None:
    (install,) = [rest for name, rest in instructions() if name == "RUN" and "pip install" in rest]
    assert "--require-hashes -r /tmp/requirements.lock" in install
    assert "--only-binary :all:" in install
    assert not [rest for name, rest in last_stage() if re.search("apt|pip install|gcc", rest)]


def test_it_runs_as_somebody_who_is_not_root_on_a_volume() -> None:
    names = [name for name, _ in last_stage()]
    assert one("USER") == "branchline"
    assert names.index("USER") > max(number for number, name in enumerate(names) if name in ("RUN", "COPY"))
    assert one("VOLUME") == "/data"
    assert "DATA_DIR=/data" in one("ENV")
    assert json.loads(one("ENTRYPOINT")) + json.loads(one("CMD")) == ["python", "manage.py", "up", "--host", "0.0.0.0"]


def test_its_health_check_is_a_program_that_fails_where_nothing_answers() -> None:
    _, _, program = json.loads(one("HEALTHCHECK").partition("CMD ")[2])
    # No port is so small: nobody listens there, whatever else this machine runs.
    done = subprocess.run(
        [sys.executable, "-c", program.replace("8000", "1")], capture_output=True, text=True, timeout=20
    )
    assert done.returncode != 0
    assert "ConnectionRefusedError" in done.stderr


@pytest.mark.parametrize("command", [["check"], ["agents"]])
def test_what_it_copies_is_enough_to_run(tmp_path: Path, command: list[str]) -> None:
    for source in copied():
        copy = shutil.copytree if (ROOT / source).is_dir() else shutil.copy
        copy(ROOT / source, tmp_path / source)
    kept = {name: value for name, value in os.environ.items() if name in {"PATH", "HOME", "VIRTUAL_ENV"}}
    done = subprocess.run(
        [sys.executable, "manage.py", *command],
        cwd=tmp_path,
        env=kept | {"DATA_DIR": str(tmp_path / "data"), "BRANCHLINE_MODEL": "demo"},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
