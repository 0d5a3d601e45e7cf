"""Classifies responses: turns the server's `Status` into an error by cause.

Guaranteed: a response becomes data only if it has status 2xx and a JSON body; "the object does not exist" and
"somebody else was first" are only believed in a response of an API server, never in a load balancer's page.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kubeshard.core.encoding import UNREADABLE, decoder
from kubeshard.core.errors import (
    AlreadyExists,
    ApiError,
    Conflict,
    FieldConflict,
    Forbidden,
    Gone,
    Invalid,
    NotFound,
    PatchTestFailed,
    SchemaMismatch,
    Throttled,
    Timeout,
    TooLarge,
    Unauthorized,
    Unavailable,
    UnexpectedResponse,
)
from kubeshard.core.objects import Struct


class Status(Struct):
    """metav1.Status."""

    kind: str = ""
    status: str = ""
    message: str = ""
    reason: str = ""
    code: int = 0
    details: dict[str, Any] | None = None


def is_json(headers: Mapping[str, str]) -> bool:
    return headers.get("content-type", "").startswith("application/json")


def failure_of(where: str, status: int, headers: Mapping[str, str], body: bytes) -> ApiError:
    """The error of a response that is not JSON with status 2xx. `where` names the request."""
    if not 200 <= status < 300:
        return error_of(where, status, headers, body)
    if not body:
        return UnexpectedResponse(f"{where}: status {status} with an empty body", code=status)
    return unexpected(where, status, headers, body)


def error_of(where: str, code: int, headers: Mapping[str, str], body: bytes) -> ApiError:
    """The error of a response that is not 2xx."""
    status = _status(code, headers, body)
    retry_after = retry_after_of(headers)
    if status is not None:
        return from_status(where, status, code, retry_after)
    by_code = _TRANSIENT.get(code) or (Unavailable if code >= 500 else None)
    if by_code is None:
        return unexpected(where, code, headers, body)
    if code == 503 and retry_after is not None:
        by_code = Throttled
    return by_code(f"{where}: status {code}: {_excerpt(body)}", code=code, retry_after=retry_after)


def from_status(where: str, status: Status, code: int = 0, retry_after: float | None = None) -> ApiError:
    """The error of a Status; in a watch it is the object of an ERROR event."""
    code = code or status.code
    details = status.details or {}
    asked = details.get("retryAfterSeconds")
    if retry_after is None and isinstance(asked, int | float) and asked > 0:
        retry_after = float(asked)
    cause = _BY_REASON.get(status.reason) or _BY_CODE.get(code) or (Unavailable if code >= 500 else ApiError)
    if code == 503 and retry_after is not None:
        cause = Throttled
    message = status.message or status.reason or str(code)
    if cause is NotFound and message == _NO_PATH:
        message = "the server does not serve this path"
    if cause is Conflict and (owned := _owned_fields(details)):
        cause, message = FieldConflict, f"{owned}: leave these fields to them, or apply with force"
    # It has no details, but says so. Webhooks that refuse with 422, or with 400 as most do, say nothing of details.
    if code == 422 and cause is Invalid and status.details == {}:
        cause = PatchTestFailed
    if code == 500 and message.startswith(_MISMATCH):
        problems = _problems(message)
        cause, message = SchemaMismatch, "; ".join(problems)
        details = {**details, "causes": [_cause(problem) for problem in problems]}
    elif code == 500 and message.startswith(_UNCONVERTED):
        cause, message = SchemaMismatch, message.partition(" to proper version: ")[2] or message
        details = {**details, "causes": [{"field": "", "message": message}]}
    elif code == 500 and any(words in message for words in _REFUSED_BY_ETCD):
        cause = TooLarge
    return cause(
        f"{where}: {message}",
        code=code,
        reason=status.reason,
        retry_after=retry_after,
        details=details,
    )


def _owned_fields(details: Mapping[str, Any]) -> str:
    """The fields that other managers own, each with the server's message about the conflict."""
    causes = details.get("causes")
    return ", ".join(
        f"{cause.get('field', '')} {cause.get('message', '')}"
        for cause in (causes if isinstance(causes, list) else ())
        if isinstance(cause, dict) and cause.get("reason") == "FieldManagerConflict"
    )


_NO_PATH = "404 page not found"
"""About a group, version or resource that it does not serve: a page before 1.38, then the message of a Status."""
_MISMATCH = "failed to create typed patch object ("
"""The API server has neither code nor reason for such an apply: it answers as if it had failed itself."""
_UNCONVERTED = "failed to convert new object ("
"""The schema allows the value, the type does not: a number that is too large, data of a Secret that is no base64."""


_REFUSED_BY_ETCD = ("etcdserver: request is too large", "trying to send message larger than max")
"""The API server passes on what etcd and the client of etcd say (kubernetes/kubernetes#112152)."""


def _problems(message: str) -> list[str]:
    """One is on the line itself, several are a list under `errors:`."""
    lines = [line.strip() for line in message.partition("): ")[2].removeprefix("errors:").splitlines()]
    return [line for line in lines if line] or [message]


def _cause(problem: str) -> dict[str, str]:
    """As in a Status with reason Invalid."""
    field, colon, words = problem.partition(": ")
    return (
        {"field": field.removeprefix("."), "message": words} if colon else {"field": "", "message": problem}
    )


def unexpected(where: str, code: int, headers: Mapping[str, str], body: bytes) -> UnexpectedResponse:
    """What no API server sends; the message includes it, as the cause is somewhere on the network."""
    location = f" to {headers['location']}" if "location" in headers else ""
    what = headers.get("content-type", "no content type")
    return UnexpectedResponse(
        f"{where}: status {code}{location} ({what}) is not a response of an API server: {_excerpt(body)}",
        code=code,
    )


def retry_after_of(headers: Mapping[str, str]) -> float | None:
    """Seconds; None if absent or a date (which no API server sends)."""
    value = headers.get("retry-after", "")
    return float(value) if value.isdecimal() else None


_BY_REASON: Mapping[str, type[ApiError]] = {
    "NotFound": NotFound,
    "AlreadyExists": AlreadyExists,
    "Conflict": Conflict,
    "Gone": Gone,
    "Expired": Gone,
    "Invalid": Invalid,
    "BadRequest": Invalid,
    "RequestEntityTooLarge": TooLarge,
    "Forbidden": Forbidden,
    "Unauthorized": Unauthorized,
    "TooManyRequests": Throttled,
    "Timeout": Timeout,
    "ServerTimeout": Timeout,
    "ServiceUnavailable": Unavailable,
    "InternalError": Unavailable,
}
_TRANSIENT: Mapping[int, type[ApiError]] = {
    401: Unauthorized,
    403: Forbidden,
    408: Timeout,
    429: Throttled,
    504: Timeout,
}
_BY_CODE: Mapping[int, type[ApiError]] = {
    **_TRANSIENT,
    400: Invalid,
    404: NotFound,
    409: Conflict,
    410: Gone,
    413: TooLarge,
    422: Invalid,
}


def _status(code: int, headers: Mapping[str, str], body: bytes) -> Status | None:
    text = headers.get("content-type", "").startswith("text/plain")
    if code == 404 and text and body.strip() == _NO_PATH.encode():
        return Status(message=_NO_PATH, reason="NotFound")
    if not is_json(headers):
        return None
    try:
        status: Status = decoder(Status).decode(body)
    except UNREADABLE:
        return None
    return status if status.kind == "Status" else None


def _excerpt(body: bytes) -> str:
    text = " ".join(body[:200].decode(errors="replace").split())
    return repr(text) if text else "empty body"
