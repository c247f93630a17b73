"""Errors by who must act: the person, the spec's author, the model, the operator."""

from __future__ import annotations


class BranchlineError(Exception):
    """`code` is stable and machine-readable; `detail` is one line for a person; `retryable` says if again helps."""

    code = "error"
    retryable = False

    def __init__(self, detail: str, *, code: str | None = None, retryable: bool | None = None) -> None:
        super().__init__(detail)
        self.detail = detail
        self.code = code or self.code
        self.retryable = self.retryable if retryable is None else retryable


class NotFound(BranchlineError):
    """Unknown, or another's: the person gets the same answer."""

    code = "not_found"


class Conflict(BranchlineError):
    """The person asked for something the row's state does not allow now."""

    code = "conflict"


class InvalidField(BranchlineError):
    """One field of a request is wrong; the person corrects it."""

    code = "invalid"

    def __init__(self, field: str, detail: str, *, code: str | None = None) -> None:
        super().__init__(detail, code=code)
        self.field = field


class TooLong(InvalidField):
    code = "too_long"


class RateLimited(BranchlineError):
    """Too many; `retry_after` in seconds."""

    code = "rate_limited"
    retryable = True

    def __init__(self, detail: str, retry_after: int) -> None:
        super().__init__(detail)
        self.retry_after = retry_after


class Unavailable(BranchlineError):
    """Database or Valkey is away; the operator acts, the person tries again."""

    code = "unavailable"
    retryable = True


class ToolFailed(BranchlineError):
    """A tool could not do it; the model reads the detail and adapts."""

    code = "tool_failed"


class ProviderError(BranchlineError):
    """The model's provider refused or broke. `status` is its HTTP status where there is one."""

    code = "provider"

    def __init__(self, detail: str, *, code: str, retryable: bool, status: int | None = None) -> None:
        super().__init__(detail, code=code, retryable=retryable)
        self.status = status


class ModelUnknown(ProviderError):
    """A model name that no provider serves; the person or the operator picks another."""

    def __init__(self, detail: str) -> None:
        super().__init__(detail, code="model_unknown", retryable=False)


class LeaseLost(BranchlineError):
    """Another host owns the session now; whoever raised this writes nothing more."""

    code = "lease_lost"
