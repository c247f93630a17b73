"""The fixed cast, one real Valkey for the run, and the rule that async tests commit for real."""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import Any

import hypothesis
import pytest
import redis
from django.conf import settings
from django.contrib.auth.models import User
from django.db import connection
from django.db.models.signals import post_migrate
from django.utils import translation

from gateway import valkey

FOLDER = Path(os.environ["BRANCHLINE_TEST_FOLDER"])

# A busy machine is no finding; what must be quick is measured elsewhere.
hypothesis.settings.register_profile("untimed", deadline=None)
hypothesis.settings.load_profile("untimed")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Async ORM work runs in another thread, outside a wrapped transaction: its rows would leak or lock."""
    for item in items:
        mark = item.get_closest_marker("django_db")
        if mark and item.get_closest_marker("asyncio") and not mark.kwargs.get("transaction"):
            raise pytest.UsageError(f"{item.nodeid}: an async test needs django_db(transaction=True)")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Half a pair of surrogates that a test logged must not break the wire between processes of a run."""
    report = yield
    report.sections = [(name, text.encode(errors="replace").decode()) for name, text in report.sections]
    return report


def pytest_unconfigure() -> None:
    shutil.rmtree(FOLDER, ignore_errors=True)


def wait_until(done: Any, seconds: float = 10) -> Any:
    """Polls `done()` until it answers something true, and answers that."""
    deadline = time.monotonic() + seconds
    while not (answer := done()):
        if time.monotonic() > deadline:
            raise AssertionError(f"not within {seconds} s: {done}")
        time.sleep(0.01)
    return answer


@pytest.fixture(scope="session")
def django_db_setup(django_db_setup: None) -> None:
    """What a migration leaves for good is not emptied and made anew after each test: that took longer than most."""
    names = connection.introspection.django_table_names

    def emptied(*args: Any, **more: Any) -> list[str]:
        return [name for name in names(*args, **more) if name not in ("auth_permission", "django_content_type")]

    connection.introspection.django_table_names = emptied  # type: ignore[method-assign]
    post_migrate.receivers = []
    post_migrate.sender_receivers_cache.clear()


@pytest.fixture(autouse=True)
def no_language_left() -> Iterator[None]:
    """A request chooses the language of its thread, which is that of the next test too."""
    yield
    translation.deactivate()


@pytest.fixture(scope="session")
def valkey_url() -> Iterator[str]:
    socket = FOLDER / "valkey" / "v.sock"
    valkey.prepare(socket, socket.parent)
    process = subprocess.Popen(valkey.command(socket, socket.parent), stdout=subprocess.DEVNULL)
    try:
        wait_until(lambda: valkey.server_pid(socket))
        yield settings.REDIS_URL
    finally:
        process.terminate()
        process.wait(10)


@pytest.fixture
def live_valkey(valkey_url: str) -> Iterator[redis.Redis]:
    """The run's Valkey, empty."""
    client = redis.Redis.from_url(valkey_url)
    client.flushall()
    yield client
    client.close()


@pytest.fixture
def server_environment(transactional_db: None) -> dict[str, str]:
    """What a `manage.py` of its own needs to work on this test's database and Valkey."""
    return os.environ | {"DJANGO_SETTINGS_MODULE": "chatapp.settings", "DATABASE_URL": database_url()}


def database_url() -> str:
    """Of the tests' own database."""
    name = settings.DATABASES["default"]["TEST"]["NAME"]
    if connection.vendor == "sqlite":
        return f"sqlite:///{name}"
    return os.environ["DATABASE_URL"].replace("/branchline?", f"/{name}?")


def _person(name: str, **more: Any) -> User:
    return User.objects.create_user(name, password=f"{name}-has-a-password", **more)


@pytest.fixture
def alice(db: None) -> User:
    return _person("alice")


@pytest.fixture
def bob(db: None) -> User:
    return _person("bob")


@pytest.fixture
def charlie(db: None) -> User:
    return _person("charlie")


@pytest.fixture
def sue(db: None) -> User:
    """Staff and superuser."""
    return _person("sue", is_staff=True, is_superuser=True)
