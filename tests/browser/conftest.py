"""A real server and a real Chromium, in which alice is logged in."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.error import URLError
from urllib.request import urlopen

import pytest
from django.conf import settings
from django.contrib.auth.models import User
from django.test import Client
from playwright.sync_api import Browser, BrowserContext, ConsoleMessage, Page, sync_playwright

from chatapp.models import Session
from chatapp.store.conversations import create_conversation
from tests.conftest import wait_until
from tests.wire import Wire

ROOT = Path(__file__).resolve().parents[2]
CHROMIUM = ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome")
FLAGS = [
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
    "--disable-background-networking", "--disable-component-update", "--disable-sync",
]  # fmt: skip
# A browser says so itself when a socket cannot be opened; the page shows it as "reconnecting".
EXPECTED = ("WebSocket connection to", "htmx:ws:error", "Failed to fetch", "net::ERR_CONNECTION_REFUSED")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.path.is_relative_to(Path(__file__).parent):
            item.add_marker(pytest.mark.browser)


class Server:
    """`manage.py serve` on a port of its own; may die and come back."""

    def __init__(self, environment: dict[str, str]) -> None:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port = probe.getsockname()[1]
        self.url = f"http://127.0.0.1:{self.port}"
        self.environment = environment | {"PUBLIC_URL": self.url}
        self.process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        command = [sys.executable, "manage.py", "serve", "--port", str(self.port)]
        self.process = subprocess.Popen(
            command, cwd=ROOT, env=self.environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        wait_until(self._answers, 30)

    @property
    def alive(self) -> bool:
        return self.process is not None and self.process.poll() is None

    def kill(self) -> None:
        assert self.process is not None
        self.process.send_signal(signal.SIGKILL)
        self.process.wait(10)

    def _answers(self) -> bool:
        try:
            with urlopen(f"{self.url}/healthz", timeout=2) as answer:
                return bool(answer.status == 200)
        except (URLError, OSError):
            return False


class Provider(ThreadingHTTPServer):
    """A model's provider: each request gets the next answer's bytes, made when it is asked for."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), ProviderRequest)
        self.url = f"http://127.0.0.1:{self.server_port}/v1"
        self.answers: list[Callable[[], bytes | Iterable[bytes]]] = []
        self.bodies: list[str] = []


class ProviderRequest(BaseHTTPRequestHandler):
    server: Provider

    def do_POST(self) -> None:
        self.server.bodies.append(self.rfile.read(int(self.headers["content-length"])).decode())
        answer = self.server.answers.pop(0)()
        with suppress(ConnectionError):
            for piece in [answer] if isinstance(answer, bytes) else answer:
                self.wfile.write(piece)
        self.close_connection = True

    def log_message(self, *_all: object) -> None:
        pass


@pytest.fixture(scope="module")
def module_provider() -> Iterator[Provider]:
    provider = Provider()
    threading.Thread(target=provider.serve_forever, daemon=True).start()
    yield provider
    provider.shutdown()
    provider.server_close()


@pytest.fixture
def provider(module_provider: Provider, talk: Session) -> Provider:
    """The provider that answers in this test's conversation."""
    module_provider.answers, module_provider.bodies = [], []
    Session.objects.filter(pk=talk.pk).update(model="openai:fake")
    return module_provider


@pytest.fixture(scope="module")
def agents_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The agents that ship, to which a test may add."""
    folder = tmp_path_factory.mktemp("agents")
    shutil.copytree(ROOT / "subagents", folder, dirs_exist_ok=True)
    return folder


@pytest.fixture(scope="module")
def module_server(
    valkey_url: str, django_db_setup: None, module_provider: Provider, agents_folder: Path
) -> Iterator[Server]:
    name = settings.DATABASES["default"]["TEST"]["NAME"]
    environment = {
        "DJANGO_SETTINGS_MODULE": "chatapp.settings", "DATABASE_URL": f"sqlite:///{name}", "BRANCHLINE_MODEL": "demo",
        "BRANCHLINE_MODELS": "openai:fake,anthropic:claude", "SUBAGENTS_DIR": str(agents_folder),
        "OPENAI_BASE_URL": module_provider.url, "OPENAI_API_KEY": "any",
    }  # fmt: skip
    running = Server(os.environ | environment)
    running.start()
    yield running
    running.kill()


@pytest.fixture
def server(module_server: Server, transactional_db: None) -> Server:
    """The server, also after a test that killed it."""
    if not module_server.alive:
        module_server.start()
    return module_server


@pytest.fixture(scope="module")
def chromium() -> Iterator[Browser]:
    path = next(filter(None, map(shutil.which, CHROMIUM)), None)
    if path is None:
        pytest.fail("The browser tests need Chromium.")
    # Playwright keeps an event loop in this thread, which is no reason not to look into the database.
    before = os.environ.get("DJANGO_ALLOW_ASYNC_UNSAFE")
    os.environ["DJANGO_ALLOW_ASYNC_UNSAFE"] = "true"
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=FLAGS)
        yield browser
        browser.close()
    if before is None:
        del os.environ["DJANGO_ALLOW_ASYNC_UNSAFE"]


@pytest.fixture
def wire(server: Server) -> Iterator[Wire]:
    cable = Wire(server.port)
    yield cable
    cable.close()


@pytest.fixture
def talk(transactional_db: None, alice: User) -> Session:
    return create_conversation(alice, model="demo")


@pytest.fixture
def expected() -> list[str]:
    """What else the browser may complain about in this test."""
    return []


@pytest.fixture
def context(chromium: Browser, server: Server, alice: User, expected: list[str]) -> Iterator[BrowserContext]:
    """alice's browser. Anything it complains about, such as our content policy, fails the test."""
    context = chromium.new_context(base_url=server.url, viewport={"width": 1200, "height": 800})
    context.set_default_timeout(15_000)
    complaints: list[str] = []

    def listen(message: ConsoleMessage) -> None:
        if message.type in ("error", "warning") and not any(word in message.text for word in (*EXPECTED, *expected)):
            complaints.append(message.text)

    context.on("console", listen)
    context.on("weberror", lambda error: complaints.append(str(error.error)))
    login = Client()
    login.force_login(alice)
    cookie = login.cookies[settings.SESSION_COOKIE_NAME].value
    # Of the host, whatever the port: a wire in between has another one.
    context.add_cookies([{"name": settings.SESSION_COOKIE_NAME, "value": cookie, "domain": "127.0.0.1", "path": "/"}])
    yield context
    context.close()
    assert complaints == []


@pytest.fixture
def page(context: BrowserContext, talk: Session) -> Page:
    """The open conversation, connected."""
    page = context.new_page()
    page.goto(f"/c/{talk.id}/")
    page.wait_for_selector("#link-dot[data-link=connected]", state="attached")
    return page
