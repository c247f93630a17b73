"""Environment → Django settings. The rows stand in `env.py`; a bad value stops the start with one line."""

from __future__ import annotations

import contextlib
import os
import secrets
import sys
import tempfile
from datetime import timedelta
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import dj_database_url
from csp.constants import NONE, SELF

from chatapp.env import LANGUAGES as OFFERED
from chatapp.env import ROWS, BadSetting, Environment, Network, valkey_socket

BASE_DIR = Path(__file__).resolve().parent.parent


def _data_dir(path: Path) -> Path:
    try:
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
        if path.stat().st_mode & 0o077:
            path.chmod(0o700)
    except OSError as error:
        raise BadSetting(f"DATA_DIR is {str(path)!r}: {error.strerror}; allowed: a folder we may write to") from None
    return path


def _kept_secret(path: Path) -> str:
    """The key in `path`, made once. Two processes may start together: link() lets one of them win."""
    try:
        if not path.exists():
            with tempfile.NamedTemporaryFile("w", dir=path.parent, prefix=".key-") as file:
                file.write(secrets.token_urlsafe(64))
                file.flush()
                os.fsync(file.fileno())
                with contextlib.suppress(FileExistsError):
                    os.link(file.name, path)
        return path.read_text().strip()
    except OSError as error:
        raise BadSetting(f"SECRET_KEY is not set and {str(path)!r}: {error.strerror}; allowed: 32 characters") from None


def _database(url: str, default: Path) -> dict[str, Any]:
    """SQLite in WAL with IMMEDIATE transactions; Postgres with a pool, except where workers fork."""
    try:
        config: dict[str, Any] = dict(dj_database_url.parse(url or f"sqlite:///{default}"))
    except (ValueError, dj_database_url.ParseError):
        raise BadSetting("DATABASE_URL is (not shown); allowed: sqlite:////path or postgres://…") from None
    options = config.setdefault("OPTIONS", {})
    if config["ENGINE"].endswith("sqlite3"):
        config["CONN_MAX_AGE"] = 600
        config["TEST"] = {"NAME": str(default.with_name("test.sqlite3"))}
        options |= {
            "transaction_mode": "IMMEDIATE",
            "timeout": 20,
            "init_command": "PRAGMA journal_mode=WAL; PRAGMA synchronous=NORMAL; PRAGMA temp_store=MEMORY; "
            "PRAGMA mmap_size=134217728; PRAGMA journal_size_limit=27103364;",
        }
        return config
    config["CONN_HEALTH_CHECKS"] = True
    # Named, or a live server in the tests would prefix it a second time.
    config["TEST"] = {"NAME": f"test_{config['NAME']}"}
    if sys.argv[1:2] == ["rqworker"]:
        config["CONN_MAX_AGE"] = 600
    else:
        options["pool"] = {"min_size": 2, "max_size": 10, "timeout": 10}
    return config


def _load() -> dict[str, Any]:
    """What depends on the environment, all of it read here so that one place can be loud."""
    env = Environment(os.environ)
    plain = {name: env[name] for name in (
        "ALLOWED_HOSTS", "CSRF_TRUSTED_ORIGINS", "TRUSTED_PROXIES", "DEBUG", "LOG_LEVEL", "TIME_ZONE", "LANGUAGE_CODE",
        "METRICS_TOKEN")}  # fmt: skip
    plain |= {row.name: env[row.name] for row in ROWS if row.name.startswith("BRANCHLINE_")}
    data = _data_dir(BASE_DIR / os.path.expanduser(env["DATA_DIR"]))
    return plain | {
        "DATA_DIR": data,
        "SUBAGENTS_DIR": BASE_DIR / os.path.expanduser(env["SUBAGENTS_DIR"]),
        "PROVIDERS": env.providers(),
        "PUBLIC_URL": env["PUBLIC_URL"] or "http://127.0.0.1:8000",
        "SECRET_KEY": env["SECRET_KEY"] or _kept_secret(data / "secret-key"),
        "DATABASES": {"default": _database(env["DATABASE_URL"], data / "branchline.sqlite3")},
        "EMBEDDED_VALKEY": not env["REDIS_URL"],
        "VALKEY_SOCKET": valkey_socket(data),
        "REDIS_URL": env["REDIS_URL"] or f"unix://{valkey_socket(data)}?db=0",
    }


try:
    _values = _load()
except BadSetting as bad:
    raise SystemExit(f"Branchline cannot start: {bad}") from None
globals().update(_values)

