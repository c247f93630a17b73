"""`manage.py agents`: who can answer."""

from __future__ import annotations

from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand

from chatapp.runtime.declarations import main_agent


class Command(BaseCommand):
    help = "Lists the agents that can answer."
    requires_system_checks: list[str] = []

    def handle(self, *args: Any, **options: Any) -> None:
        agent = main_agent(settings.BRANCHLINE_MAX_STEPS)
        self.stdout.write(f"{agent.agent_id}  {agent.mode}  {agent.description}")
