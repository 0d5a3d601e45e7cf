"""The AdmissionReview v1 of webhooks: the request that is sent, and the rules for a valid response.

Source: k8s.io/apiserver `admission/plugin/webhook/request`, `admission/plugin/webhook/errors`.
"""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Mapping
from typing import Any, NamedTuple

from kubeshard.core.errors import ApiError, Conflict, Forbidden, Invalid, NotFound
from kubeshard_apiserver.admission.attributes import Attributes
from kubeshard_apiserver.schema.validation import type_name

_KIND = ("admission.k8s.io/v1", "AdmissionReview")
_ERRORS: Mapping[int, type[ApiError]] = {
    400: Invalid,
    403: Forbidden,
    404: NotFound,
    409: Conflict,
    422: Invalid,
}


class BadReview(Exception):
    """Raised for an invalid response; the message is the server's."""


class _Invalid(BadReview):
    def __init__(self, problem: str) -> None:
        super().__init__(f"received invalid webhook response: {problem}")


class _Unreadable(BadReview):
    def __init__(self, problem: str) -> None:
        super().__init__(f"failed to call webhook: {problem}")


class Verdict(NamedTuple):
    """A webhook's verdict on a write. `ops` are the operations of a JSON Patch; `status` is the Status of a denial."""

    allowed: bool
    ops: list[Any]
    warnings: tuple[str, ...]
    status: Mapping[str, Any]


def review_of(attributes: Attributes, uid: str) -> dict[str, Any]:
    request = {"uid": uid, **attributes.request(), "object": attributes.object, "oldObject": attributes.old}
    return {"kind": _KIND[1], "apiVersion": _KIND[0], "request": request}


def read_verdict(review: Any, uid: str, *, mutating: bool) -> Verdict:
    """Reads a webhook's response. Raises BadReview if it is invalid."""
    response = _response(review)
    if (answered := response.get("uid") or "") != uid:
        raise _Invalid(f'expected response.uid="{uid}", got "{answered}"')
    patch, patch_type = response.get("patch"), response.get("patchType")
    _check_patch(patch, patch_type, mutating)
    try:
        decoded = base64.b64decode(patch or "", validate=True)
    except (binascii.Error, ValueError, TypeError):
        raise _Unreadable("illegal base64 data at input byte 0") from None
    allowed = bool(response.get("allowed"))
    ops = _decoded(decoded, str(patch_type)) if allowed and decoded else []
    return Verdict(allowed, ops, tuple(response.get("warnings") or ()), response.get("status") or {})


def _response(review: Any) -> Mapping[str, Any]:
    if not isinstance(review, Mapping):
        given = type_name(review)
        raise _Unreadable(
            f"couldn't get version/kind; json parse error: json: cannot unmarshal {given} into Go value of type "
            'struct { APIVersion string "json:\\"apiVersion,omitempty\\""; Kind string "json:\\"kind,omitempty\\"" }'
        )
    version, kind = review.get("apiVersion") or "", review.get("kind") or ""
    if (version, kind) == ("admission.k8s.io/v1beta1", _KIND[1]):
        raise _Unreadable(f"converting (v1beta1.{kind}) to (v1.{kind}): unknown conversion")
    if (version or kind) and (version, kind) != _KIND:
        raise _Unreadable(f'no kind "{kind}" is registered for version "{version}"')
    response = review.get("response")
    if response is None:
        raise _Invalid("webhook response was absent")
    if not version:
        raise _Invalid(f"expected webhook response of {_KIND[0]}, Kind={_KIND[1]}, got /, Kind=")
    if not isinstance(response, Mapping):
        raise _Unreadable(
            f"json: cannot unmarshal {type_name(response)} into Go struct field AdmissionReview.response"
        )
    if not isinstance(allowed := response.get("allowed"), bool | None):
        field = "Go struct field AdmissionResponse.response.allowed of type bool"
        raise _Unreadable(f"json: cannot unmarshal {type_name(allowed)} into {field}")
    return response


def denial(webhook: str, status: Mapping[str, Any]) -> ApiError:
    """Returns the webhook's own Status as a failure, with the webhook's name prepended to the message."""
    code = status.get("code") or 0
    code = code if code >= 400 else 400
    reason, told = status.get("reason") or "", status.get("message") or status.get("reason") or ""
    said = f": {told}" if told else " without explanation"
    error = _ERRORS.get(code, ApiError)
    return error(
        f'admission webhook "{webhook}" denied the request{said}',
        code=code,
        reason=reason,
        details=status.get("details") or {},
    )


def failed_call(webhook: str, problem: str) -> ApiError:
    return internal_error(f'failed calling webhook "{webhook}": {problem}')


def internal_error(problem: str) -> ApiError:
    """Returns a 500 with the reason that the server adds to errors without one."""
    return ApiError(
        f"Internal error occurred: {problem}",
        code=500,
        reason="InternalError",
        details={"causes": [{"message": problem}]},
    )


def why_not(op: Mapping[str, Any]) -> str:
    """Returns the error of the server's JSON Patch library for an operation that cannot be applied."""
    name, path = op.get("op"), op.get("path") or ""
    last = path.rpartition("/")[2]
    match name:
        case "add":
            return f'add operation does not apply: doc is missing path: "{path}": missing value'
        case "remove":
            return (
                f"error in remove for path: '{path}': Unable to remove nonexistent key: {last}: missing value"
            )
        case "replace":
            return f"replace operation does not apply: doc is missing path: {path}: missing value"
        case "test":
            return f"testing value {path} failed: test failed"
        case "move" | "copy":
            return f"error in {name} for path: '{path}': missing value"
        case _:
            return f"Unexpected kind: {name}"


def _decoded(patch: bytes, patch_type: str) -> list[Any]:
    problem = "received undecodable patch in webhook response: "
    try:
        ops = json.loads(patch)
    except ValueError as error:
        raise BadReview(problem + str(error)) from None
    if not isinstance(ops, list):
        raise BadReview(
            f"{problem}json: cannot unmarshal {type_name(ops)} into Go value of type jsonpatch.Patch"
        )
    if any(not isinstance(op, Mapping) for op in ops):
        raise BadReview(f"{problem}json: cannot unmarshal into Go value of type jsonpatch.Operation")
    if ops and patch_type != "JSONPatch":
        raise BadReview(f'unsupported patch type "{patch_type}"')
    return ops


def _check_patch(patch: Any, patch_type: Any, mutating: bool) -> None:
    if not mutating:
        if patch:
            raise _Invalid("validating webhook may not return response.patch")
        if patch_type is not None:
            raise _Invalid("validating webhook may not return response.patchType")
    elif patch and patch_type is None:
        raise _Invalid("webhook returned response.patch but not response.patchType")
    elif not patch and patch_type is not None:
        raise _Invalid("webhook returned response.patchType but not response.patch")
    elif patch and patch_type == "":
        raise _Invalid('webhook returned invalid response.patchType of ""')
