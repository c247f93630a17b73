"""JSON on the way out: UTF-8, times in UTC with a Z."""

from __future__ import annotations

from typing import Any

import orjson
from django.http import HttpRequest
from ninja.renderers import BaseRenderer


def dumps(data: Any) -> bytes:
    return orjson.dumps(data, option=orjson.OPT_UTC_Z)


class Renderer(BaseRenderer):
    media_type = "application/json"

    def render(self, request: HttpRequest, data: Any, *, response_status: int) -> bytes:
        return dumps(data)