# Said once more with their types for readers and for the type checker.
METRICS_TOKEN: str
TRUSTED_PROXIES: list[Network]
BRANCHLINE_AGENT: str
BRANCHLINE_SUBAGENTS: list[str]
BRANCHLINE_MODEL: str
BRANCHLINE_MODELS: list[str]
BRANCHLINE_FALLBACK_MODEL: str
BRANCHLINE_MEDIA_MODELS: list[str]
BRANCHLINE_SIGNUP: str
BRANCHLINE_RQ_WORKERS: int
BRANCHLINE_MAX_STEPS: int
BRANCHLINE_PARALLEL_TOOLS: int
BRANCHLINE_SPAWNS_PER_TURN: int
BRANCHLINE_TOKEN_CAP_SESSION: int
BRANCHLINE_TOKEN_CAP_USER_DAY: int
BRANCHLINE_RATE_MESSAGES: int
BRANCHLINE_MESSAGE_CHARS: int
BRANCHLINE_TOOL_RESULT_CHARS: int
BRANCHLINE_EVENT_BYTES: int
BRANCHLINE_FILE_BYTES: int
BRANCHLINE_WORKSPACE_BYTES: int
BRANCHLINE_RUNNING_PER_USER: int
BRANCHLINE_HOSTED_TURNS: int
BRANCHLINE_LEASE_SECONDS: float
BRANCHLINE_SWEEP_SECONDS: float
BRANCHLINE_DOORBELLS: bool
DATA_DIR: Path = _values["DATA_DIR"]
SUBAGENTS_DIR: Path = _values["SUBAGENTS_DIR"]
PUBLIC_URL: str = _values["PUBLIC_URL"]
EMBEDDED_VALKEY: bool = _values["EMBEDDED_VALKEY"]
VALKEY_SOCKET: Path = _values["VALKEY_SOCKET"]
REDIS_URL: str = _values["REDIS_URL"]
SECRET_KEY: str = _values["SECRET_KEY"]
DATABASES: dict[str, Any] = _values["DATABASES"]
DEBUG: bool = _values["DEBUG"]
PROVIDERS: dict[str, str] = _values["PROVIDERS"]
WORKSPACES_DIR = DATA_DIR / "workspaces"
LANGUAGE_CODE: str = _values["LANGUAGE_CODE"]
LANGUAGES = list(OFFERED.items())
LOCALE_PATHS = [BASE_DIR / "chatapp" / "locale"]
TIME_ZONE: str = _values["TIME_ZONE"]
USE_TZ = True

_public = urlsplit(PUBLIC_URL)
_https = _public.scheme == "https"
_host = _public.hostname or ""
_loopback = {"127.0.0.1", "localhost", "::1"}
_hosts = {_host} | (_loopback if _host in _loopback else set())
ALLOWED_HOSTS = [*_values["ALLOWED_HOSTS"], *sorted(f"[{host}]" if ":" in host else host for host in _hosts)]
CSRF_TRUSTED_ORIGINS = [*_values["CSRF_TRUSTED_ORIGINS"], PUBLIC_URL]

INSTALLED_APPS = [
    "django.contrib.admin",
    "django.contrib.auth",
    "django.contrib.contenttypes",
    "django.contrib.sessions",
    "django.contrib.messages",
    "servestatic",
    "django.contrib.staticfiles",
    "axes",
    "csp",
    "ninja",
    "django_rq",
    "chatapp",
]
MIDDLEWARE = [
    "chatapp.middleware.TrustedProxies",
    "django.middleware.security.SecurityMiddleware",
    "servestatic.middleware.ServeStaticMiddleware",
    "chatapp.middleware.ContentPolicy",
    "django.contrib.sessions.middleware.SessionMiddleware",
    "django.middleware.locale.LocaleMiddleware",
    "django.middleware.common.CommonMiddleware",
    "django.middleware.csrf.CsrfViewMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
    "chatapp.middleware.QueuesForSuperusers",
    "django.contrib.messages.middleware.MessageMiddleware",
    "django.middleware.clickjacking.XFrameOptionsMiddleware",
    "axes.middleware.AxesMiddleware",
]
ROOT_URLCONF = "chatapp.urls"
ASGI_APPLICATION = "gateway.asgi.application"
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
TEMPLATES = [
    {
        "BACKEND": "django.template.backends.django.DjangoTemplates",
        "DIRS": [BASE_DIR / "templates"],
        "APP_DIRS": True,
        "OPTIONS": {
            "context_processors": [
                "django.template.context_processors.request",
                "django.contrib.auth.context_processors.auth",
                "django.contrib.messages.context_processors.messages",
            ]
        },
    }
]

# Static files come straight from the source folders: no collect step, also with DEBUG off.
STATIC_URL = "/static/"
STATICFILES_DIRS = [BASE_DIR / "static"]
SERVESTATIC_USE_FINDERS = True
SERVESTATIC_AUTOREFRESH = DEBUG
SERVESTATIC_ALLOW_ALL_ORIGINS = False

