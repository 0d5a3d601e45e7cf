"""Validation by a structural schema, with the server's field paths and words."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from kubeshard.apiserver.status import (
    FieldError,
    duplicate,
    invalid_type,
    invalid_value,
    required,
    too_long,
    too_many,
    unsupported,
)

Schema = Mapping[str, Any]


def validate(schema: Schema, value: Any, path: str = "") -> list[FieldError]:
    """What is wrong with the value; empty if nothing."""
    return list(_validate(schema, value, path))


def type_name(value: Any) -> str:
    match value:
        case None:
            return "null"
        case bool():
            return "boolean"
        case int():
            return "integer"
        case float():
            return "number"
        case str():
            return "string"
        case list():
            return "array"
        case _:
            return "object"


def _validate(schema: Schema, value: Any, path: str) -> Iterator[FieldError]:
    if value is None and schema.get("nullable"):
        return
    if mismatch := list(_type_errors(schema, value, path)):
        yield from mismatch
        return
    if "enum" in schema and value not in schema["enum"]:
        yield unsupported(path, value, schema["enum"])
    match value:
        case bool():
            pass
        case int() | float():
            yield from _number(schema, value, path)
        case str():
            yield from _string(schema, value, path)
        case list():
            yield from _array(schema, value, path)
        case dict():
            yield from _object(schema, value, path)


def _type_errors(schema: Schema, value: Any, path: str) -> Iterator[FieldError]:
    given = type_name(value)
    if schema.get("x-kubernetes-int-or-string"):
        if given not in ("integer", "string"):
            yield invalid_type(path, given, f'{path} in body must be of type integer,string: "{given}"')
        return
    wanted = schema.get("type")
    if wanted is None or wanted == given or (wanted == "number" and given == "integer"):
        return
    if wanted == "integer" and isinstance(value, float) and value.is_integer():
        return
    yield invalid_type(path, given, f'{path} in body must be of type {wanted}: "{given}"')
    if wanted == "integer" and given == "number":
        yield invalid_value("<nil>", "", f"Checked value must be of type integer (default format) in {path}")


def _number(schema: Schema, value: float, path: str) -> Iterator[FieldError]:
    minimum, maximum = schema.get("minimum"), schema.get("maximum")
    if minimum is not None and (value < minimum or (value == minimum and schema.get("exclusiveMinimum"))):
        bound = "greater than" if schema.get("exclusiveMinimum") else "greater than or equal to"
        yield invalid_value(path, value, f"{path} in body should be {bound} {minimum}")
    if maximum is not None and (value > maximum or (value == maximum and schema.get("exclusiveMaximum"))):
        bound = "less than" if schema.get("exclusiveMaximum") else "less than or equal to"
        yield invalid_value(path, value, f"{path} in body should be {bound} {maximum}")
    multiple = schema.get("multipleOf")
    if multiple and value % multiple:
        yield invalid_value(path, value, f"{path} in body should be a multiple of {multiple}")


def _string(schema: Schema, value: str, path: str) -> Iterator[FieldError]:
    """Of a string only the first problem is told."""
    longest, shortest, pattern = schema.get("maxLength"), schema.get("minLength"), schema.get("pattern")
    if longest is not None and len(value) > longest:
        yield too_long(path, longest)
    elif shortest is not None and len(value) < shortest:
        yield invalid_value(path, value, f"{path} in body should be at least {shortest} chars long")
    elif pattern and not re.search(pattern, value):
        yield invalid_value(path, value, f"{path} in body should match '{pattern}'")


def _array(schema: Schema, value: list[Any], path: str) -> Iterator[FieldError]:
    longest, shortest = schema.get("maxItems"), schema.get("minItems")
    if longest is not None and len(value) > longest:
        yield too_many(path, len(value), longest)
    if shortest is not None and len(value) < shortest:
        yield invalid_value(path, len(value), f"{path} in body should have at least {shortest} items")
    before = list(_each_item(schema, value, path))
    yield from before
    if not before:
        yield from _duplicates(schema, value, path)


def _each_item(schema: Schema, value: list[Any], path: str) -> Iterator[FieldError]:
    for index, item in enumerate(value):
        yield from _validate(schema.get("items") or {}, item, f"{path}[{index}]")


def _duplicates(schema: Schema, value: list[Any], path: str) -> Iterator[FieldError]:
    identity = _identity(schema)
    if identity is None:
        return
    seen: list[Any] = []
    for index, item in enumerate(value):
        key = identity(item)
        if key in seen:
            yield duplicate(f"{path}[{index}]", key)
        seen.append(key)


def _identity(schema: Schema) -> Callable[[Any], Any] | None:
    match schema.get("x-kubernetes-list-type"):
        case "set":
            return lambda item: item
        case "map":
            keys = schema.get("x-kubernetes-list-map-keys") or ()
            return lambda item: {key: item[key] for key in keys if key in item}
    return None


def _object(schema: Schema, value: dict[str, Any], path: str) -> Iterator[FieldError]:
    most, least = schema.get("maxProperties"), schema.get("minProperties")
    if most is not None and len(value) > most:
        yield too_many(path, len(value), most)
    if least is not None and len(value) < least:
        yield invalid_value(path, len(value), f"{path} in body should have at least {least} properties")
    for name in schema.get("required") or ():
        if name not in value:
            yield required(_below(path, name))
    properties = schema.get("properties") or {}
    additional = schema.get("additionalProperties")
    for name, member in value.items():
        if name in properties:
            yield from _validate(properties[name], member, _below(path, name))
        elif isinstance(additional, Mapping):
            yield from _validate(additional, member, _below(path, name))


def _below(path: str, name: str) -> str:
    return f"{path}.{name}" if path else name
