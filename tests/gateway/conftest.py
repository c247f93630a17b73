"""Callers of the API, each with the whole gateway behind it and no host: what is posted stays as it is."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable

import pytest
import redis
from django.contrib.auth.models import User

from chatapp.accounts import create_token
from chatapp.models import ApiToken
from gateway.wiring import Gateway, gateway
from tests.gateway.api_client import Api

TokenFor = Callable[..., Api]


@pytest.fixture
async def running(transactional_db: None, live_valkey: redis.Redis) -> AsyncIterator[Gateway]:
    made = gateway()
    yield made
    await made.stop()


@pytest.fixture
def api_of(transactional_db: None) -> TokenFor:
    """A caller with a token of this person, of these scopes."""

    def make(user: User, *scopes: str) -> Api:
        return Api(create_token(user, "test", scopes or ApiToken.SCOPES)[1])

    return make


@pytest.fixture
def api(running: Gateway, alice: User, api_of: TokenFor) -> Api:
    """Alice's, with every scope."""
    return api_of(alice)
