"""A picture that the provider does not take must not end the conversation for good."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

from pydantic_ai.messages import BinaryContent

from chatapp import workspaces
from chatapp.models import Session
from chatapp.runtime.errors import ProviderError
from chatapp.store import db
from chatapp.store.posts import Draft
from gateway import commands
from tests.fakes import ScriptedModels
from tests.flows.conftest import Server

# Begins as a PNG does; what follows is none. Providers answer 400 to it, as they do to one that is too large.
BROKEN = b"\x89PNG\r\n\x1a\n" + b"no picture" * 10


class Strict(ScriptedModels):
    """A provider that looks at every picture of the request."""

    @asynccontextmanager
    async def stream(self, name: str, messages: Sequence[Any], **more: Any) -> Any:
        contents = [c for m in messages for p in m.parts for c in (getattr(p, "content", None) or ())]
        if any(isinstance(content, BinaryContent) for content in contents):
            raise ProviderError("Could not process image.", code="rejected", retryable=False)
        async with super().stream(name, messages, **more) as found:
            yield found


async def test_a_broken_picture_does_not_end_the_conversation(server: Server, conversation: Session) -> None:
    await db.run(lambda: Session.objects.filter(pk=conversation.pk).update(model="sees"))
    models = Strict()
    engine = server.gateway.engine
    assert engine is not None
    engine.kit = replace(engine.kit, models=models)
    made = workspaces.upload(conversation.pk, "a.png", BROKEN)
    await commands.send_message(conversation.owner_id, conversation.pk, Draft("look"), [made["path"]])
    await server.rest(conversation)
    await server.send(conversation, "never mind, just say hello")
    assert (await server.rest(conversation)).status == "idle"
