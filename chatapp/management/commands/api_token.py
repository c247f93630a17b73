"""`manage.py api_token USER`: a bearer token, shown once."""

from __future__ import annotations

from argparse import ArgumentParser
from datetime import timedelta
from typing import Any

from django.contrib.auth.models import User
from django.core.management.base import BaseCommand, CommandError
from django.utils import timezone

from chatapp.accounts import create_token
from chatapp.models import ApiToken


class Command(BaseCommand):
    help = "Makes an API token for USER and prints it as the last line; it cannot be shown again."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("user")
        parser.add_argument("--name", default="command line")
        parser.add_argument("--scope", action="append", choices=ApiToken.SCOPES, help="Default: all of them.")
        parser.add_argument("--days", type=int, help="Until it expires. Default: never.")

    def handle(self, *args: Any, **options: Any) -> None:
        user = User.objects.filter(username=options["user"], is_active=True).first()
        if user is None:
            raise CommandError(f"no active user {options['user']!r}")
        if options["days"] is not None and not 1 <= options["days"] <= 3650:
            raise CommandError("--days is 1 to 3650")
        expires = timezone.now() + timedelta(days=options["days"]) if options["days"] else None
        _, raw = create_token(user, options["name"], options["scope"] or ApiToken.SCOPES, expires)
        self.stdout.write(raw)
