"""The settings: each row's default, one bad value each, files for secrets, and the README's table."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from django.conf import settings

from chatapp.env import MODEL_PROVIDERS, ROWS, BadSetting, Environment, Row, valkey_socket
from chatapp.runtime.provider_catalog import PROVIDERS

BAD = {
    "BRANCHLINE_MODEL": "gpt-4",
    "BRANCHLINE_MODELS": "demo,gpt-4",
    "BRANCHLINE_FALLBACK_MODEL": ":x",
    "BRANCHLINE_AGENT": "no agent",
    "BRANCHLINE_SUBAGENTS": "agents/ours",
    "BRANCHLINE_SIGNUP": "maybe",
    "PUBLIC_URL": "chat.example.org",
    "CSRF_TRUSTED_ORIGINS": "https://a.example/path",
    "TRUSTED_PROXIES": "10.0.0.0/99",
    "SECRET_KEY": "short",
    "DATABASE_URL": "mysql://host/name",
    "REDIS_URL": "http://127.0.0.1",
    "DEBUG": "perhaps",
    "LOG_LEVEL": "LOUD",
    "TIME_ZONE": "Mars/Olympus",
    "LANGUAGE_CODE": "English!",
    "METRICS_TOKEN": "short",
    "BRANCHLINE_LEASE_SECONDS": "0",
    "BRANCHLINE_SWEEP_SECONDS": "-1",
    "BRANCHLINE_DOORBELLS": "quiet",
}
FREE_TEXT = {"ALLOWED_HOSTS", "DATA_DIR", "SUBAGENTS_DIR"}


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
def test_it_takes_every_default(row: Row) -> None:
    Environment({})[row.name]


@pytest.mark.parametrize("row", [row for row in ROWS if row.name not in FREE_TEXT], ids=lambda row: row.name)
def test_it_refuses_a_bad_value_in_one_line_that_says_what_is_allowed(row: Row) -> None:
    value = BAD.get(row.name, "12.5 apples")
    with pytest.raises(BadSetting) as refused:
        Environment({row.name: value})[row.name]
    line = str(refused.value)
    assert re.fullmatch(rf"{row.name} is .+; allowed: .+", line)
    assert (value in line) is not row.secret


@pytest.mark.parametrize("name", ["BRANCHLINE_MODEL", "BRANCHLINE_MODELS", "BRANCHLINE_FALLBACK_MODEL"])
def test_it_refuses_a_provider_that_nobody_knows(name: str) -> None:
    with pytest.raises(BadSetting, match=rf"{name} is 'opnai:gpt'; allowed: demo or provider:model.*openai, "):
        Environment({name: "opnai:gpt"})[name]


def test_it_takes_a_model_of_each_provider_and_knows_no_other() -> None:
    assert {*MODEL_PROVIDERS, "demo"} == set(PROVIDERS)
    listed = [f"{provider}:some/model-1" for provider in MODEL_PROVIDERS]
    assert Environment({"BRANCHLINE_MODELS": ",".join(listed)})["BRANCHLINE_MODELS"] == listed


@pytest.mark.parametrize("row", [row for row in ROWS if row.default.isdigit()], ids=lambda row: row.name)
def test_it_refuses_a_number_out_of_range(row: Row) -> None:
    for value in ("-1", "9" * 15, "1e3", "٣"):
        with pytest.raises(BadSetting):
            Environment({row.name: value})[row.name]


def test_it_reads_a_value_from_a_file(tmp_path: Path) -> None:
    (tmp_path / "key").write_text("k" * 40 + "\n")
    assert Environment({"SECRET_KEY_FILE": str(tmp_path / "key")})["SECRET_KEY"] == "k" * 40


@pytest.mark.parametrize("environ", [{"DEBUG": "on", "DEBUG_FILE": "/tmp/x"}, {"DEBUG_FILE": "/nowhere/at/all"}])
def test_it_refuses_two_sources_and_a_file_it_cannot_read(environ: dict[str, str]) -> None:
    with pytest.raises(BadSetting, match="allowed"):
        Environment(environ)["DEBUG"]


def test_it_hands_provider_keys_on_unchanged_also_from_files(tmp_path: Path) -> None:
    (tmp_path / "key").write_text("sk-two\n")
    environ = {"OPENAI_API_KEY": "sk-one", "ANTHROPIC_API_KEY_FILE": str(tmp_path / "key"), "PATH": "/bin"}
    assert Environment(environ).providers() == {"OPENAI_API_KEY": "sk-one", "ANTHROPIC_API_KEY": "sk-two"}


def test_it_keeps_the_socket_short_enough_in_a_deep_folder() -> None:
    assert valkey_socket(Path("/srv/chat")) == Path("/srv/chat/valkey/valkey.sock")
    deep = valkey_socket(Path("/srv") / ("deep/" * 40))
    assert len(os.fsencode(deep)) <= 100
    assert deep != valkey_socket(Path("/srv") / ("deep/" * 41))


def start(tmp_path: Path, code: str = "", **environ: str) -> subprocess.CompletedProcess[str]:
    """A process that loads the settings and runs `code`."""
    script = f"from django.conf import settings as s; s.DEBUG\n{code}"
    env = {"PATH": os.environ["PATH"], "DJANGO_SETTINGS_MODULE": "chatapp.settings", "DATA_DIR": str(tmp_path / "data")}
    return subprocess.run(
        [sys.executable, "-c", script], cwd=settings.BASE_DIR, env=env | environ, capture_output=True, text=True
    )


def test_it_stops_the_start_with_one_line(tmp_path: Path) -> None:
    done = start(tmp_path, BRANCHLINE_MAX_STEPS="0")
    assert done.returncode == 1
    line = "Branchline cannot start: BRANCHLINE_MAX_STEPS is '0'; allowed: a whole number from 1 to 1000\n"
    assert done.stderr == line


def test_it_makes_its_key_once_in_a_private_folder(tmp_path: Path) -> None:
    first, second = (start(tmp_path, "print(s.SECRET_KEY)").stdout for _ in range(2))
    assert first == second
    assert len(first) > 50
    assert (tmp_path / "data").stat().st_mode & 0o777 == 0o700
    assert (tmp_path / "data" / "secret-key").stat().st_mode & 0o777 == 0o600


def test_it_decides_cookies_and_hosts_by_the_public_url(tmp_path: Path) -> None:
    code = "print(s.SESSION_COOKIE_SECURE, s.SECURE_HSTS_SECONDS > 0, s.ALLOWED_HOSTS, s.CSRF_TRUSTED_ORIGINS)"
    https = start(tmp_path, code, PUBLIC_URL="https://chat.example.org", ALLOWED_HOSTS="other.example.org")
    assert https.stdout.strip() == ("True True ['other.example.org', 'chat.example.org'] ['https://chat.example.org']")
    plain = start(tmp_path, code)
    assert plain.stdout.startswith("False False ['127.0.0.1'")


def test_it_passes_the_deployment_checks(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "manage.py", "check", "--deploy", "--fail-level", "WARNING"],
        cwd=settings.BASE_DIR, capture_output=True, text=True,
        env={"PATH": os.environ["PATH"], "DATA_DIR": str(tmp_path), "PUBLIC_URL": "https://chat.example.org",
             "TRUSTED_PROXIES": "10.0.0.1"},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr


def test_the_readme_lists_each_setting_with_its_default() -> None:
    table = (settings.BASE_DIR / "README.md").read_text()
    for row in ROWS:
        shown = row.shown or (f"`{row.default}`" if row.default else "none")
        assert f"| `{row.name}` | {shown} | {row.help} |" in table
