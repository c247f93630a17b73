"""Fences at the edge: whose forwarding headers are believed, who sees the queues, each page's content policy."""

from __future__ import annotations

import ipaddress
from collections.abc import Callable

from csp.constants import SELF, UNSAFE_INLINE
from csp.middleware import CSPMiddleware
from django.conf import settings
from django.http import Http404, HttpRequest, HttpResponseBase
from django.utils.deprecation import MiddlewareMixin

QUEUE_PAGES = "/admin/django_rq/"
FORWARDED = ("HTTP_X_FORWARDED_FOR", "HTTP_X_FORWARDED_PROTO", "HTTP_X_FORWARDED_HOST", "HTTP_FORWARDED")


def _trusted(address: str) -> bool:
    try:
        ip = ipaddress.ip_address(address)
    except ValueError:
        return False
    return any(ip in network for network in settings.TRUSTED_PROXIES)


class TrustedProxies(MiddlewareMixin):
    """REMOTE_ADDR becomes the nearest address that is no proxy of ours; others' forwarding headers are dropped."""

    get_response: Callable[[HttpRequest], HttpResponseBase]

    def process_request(self, request: HttpRequest) -> None:
        # Forms and JSON are UTF-8 here, whatever a client calls it: some names are no encodings of text at all.
        request.encoding = "utf-8"
        peer = request.META.get("REMOTE_ADDR", "")
        # A proxy on this machine, trusted or not, must not make its clients look local.
        request.direct = not any(header in request.META for header in FORWARDED)  # type: ignore[attr-defined]
        if not _trusted(peer):
            for header in FORWARDED:
                request.META.pop(header, None)
            return
        for hop in reversed(request.META.get("HTTP_X_FORWARDED_FOR", "").split(",")):
            if not hop.strip():
                break
            request.META["REMOTE_ADDR"] = hop.strip()
            if not _trusted(hop.strip()):
                break


class QueuesForSuperusers(MiddlewareMixin):
    """django-rq lets all staff requeue and delete jobs; here only superusers see that the pages exist."""

    get_response: Callable[[HttpRequest], HttpResponseBase]

    def process_request(self, request: HttpRequest) -> None:
        if request.path.startswith(QUEUE_PAGES) and not (request.user.is_active and request.user.is_superuser):
            raise Http404


class ContentPolicy(CSPMiddleware):
    """Our policy everywhere; django-rq's own pages carry inline scripts and get one that lets them."""

    def process_response(self, request: HttpRequest, response: HttpResponseBase) -> HttpResponseBase:
        if request.path.startswith(QUEUE_PAGES):
            inline = [SELF, UNSAFE_INLINE]
            response._csp_replace = {"script-src": inline, "style-src": inline}  # type: ignore[attr-defined]
        return super().process_response(request, response)
