"""API errors: `metav1.Status` with the server's code, reason, details and message.

Every error of the model is an `ApiError` from `kubeshard.core.errors`, created here; `as_status` returns its wire
form. The messages are the server's own (release 1.37), because people search for them.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple

from kubeshard.core.errors import (
    AlreadyExists,
    ApiError,
    Conflict,
    Forbidden,
    Gone,
    Invalid,
    NotFound,
    Timeout,
)
from kubeshard.core.kinds import GroupKind, GroupResource

MODIFIED = "the object has been modified; please apply your changes to the latest version and try again"


UNSAID: Mapping[str, Any] = MappingProxyType({})
"""The details of an error of which the server says nothing of details, whatever its code."""


class FieldError(NamedTuple):
    """One cause of a 422. `reason` is as on the wire; `message` does not repeat the path."""

    path: str
    reason: str
    message: str
    is_old: bool = False
    """Whether the object had it already: a rule that is not kept by what a write leaves alone. It is only warned of."""

    def __str__(self) -> str:
        return f"{self.path}: {self.message}"


def required(path: str, detail: str = "") -> FieldError:
    return FieldError(path, "FieldValueRequired", "Required value" + (f": {detail}" if detail else ""))


def invalid_value(path: str, value: Any, detail: str) -> FieldError:
    return FieldError(path, "FieldValueInvalid", f"Invalid value: {shown(value)}: {detail}")


def invalid_type(path: str, given: str, detail: str) -> FieldError:
    return FieldError(path, "FieldValueTypeInvalid", f"Invalid value: {shown(given)}: {detail}")


def unsupported(path: str, value: Any, supported: Iterable[Any]) -> FieldError:
    choices = ", ".join(shown(choice) for choice in supported)
    return FieldError(
        path, "FieldValueNotSupported", f"Unsupported value: {shown(value)}: supported values: {choices}"
    )


def forbidden_field(path: str, detail: str) -> FieldError:
    return FieldError(path, "FieldValueForbidden", f"Forbidden: {detail}")


def duplicate(path: str, value: Any) -> FieldError:
    return FieldError(path, "FieldValueDuplicate", f"Duplicate value: {shown(value)}")


def too_long(path: str, limit: int) -> FieldError:
    return FieldError(path, "FieldValueTooLong", f"Too long: may not be more than {limit} bytes")


def too_many(path: str, count: int, limit: int) -> FieldError:
    items = "item" if limit == 1 else "items"
    return FieldError(path, "FieldValueTooMany", f"Too many: {count}: must have at most {limit} {items}")


def immutable(path: str, value: Any) -> FieldError:
    return invalid_value(path, value, "field is immutable")


def shown(value: Any) -> str:
    """Formats a value for messages."""
    if value is None:
        return "null"
    text = json.dumps(value, separators=(",", ":"), ensure_ascii=False)
    return escaped(text) if isinstance(value, dict | list) else text


_ESCAPES = str.maketrans({char: f"\\u{ord(char):04x}" for char in "<>&\u2028\u2029"})


def escaped(json: str) -> str:
    """Escapes what Go's JSON escapes, because it has a meaning in HTML or JavaScript."""
    return json.translate(_ESCAPES)


"""The characters that Go escapes in JSON."""


TYPE_META = (
    r'struct { APIVersion string "json:\"apiVersion,omitempty\""; Kind string "json:\"kind,omitempty\"" }'
)
"""As what Go reads the type of an object."""


def aggregated(errors: Iterable[FieldError]) -> str:
    """Formats errors as Go's aggregate does: each once, and several in brackets."""
    told = list(dict.fromkeys(map(str, errors)))
    return told[0] if len(told) == 1 else f"[{', '.join(told)}]"


def invalid(kind: GroupKind, name: str, errors: Sequence[FieldError]) -> Invalid:
    causes = [{"reason": e.reason, "message": e.message, "field": e.path} for e in errors]
    details = _details(name=name, group=kind.group, kind=kind.kind, causes=causes)
    return Invalid(
        f'{kind} "{name}" is invalid: {aggregated(errors)}', code=422, reason="Invalid", details=details
    )


def unprocessable() -> Invalid:
    """The 422 for a patch that cannot be applied. The message does not say why."""
    return Invalid(
        "the server rejected our request due to an error in our request",
        code=422,
        reason="Invalid",
        details={},
    )


def bad_request(message: str) -> Invalid:
    return Invalid(message, code=400, reason="BadRequest")


def not_found(resource: GroupResource, name: str) -> NotFound:
    return NotFound(
        f'{resource} "{name}" not found',
        code=404,
        reason="NotFound",
        details=_details(name=name, group=resource.group, kind=resource.resource),
    )


def no_such_path() -> NotFound:
    return NotFound(
        "the server could not find the requested resource", code=404, reason="NotFound", details={}
    )


def already_exists(
    resource: GroupResource, name: str, *, generates: bool = False, deleting: bool = False
) -> AlreadyExists:
    """`generates`: the request has a generateName, which the message mentions even if the request also has a name.
    `deleting`: the object that exists is being deleted.
    """
    head = "object is being deleted: " if deleting else ""
    told = ", the server was not able to generate a unique name for the object" if generates else ""
    seconds = 1 if generates else 0
    return AlreadyExists(
        f'{head}{resource} "{name}" already exists{told}',
        code=409,
        reason="AlreadyExists",
        details=_details(name=name, group=resource.group, kind=resource.resource, retryAfterSeconds=seconds),
    )


