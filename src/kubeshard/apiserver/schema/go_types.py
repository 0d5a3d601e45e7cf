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
_MANAGED = struct(
    "ManagedFieldsEntry",
    manager=STRING,
    operation=STRING,
    apiVersion=STRING,
    time=STRING,
    fieldsType=STRING,
    fieldsV1=ANYTHING,
    subresource=STRING,
)
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
    managedFields=array(_MANAGED),
)
NUMBER: Schema = {"type": "number"}


def _json_schema_props() -> Schema:
    """What a schema looks like that an author gives; it contains itself."""
    strings = (
        "type",
        "format",
        "title",
        "description",
        "pattern",
        "x-kubernetes-list-type",
        "x-kubernetes-map-type",
    )
    numbers = ("minimum", "maximum", "multipleOf")
    counts = ("minLength", "maxLength", "minItems", "maxItems", "minProperties", "maxProperties")
    flags = (
        "nullable", "exclusiveMinimum", "exclusiveMaximum", "x-kubernetes-preserve-unknown-fields",
        "x-kubernetes-int-or-string", "x-kubernetes-embedded-resource",
    )  # fmt: skip
    properties: dict[str, Schema] = {
        **dict.fromkeys(strings, STRING),
        **dict.fromkeys(numbers, NUMBER),
        **dict.fromkeys(counts, INT64),
        **dict.fromkeys(flags, BOOL),
        "enum": array(ANYTHING),
        "required": array(STRING),
        "x-kubernetes-list-map-keys": array(STRING),
    }
    props: Schema = {"type": "object", "title": "JSONSchemaProps", "properties": properties}
    properties |= {
        "properties": {"type": "object", "additionalProperties": props},
        "items": props,
        "additionalProperties": {**props, "x-or-boolean": True},
    }
    return props


JSON_SCHEMA_PROPS = _json_schema_props()
DELETE_OPTIONS = struct(
    "DeleteOptions",
    gracePeriodSeconds=INT64,
    preconditions=struct("Preconditions", uid=STRING, resourceVersion=STRING),
    orphanDependents=BOOL,
    propagationPolicy=STRING,
    dryRun=array(STRING),
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
    if given == "boolean" and schema.get("x-or-boolean"):
        return
    if wanted is not None and wanted != given and (wanted, given) != ("number", "integer"):
        go = {"integer": schema.get("format", "int"), "boolean": "bool"}.get(wanted, wanted)
        if wanted == "object":
            go = (
                "map[string]string" if "additionalProperties" in schema else f"v1.{schema.get('title', kind)}"
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


def without_nulls(schema: Schema, value: Any) -> Any:
    """As Go's decoder takes null: the zero value of an item or of a map's value; a field is left out."""
    if value is None:
        return {"string": "", "object": {}, "boolean": False, "integer": 0}.get(schema.get("type", ""))
    if isinstance(value, list):
        return [without_nulls(schema.get("items") or {}, item) for item in value]
    if not isinstance(value, dict):
        return value
    properties, additional = schema.get("properties") or {}, schema.get("additionalProperties")
    taken = {}
    for name, member in value.items():
        if name in properties:
            if member is not None:
                taken[name] = without_nulls(properties[name], member)
        else:
            taken[name] = without_nulls(additional, member) if isinstance(additional, Mapping) else member
    return taken


def check_type_meta(obj: Mapping[str, Any], kind: str) -> None:
    """Raises Invalid (400) for an apiVersion or kind that is no text."""
    for name in ("apiVersion", "kind"):
        value = obj.get(name)
        if value is not None and not isinstance(value, str):
            raise bad_request(
                f"the object provided is unrecognized (must be of type {kind}): couldn't get version/kind; json parse "
                f"error: json: cannot unmarshal {type_name(value)} into Go struct field .{name} of type string"
            )


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
