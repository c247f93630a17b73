"""What the log may say: one line a record, with secrets, one-time links and control characters taken out."""

from __future__ import annotations

import logging
import re

from django.conf import settings

_RULES = (
    (re.compile(r"(/accounts/once/)[^\s?#\"'<>]+"), r"\1…"),
    (re.compile(r"(?i)(\b(?:authorization|proxy-authorization|cookie|set-cookie|x-api-key)\b[\"']?\s*[:=]\s*)[^\r\n]+"),
     r"\1…"),
    (re.compile(r"(?i)\b(bearer|basic)\s+[A-Za-z0-9._~+/=-]{8,}"), r"\1 …"),
    (re.compile(r"(?i)\b(sessionid|csrftoken|csrfmiddlewaretoken|password|api[_-]?key)(=|[\"']?:\s*[\"']?)[^\s&;,\"'}]+"),
     r"\1\2…"),
    (re.compile(r"\b(?:sk|pk|rk|gsk|AIza|bl)[-_][A-Za-z0-9_-]{16,}"), "…"),
    (re.compile(r"(\w+://[^\s:/@]*):[^\s@/]+@"), r"\1:…@"),
)  # fmt: skip
_SECRET_NAMES = re.compile(r"KEY|TOKEN|SECRET|PASSWORD")
# A line break or an escape sequence in a person's text must not forge a second line.
_CONTROL = {code: f"\\x{code:02x}" for code in (*range(9), *range(11, 32), 0x7F, 0x85)} | {0x2028: "\\u2028"}


def _own_secrets() -> list[str]:
    named = [value for name, value in settings.PROVIDERS.items() if _SECRET_NAMES.search(name)]
    return [value for value in (settings.SECRET_KEY, settings.METRICS_TOKEN, *named) if len(value) >= 8]


def redact(text: str) -> str:
    """`text` without credentials; also for providers' errors before a person sees them."""
    for secret in _own_secrets():
        text = text.replace(secret, "…")
    for pattern, shown in _RULES:
        text = pattern.sub(shown, text)
    return text


class Redact(logging.Filter):
    """Resolves the record's arguments first: a secret may hide in any of them."""

    def filter(self, record: logging.LogRecord) -> bool:
        record.msg, record.args = redact(record.getMessage()).replace("\n", "\\n").translate(_CONTROL), None
        return True


class OneRecord(logging.Formatter):
    """Time, level, logger, message; a traceback follows on its own lines, redacted too."""

    def __init__(self) -> None:
        super().__init__("%(asctime)s %(levelname)s %(name)s %(message)s")

    def formatException(self, ei: object) -> str:
        return redact(super().formatException(ei))  # type: ignore[arg-type]
