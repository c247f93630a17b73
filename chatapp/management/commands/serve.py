"""`manage.py serve`: the server alone."""

from __future__ import annotations

import sys
from argparse import ArgumentParser
from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand, CommandError
from django.utils.module_loading import import_string

from chatapp.agents import cannot_answer, problems
from chatapp.runtime.errors import ProviderError
from chatapp.runtime.providers import Models, ProviderSettings


def unusable_models() -> list[str]:
    """What is wrong with each named model. It may be right tomorrow, so the start goes on."""
    models, wrong = Models(ProviderSettings(settings.PROVIDERS)), []
    names = (settings.BRANCHLINE_MODEL, *settings.BRANCHLINE_MODELS, settings.BRANCHLINE_FALLBACK_MODEL)
    for name in dict.fromkeys(filter(None, names)):
        try:
            models.check(name)
        except ProviderError as error:
            wrong.append(f"{name} cannot answer: {error.detail}")
    return wrong


class Command(BaseCommand):
    help = "Runs the server alone; Valkey, workers and migrations are yours."
    # A second start must be quick; `manage.py check` and the tests run them.
    requires_system_checks: list[str] = []

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("--host", default="127.0.0.1")
        parser.add_argument("--port", type=int, default=8000)

    def handle(self, *args: Any, **options: Any) -> None:
        server = import_string("gateway.server.Server")
        application = import_string(settings.ASGI_APPLICATION)
        # The host does it too, but after the first pages may have been asked for.
        import_string("gateway.wiring.settle_model")()
        if problem := cannot_answer():
            raise CommandError(f"Branchline cannot start: {problem}")
        for line in (*unusable_models(), *problems()):
            self.stderr.write(f"warning: {line}")
        sys.exit(server(application, options["host"], options["port"]).serve())
