"""Migration from `kubectl apply` to `kubectl apply --server-side` without conflicts, based on the annotation that
contains the configuration last applied by client-side apply.

This is only done for the manager `kubectl`. Source: apimachinery's `util/managedfields`, lastappliedmanager.go and
lastappliedupdater.go.
"""

from __future__ import annotations

import msgspec

from kubeshard_apiserver.apply.fieldset import EMPTY, FieldSet, compare, fields_of
from kubeshard_apiserver.apply.shape import Shape
from kubeshard_apiserver.objects import Object, with_metadata

MANAGER = "kubectl"
ANNOTATION = "kubectl.kubernetes.io/last-applied-configuration"
_ESCAPED = str.maketrans({"<": "\\u003c", ">": "\\u003e", "&": "\\u0026"})


def upgradable(shape: Shape, live: Object, api_version: str) -> FieldSet:
    """The fields that still have the values set by client-side apply. An apply may take them from any owner."""
    try:
        stated = msgspec.json.decode(_annotation(live))
    except msgspec.DecodeError:
        return EMPTY
    if not isinstance(stated, dict) or stated.get("apiVersion") != api_version:
        return EMPTY
    comparison = compare(shape, stated, live)
    return fields_of(shape, stated) - comparison.modified - comparison.added - comparison.removed


def kept_up(obj: Object, config: Object) -> Object:
    """The object after `config` was applied, with its annotation updated if it has one."""
    if not _annotation(obj):
        return obj
    annotations = config.get("metadata", {}).get("annotations") or {}
    others = {name: value for name, value in annotations.items() if name != ANNOTATION}
    stated = with_metadata(config, annotations=others) if annotations else config
    text = msgspec.json.encode(stated, order="sorted").decode().translate(_ESCAPED)
    return with_metadata(obj, annotations={**obj["metadata"]["annotations"], ANNOTATION: f"{text}\n"})


def _annotation(obj: Object) -> str:
    return str((obj["metadata"].get("annotations") or {}).get(ANNOTATION, ""))