# Accounts.
AUTHENTICATION_BACKENDS = ["axes.backends.AxesStandaloneBackend", "django.contrib.auth.backends.ModelBackend"]
AUTH_PASSWORD_VALIDATORS = [
    {"NAME": f"django.contrib.auth.password_validation.{name}"}
    for name in (
        "UserAttributeSimilarityValidator",
        "MinimumLengthValidator",
        "CommonPasswordValidator",
        "NumericPasswordValidator",
    )
]
LOGIN_URL = "login"
LOGIN_REDIRECT_URL = "/"
LOGOUT_REDIRECT_URL = "login"
AXES_FAILURE_LIMIT = 10
AXES_COOLOFF_TIME = timedelta(minutes=15)
AXES_USE_ATTEMPT_EXPIRATION = True
AXES_RESET_COOL_OFF_ON_FAILURE_DURING_LOCKOUT = False
AXES_LOCKOUT_PARAMETERS = [["username", "ip_address"]]
AXES_IPWARE_META_PRECEDENCE_ORDER = ["REMOTE_ADDR"]
AXES_LOCKOUT_CALLABLE = "chatapp.views.accounts.locked_out"
AXES_RESET_ON_SUCCESS = True
AXES_VERBOSE = False
SIGNUP_LIMIT = 10
SIGNUP_WINDOW = timedelta(minutes=15)
# In this process: what is counted here may be forgotten, and nothing pickled is ever read from Valkey.
CACHES = {"default": {"BACKEND": "django.core.cache.backends.locmem.LocMemCache", "OPTIONS": {"MAX_ENTRIES": 10_000}}}

# Browser security.
SESSION_COOKIE_HTTPONLY = CSRF_COOKIE_HTTPONLY = True
SESSION_COOKIE_SAMESITE = CSRF_COOKIE_SAMESITE = "Lax"
SESSION_COOKIE_SECURE = CSRF_COOKIE_SECURE = _https
SECURE_HSTS_SECONDS = 365 * 24 * 3600 if _https else 0
SECURE_HSTS_INCLUDE_SUBDOMAINS = SECURE_HSTS_PRELOAD = _https
# TrustedProxies drops the header from anyone else.
SECURE_PROXY_SSL_HEADER = ("HTTP_X_FORWARDED_PROTO", "https")
# Without a trusted proxy every request looks like http, and a redirect would never end.
SECURE_SSL_REDIRECT = _https and bool(_values["TRUSTED_PROXIES"])
SECURE_REDIRECT_EXEMPT = [r"^(healthz|readyz|metrics)$"]
SECURE_REFERRER_POLICY = "same-origin"
SECURE_CROSS_ORIGIN_OPENER_POLICY = "same-origin"
X_FRAME_OPTIONS = "DENY"
CONTENT_SECURITY_POLICY = {
    "DIRECTIVES": {
        "default-src": [NONE],
        "script-src": [SELF],
        "style-src": [SELF],
        "img-src": [SELF, "data:"],
        "connect-src": [SELF],
        "font-src": [SELF],
        "form-action": [SELF],
        "frame-ancestors": [NONE],
        "base-uri": [NONE],
    }
}
CSRF_FAILURE_VIEW = "chatapp.views.accounts.csrf_failed"
# A character outside the basic plane is 12 bytes when JSON escapes it.
DATA_UPLOAD_MAX_MEMORY_SIZE = 12 * _values["BRANCHLINE_MESSAGE_CHARS"] + 1024 * 1024

# Queues. Jobs carry ids in JSON; nothing read from Valkey is ever unpickled.
RQ_QUEUES = {
    "default": {
        "URL": REDIS_URL,
        "DEFAULT_TIMEOUT": 3600,
        "SERIALIZER": "rq.serializers.JSONSerializer",
    }
}
RQ = {
    "JOB_CLASS": "gateway.queue.Job",
    "WORKER_CLASS": "gateway.queue.Worker",
    "SHOW_ADMIN_LINK": False,
}

LOGGING = {
    "version": 1,
    "disable_existing_loggers": False,
    "filters": {"redact": {"()": "chatapp.logs.Redact"}},
    "formatters": {"line": {"()": "chatapp.logs.OneRecord"}},
    "handlers": {"console": {"class": "logging.StreamHandler", "filters": ["redact"], "formatter": "line"}},
    "root": {"handlers": ["console"], "level": "WARNING"},
    "loggers": {
        "chatapp": {"level": _values["LOG_LEVEL"]},
        "gateway": {"level": _values["LOG_LEVEL"]},
        "daphne": {"level": "WARNING"},
        "django": {"handlers": [], "level": "INFO", "propagate": True},
        "django.server": {"handlers": [], "propagate": True},
        "axes": {"level": "WARNING"},
        "rq": {"level": "WARNING"},
    },
}
