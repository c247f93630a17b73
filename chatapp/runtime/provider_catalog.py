"""The providers: how each model is built, which keys it needs, which one is the default."""

from __future__ import annotations

import json
import urllib.request
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from http.client import HTTPException
from typing import Any

from pydantic_ai.models import Model

from chatapp.runtime.demo import WORDS_PER_SECOND, DemoModel

DEMO = "demo"
PLACEHOLDER_KEY = "none"
OPENAI_URL = "https://api.openai.com/v1"
OLLAMA_URL = "http://127.0.0.1:11434/v1"
OLLAMA_SECONDS = 0.3
SERVER_SECONDS = 2.0


@dataclass(frozen=True)
class ProviderSettings:
    """Keys and addresses under their usual names in `env`. `idle_timeout`: seconds without any news of a stream;
    `media_models`: patterns of the models that are shown pictures."""

    env: Mapping[str, str] = field(default_factory=dict, repr=False)
    idle_timeout: float = 120.0
    connect_timeout: float = 10.0
    max_retries: int = 2
    media_models: tuple[str, ...] = ()
    demo_words_per_second: float = WORDS_PER_SECOND

    def first(self, *names: str) -> str:
        return next((self.env[name].strip() for name in names if self.env.get(name, "").strip()), "")


Build = Callable[[str, str, ProviderSettings], Model[Any]]


@dataclass(frozen=True)
class Provider:
    """`build` imports the adapter and takes model name, key, settings; `package` is what it needs installed."""

    title: str
    build: Build
    keys: tuple[str, ...]
    default: str
    package: str = "openai"
    extra: str = ""
    base_url: str = ""

    def is_own_server(self, settings: ProviderSettings) -> bool:
        """An address other than the provider's: a server that speaks its language."""
        return bool(self.base_url) and settings.first(self.base_url).rstrip("/") not in ("", OPENAI_URL)

    def key(self, settings: ProviderSettings) -> str:
        """The key, or a placeholder where none may be needed."""
        keyless = not self.keys or self.is_own_server(settings)
        return settings.first(*self.keys) or (PLACEHOLDER_KEY if keyless else "")

    def called(self, settings: ProviderSettings) -> str:
        return "The model server" if self.is_own_server(settings) else self.title


def _openai(name: str, key: str, settings: ProviderSettings, *, responses: bool = False) -> Model[Any]:
    from pydantic_ai.models.openai import OpenAIResponsesModel
    from pydantic_ai.providers.openai import OpenAIProvider
    from pydantic_ai.providers.openai_compatible import OpenAICompatibleProvider

    from chatapp.runtime.openai_compat import ChatModel

    base_url = settings.first("OPENAI_BASE_URL") or OPENAI_URL
    client = _openai_client(base_url, key, settings)
    own = base_url.rstrip("/") == OPENAI_URL
    provider = OpenAIProvider(openai_client=client) if own else OpenAICompatibleProvider("server", openai_client=client)
    return OpenAIResponsesModel(name, provider=provider) if responses else ChatModel(name, provider=provider)


def _openai_client(base_url: str, key: str, settings: ProviderSettings) -> Any:
    from chatapp.runtime.openai_compat import Client, http_client

    http = http_client(settings.connect_timeout)
    return Client(
        base_url=base_url, api_key=key, http_client=http, timeout=http.timeout, max_retries=settings.max_retries
    )


def _ollama(name: str, key: str, settings: ProviderSettings) -> Model[Any]:
    from pydantic_ai.providers.ollama import OllamaProvider

    from chatapp.runtime.openai_compat import ChatModel

    client = _openai_client(ollama_url(settings.env), settings.first("OLLAMA_API_KEY") or key, settings)
    return ChatModel(name, provider=OllamaProvider(openai_client=client))


def _anthropic(name: str, key: str, settings: ProviderSettings) -> Model[Any]:
    from anthropic import AsyncAnthropic
    from pydantic_ai.models.anthropic import AnthropicModel
    from pydantic_ai.providers.anthropic import AnthropicProvider

    from chatapp.runtime.openai_compat import http_client

    http = http_client(settings.connect_timeout)
    client = AsyncAnthropic(
        api_key=key,
        base_url=settings.first("ANTHROPIC_BASE_URL") or "https://api.anthropic.com",
        http_client=http,
        timeout=http.timeout,
        max_retries=settings.max_retries,
    )
    return AnthropicModel(name, provider=AnthropicProvider(anthropic_client=client))


def _google(name: str, key: str, settings: ProviderSettings) -> Model[Any]:
    from pydantic_ai.models.google import GoogleModel
    from pydantic_ai.providers.google import GoogleProvider

    return GoogleModel(name, provider=GoogleProvider(api_key=key))


def _mistral(name: str, key: str, settings: ProviderSettings) -> Model[Any]:
    from pydantic_ai.models.mistral import MistralModel
    from pydantic_ai.providers.mistral import MistralProvider

    return MistralModel(name, provider=MistralProvider(api_key=key))


