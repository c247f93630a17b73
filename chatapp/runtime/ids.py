"""New ids."""

from uuid import uuid4


def new_id() -> str:
    """32 hex digits, 122 random bits."""
    return uuid4().hex
