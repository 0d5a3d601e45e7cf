"""API objects as the model holds them: JSON-able dicts, immutable by convention.

An object that is stored, or was handed out, is never changed: to change is to copy. `private` makes the copy
that one request may change at will.
"""

from __future__ import annotations

from collections.abc import Mapping
from copy import deepcopy
from typing import Any

from kubeshard.core.objects import Key

Object = dict[str, Any]


def private(obj: Mapping[str, Any]) -> Object:
    """A deep copy with `metadata`, which its owner may change."""
    copy = deepcopy(dict(obj))
    if not isinstance(copy.get("metadata"), dict):
        copy["metadata"] = {}
    return copy


def with_metadata(obj: Object, **fields: Any) -> Object:
    """A shallow copy with these metadata fields; None removes one."""
    metadata = {**obj["metadata"], **fields}
    return {**obj, "metadata": {name: value for name, value in metadata.items() if value is not None}}


def in_order(obj: Object) -> Object:
    """With what it is and how it is called in front, as readers of streams like it."""
    return {"kind": obj["kind"], "apiVersion": obj["apiVersion"], "metadata": obj["metadata"], **obj}


def key_of(obj: Object) -> Key:
    return Key(obj["metadata"].get("namespace", ""), obj["metadata"]["name"])


def version_of(obj: Object) -> int:
    return int(obj["metadata"].get("resourceVersion") or 0)


def labels_of(obj: Object) -> Mapping[str, str]:
    return obj["metadata"].get("labels") or {}


def is_deleting(obj: Object) -> bool:
    return bool(obj["metadata"].get("deletionTimestamp"))
