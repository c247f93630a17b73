"""Whether it lives, whether it can work, and its figures."""

from __future__ import annotations

import ipaddress
import secrets
from datetime import timedelta

import redis
from django.conf import settings
from django.core.exceptions import PermissionDenied
from django.db import Error as DatabaseAway
from django.db import connection
from django.db.models import Count
from django.http import HttpRequest, HttpResponse, JsonResponse
from django.utils import timezone
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_safe
from prometheus_client import CONTENT_TYPE_LATEST, REGISTRY, generate_latest
from prometheus_client.core import GaugeMetricFamily, Metric
from redis.backoff import NoBackoff
from redis.retry import Retry
from rq import Worker

from chatapp.models import InboxItem, Session

# An RQ worker says every few seconds that it lives, at work every half minute.
WORKER_SILENCE = timedelta(seconds=60)


@never_cache
@require_safe
def healthz(request: HttpRequest) -> HttpResponse:
    return HttpResponse("ok", content_type="text/plain")


def _database_answers() -> bool:
    try:
        with connection.cursor() as cursor:
            cursor.execute("SELECT 1")
    except DatabaseAway:
        connection.close()
        return False
    return True


def _valkey_and_worker() -> tuple[bool, bool]:
    client = redis.Redis.from_url(settings.REDIS_URL, socket_timeout=1, retry=Retry(NoBackoff(), 0))
    try:
        client.ping()
        since = timezone.now() - WORKER_SILENCE
        beats = (worker.last_heartbeat for worker in Worker.all(connection=client))
        return True, any(beat is not None and beat > since for beat in beats)
    except (redis.RedisError, OSError):
        return False, False
    finally:
        client.close()


@never_cache
@require_safe
def readyz(request: HttpRequest) -> HttpResponse:
    database = _database_answers()
    valkey, worker = _valkey_and_worker()
    parts = {"database": database, "valkey": valkey, "worker": worker}
    answer = {name: "ok" if good else "away" for name, good in parts.items()}
    response = JsonResponse(answer, status=200 if all(parts.values()) else 503)
    # Django would log an error for each probe of a balancer; the answer says it already.
    response._has_been_logged = True  # type: ignore[attr-defined]
    return response


def may_operate(request: HttpRequest) -> bool:
    """Staff, the bearer of the metrics token, or a program on this very machine that no proxy speaks for."""
    if request.user.is_authenticated and request.user.is_active and request.user.is_staff:
        return True
    bearer = request.headers.get("Authorization", "").removeprefix("Bearer ").encode()
    if settings.METRICS_TOKEN and secrets.compare_digest(bearer, settings.METRICS_TOKEN.encode()):
        return True
    return getattr(request, "direct", False) and _loopback(request.META.get("REMOTE_ADDR", ""))


def _loopback(address: str) -> bool:
    try:
        return ipaddress.ip_address(address).is_loopback
    except ValueError:
        return False


def _figures() -> list[GaugeMetricFamily]:
    sessions = GaugeMetricFamily("branchline_sessions", "Sessions by where their turn stands", labels=["status"])
    counted = Session.objects.filter(deleted_at=None).values_list("status").annotate(n=Count("id")).order_by()
    found = dict(counted)
    for status in Session.Status.values:
        sessions.add_metric([status], found.get(status, 0))
    waiting = InboxItem.objects.filter(state=InboxItem.State.QUEUED).count()
    late = Session.objects.filter(wake_at__lt=timezone.now() - timedelta(seconds=10)).count()
    return [
        sessions,
        GaugeMetricFamily("branchline_inbox_queued", "Messages that no turn has taken yet", value=waiting),
        GaugeMetricFamily("branchline_sessions_late", "Sessions due for more than 10 s without a turn", value=late),
    ]


class _Collected:
    """A registry for one answer, so that figures are counted when asked for and not at start."""

    def collect(self) -> list[Metric]:
        return [*REGISTRY.collect(), *_figures()]


@never_cache
@require_safe
def metrics(request: HttpRequest) -> HttpResponse:
    if not may_operate(request):
        raise PermissionDenied
    return HttpResponse(generate_latest(_Collected()), content_type=CONTENT_TYPE_LATEST)