def _groq(name: str, key: str, settings: ProviderSettings) -> Model[Any]:
    from pydantic_ai.models.groq import GroqModel
    from pydantic_ai.providers.groq import GroqProvider

    return GroqModel(name, provider=GroqProvider(api_key=key))


def _bedrock(name: str, key: str, settings: ProviderSettings) -> Model[Any]:
    from pydantic_ai.models.bedrock import BedrockConverseModel
    from pydantic_ai.providers.bedrock import BedrockProvider

    region = settings.first("AWS_REGION", "AWS_DEFAULT_REGION") or "us-east-1"
    secret = settings.first("AWS_SECRET_ACCESS_KEY")
    if not settings.first("AWS_BEARER_TOKEN_BEDROCK"):
        token = settings.first("AWS_SESSION_TOKEN") or None
        provider = BedrockProvider(
            aws_access_key_id=key, aws_secret_access_key=secret, aws_session_token=token, region_name=region
        )
        return BedrockConverseModel(name, provider=provider)
    return BedrockConverseModel(name, provider=BedrockProvider(api_key=key, region_name=region))


def _demo(name: str, key: str, settings: ProviderSettings) -> Model[Any]:
    return DemoModel(settings.demo_words_per_second)


# In the order in which a key decides the default model.
PROVIDERS: dict[str, Provider] = {
    "openai": Provider("OpenAI", _openai, ("OPENAI_API_KEY",), "gpt-6.1-terra", base_url="OPENAI_BASE_URL"),
    "anthropic": Provider("Anthropic", _anthropic, ("ANTHROPIC_API_KEY",), "claude-sonnet-5-5", "anthropic"),
    "google": Provider(
        "Google", _google, ("GOOGLE_API_KEY", "GEMINI_API_KEY"), "gemini-3.8-flash", "google.genai", "google"
    ),
    "mistral": Provider("Mistral", _mistral, ("MISTRAL_API_KEY",), "mistral-large-latest", "mistralai", "mistral"),
    "groq": Provider("Groq", _groq, ("GROQ_API_KEY",), "openai/gpt-oss-120b", "groq", "groq"),
    "bedrock": Provider(
        "Bedrock",
        _bedrock,
        ("AWS_BEARER_TOKEN_BEDROCK", "AWS_ACCESS_KEY_ID"),
        "global.anthropic.claude-sonnet-5-5",
        "boto3",
        "bedrock",
    ),
    "openai-responses": Provider(
        "OpenAI", partial(_openai, responses=True), ("OPENAI_API_KEY",), "gpt-6.1-terra", base_url="OPENAI_BASE_URL"
    ),
    "ollama": Provider("Ollama", _ollama, (), ""),
    DEMO: Provider("The demo model", _demo, (), "", "pydantic_ai"),
}


def default_model(env: Mapping[str, str]) -> str:
    """The first provider with a key, else a local Ollama that answers within 300 ms, else the demo model."""
    settings = ProviderSettings(env)
    server = settings.first("OPENAI_BASE_URL").rstrip("/")
    if server and server != OPENAI_URL:
        key = settings.first("OPENAI_API_KEY") or PLACEHOLDER_KEY
        return f"openai:{_first_model(server, SERVER_SECONDS, key) or 'default'}"
    for kind, provider in PROVIDERS.items():
        if provider.keys and settings.first(*provider.keys):
            return f"{kind}:{provider.default}"
    local = _first_model(ollama_url(env), OLLAMA_SECONDS)
    return f"ollama:{local}" if local else DEMO


def ollama_url(env: Mapping[str, str]) -> str:
    """Ollama's own variable is often a bare host and port, and may name the address it listens on."""
    host = env.get("OLLAMA_BASE_URL", "").strip() or env.get("OLLAMA_HOST", "").strip()
    if not host:
        return OLLAMA_URL
    url = (host if "://" in host else f"http://{host}").replace("//0.0.0.0", "//127.0.0.1").rstrip("/")
    if url.count(":") == 1 and url.startswith("http://"):
        url += ":11434"
    return url if url.endswith("/v1") else f"{url}/v1"


def _first_model(base_url: str, seconds: float, key: str = "") -> str:
    """The first model a server offers that is no embedding model; empty when it does not answer in time."""
    opener = urllib.request.build_opener(*([] if key else [urllib.request.ProxyHandler({})]))
    try:
        request = urllib.request.Request(
            f"{base_url}/models", headers={"Authorization": f"Bearer {key}"} if key else {}
        )
        with opener.open(request, timeout=seconds) as answer:
            listed = json.loads(answer.read(1_000_000))["data"]
        names = [entry["id"] for entry in listed if isinstance(entry["id"], str)]
    except (OSError, ValueError, KeyError, TypeError, HTTPException):
        return ""
    return next((name for name in names if "embed" not in name.lower()), "")
