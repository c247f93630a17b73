"""`manage.py serve`: the server alone."""

from __future__ import annotations

import sys
from argparse import ArgumentParser
from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand
from django.utils.module_loading import import_string

from chatapp.runtime.provider_catalog import default_model


class Command(BaseCommand):
    help = "Runs the server alone; Valkey, workers and migrations are yours."
    # A second start must be quick; `manage.py check` and the tests run them.
    requires_system_checks: list[str] = []

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("--host", default="127.0.0.1")
        parser.add_argument("--port", type=int, default=8000)

    def handle(self, *args: Any, **options: Any) -> None:
        # Looked for here, once: `up` would import the model library for it a second time.
        settings.BRANCHLINE_MODEL = settings.BRANCHLINE_MODEL or default_model(settings.PROVIDERS)
        server = import_string("gateway.server.Server")
        application = import_string(settings.ASGI_APPLICATION)
        sys.exit(server(application, options["host"], options["port"]).serve())
