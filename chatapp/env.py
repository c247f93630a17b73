"""The environment's rows: every setting's name, default, help and cast; a bad value is one loud line."""

from __future__ import annotations

import hashlib
import ipaddress
import os
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

Network = ipaddress.IPv4Network | ipaddress.IPv6Network


class BadSetting(Exception):
    """Names the setting, its value and what is allowed; the operator acts."""


class _Refused(Exception):
    """What a cast says of a value it does not take: the words after "allowed"."""


@dataclass(frozen=True)
class Row:
    """One setting as the README's table shows it. `default` is what would be written in the environment."""

    name: str
    default: str
    help: str
    cast: Callable[[str], Any] = str
    shown: str = ""
    secret: bool = False


def text(value: str) -> str:
    return value.strip()


def switch(value: str) -> bool:
    words = {"1": True, "true": True, "yes": True, "on": True, "0": False, "false": False, "no": False, "off": False}
    try:
        return words[value.strip().lower()]
    except KeyError:
        raise _Refused("on or off") from None


def number(least: int, most: int) -> Callable[[str], int]:
    def cast(value: str) -> int:
        plain = value.strip().replace("_", "").replace(",", "")
        if not re.fullmatch(r"\d{1,15}", plain, re.ASCII) or not least <= int(plain) <= most:
            raise _Refused(f"a whole number from {least} to {most}")
        return int(plain)

    return cast


def seconds(least: float, most: float) -> Callable[[str], float]:
    def cast(value: str) -> float:
        plain = value.strip()
        if not re.fullmatch(r"\d{1,9}(\.\d{1,6})?", plain, re.ASCII) or not least <= float(plain) <= most:
            raise _Refused(f"seconds from {least:g} to {most:g}")
        return float(plain)

    return cast


def one_of(*words: str) -> Callable[[str], str]:
    def cast(value: str) -> str:
        if value.strip() not in words:
            raise _Refused(" or ".join(words))
        return value.strip()

    return cast


def matching(pattern: str, allowed: str) -> Callable[[str], str]:
    def cast(value: str) -> str:
        if not re.fullmatch(pattern, value.strip()):
            raise _Refused(allowed)
        return value.strip()

    return cast


def words(each: Callable[[str], Any] = text) -> Callable[[str], list[Any]]:
    """A list with commas."""

    def cast(value: str) -> list[Any]:
        return [each(part) for part in value.split(",") if part.strip()]

    return cast


dotted = matching(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)+", "a dotted path such as mypackage.agents.AGENTS")


def network(value: str) -> Network:
    try:
        return ipaddress.ip_network(value.strip(), strict=False)
    except ValueError:
        raise _Refused("addresses or CIDR ranges with commas, such as 10.0.0.0/8") from None


def web_origin(value: str) -> str:
    try:
        parts = urlsplit(value.strip())
        good = parts.scheme in {"http", "https"} and parts.hostname and parts.port != 0
    except ValueError:
        good = None
    if not good or parts.username or parts.path not in {"", "/"} or parts.query or parts.fragment:
        raise _Refused("http:// or https:// with a host and maybe a port, nothing behind")
    return f"{parts.scheme}://{parts.netloc}"


def database_url(value: str) -> str:
    if not re.match(r"(sqlite|postgres|postgresql)://.", value.strip()):
        raise _Refused("sqlite:////path or postgres://user:password@host/name")
    return value.strip()


def redis_url(value: str) -> str:
    if not re.match(r"(redis|rediss|unix)://.", value.strip()):
        raise _Refused("redis://host:port/0, rediss://… or unix:///path?db=0")
    return value.strip()


def time_zone(value: str) -> str:
    from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

    try:
        return ZoneInfo(value.strip()).key
    except (ZoneInfoNotFoundError, ValueError, OSError):
        raise _Refused("a name such as UTC or Europe/Berlin") from None


# What the page is translated into, each named in its own words. Django's names would need Django to be set up.
LANGUAGES = {"en": "English", "de": "Deutsch"}
# The prefixes of model names. The catalog that serves them imports the model library, too slow to ask here.
MODEL_PROVIDERS = ("openai", "openai-responses", "anthropic", "google", "mistral", "groq", "bedrock", "ollama")
model_name = matching(
    rf"(demo|({'|'.join(MODEL_PROVIDERS)}):\S{{1,180}})?",
    f"demo or provider:model, the provider one of {', '.join(MODEL_PROVIDERS)}",
)
model_pattern = matching(
    rf"({'|'.join(MODEL_PROVIDERS)}):\S{{1,180}}", f"provider:pattern, the provider one of {', '.join(MODEL_PROVIDERS)}"
)
ONE_MB = 1024 * 1024

