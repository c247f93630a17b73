"""Django's own look at the settings of a product that others can reach."""

from __future__ import annotations

import os
import secrets
import subprocess
import sys
from pathlib import Path

import pytest
from django.conf import settings

PRODUCTION = {
    "PUBLIC_URL": "https://chat.example.org",
    "ALLOWED_HOSTS": "chat.example.org",
    "TRUSTED_PROXIES": "127.0.0.1",
    "SECRET_KEY": secrets.token_urlsafe(48),
}


def check(data: Path, **changed: str) -> subprocess.CompletedProcess[str]:
    kept = {name: value for name, value in os.environ.items() if name in {"PATH", "HOME", "VIRTUAL_ENV"}}
    return subprocess.run(
        [sys.executable, str(settings.BASE_DIR / "manage.py"), "check", "--deploy", "--fail-level", "WARNING"],
        env=kept | {"DATA_DIR": str(data), "BRANCHLINE_MODEL": "demo"} | PRODUCTION | changed,
        capture_output=True,
        text=True,
        timeout=120,
    )


def test_the_deploy_check_finds_nothing_in_production_settings(tmp_path: Path) -> None:
    done = check(tmp_path)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize(
    ("changed", "found"), [({"TRUSTED_PROXIES": ""}, "security.W008"), ({"DEBUG": "on"}, "security.W018")]
)
def test_the_deploy_check_tells_of_what_is_missing(tmp_path: Path, changed: dict[str, str], found: str) -> None:
    done = check(tmp_path, **changed)
    assert done.returncode == 1
    assert found in done.stderr
