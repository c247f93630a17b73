"""`manage.py agents`: who can answer, and what is wrong with whom."""

from __future__ import annotations

from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand, CommandError

from chatapp.runtime.declarations import main_agent


class Command(BaseCommand):
    help = "Lists the agents and checks that the one BRANCHLINE_AGENT names is among them."

    def handle(self, *args: Any, **options: Any) -> None:
        agents = [main_agent(settings.BRANCHLINE_MAX_STEPS)]
        for agent in agents:
            self.stdout.write(f"{agent.agent_id}  {agent.mode}  {agent.description}")
        if settings.BRANCHLINE_AGENT not in {agent.agent_id for agent in agents}:
            raise CommandError(f"BRANCHLINE_AGENT is {settings.BRANCHLINE_AGENT!r}; allowed: an agent of this list")
