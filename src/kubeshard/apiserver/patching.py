"""The kinds of patch, applied to a live object.

JSON Patch and merge patch by `kubeshard.core.patches`, whose errors become the server's; apply by
`apply.tracker`. Not covered: strategic merge patch.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from kubeshard.apiserver.objects import Object
from kubeshard.apiserver.schema.validation import type_name
from kubeshard.apiserver.status import bad_request, unprocessable
from kubeshard.core.errors import Invalid
from kubeshard.core.patches import ApplyPatch, JsonPatch, MergePatch, apply_json_patch, apply_merge_patch

Patch = MergePatch | JsonPatch | ApplyPatch

MERGE = "application/merge-patch+json"
JSON_PATCH = "application/json-patch+json"
APPLY = "application/apply-patch+yaml"


def patch_of(content_type: str, body: Any) -> Patch:
    """Raises Invalid (400) for a body of another form than the content type says."""
    if content_type == JSON_PATCH:
        if not isinstance(body, list) or not all(isinstance(op, dict) for op in body):
            raise bad_request(
                f"error decoding patch: json: cannot unmarshal {_go(body)} into Go value of type []handlers.jsonPatchOp"
            )
        return JsonPatch(body)
    if body is None and content_type == MERGE:
        raise bad_request("Invalid JSON Patch")
    if not isinstance(body, dict):
        problem = f"json: cannot unmarshal {_go(body)} into Go value of type map[string]interface {{}}"
        raise bad_request(f"error decoding patch: {problem}")
    return ApplyPatch(body) if content_type == APPLY else MergePatch(body)


def patched(live: Object, patch: MergePatch | JsonPatch) -> Object:
    """Raises Invalid (422) for a JSON Patch that cannot be carried out, its failed tests included: the server
    gives no hint.
    """
    result: Any = _merged(live, patch) if isinstance(patch, MergePatch) else _json_patched(live, patch.ops)
    return result if isinstance(result, dict) else {}


def _merged(live: Object, patch: MergePatch) -> Any:
    return apply_merge_patch(live, patch.body)


def _json_patched(live: Object, ops: Sequence[Mapping[str, Any]]) -> Any:
    document: Any = live
    try:
        for op in ops:
            document = apply_json_patch(document, [_as_server_reads(op, document)])
    except (Invalid, LookupError, TypeError, ValueError, AttributeError):
        raise unprocessable() from None
    return document


def _as_server_reads(op: Mapping[str, Any], document: Any) -> Mapping[str, Any]:
    """Unlike RFC 6902 the server lets `replace` set a member that is not there, where its parent is."""
    if op.get("op") != "replace" or not op.get("path"):
        return op
    *parents, last = (part.replace("~1", "/").replace("~0", "~") for part in op["path"].split("/")[1:])
    for part in parents:
        document = document[int(part) if isinstance(document, list) else part]
    return {**op, "op": "add"} if isinstance(document, dict) and last not in document else op


def _go(value: Any) -> str:
    return {"integer": "number", "boolean": "bool"}.get(name := type_name(value), name)
