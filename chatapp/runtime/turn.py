"""What a turn works with: the process's `Kit`, and the `Turn` of one claimed session."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from chatapp.runtime.declarations import SubagentDeclaration
from chatapp.runtime.messages import ModelMessage
from chatapp.runtime.ports import Feed, Ledger, ModelSource, Work
from chatapp.runtime.registry import Roster
from chatapp.runtime.signals import Signals
from chatapp.runtime.tools import Tool
from chatapp.runtime.toolsets.files import Workspace


@dataclass(frozen=True)
class Kit:
    """What a turn works with; one for each process."""

    ledger: Ledger
    feed: Feed
    models: ModelSource
    tools: tuple[Tool, ...]
    workspaces: Path
    project: Path
    parallel_tools: int = 8
    result_limit: int = 50_000
    args_limit: int = 256 * 1024
    file_limit: int = 10 * 1024 * 1024
    workspace_limit: int = 200 * 1024 * 1024
    fallback_model: str = ""
    # Off, a session rests as soon as it only waits for subagents; the transcript is the same.
    lingers: bool = True


class Near(Protocol):
    """This process as a host of subagents."""

    def host(self, session_id: str) -> None:
        """Claim it now if it can be, whatever else runs here: it works in its caller's slot."""

    def busy(self, session_id: str) -> bool:
        """Whether its turn runs here, or is about to."""


@dataclass
class Turn:
    """A claimed session in this process: its fence, its transcript so far, and how it is told to stop."""

    work: Work
    kit: Kit
    signals: Signals
    near: Near
    transcript: list[ModelMessage]
    media: bool = True
    roster: Roster = field(default_factory=Roster)
    roster_read: bool = False

    @property
    def ledger(self) -> Ledger:
        return self.kit.ledger

    @property
    def folder(self) -> Path:
        return self.kit.workspaces / self.work.hold.conversation_id / self.work.workspace

    def files(self) -> Workspace:
        return Workspace(self.folder, self.kit.file_limit, self.kit.workspace_limit)

    def tools(self, agent: SubagentDeclaration, delegates: bool) -> list[Tool]:
        """What this agent may call; a leaf nothing that hands on work."""
        return [
            tool
            for tool in self.kit.tools
            if (agent.tools is None or tool.name in agent.tools) and (delegates or not tool.delegates)
        ]

    async def agents(self) -> Roster:
        """Who can be asked, as the declarations were when this turn first needed them."""
        if not self.roster_read:
            self.roster, self.roster_read = await self.ledger.roster(self.work.owner_id), True
        return self.roster
