"""`manage.py backup FILE`: everything that cannot be made again, in one archive."""

from __future__ import annotations

import signal
import sqlite3
import sys
from argparse import ArgumentParser
from pathlib import Path
from typing import Any

from django.core.management.base import BaseCommand, CommandError
from django.db import Error

from chatapp import backups


class Command(BaseCommand):
    help = (
        "Writes database, workspaces and secret key into FILE, a gzipped tar, while Branchline runs. The file holds "
        "secrets: whoever reads it reads every conversation and can make cookies. README says how to restore it."
    )
    requires_system_checks: list[str] = []

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("file", type=Path, help="Must not exist yet.")
        parser.add_argument("--no-database", action="store_true", help="For who backs the database up otherwise.")

    def handle(self, *args: Any, **options: Any) -> None:
        target: Path = options["file"].absolute()
        # As Ctrl-C does, so that a backup that is broken off leaves nothing either.
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
        try:
            contents = backups.write(target, database=not options["no_database"])
        except backups.NoBackup as error:
            raise CommandError(f"No backup was made: {error}") from None
        except (OSError, sqlite3.Error, Error) as error:
            reason = getattr(error, "strerror", None) or " ".join(str(error).split())
            raise CommandError(f"No backup was made: {target}: {reason}") from None
        left_out = f", {contents.left_out} links and special files left out" if contents.left_out else ""
        self.stdout.write(f"{target}: {target.stat().st_size:,} bytes, {contents.files} files{left_out}")
