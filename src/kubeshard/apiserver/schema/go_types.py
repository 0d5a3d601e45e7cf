"""Schemas of built-in kinds: what their Go types are, in the words of structural schemas.

A built-in body that does not fit its Go type is a 400 of the JSON decoder, not a 422 of validation. `title`
is the Go struct, which the decoder's message names.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from kubeshard.apiserver.schema.validation import type_name
from kubeshard.apiserver.status import bad_request

Schema = Mapping[str, Any]

STRING: Schema = {"type": "string"}
INT32: Schema = {"type": "integer", "format": "int32"}
INT64: Schema = {"type": "integer", "format": "int64"}
BOOL: Schema = {"type": "boolean"}
MICRO_TIME: Schema = {"type": "string", "format": "micro-time"}
STRING_MAP: Schema = {"type": "object", "additionalProperties": STRING}
ANYTHING: Schema = {"x-kubernetes-preserve-unknown-fields": True}


def struct(title: str, **properties: Schema) -> Schema:
    return {"type": "object", "title": title, "properties": properties}


def array(items: Schema, **extensions: Any) -> Schema:
    return {"type": "array", "items": items, **extensions}


_OWNER = {
    **struct(
        "OwnerReference",
        apiVersion=STRING,
        kind=STRING,
        name=STRING,
        uid=STRING,
        controller=BOOL,
        blockOwnerDeletion=BOOL,
    ),
    "x-kubernetes-map-type": "atomic",
}
OBJECT_META = struct(
    "ObjectMeta",
    name=STRING,
    generateName=STRING,
    namespace=STRING,
    selfLink=STRING,
    uid=STRING,
    resourceVersion=STRING,
    generation=INT64,
    creationTimestamp=STRING,
    deletionTimestamp=STRING,
    deletionGracePeriodSeconds=INT64,
    labels=STRING_MAP,
    annotations=STRING_MAP,
    ownerReferences=array(_OWNER, **{"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["uid"]}),
    finalizers=array(STRING, **{"x-kubernetes-list-type": "set"}),
    managedFields=array(ANYTHING),
)
CONDITION = struct(
    "Condition",
    type=STRING,
    status=STRING,
    observedGeneration=INT64,
    lastTransitionTime=STRING,
    reason=STRING,
    message=STRING,
)
CONDITIONS = array(CONDITION, **{"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["type"]})


def check_fits(
    schema: Schema, value: Any, kind: str, version: str, struct_name: str = "", path: str = ""
) -> None:
    """Raises Invalid (400) for a value that Go's decoder would not take; null fits everything."""
    if value is None:
        return
    wanted, given = schema.get("type"), type_name(value)
    if wanted is not None and wanted != given:
        go = {"integer": schema.get("format", "int"), "boolean": "bool"}.get(wanted, wanted)
        if wanted == "object":
            go = (
                "map[string]string"
                if "additionalProperties" in schema
                else f"v1.{schema.get('title', 'object')}"
            )
        given = {"integer": "number", "boolean": "bool"}.get(given, given)
        where = f"Go struct field {struct_name}.{path}" if path else "Go value"
        raise _unfit(kind, version, f"json: cannot unmarshal {given} into {where} of type {go}")
    if schema.get("format") == "micro-time":
        _check_micro_time(value, kind, version)
    if isinstance(value, list):
        for item in value:
            check_fits(schema.get("items") or {}, item, kind, version, struct_name, path)
    if isinstance(value, dict):
        title = schema.get("title", struct_name)
        properties = schema.get("properties") or {}
        for name, member in value.items():
            if name in properties:
                check_fits(properties[name], member, kind, version, title, f"{path}.{name}".lstrip("."))
            elif isinstance(additional := schema.get("additionalProperties"), Mapping):
                check_fits(additional, member, kind, version, title, path)


_TIME = re.compile(r"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)(\.\d{6})?(.*)")
_ZONE = re.compile(r"Z|[+-]\d\d:\d\d")


def _check_micro_time(text: str, kind: str, version: str) -> None:
    layout = "2006-01-02T15:04:05.000000Z07:00"
    found = _TIME.fullmatch(text)
    if found and found[2] and _ZONE.fullmatch(found[3]):
        return
    if found is None:
        problem = f'cannot parse "{text}" as "2006"'
    elif found[2] is None:
        problem = f'cannot parse "{found[3]}" as ".000000"'
    else:
        problem = f'cannot parse "{found[3]}" as "Z07:00"'
    raise _unfit(kind, version, f'parsing time "{text}" as "{layout}": {problem}')


def _unfit(kind: str, version: str, problem: str) -> Exception:
    return bad_request(f'{kind} in version "{version}" cannot be handled as a {kind}: {problem}')
