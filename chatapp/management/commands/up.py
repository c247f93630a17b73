"""`manage.py up`: everything in the foreground."""

from __future__ import annotations

import ipaddress
import os
import sys
from argparse import ArgumentParser
from importlib import import_module
from typing import Any
from urllib.parse import urlsplit

from django.conf import settings
from django.contrib.auth.models import User
from django.core.management import call_command
from django.core.management.base import BaseCommand, CommandError
from django.db import connections
from django.db.migrations.executor import MigrationExecutor
from django.urls import reverse

from chatapp.accounts import administrator_without_password, create_link
from chatapp.agents import cannot_answer
from chatapp.env import Environment


def is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def refuse_open_address(host: str) -> None:
    """Others can reach it: then nothing that guards it may be a default."""
    env = Environment(os.environ)
    missing = [name for name in ("ALLOWED_HOSTS", "SECRET_KEY") if not env.raw(name)]
    if not is_loopback(host) and missing:
        raise CommandError(f"--host {host} is open to others; set {' and '.join(missing)} first")


class Command(BaseCommand):
    help = "Runs everything in the foreground: Valkey, the server and the workers."
    requires_system_checks: list[str] = []

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("--host", default="127.0.0.1")
        parser.add_argument("--port", type=int, default=8000)
        parser.add_argument("--workers", type=int, default=settings.BRANCHLINE_RQ_WORKERS)

    def handle(self, *args: Any, **options: Any) -> None:
        host, port = options["host"], options["port"]
        if not 1 <= port <= 65535 or not 0 <= options["workers"] <= 64:
            raise CommandError("--port is 1 to 65535, --workers 0 to 64")
        refuse_open_address(host)
        if problem := cannot_answer():
            raise CommandError(f"Branchline cannot start: {problem}")
        loop_host = "[::1]" if host == "::1" else "127.0.0.1"
        url = settings.PUBLIC_URL if Environment(os.environ).raw("PUBLIC_URL") else f"http://{loop_host}:{port}"
        # By dotted string: the product never imports its delivery edge.
        supervisor = import_module("gateway.supervisor")
        plan = supervisor.Plan(
            host=host,
            port=port,
            workers=options["workers"],
            manage=(sys.executable, str(settings.BASE_DIR / "manage.py")),
            environment=self.environment(url),
            public_host=urlsplit(url).netloc,
            data_dir=settings.DATA_DIR,
            valkey_socket=settings.VALKEY_SOCKET if settings.EMBEDDED_VALKEY else None,
            migrate=self.migrate,
            greet=lambda: self.greet(host, url),
            say=self.say,
        )
        try:
            supervisor.supervise(plan)
        except supervisor.CannotStart as error:
            raise CommandError(f"Branchline cannot start: {error}") from None
        self.say("stopped")

    def environment(self, url: str) -> dict[str, str]:
        """The children's: what `up` settled once, so that all of them agree."""
        found = dict(os.environ) | {"PYTHONUNBUFFERED": "1"}
        # Asked for by NAME or NAME_FILE it goes on as it is; both together would be refused.
        env = Environment(os.environ)
        if not env.raw("PUBLIC_URL"):
            found["PUBLIC_URL"] = url
        return found

    def migrate(self) -> None:
        try:
            executor = MigrationExecutor(connections["default"])
            # Looking first is a second cheaper than the command, which also checks and signals when all is done.
            if executor.migration_plan(executor.loader.graph.leaf_nodes()):
                self.say("Preparing the database")
                call_command("migrate", interactive=False, verbosity=0)
        finally:
            connections.close_all()

    def greet(self, host: str, url: str) -> None:
        self.say(f"Branchline runs at {url}/")
        try:
            user = administrator_without_password() if is_loopback(host) else None
            if user:
                link = url + reverse("once", args=[create_link(user)])
                self.say(f"Log in once as {user.username} within 10 minutes: {link}")
            elif not User.objects.filter(is_superuser=True, is_active=True).exists():
                self.say("There is no administrator yet. Make one: python manage.py createsuperuser")
        finally:
            connections.close_all()

    def say(self, line: str) -> None:
        self.stdout.write(line)
        self.stdout.flush()