def conflict(resource: GroupResource, name: str, cause: str = MODIFIED) -> Conflict:
    return Conflict(
        f'Operation cannot be fulfilled on {resource} "{name}": {cause}',
        code=409,
        reason="Conflict",
        details=_details(name=name, group=resource.group, kind=resource.resource),
    )


def forbidden(resource: GroupResource, name: str, cause: str, causes: Sequence[Any] = ()) -> Forbidden:
    message = f'{resource} "{name}" is forbidden: {cause}' if name else f"{resource} is forbidden: {cause}"
    details = _details(name=name, group=resource.group, kind=resource.resource, causes=list(causes))
    return Forbidden(message, code=403, reason="Forbidden", details=details)


def expired(message: str, continue_: str | None = None) -> Gone:
    """`continue_` is a token with which to continue an inconsistent list."""
    error = Gone(message, code=410, reason="Expired")
    return error if continue_ is None else ExpiredContinue(error, continue_)


class ExpiredContinue(Gone):
    """Raised for a page of a snapshot that has expired; `continue_` is a token to continue with the current state
    instead.
    """

    def __init__(self, error: Gone, continue_: str) -> None:
        super().__init__(error.message, code=error.code, reason=error.reason)
        self.continue_ = continue_


def internal(message: str) -> ApiError:
    """The server's response, without a reason, to an error that it did not expect."""
    return ApiError(message, code=500)


def internal_error(problem: str) -> ApiError:
    """The same with the reason InternalError, where the server expects that it may happen."""
    details = {"causes": [{"message": problem}]}
    return ApiError(f"Internal error occurred: {problem}", code=500, reason="InternalError", details=details)


def undecodable(obj: Mapping[str, Any], key: str) -> ApiError:
    """The response to a read of a custom resource in a version that its definition does not have any more."""
    version, revision = obj["apiVersion"], obj["metadata"].get("resourceVersion", "")
    return internal_error(
        f"StorageError: corrupt object, Code: 7, Key: {key}, ResourceVersion: 0, AdditionalErrorMsg: object not "
        f"decodable revision={revision}: request to convert CR from an invalid group/version: {version}"
    )


def missing_in_object(field: str) -> ApiError:
    """The response to a custom resource that a patch left without a field of its type."""
    return internal_error(f"Object '{field}' is missing in 'object has no {field} field'")


def broken(error: Exception) -> ApiError:
    """The response of last resort, for a bug in this server."""
    return internal_error(f"the server failed to handle this request: {type(error).__name__}")


def too_large_version(asked: int, current: int) -> Timeout:
    return Timeout(
        f"Timeout: Too large resource version: {asked}, current: {current}",
        code=504,
        reason="Timeout",
        details={
            "causes": [{"reason": "ResourceVersionTooLarge", "message": "Too large resource version"}],
            "retryAfterSeconds": 1,
        },
    )


def method_not_allowed() -> ApiError:
    return ApiError(
        "the server does not allow this method on the requested resource",
        code=405,
        reason="MethodNotAllowed",
        details={},
    )


def verb_not_allowed(resource: GroupResource, verb: str) -> ApiError:
    return ApiError(
        f'{verb} is not supported on resources of kind "{resource}"',
        code=405,
        reason="MethodNotAllowed",
        details=_details(group=resource.group, kind=resource.resource),
    )


def not_acceptable(offered: Sequence[str]) -> ApiError:
    message = f"406: Not Acceptable\n\nAvailable representations: {', '.join(offered)}"
    return ApiError(message, code=406, reason="NotAcceptable", details={})


def only_accepted(offered: Sequence[str]) -> ApiError:
    """The 406 for a type that the server knows, but not for this resource or not for watches."""
    message = f"only the following media types are accepted: {', '.join(offered)}"
    error = ApiError(message, code=406, reason="NotAcceptable")
    error.details = UNSAID
    return error


def unsupported_media_type(accepted: Sequence[str]) -> ApiError:
    """`accepted` is empty if the router rejects the request, because the router does not list the accepted types."""
    if not accepted:
        return ApiError("415: Unsupported Media Type", code=415, reason="UnsupportedMediaType", details={})
    return ApiError(
        f"the body of the request was in an unknown format - accepted media types include: {', '.join(accepted)}",
        code=415,
        reason="UnsupportedMediaType",
    )


def too_large_body(limit: int) -> ApiError:
    return ApiError(f"Request entity too large: limit is {limit}", code=413, reason="RequestEntityTooLarge")


def as_status(error: ApiError) -> dict[str, Any]:
    """The body of the response."""
    status: dict[str, Any] = {
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {"continue": error.continue_} if isinstance(error, ExpiredContinue) else {},
        "status": "Failure",
        "message": error.message,
    }
    if error.reason:
        status["reason"] = error.reason
    if error.details or (error.details is not UNSAID and error.code in (403, 404, 405, 406, 422)):
        status["details"] = dict(error.details)
    return {**status, "code": error.code}


def success(resource: GroupResource, name: str, uid: str) -> dict[str, Any]:
    """The response to a DELETE that removed the object."""
    return {
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Success",
        "details": _details(name=name, group=resource.group, kind=resource.resource, uid=uid),
    }


def _details(**fields: Any) -> dict[str, Any]:
    return {name: value for name, value in fields.items() if value}
