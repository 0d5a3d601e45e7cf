"""API objects as the model stores them: JSON-serializable dicts, immutable by convention.

An object that has been stored or returned is never modified. A new object shares with the stored one what a write
leaves alone, so the work on it is proportional to the change: only its fields and those of its metadata may be set
(`draft`), and what is deeper is replaced. `private` makes a copy that one request may modify freely.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from kubeshard.core.objects import Key

Object = dict[str, Any]
JsonObject = Mapping[str, Any]
"""A part of an object that is only read."""
LARGE = 64 * 1024
"""Processing more bytes of JSON than this takes tens of milliseconds."""


def private(obj: Mapping[str, Any]) -> Object:
    """A deep copy that its owner may modify, including `metadata`. The field sets in managedFields are the exception:
    many objects share them, and nobody modifies them.
    """
    copy: Object = {name: value if name == "metadata" else copied(value) for name, value in obj.items()}
    meta = obj.get("metadata")
    copy["metadata"] = _private_metadata(meta) if isinstance(meta, dict) else {}
    return copy


def copied(value: Any) -> Any:
    """A deep copy of JSON, several times cheaper than `copy.deepcopy`."""
    if isinstance(value, dict):
        return {name: inner if type(inner) is str else copied(inner) for name, inner in value.items()}
    if isinstance(value, (list, tuple)):
        return [inner if type(inner) is str else copied(inner) for inner in value]
    return value


def recoded(value: Any) -> Any:
    """A deep copy of what comes from the store, made by encoding and decoding it. Several times cheaper than `copied`,
    but right only for values that are JSON in every detail.
    """
    return msgspec.json.decode(msgspec.json.encode(value))


def draft(obj: Mapping[str, Any]) -> Object:
    """A copy in which fields may be set, and fields directly in these; what is deeper is shared."""
    return {name: value.copy() if type(value) is dict else value for name, value in obj.items()}


def own(obj: Object, *names: str) -> Any:
    """Follows the names, and copies what is on the way, so that the last may be changed. Returns it, or None where one
    is missing.
    """
    inner: Any = obj
    for name in names:
        if (found := inner.get(name)) is None:
            return None
        inner[name] = inner = found.copy()
    return inner


def own_items(obj: Object, name: str) -> list[Any]:
    """Copies a list and its items, so that they may be changed. Returns them."""
    if not (items := obj.get(name)):
        return []
    obj[name] = copies = [item.copy() if type(item) is dict else item for item in items]
    return copies


def share(new: Object, old: JsonObject) -> None:
    """Replaces in place what is equal as JSON in both by the part of `old`."""
    for name, member in new.items():
        was, kind = old.get(name), type(member)
        if member is was or kind is not type(was) or not (kind is dict or kind is list):
            continue
        if member == was and _encode(member) == _encode(was):
            new[name] = was
        elif kind is dict:
            share(member, old[name])


def _private_metadata(meta: Mapping[str, Any]) -> Object:
    copy: Object = {name: copied(value) for name, value in meta.items() if name != "managedFields"}
    if "managedFields" in meta:
        given = meta["managedFields"]
        readable = isinstance(given, list) and all(isinstance(entry, dict) for entry in given)
        copy["managedFields"] = [dict(entry) for entry in given] if readable else copied(given)
    return copy


def same(a: Any, b: Any) -> bool:
    """Whether the values are equal as JSON. (In Python, True equals 1 and False equals 0.)"""
    # Equal values nearly always have the same text, and comparing texts is much cheaper than walking the values.
    return a is b or (bool(a == b) and (is_shared(a, b) or _text(a) == _text(b) or _same_types(a, b)))


def identical(a: Any, b: Any) -> bool:
    """Whether the values are equal, and no integer stands for a float."""
    return a is b or (bool(a == b) and (is_shared(a, b) or _text(a) == _text(b)))


def is_shared(a: Any, b: Any) -> bool:
    """Whether the values are the same because they have the very same parts."""
    if a is b:
        return True
    if type(a) is not dict or type(b) is not dict or len(a) != len(b):
        return False
    for name, value in a.items():
        if (other := b.get(name)) is not value and not (type(value) is dict and is_shared(value, other)):
            return False
    return True


_encode = msgspec.json.Encoder().encode


def _text(value: Any) -> bytes:
    return msgspec.json.encode(value, order="deterministic")


def _same_types(a: Any, b: Any) -> bool:
    if a is b:
        return True
    if isinstance(a, dict):
        return all(_same_types(value, b[name]) for name, value in a.items())
    if isinstance(a, list):
        return all(map(_same_types, a, b))
    return isinstance(a, bool) is isinstance(b, bool)


def with_metadata(obj: Object, **fields: Any) -> Object:
    """A shallow copy with these metadata fields; None removes one."""
    metadata = {**obj["metadata"], **fields}
    return {**obj, "metadata": {name: value for name, value in metadata.items() if value is not None}}


def with_status_condition(status: Object, condition: Mapping[str, Any], now: str) -> Object:
    """Returns the status with the condition, in the place of the one of its type. The time of its transition changes
    only if its status does.
    """
    conditions = list(status.get("conditions") or ())
    fresh = {**condition, "lastTransitionTime": now}
    for index, old in enumerate(conditions):
        if old["type"] == condition["type"]:
            if old["status"] == condition["status"]:
                fresh["lastTransitionTime"] = old.get("lastTransitionTime")
            conditions[index] = fresh
            return {**status, "conditions": conditions}
    return {**status, "conditions": [*conditions, fresh]}


def without_finalizer(obj: Object, finalizer: str) -> Object:
    """A copy without the finalizer."""
    left = [name for name in obj["metadata"].get("finalizers") or () if name != finalizer]
    return with_metadata(obj, finalizers=left or None)


def in_order(obj: Object) -> Object:
    """A copy with kind, apiVersion and metadata first, which helps people who read streams."""
    return {"kind": obj["kind"], "apiVersion": obj["apiVersion"], "metadata": obj["metadata"], **obj}


def beginning(kind: str, api_version: str) -> bytes:
    """The first bytes of the JSON of objects in order."""
    return msgspec.json.encode({"kind": kind, "apiVersion": api_version})[:-1] + b","


def key_of(obj: Object) -> Key:
    return Key(obj["metadata"].get("namespace", ""), obj["metadata"]["name"])


def version_of(obj: Object) -> int:
    return int(obj["metadata"].get("resourceVersion") or 0)


def labels_of(obj: Object) -> Mapping[str, str]:
    return obj["metadata"].get("labels") or {}


def is_deleting(obj: Object) -> bool:
    return bool(obj["metadata"].get("deletionTimestamp"))
