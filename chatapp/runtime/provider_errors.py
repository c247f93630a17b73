"""What a provider's failure means: our code, a line for a person, whether again helps."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

import httpx2
from pydantic_ai.exceptions import (
    ContentFilterError,
    ModelAPIError,
    ModelAuthenticationError,
    ModelConnectionError,
    ModelContextWindowExceededError,
    ModelHTTPError,
    ModelNotFoundError,
    ModelQuotaExceededError,
    ModelRateLimitError,
    ModelRequestRejectedError,
    ModelRequestTimeout,
    ModelServerError,
    ModelTimeoutError,
    ModelUnavailableError,
    UnexpectedModelBehavior,
    UserError,
)

from chatapp.runtime.errors import ModelUnknown, ProviderError
from chatapp.runtime.messages import clean

QUOTED = 300
SECRET = re.compile(r"(?i)\b(?:sk|pk|rk|gsk|xai|key|bearer)[-_ ][\w.+/=*-]{6,}|AIza[\w-]{10,}|(?<=://)[^/\s@]+@")
CONTEXT = re.compile(
    r"(?i)context[ _-]?(?:length|size|window)|prompt is too long"
    r"|too many (?:input )?tokens|maximum (?:number of )?tokens"
)
# What an adapter raises when a stream is no stream of its provider.
_UNREADABLE = (UnexpectedModelBehavior, AttributeError, TypeError, ValueError, LookupError, AssertionError)
_TRANSPORT = (httpx2.HTTPError, httpx2.StreamError, OSError)
RAISED = (*_UNREADABLE, *_TRANSPORT, ModelAPIError, UserError, httpx2.InvalidURL)


@dataclass(frozen=True)
class Door:
    """Whom we ask for what, as a person knows it. `secrets` never appear in a detail."""

    title: str
    model: str
    key_name: str
    secrets: tuple[str, ...] = field(default=(), repr=False)

    @contextmanager
    def errors(self) -> Iterator[None]:
        """Whatever the model library and its clients raise inside comes out as our ProviderError."""
        try:
            yield
        except RAISED as error:
            raise self.translate(error) from error

    def translate(self, error: Exception) -> ProviderError:
        if isinstance(error, ModelAPIError):
            return self._from_api(error)
        if isinstance(error, TimeoutError | httpx2.TimeoutException):
            return self.timeout()
        if isinstance(error, _TRANSPORT):
            return self.connection_lost()
        if isinstance(error, ContentFilterError):
            return self.content_filtered()
        if isinstance(error, UserError | httpx2.InvalidURL):
            why = self._quote(str(error))
            return self._error("rejected", f"cannot be asked: {why}. The operator must correct this.")
        return self.garbage()

    def _from_api(self, error: ModelAPIError) -> ProviderError:
        status = error.status_code if isinstance(error, ModelHTTPError) else None
        said = self._said(error)
        if isinstance(error, ModelTimeoutError | ModelRequestTimeout):
            return self.timeout()
        if isinstance(error, ModelConnectionError):
            return self.connection_lost()
        if isinstance(error, ModelContextWindowExceededError) or (
            isinstance(error, ModelRequestRejectedError) and status in (400, 413, 422) and CONTEXT.search(said)
        ):
            return self._context_too_long(status)
        if isinstance(error, ModelAuthenticationError):
            return self._wrong_key(status)
        if isinstance(error, ModelNotFoundError):
            return self._model_unknown()
        if isinstance(error, ModelQuotaExceededError):
            return self._error("quota", "says the account has no credit left. The operator must top it up.", status)
        if isinstance(error, ModelRateLimitError):
            return self._rate_limited(error.retry_after)
        if isinstance(error, ModelUnavailableError | ModelServerError):
            detail = "has trouble at the moment. Try again in a minute."
            return self._error("overloaded", detail, status, retryable=True)
        if status is None and not error.in_stream and error.__cause__ is not None:
            return self.garbage()
        again = status is None or status == 408
        return self._error("rejected", f"refused the request: {said}", status, retryable=again)

    def timeout(self) -> ProviderError:
        return self._error("timeout", f"sent nothing of {self.model} for too long. Try again.", retryable=True)

    def connection_lost(self) -> ProviderError:
        detail = "could not be reached, or the connection broke off. Try again; if it stays so, ask the operator."
        return self._error("connection_lost", detail, retryable=True)

    def garbage(self) -> ProviderError:
        detail = f"sent an answer for {self.model} that cannot be read. Try again; if it stays so, ask the operator."
        return self._error("garbage", detail, retryable=True)

    def content_filtered(self) -> ProviderError:
        return self._error("content_filtered", "withheld the answer by its content filter. Ask in other words.")

    def _wrong_key(self, status: int | None) -> ProviderError:
        return self._error("wrong_key", f"refused the key. The operator must check {self.key_name}.", status)

    def _context_too_long(self, status: int | None) -> ProviderError:
        detail = f"says the conversation is longer than {self.model} can read. Start a new one or pick another model."
        return self._error("context_too_long", detail, status)

    def _model_unknown(self) -> ModelUnknown:
        return ModelUnknown(f"{self.title} knows no model “{self.model}”. Pick another; the operator sets which.")

    def _rate_limited(self, retry_after: float | None) -> ProviderError:
        when = f"in {max(1, round(retry_after))} seconds" if retry_after else "in a minute"
        return self._error("rate_limited", f"takes no more requests right now. Try again {when}.", 429, retryable=True)

    def _error(self, code: str, detail: str, status: int | None = None, *, retryable: bool = False) -> ProviderError:
        return ProviderError(f"{self.title} {detail}", code=code, retryable=retryable, status=status)

    def _said(self, error: ModelAPIError) -> str:
        body = error.body
        if isinstance(body, dict):
            inner = body.get("error", body)
            message = inner.get("message") if isinstance(inner, dict) else inner
            if isinstance(message, str):
                return self._quote(message)
        return self._quote(body if isinstance(body, str) else error.message)

    def _quote(self, text: str) -> str:
        """One line of what the provider said, without anything that looks like a secret."""
        return redact(" ".join(clean(text).split()), self.secrets)[:QUOTED].rstrip(".") or "no reason given"


def redact(text: str, secrets: Iterable[str] = ()) -> str:
    for secret in secrets:
        if secret:
            text = text.replace(secret, "…")
    return SECRET.sub("…", text)
