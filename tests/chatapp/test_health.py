"""Health, readiness, figures, and the headers each page carries."""

from __future__ import annotations

from typing import Any

import pytest
import redis
from django.conf import settings as configured
from django.contrib.auth.models import User
from django.test import Client
from django.utils import timezone
from rq import Worker

from chatapp.models import Session
from chatapp.runtime.ids import new_id

pytestmark = pytest.mark.django_db
FAR = "192.0.2.7"


def test_healthz_says_ok_and_nothing_else(client: Client) -> None:
    assert client.get("/healthz").content == b"ok"


def test_it_is_ready_when_database_valkey_and_a_worker_answer(client: Client, live_valkey: redis.Redis) -> None:
    answer = client.get("/readyz")
    assert answer.status_code == 503
    assert answer.json() == {"database": "ok", "valkey": "ok", "worker": "away"}
    worker = Worker(["default"], connection=live_valkey)
    worker.register_birth()  # type: ignore[no-untyped-call]
    answer = client.get("/readyz")
    assert (answer.status_code, answer.json()["worker"]) == (200, "ok")


def test_it_is_not_ready_without_valkey(client: Client, settings: Any, tmp_path: Any) -> None:
    settings.REDIS_URL = f"unix://{tmp_path}/nobody.sock"
    answer = client.get("/readyz")
    assert answer.status_code == 503
    assert answer.json() == {"database": "ok", "valkey": "away", "worker": "away"}


def test_metrics_are_for_staff_the_token_and_this_machine(alice: User, sue: User, settings: Any) -> None:
    settings.METRICS_TOKEN = "a-metrics-token-of-length"
    far = Client(REMOTE_ADDR=FAR)
    assert far.get("/metrics").status_code == 403
    far.force_login(alice)
    assert far.get("/metrics").status_code == 403
    far.force_login(sue)
    assert far.get("/metrics").status_code == 200
    right = {"Authorization": "Bearer a-metrics-token-of-length"}
    assert Client(REMOTE_ADDR=FAR).get("/metrics", headers=right).status_code == 200
    wrong = {"Authorization": "Bearer é"}
    assert Client(REMOTE_ADDR=FAR).get("/metrics", headers=wrong).status_code == 403
    assert Client().get("/metrics").status_code == 200


@pytest.mark.parametrize("proxies", [[], ["127.0.0.1"]])
def test_a_proxy_on_this_machine_does_not_make_strangers_local(settings: Any, proxies: list[str]) -> None:
    import ipaddress

    settings.TRUSTED_PROXIES = [ipaddress.ip_network(one) for one in proxies]
    assert Client().get("/metrics", headers={"X-Forwarded-For": FAR}).status_code == 403
    assert Client().get("/metrics", headers={"X-Forwarded-For": "127.0.0.1"}).status_code == 403


def test_metrics_count_sessions_by_status(client: Client, alice: User) -> None:
    name = new_id()
    Session.objects.create(
        id=name, owner=alice, root_id=name, agent_id="main", status="running", updated_at=timezone.now()
    )
    assert 'branchline_sessions{status="running"} 1.0' in client.get("/metrics").content.decode()


def test_every_page_carries_the_strict_policy(client: Client, sue: User) -> None:
    client.force_login(sue)
    for page in ("/accounts/password/", "/admin/", "/nothing/here/"):
        headers = client.get(page).headers
        assert "default-src 'none'" in headers["Content-Security-Policy"]
        assert "unsafe" not in headers["Content-Security-Policy"]
        assert headers["X-Frame-Options"] == "DENY"
        assert headers["X-Content-Type-Options"] == "nosniff"


def test_only_superusers_see_the_queues(
    client: Client, live_valkey: redis.Redis, alice: User, bob: User, sue: User
) -> None:
    User.objects.filter(pk=bob.pk).update(is_staff=True)
    for person, status in ((None, 404), (alice, 404), (bob, 404), (sue, 302)):
        if person:
            client.force_login(person)
        answer = client.get("/admin/django-rq/")
        assert answer.status_code == status
        pages = client.get("/admin/django_rq/dashboard/")
        assert pages.status_code == (200 if status == 302 else 404)
    assert answer["Location"] == "/admin/django_rq/dashboard/"
    assert "unsafe-inline" in pages["Content-Security-Policy"]


def test_static_files_are_served_with_debug_off(client: Client) -> None:
    assert not configured.DEBUG
    assert client.get("/static/css/base.css").status_code == 200
    assert client.get("/static/../manage.py").status_code == 404
