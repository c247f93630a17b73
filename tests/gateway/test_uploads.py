"""What comes up must not hold up everybody else: bodies are read beside the event loop, and only so many bytes."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator
from contextlib import suppress

import httpx
import pytest

from tests.product import Product

FORM = b'--BB\r\nContent-Disposition: form-data; name="file"; filename="a.log"\r\n\r\n%b\r\n--BB--\r\n'
HEADERS = {"Content-Type": "multipart/form-data; boundary=BB"}


def longest_wait(product: Product, path: str, content: bytes, headers: dict[str, str]) -> tuple[float, int]:
    """How long somebody else waited for the server meanwhile, in seconds, and the answer's status."""
    waits: list[float] = []
    over = threading.Event()

    def others() -> None:
        while not over.is_set():
            began = time.monotonic()
            httpx.get(product.url + "/healthz", timeout=60)
            waits.append(time.monotonic() - began)

    other = threading.Thread(target=others)
    other.start()
    try:
        status = httpx.post(
            product.url + path, content=FORM % content, headers=HEADERS | headers, timeout=60
        ).status_code
    finally:
        over.set()
        other.join()
    return max(waits), status


@pytest.fixture(scope="module")
def product(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Product]:
    running = Product(tmp_path_factory.mktemp("up")).start()
    yield running
    running.stop()


@pytest.mark.alone
def test_nobody_who_is_not_logged_in_makes_the_others_wait(product: Product) -> None:
    waited, _status = longest_wait(product, "/accounts/login/", b"\n" * 5_000_000, {})
    assert waited < 1


@pytest.mark.alone
def test_an_upload_makes_nobody_wait(product: Product) -> None:
    path = f"/conversations/{product.conversation()}/files"
    waited, status = longest_wait(
        product, "/api" + path, b"\n" * 5_000_000, {"Authorization": f"Bearer {product.token}"}
    )
    assert status == 201
    assert waited < 1


def test_a_body_that_no_page_takes_is_refused_before_it_is_kept(product: Product) -> None:
    """Nobody is logged in; 200 MB are announced."""
    with socket.create_connection(("127.0.0.1", product.port)) as client:
        head = f"POST /accounts/login/ HTTP/1.1\r\nHost: 127.0.0.1:{product.port}\r\nContent-Type: text/plain\r\n"
        client.sendall(f"{head}Content-Length: {200 << 20}\r\n\r\n".encode())
        client.settimeout(5)
        sent = 0
        with suppress(OSError):
            for _ in range(200):
                client.sendall(b"x" * (1 << 20))
                sent += 1
        assert sent < 100, "all of it was taken"
