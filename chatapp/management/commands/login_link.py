"""`manage.py login_link USER`: a one-time link for somebody who cannot log in."""

from __future__ import annotations

from argparse import ArgumentParser
from typing import Any

from django.conf import settings
from django.contrib.auth.models import User
from django.core.management.base import BaseCommand, CommandError
from django.urls import reverse

from chatapp.accounts import create_link


class Command(BaseCommand):
    help = "Prints a link that logs USER in once, within ten minutes."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("user")

    def handle(self, *args: Any, **options: Any) -> None:
        user = User.objects.filter(username=options["user"], is_active=True).first()
        if user is None:
            raise CommandError(f"no active user {options['user']!r}")
        self.stdout.write(settings.PUBLIC_URL + reverse("once", args=[create_link(user)]))
