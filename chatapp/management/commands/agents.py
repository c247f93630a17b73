"""`manage.py agents`: who can answer and who can be delegated to, and what is wrong with a declaration."""

from __future__ import annotations

from typing import Any

from django.core.management.base import BaseCommand, CommandError

from chatapp.agents import registry, worded


class Command(BaseCommand):
    help = "Lists the agents and checks their declarations. Fails if one is broken."
    requires_system_checks: list[str] = []

    def handle(self, *args: Any, **options: Any) -> None:
        agents = list(registry().agents().values())
        width = max(len(agent.agent_id) for agent in agents)
        for agent in agents:
            declaration = agent.declaration
            mode = "broken" if declaration is None else f"{declaration.mode}{', hidden' if declaration.hidden else ''}"
            said = declaration.description if declaration else ""
            self.stdout.write(f"{agent.agent_id:{width}}  {agent.origin:8}  {mode:16}  {said}".rstrip())
            for place, problem in enumerate(agent.problems):
                kind = "warning" if problem.warning else "error"
                self.stdout.write(f"{'':{width}}  {kind}: {worded(agent, place)}")
        if broken := sum(agent.broken for agent in agents):
            raise CommandError(f"{broken} of {len(agents)} agents {'is' if broken == 1 else 'are'} broken.")
