"""Errors of the API server by cause, never by message text.

Catch the class, not the code: `except NotFound`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

ANONYMOUS = 'User "system:anonymous"'
"""In the message of a Forbidden: the API server saw no credentials. It does not say so in any other way."""
NO_CREDENTIALS = (
    "the request had no credentials that the cluster knows, so it took this process for an anonymous user: give the "
    "user of the kubeconfig's context a token, a certificate or a credential plugin (in a pod: mount the service "
    "account's token)"
)


class KubeshardError(Exception):
    """Base of everything that kubeshard raises on purpose. The message is one line that says what to do."""


class ApiError(KubeshardError):
    """The API server rejected a request, or the request failed.

    `code` is the HTTP status, `reason` the server's machine-readable word (`NotFound`, `Conflict`, ...),
    `retry_after` the seconds the server asked to wait, or None. `details` is `Status.details`.
    """

    def __init__(
        self,
        message: str,
        *,
        code: int = 0,
        reason: str = "",
        retry_after: float | None = None,
        details: Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__(message)
        self.message = message
        self.code = code
        self.reason = reason
        self.retry_after = retry_after
        self.details: Mapping[str, Any] = details or {}

    @property
    def causes(self) -> Sequence[Mapping[str, Any]]:
        """What is wrong in detail: each has a `reason`, a `field` and a `message`, if the server gave them."""
        causes = self.details.get("causes")
        return [cause for cause in causes if isinstance(cause, Mapping)] if isinstance(causes, list) else []


class NotFound(ApiError):
    """404: the object, or its kind, does not exist."""


class AlreadyExists(ApiError):
    """409 AlreadyExists: a create with a name that exists."""


class Conflict(ApiError):
    """409 Conflict: the object changed since it was read, a precondition failed, or another manager owns a field."""


class FieldConflict(Conflict):
    """409 of an apply without `force`: other field managers own fields that it sets to other values;
    `causes` name them. Not a stale read: the same apply fails again until they give the fields up.
    """


class Gone(ApiError):
    """410: the resourceVersion or continue token is too old; list again."""


class Invalid(ApiError):
    """422 (and 400 for malformed bodies): validation failed; `causes` name the fields."""


class SchemaMismatch(Invalid):
    """500 of an apply with a field that the schema does not have, or a value of another type than the schema says;
    `causes` name them. Nothing was written, and the same apply fails again.
    """


class TooLarge(Invalid):
    """413, and what etcd refuses: the object is larger than the cluster stores (1.5 MB by default), or the request than
    the API server reads (3 MB). Nothing was written, and the same write fails again.
    """


class PatchTestFailed(Invalid):
    """422 for a JSON Patch that does not fit the object: a `test` failed, or a path does not exist; the server does not
    say which. What a webhook, a policy or the schema refuses is another error, also if its code is 422.
    """


class Forbidden(ApiError):
    """403: authenticated, but rejected by RBAC or an admission policy."""


class Unauthorized(ApiError):
    """401: missing, wrong or expired credentials."""


class Throttled(ApiError):
    """429, or 503 with Retry-After, after the retries were used up."""


class Timeout(ApiError):
    """The server did not answer within the deadline. A write may or may not have taken effect."""


class Unavailable(ApiError):
    """The server could not be reached, or returned 5xx. A write may or may not have taken effect."""


class UnexpectedResponse(ApiError):
    """A response that is not from an API server: HTML of a load balancer, an empty 200, a redirect, the wrong kind."""


class NotOurs(Conflict):
    """A fenced write was rejected: the object's shard label does not (or no longer does) name this shard, or
    this shard's lease deadline has passed. Never retried against the same object; a reconcile that raises it
    ends without an error.
    """


class Terminal(KubeshardError):
    """Raised by a reconciler for a failure that a retry cannot fix: counted and logged, not requeued."""


class Retry(KubeshardError):
    """Raised by a reconciler that cannot do its work yet: the run counts as failed, and the next one is after `after`
    seconds, or without it after the usual backoff. Raises ValueError unless `after` is positive.
    """

    def __init__(self, message: str = "", *, after: float | None = None) -> None:
        if after is not None and not after > 0:
            raise ValueError(f"Retry(after={after}): seconds, more than 0")
        super().__init__(message or "the reconciler asked to be called again")
        self.after = after


class NoSuchCluster(KubeshardError):
    """The manager has no cluster of that name, or it was removed."""


class Unprepared(KubeshardError):
    """The cluster lacks what a person has to provide, such as a right or a namespace. Commands end with exit code 1."""


class ConfigurationError(KubeshardError):
    """A user's mistake in a file, flag, environment variable or set-up. Commands end with exit code 2."""


def ungrouped(error: BaseException) -> BaseException:
    """The error itself, without the groups that task groups put around it."""
    while isinstance(error, BaseExceptionGroup) and len(error.exceptions) == 1:
        error = error.exceptions[0]
    return error
