"""Whose a conversation is: every page asks here."""

from __future__ import annotations

from django.http import HttpRequest
from django.shortcuts import get_object_or_404

from chatapp.models import Session


def own(request: HttpRequest, conversation_id: str) -> Session:
    """The person's conversation; another's answers as an unknown one."""
    return get_object_or_404(Session.objects.conversations_of(request.user), pk=conversation_id)
