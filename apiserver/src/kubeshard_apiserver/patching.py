"""Applies patches of all kinds to a live object.

JSON Patch is implemented by `json_patch`, merge patch by `kubeshard.core.patches`: their errors become the server's;
strategic merge patch, for built-in kinds, by `apply.strategic`; and server-side apply by `apply.field_manager`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import msgspec

from kubeshard.core.errors import ApiError, Invalid
from kubeshard.core.kinds import GroupKind
from kubeshard.core.patches import ApplyPatch, JsonPatch, MergePatch
from kubeshard_apiserver.apply.strategic import BadDirective, form_in_go, go_text, strategic_merge
from kubeshard_apiserver.json_patch import apply_operation
from kubeshard_apiserver.objects import Object, recoded
from kubeshard_apiserver.schema.decoding import (
    At,
    DecodeState,
    Float,
    Integer,
    IntOrString,
    List,
    Map,
    Struct,
    Type,
)
from kubeshard_apiserver.schema.validation import go_kind
from kubeshard_apiserver.status import (
    TYPE_META,
    bad_request,
    escaped,
    internal,
    invalid,
    invalid_value,
    shown,
    unprocessable,
)


@dataclass(frozen=True, slots=True)
class StrategicPatch:
    """A strategic merge patch, for objects with a Go type."""

    body: Mapping[str, Any]


Patch = MergePatch | JsonPatch | StrategicPatch | ApplyPatch

MERGE = "application/merge-patch+json"
JSON_PATCH = "application/json-patch+json"
STRATEGIC = "application/strategic-merge-patch+json"
APPLY = "application/apply-patch+yaml"
_MOST_OPERATIONS = 10000


@dataclass(frozen=True, slots=True)
class JsonPatchAsSent(JsonPatch):
    """A JSON Patch with the text of its body."""

    sent: bytes = b"[]"


def patch_of(content_type: str, body: Any, sent: bytes) -> Patch:
    """Reads the body of a patch request, of which `sent` is the text. Raises Invalid (400) if the body does not match
    the content type.
    """
    if content_type == JSON_PATCH:
        return JsonPatchAsSent(_operations([] if body is None else body), sent)
    if body is None and content_type == MERGE:
        raise bad_request("Invalid JSON Patch")
    if body is None and content_type in (STRATEGIC, APPLY):
        body = {}
    if not isinstance(body, dict):
        problem = f"json: cannot unmarshal {go_kind(body)} into Go value of type map[string]interface {{}}"
        raise bad_request(_MISFITS[content_type] + problem)
    forms: Mapping[str, type[MergePatch | StrategicPatch | ApplyPatch]]
    forms = {MERGE: MergePatch, STRATEGIC: StrategicPatch, APPLY: ApplyPatch}
    return forms[content_type](body)


_MISFITS = {
    STRATEGIC: "",
    MERGE: "error decoding patch: ",
    APPLY: "error decoding patch: error unmarshaling JSON: while decoding JSON: ",
}


def _operations(body: Any) -> list[Mapping[str, Any]]:
    """A null counts as an operation without members."""
    wrong = "error decoding patch: json: cannot unmarshal"
    if not isinstance(body, list):
        raise bad_request(f"{wrong} {go_kind(body)} into Go value of type []handlers.jsonPatchOp")
    for op in body:
        if op is not None and not isinstance(op, dict):
            raise bad_request(f"{wrong} {go_kind(op)} into Go value of type handlers.jsonPatchOp")
    if len(body) > _MOST_OPERATIONS:
        told = f"The allowed maximum operations in a JSON patch is {_MOST_OPERATIONS}, got {len(body)}"
        raise ApiError(f"Request entity too large: {told}", code=413, reason="RequestEntityTooLarge")
    operations = [op or {} for op in body]
    for op in operations:
        for name in ("op", "from", "path"):
            if not isinstance(given := op.get(name) or "", str):
                field = f"Go struct field jsonPatchOp.{name} of type string"
                raise bad_request(f"{wrong} {go_kind(given)} into {field}")
    return operations


def patched(
    live: Object, patch: MergePatch | JsonPatch | StrategicPatch, type_: Struct | None = None
) -> Object:
    """Applies the patch. `type_` is the Go type of a built-in kind. The result shares with `live` what the patch leaves
    alone. Raises Invalid (422) for a JSON Patch that cannot be applied, including one whose test fails; the
    server does not say why.
    """
    result: Any
    match patch:
        case MergePatch():
            result = _merged(live, patch.body)
        case JsonPatch():
            result = _json_patched(live, patch)
            if not isinstance(result, dict):
                raise _no_object(result)
        case StrategicPatch():
            result = _strategically_merged(live, patch.body, type_)
    return result if isinstance(result, dict) else {}


def _merged(current: Any, patch: Any) -> Any:
    """Applies a merge patch as the real server does, which also removes nulls inside of lists that are new or replace
    another one. Source: evanphx/json-patch.
    """
    if not isinstance(current, dict):
        return _without_nulls(patch)
    if not isinstance(patch, dict):
        return patch
    result = dict(current)
    for name, value in patch.items():
        if value is None:
            result.pop(name, None)
        else:
            result[name] = _merged(result.get(name), value)
    return result


def _without_nulls(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _without_nulls(inner) for name, inner in value.items() if inner is not None}
    return [_without_nulls(item) for item in value] if isinstance(value, list) else value


def _strategically_merged(live: Object, patch: Mapping[str, Any], type_: Struct | None) -> Object:
    try:
        merged = strategic_merge(type_, live, patch)
    except BadDirective as error:
        raise bad_request(str(error)) if error.code == 400 else internal(str(error)) from None
    if type_ is not None:
        type_.decode(merged, None, _Restoring(patch))
    return {**merged, "apiVersion": live["apiVersion"], "kind": live["kind"]}


class _Restoring(DecodeState):
    """Decodes the result of a strategic merge. The server uses a different converter for it, with its own error
    messages.
    """

    def __init__(self, patch: Mapping[str, Any]) -> None:
        super().__init__("", "")
        self._patch = patch

    def unfit(self, value: Any, at: At, type_: Type) -> Exception:
        kind = form_in_go(value)
        match type_:
            case IntOrString():
                return self.refused(
                    f"json: cannot unmarshal {go_kind(value)} into Go value of type {type_.go}"
                )
            case List():
                return self.refused(f"cannot restore slice from {kind}")
            case Map():
                return self.refused(f"cannot restore map from {kind}")
            case Struct():
                return self.refused(f"cannot restore struct from: {kind}")
            case Integer() | Float() if kind == "float64":
                return self.refused(f"cannot convert {kind} to {type_.go}")
        if type_.zero() == "":
            return self.refused(f"cannot convert {kind} to string")
        return self.refused(f"unrecognized type: {type_.go}")

    def refused(self, problem: str) -> Exception:
        return invalid(GroupKind("", ""), "", [invalid_value("patch", go_text(self._patch), problem)])


def _json_patched(live: Object, patch: JsonPatch) -> Any:
    texts = _with_texts(patch) if isinstance(patch, JsonPatchAsSent) else None
    try:
        if texts is None:
            return _operated(_own_parts(live, patch.ops), patch.ops)
        first = next((place for place, op in enumerate(texts) if op.get("op") != "test"), len(texts))
        if any(op.get("op") == "test" for op in texts[first:]):
            return _read_texts(_operated(_texts_of(live), texts))
        # Nearly all patches test what is stored, and then change it: only what is tested has to be compared as text.
        for op in texts[:first]:
            apply_operation(live, _as_server_reads(op, live), _texts_of)
        ops = patch.ops[first:]
        return _operated(_own_parts(live, ops), ops)
    except (Invalid, LookupError, TypeError, ValueError, AttributeError):
        raise unprocessable() from None


def _no_object(result: Any) -> ApiError:
    """Returns the error for operations that make of an object something else."""
    if not isinstance(result, list):
        return unprocessable()
    parsing = "couldn't get version/kind; json parse error"
    problem = f"{parsing}: json: cannot unmarshal array into Go value of type {TYPE_META}"
    return invalid(GroupKind("", ""), "", [invalid_value("patch", shown(result), problem)])


def _own_parts(live: Object, ops: Sequence[Mapping[str, Any]]) -> Object:
    """A copy of which the operations may change what they name; the rest is shared."""
    document = live.copy()
    named = {path[0] for op in ops if len(path := _steps(op.get("path"))) > 1}
    named |= {path[0] for op in ops if (path := _steps(op.get("from")))}
    for name in named & document.keys():
        document[name] = recoded(document[name])
    return document


def _steps(path: str | None) -> list[str]:
    return [part.replace("~1", "/").replace("~0", "~") for part in (path or "").split("/")[1:]]


def _operated(document: Any, ops: Sequence[Mapping[str, Any]]) -> Any:
    for op in ops:
        document = apply_operation(document, _as_server_reads(op, document))
    return document


def _with_texts(patch: JsonPatchAsSent) -> Sequence[Mapping[str, Any]] | None:
    """The operations with values as the texts that were sent, as which a `test` compares them; None without a test."""
    if all(op.get("op") != "test" for op in patch.ops):
        return None
    sent: list[dict[str, msgspec.Raw] | None]
    sent = msgspec.json.decode(patch.sent, type=list[dict[str, msgspec.Raw] | None])
    values = [{"value": _texts_in(bytes(op["value"]))} if op and "value" in op else {} for op in sent]
    return [{**op, **value} for op, value in zip(patch.ops, values, strict=True)]


def _as_server_reads(op: Mapping[str, Any], document: Any) -> Mapping[str, Any]:
    """The operation in the terms of RFC 6902. Unlike that, the server lets `replace` set, and `copy` read, a missing
    member whose parent exists; needs no value for `add`; replaces the whole document with `replace` only; and refuses a
    `test` of null if the parent is missing.
    """
    match op.get("op"):
        case "add" | "copy" | "move" | "remove" if not op.get("path"):
            raise LookupError
        case "add":
            return {"value": None, **op}
        case "replace" if op.get("path") and _is_missing(op["path"], document):
            return {**op, "op": "add"}
        case "copy" if _is_missing(op["from"], document):
            return {"op": "add", "path": op["path"], "value": None}
        case "test":
            if op.get("path"):
                _is_missing(op["path"], document)
    return op


def _is_missing(path: str, document: Any) -> bool:
    """Whether a member is missing from its parent. Raises LookupError, TypeError or ValueError without a parent."""
    *parents, last = _steps(path)
    for part in parents:
        document = document[int(part) if isinstance(document, list) else part]
    return isinstance(document, dict) and last not in document


# A `test` compares texts: JSON whose maps and lists are those of Python, a null None, and every other scalar the bytes
# that Go writes for it, or that a client has sent. Source: encoding/json.


def _texts_of(value: Any) -> Any:
    """Returns the value with the texts that Go writes."""
    if isinstance(value, dict):
        return {name: _texts_of(inner) for name, inner in value.items()}
    if isinstance(value, list):
        return [*map(_texts_of, value)]
    if isinstance(value, float):
        return _go_float(value).encode()
    return None if value is None else escaped(msgspec.json.encode(value).decode()).encode()


def _texts_in(sent: bytes) -> Any:
    """Reads JSON that is known to be valid."""
    text = sent.strip()
    if text.startswith(b"{"):
        members = msgspec.json.decode(text, type=dict[str, msgspec.Raw])
        return {name: _texts_in(bytes(inner)) for name, inner in members.items()}
    if text.startswith(b"["):
        return [_texts_in(bytes(inner)) for inner in msgspec.json.decode(text, type=list[msgspec.Raw])]
    return None if text == b"null" else text


def _read_texts(value: Any) -> Any:
    """Returns the value that the texts stand for."""
    if isinstance(value, dict):
        return {name: _read_texts(inner) for name, inner in value.items()}
    if isinstance(value, list):
        return [*map(_read_texts, value)]
    return msgspec.json.decode(value) if isinstance(value, bytes) else value


def _go_float(value: float) -> str:
    mantissa, e, exponent = repr(value).partition("e")
    if value and not 1e-6 <= abs(value) < 1e21:
        return f"{mantissa.removesuffix('.0')}e{int(exponent or 0):+d}"
    if value.is_integer():
        return str(int(value))
    return format(Decimal(repr(value)), "f") if e else mantissa