# fmt: off
ROWS: Sequence[Row] = (
    Row("BRANCHLINE_MODEL", "", "Model of conversations that name none, `provider:model` or `demo`.", model_name,
        "first of an OpenAI, Anthropic, … key; else a local Ollama; else `demo`"),
    Row("BRANCHLINE_MODELS", "", "Models offered to people, with commas.", words(model_name), "only the default"),
    Row("BRANCHLINE_FALLBACK_MODEL", "", "Asked when a step failed for good on the chosen model.", model_name, "none"),
    Row("BRANCHLINE_MEDIA_MODELS", "openai:gpt-*,openai-responses:gpt-*,anthropic:*,google:*,bedrock:*anthropic*",
        "Models that are shown attached pictures and PDF files; patterns with commas.", words(model_pattern)),
    Row("BRANCHLINE_AGENT", "main", "Agent that answers a new conversation.",
        matching(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,62}", "the id of an agent")),
    Row("SUBAGENTS_DIR", "subagents", "Folder of agents as Markdown files; read again when they change.", text),
    Row("BRANCHLINE_SUBAGENTS", "", "Agents declared in Python: dotted paths with commas.", words(dotted), "none"),
    Row("BRANCHLINE_SIGNUP", "closed", "Whether strangers may make an account: `closed` or `open`.",
        one_of("closed", "open")),
    Row("PUBLIC_URL", "", "Where people open it: its scheme decides secure cookies and HSTS, its host is allowed.",
        lambda value: web_origin(value) if value else "", "`http://127.0.0.1:PORT`"),
    Row("ALLOWED_HOSTS", "", "More host names it answers to, with commas.", words(), "the host of `PUBLIC_URL`"),
    Row("CSRF_TRUSTED_ORIGINS", "", "More origins whose pages may post to it, with commas.", words(web_origin),
        "`PUBLIC_URL`"),
    Row("TRUSTED_PROXIES", "", "Proxies whose X-Forwarded-For and -Proto are believed: addresses or CIDR.",
        words(network), "none"),
    Row("SECRET_KEY", "", "Signs cookies and sessions; at least 32 characters.",
        matching(r"(.{32,})?", "32 characters or more"), "made once and kept in `DATA_DIR`", secret=True),
    Row("DATA_DIR", "var", "Database, Valkey's files, workspaces and keys; mode 0700.", text),
    Row("DATABASE_URL", "", "`postgres://…` or `sqlite:////path`.",
        lambda value: database_url(value) if value else "", "SQLite in `DATA_DIR`", secret=True),
    Row("REDIS_URL", "", "A Valkey or Redis of your own: `redis://…`, `rediss://…`, `unix:///path`.",
        lambda value: redis_url(value) if value else "", "embedded Valkey", secret=True),
    Row("DEBUG", "off", "Django's debug pages. Never where others can reach it.", switch),
    Row("LOG_LEVEL", "INFO", "DEBUG, INFO, WARNING or ERROR.", one_of("DEBUG", "INFO", "WARNING", "ERROR")),
    Row("TIME_ZONE", "UTC", "Of times on the page.", time_zone),
    Row("LANGUAGE_CODE", "en", "Of the page when neither person nor browser asks for one: `en` or `de`.",
        one_of(*LANGUAGES)),
    Row("METRICS_TOKEN", "", "Bearer token that may read /metrics; 16 characters or more.",
        matching(r"([\x21-\x7e]{16,})?", "16 or more ASCII characters"), "staff and loopback only", secret=True),
    Row("BRANCHLINE_RQ_WORKERS", "2", "Worker processes that `up` starts.", number(0, 64)),
    Row("BRANCHLINE_MAX_STEPS", "25", "Model requests in one reply.", number(1, 1000)),
    Row("BRANCHLINE_PARALLEL_TOOLS", "8", "Tool calls of one step at once; 1 = one after the other.", number(1, 64)),
    Row("BRANCHLINE_SPAWNS_PER_TURN", "32", "Subagents that one turn may make.", number(1, 1000)),
    Row("BRANCHLINE_TOKEN_CAP_SESSION", "2000000", "Tokens a session may use before it stops.", number(1, 10**12)),
    Row("BRANCHLINE_TOKEN_CAP_USER_DAY", "10000000", "Tokens a person may use in a UTC day.", number(1, 10**12)),
    Row("BRANCHLINE_RATE_MESSAGES", "60", "Messages a person may send in a minute; 0 = no limit.", number(0, 100_000)),
    Row("BRANCHLINE_MESSAGE_CHARS", "200000", "Longest message, in characters.", number(1, 1_000_000)),
    Row("BRANCHLINE_TOOL_RESULT_CHARS", "50000", "Longest tool result the model is told.", number(1000, 1_000_000)),
    Row("BRANCHLINE_EVENT_BYTES", str(256 * 1024), "Largest payload of one event.", number(4096, 16 * ONE_MB)),
    Row("BRANCHLINE_RUNNING_PER_USER", "20", "Turns of one person at once; more wait.", number(1, 1000)),
    Row("BRANCHLINE_HOSTED_TURNS", "64", "Turns one server works on at once; more wait.", number(1, 1000)),
    Row("BRANCHLINE_FILE_BYTES", str(10 * ONE_MB), "Largest file in a workspace.", number(1024, 1024 * ONE_MB)),
    Row("BRANCHLINE_WORKSPACE_BYTES", str(200 * ONE_MB), "Largest workspace.", number(1024, 1024 * 1024 * ONE_MB)),
    Row("BRANCHLINE_LEASE_SECONDS", "20", "A turn whose server is silent for so long is taken over.",
        seconds(0.5, 600)),
    Row("BRANCHLINE_SWEEP_SECONDS", "1", "How often a server looks for work that nobody rang for.", seconds(0.05, 60)),
    Row("BRANCHLINE_DOORBELLS", "on", "`off` relies on the sweeps alone.", switch),
)
# fmt: on
BY_NAME = {row.name: row for row in ROWS}

# A socket's path fits some 104 bytes on macOS, 108 on Linux.
SOCKET_PATH_BYTES = 100


def valkey_socket(data_dir: Path) -> Path:
    """Where the embedded Valkey listens: in the data folder, or under the runtime folder if that path is too long."""
    usual = data_dir / "valkey" / "valkey.sock"
    if len(os.fsencode(usual)) <= SOCKET_PATH_BYTES:
        return usual
    runtime = Path(os.environ.get("XDG_RUNTIME_DIR") or f"/run/user/{os.getuid()}")
    base = runtime if runtime.is_dir() and len(os.fsencode(runtime)) < 40 else Path("/tmp")
    name = hashlib.sha256(os.fsencode(data_dir)).hexdigest()[:16]
    return base / f"branchline-{os.getuid()}-{name}" / "v.sock"


# Handed to the model providers' clients unchanged, each also as NAME_FILE.
PROVIDER_PREFIXES = ("OPENAI_", "ANTHROPIC_", "GOOGLE_", "GEMINI_", "MISTRAL_", "GROQ_", "AWS_", "OLLAMA_", "CO_API_",
                     "OPENROUTER_", "DEEPSEEK_")  # fmt: skip


def _from_file(name: str, path: str) -> str:
    try:
        return Path(path).read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "not UTF-8 text"
        raise BadSetting(f"{name}_FILE is {path!r}: {reason}; allowed: the path of a readable text file") from None


class Environment:
    """Reads rows from a mapping. NAME_FILE names a file that holds the value; both at once is refused."""

    def __init__(self, environ: Mapping[str, str]) -> None:
        self.environ = environ

    def raw(self, name: str) -> str | None:
        """The value as written, from NAME or NAME_FILE; an empty one counts as not set."""
        value, path = self.environ.get(name, ""), self.environ.get(f"{name}_FILE", "")
        if value and path:
            raise BadSetting(f"{name} and {name}_FILE are both set; allowed: one of the two")
        return (_from_file(name, path) if path else value) or None

    def __getitem__(self, name: str) -> Any:
        row = BY_NAME[name]
        written = self.raw(name)
        try:
            return row.cast(row.default if written is None else written)
        except _Refused as refused:
            value = "(not shown)" if row.secret else repr(written)
            raise BadSetting(f"{name} is {value}; allowed: {refused}") from None

    def providers(self) -> dict[str, str]:
        names = {name.removesuffix("_FILE") for name in self.environ if name.startswith(PROVIDER_PREFIXES)}
        found = {name: self.environ.get(name) or self.raw(name) for name in names}
        return {name: value for name, value in found.items() if value}
