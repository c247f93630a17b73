"""What may be chosen for a conversation: the models that are offered, and why one cannot be asked now."""

from __future__ import annotations

from dataclasses import dataclass

from django.conf import settings

from chatapp.runtime.errors import ProviderError
from chatapp.runtime.provider_catalog import PROVIDERS
from chatapp.runtime.providers import Models, ProviderSettings


@dataclass(frozen=True)
class Offered:
    name: str
    provider: str
    default: bool
    problem: str = ""


def offered_names() -> list[str]:
    """The default first, then those the operator offers."""
    return list(dict.fromkeys([settings.BRANCHLINE_MODEL, *settings.BRANCHLINE_MODELS]))


def offered() -> list[Offered]:
    models = Models(ProviderSettings(settings.PROVIDERS))
    return [_offered(models, name) for name in offered_names()]


def _offered(models: Models, name: str) -> Offered:
    problem = ""
    try:
        models.check(name)
    except ProviderError as error:
        problem = error.detail
    kind = name.partition(":")[0]
    title = PROVIDERS[kind].title if kind in PROVIDERS else kind
    return Offered(name, title, name == settings.BRANCHLINE_MODEL, problem)
