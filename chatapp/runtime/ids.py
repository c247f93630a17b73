"""New ids and the source path of a session in its conversation's tree."""

from uuid import uuid4


def new_id() -> str:
    """32 hex digits, 122 random bits."""
    return uuid4().hex


def join_source(parent: str, agent_id: str) -> str:
    """The source of a child: `main/researcher` under the conversation's own agent, whose source is empty."""
    return f"{parent or 'main'}/{agent_id}"
