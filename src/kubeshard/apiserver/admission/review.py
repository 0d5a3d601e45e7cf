"""The AdmissionReview of webhooks, v1: what is sent, and what an answer to it must be.

Source: k8s.io/apiserver `admission/plugin/webhook/request`, `admission/plugin/webhook/errors`.
"""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Mapping
from typing import Any, NamedTuple

from kubeshard.apiserver.admission.attributes import Attributes
from kubeshard.core.errors import ApiError, Conflict, Forbidden, Invalid, NotFound

_KIND = ("admission.k8s.io/v1", "AdmissionReview")
_ERRORS: Mapping[int, type[ApiError]] = {
    400: Invalid,
    403: Forbidden,
    404: NotFound,
    409: Conflict,
    422: Invalid,
}


class BadReview(Exception):
    """An answer that is none; the text is the server's."""


class Verdict(NamedTuple):
    """`patch` is the text of a JSON Patch, empty for none. `status` is that of a denial."""

    allowed: bool
    patch: bytes
    patch_type: str
    warnings: tuple[str, ...]
    status: Mapping[str, Any]


def review_of(attributes: Attributes, uid: str) -> dict[str, Any]:
    request = {"uid": uid, **attributes.request(), "object": attributes.object, "oldObject": attributes.old}
    return {"kind": _KIND[1], "apiVersion": _KIND[0], "request": request}


def read_verdict(review: Any, uid: str, *, mutating: bool) -> Verdict:
    """Raises BadReview."""
    if not isinstance(review, Mapping):
        raise BadReview("Object 'Kind' is missing in 'null'")
    given = (review.get("apiVersion") or "", review.get("kind") or "")
    if given != _KIND:
        raise BadReview(f"expected webhook response of {_shown(*_KIND)}, got {_shown(*given)}")
    response = review.get("response")
    if response is None:
        raise BadReview("webhook response was absent")
    if (answered := response.get("uid") or "") != uid:
        raise BadReview(f'expected response.uid="{uid}", got "{answered}"')
    patch, patch_type = response.get("patch"), response.get("patchType")
    _check_patch(patch, patch_type, mutating)
    try:
        decoded = base64.b64decode(patch or "", validate=True)
    except (binascii.Error, ValueError, TypeError):
        raise BadReview("illegal base64 data at input byte 0") from None
    return Verdict(
        bool(response.get("allowed")),
        decoded,
        patch_type or "",
        tuple(response.get("warnings") or ()),
        response.get("status") or {},
    )


def denial(webhook: str, status: Mapping[str, Any]) -> ApiError:
    """The webhook's own status, made a failure, with the webhook's name in front of its words."""
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
    """A 500 with a reason, as the server makes of errors that have none."""
    return ApiError(
        f"Internal error occurred: {problem}",
        code=500,
        reason="InternalError",
        details={"causes": [{"message": problem}]},
    )


def decoded_patch(patch: bytes) -> list[Any]:
    try:
        ops = json.loads(patch)
    except ValueError as error:
        raise internal_error(str(error)) from None
    if not isinstance(ops, list):
        raise internal_error("json: cannot unmarshal object into Go value of type jsonpatch.Patch")
    return ops


def _check_patch(patch: Any, patch_type: Any, mutating: bool) -> None:
    if not mutating:
        if patch:
            raise BadReview("validating webhook may not return response.patch")
        if patch_type is not None:
            raise BadReview("validating webhook may not return response.patchType")
    elif patch and patch_type is None:
        raise BadReview("webhook returned response.patch but not response.patchType")
    elif not patch and patch_type is not None:
        raise BadReview("webhook returned response.patchType but not response.patch")
    elif patch and patch_type == "":
        raise BadReview('webhook returned invalid response.patchType of ""')


def _shown(api_version: str, kind: str) -> str:
    group, slash, version = api_version.partition("/")
    shown = f"{group}/{version}" if slash else f"/{group}"
    return f"{shown}, Kind={kind}"
