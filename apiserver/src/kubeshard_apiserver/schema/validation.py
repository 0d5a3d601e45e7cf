"""Validation of values against a schema, with the server's field paths and messages.

A schema is compiled once into a function that walks a value and returns its errors; of `allOf`, `anyOf`, `oneOf` and
`not` it selects the alternative whose errors are reported. On updates it gets the old value as well, and ignores errors
in unchanged parts (ratcheting, KEP-4008), but not within these four.

Source: k8s.io/kube-openapi `pkg/validation/validate`, k8s.io/apiextensions-apiserver `pkg/apiserver/validation`.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from types import NoneType
from typing import Any

from kubeshard_apiserver.schema.formats import Predicate, searching, string_format
from kubeshard_apiserver.schema.numbers import go_value, is_whole, number_check
from kubeshard_apiserver.schema.structural import NOTHING, by_key, key_of, unchanged
from kubeshard_apiserver.status import (
    FieldError,
    invalid_type,
    invalid_value,
    required,
    shown,
    too_long,
    too_many,
    unsupported,
)

Check = Callable[[Any, str, Any, list[FieldError]], int]
Combination = Callable[[Any, str, list[FieldError]], int]
_NONE: list[FieldError] = []


def combined(schema: Mapping[str, Any], compiled: Callable[[Mapping[str, Any]], Check]) -> Combination | None:
    """Returns a check, or None if the schema has none of them."""
    any_of, one_of, all_of = (
        [compiled(inner) for inner in schema.get(name) or ()] for name in ("anyOf", "oneOf", "allOf")
    )
    negated = compiled(schema["not"]) if isinstance(schema.get("not"), Mapping) else None
    if not (any_of or one_of or all_of or negated):
        return None

    def check(value: Any, path: str, errors: list[FieldError]) -> int:
        matches = 1
        named = json.dumps(path, ensure_ascii=False)
        if any_of:
            matches += _any(any_of, value, path, errors, named)
        if one_of:
            matches += _one(one_of, value, path, errors, named)
        if all_of:
            matches += _all(all_of, value, path, errors, named)
        if negated is not None:
            found: list[FieldError] = []
            negated(value, path, NOTHING, found)
            if not found:
                errors.append(_problem(f"{named} must not validate the schema (not)"))
        return matches

    return check


def _any(checks: list[Check], value: Any, path: str, errors: list[FieldError], named: str) -> int:
    best, fewest = -1, _NONE
    for check in checks:
        found: list[FieldError] = []
        matches = check(value, path, NOTHING, found)
        if not found:
            return matches
        if matches > best:
            best, fewest = matches, found
    errors.append(_problem(f"{named} must validate at least one schema (anyOf)"))
    errors += fewest
    return best


def _one(checks: list[Check], value: Any, path: str, errors: list[FieldError], named: str) -> int:
    valid, first, best, nearest = 0, 0, -1, _NONE
    for check in checks:
        found: list[FieldError] = []
        matches = check(value, path, NOTHING, found)
        if not found:
            valid += 1
            first = first or matches
        elif matches > best:
            best, nearest = matches, found
    if valid == 1:
        return first
    told = f"Found {valid} valid alternatives" if valid else "Found none valid"
    errors.append(_problem(f"{named} must validate one and only one schema (oneOf). {told}"))
    if valid:
        return 0
    errors += nearest
    return best


def _all(checks: list[Check], value: Any, path: str, errors: list[FieldError], named: str) -> int:
    matches, valid = 0, 0
    for check in checks:
        found: list[FieldError] = []
        matches += check(value, path, NOTHING, found)
        valid += not found
        errors += found
    if valid != len(checks):
        told = "" if valid else ". None validated"
        errors.append(_problem(f"{named} must validate all the schemas (allOf){told}"))
    return matches


def _problem(message: str) -> FieldError:
    """Returns an error without a field, as on the server; the message names the field."""
    return invalid_value("", "", message)


Schema = Mapping[str, Any]

_KINDS = {
    type(None): "null",
    bool: "boolean",
    int: "integer",
    float: "number",
    str: "string",
    list: "array",
    dict: "object",
}


class Validator:
    """Validates values against one schema."""

    def __init__(self, schema: Schema) -> None:
        self._check = compiled(schema)

    def errors(self, value: Any, *, under: str = "", old: Any = NOTHING) -> list[FieldError]:
        """Returns the errors; empty if the value is valid. `under` is the path of the value. Paths in messages are
        relative to the value, and fields are relative to the object.
        """
        errors: list[FieldError] = []
        self._check(value, "", old, errors)
        return [_placed(error, under) for error in dict.fromkeys(errors)] if errors else errors


def _placed(error: FieldError, under: str) -> FieldError:
    if not error.path:
        return error._replace(path=under or "<nil>")
    return error._replace(path=f"{under}.{error.path}") if under else error


def type_name(value: Any) -> str:
    return _KINDS.get(type(value), "object")


def go_kind(value: Any) -> str:
    """What Go's JSON decoder calls the kind of a value."""
    return {"integer": "number", "boolean": "bool"}.get(name := type_name(value), name)


_GO_TYPES = {
    bool: "bool",
    int: "int64",
    float: "float64",
    str: "string",
    list: "[]interface {}",
    NoneType: "<nil>",
}


def go_type(value: Any) -> str:
    """The Go type as which a JSON value is decoded where no other type is wanted."""
    return _GO_TYPES.get(type(value), "map[string]interface {}")


def compiled(schema: Schema) -> Check:
    types = _types(schema)
    nullable = bool(schema.get("nullable"))
    format_ = _format(schema, types)
    enum = [go_value(choice) for choice in schema.get("enum") or ()]
    choices = [choice if isinstance(choice, str) else shown(choice) for choice in enum]
    combinations = combined(schema, compiled)
    of_kind: dict[type, Check | None] = {
        str: _string(schema, string_format(format_) if format_ else None, format_),
        list: _array(schema),
        dict: _object(schema),
    }
    of_kind[int] = of_kind[float] = number_check(schema, types, format_)

    def run(value: Any, path: str, old: Any, errors: list[FieldError]) -> int:
        kind = type(value)
        if kind is int:
            value = go_value(value)
            kind = type(value)
        if value is None:
            if types and not nullable:
                errors.append(_mistyped(path, types, "null"))
            if enum:
                errors.append(unsupported(path, None, choices))
            return not types or nullable
        matches = 1
        if types or format_:
            matches += 1 + _check_type(value, _KINDS[kind], types, format_, path, errors)
        matches += 1
        if combinations is not None:
            matches += combinations(value, path, errors)
        check = of_kind.get(kind)
        if check is not None:
            matches += 1 + check(value, path, old, errors)
        if enum and not any(_is_choice(value, choice) for choice in enum):
            errors.append(unsupported(path, value, choices))
        return matches + 1

    def ratcheting(value: Any, path: str, old: Any, errors: list[FieldError]) -> int:
        if old is NOTHING:
            return run(value, path, old, errors)
        if value is old or (type(value) is str is type(old) and value == old):
            return 1
        begin = len(errors)
        matches = run(value, path, old, errors)
        if len(errors) != begin and unchanged(schema, value, old):
            del errors[begin:]
        return matches

    return ratcheting


def _types(schema: Schema) -> tuple[str, ...]:
    if schema.get("x-kubernetes-int-or-string"):
        return ("integer", "string")
    return (schema["type"],) if schema.get("type") else ()


def _format(schema: Schema, types: tuple[str, ...]) -> str:
    given: str = schema.get("format") or ""
    return given if len(types) < 2 and known_format(given, types[0] if types else "") else ""


def known_format(name: str, type_: str) -> bool:
    """Whether the server checks this format for this type."""
    match type_:
        case "" | "string":
            return string_format(name) is not None
        case "integer":
            return name in ("int32", "int64")
        case "number":
            return name in ("float", "double")
    return False


def _check_type(
    value: Any, given: str, types: tuple[str, ...], format_: str, path: str, errors: list[FieldError]
) -> int:
    fits = given in types or (
        "number" in types
        if given == "integer"
        else given == "number" and "integer" in types and is_whole(value)
    )
    if format_ and given not in ("string", "array") and not fits:
        name = {"integer": "int64", "number": "float64"}.get(given, "")
        errors.append(invalid_type(path, name, f'{path} in body must be of type {format_}: "{name}"'))
        return 0
    if format_ and given in ("string", "array") and "number" not in types and "integer" not in types:
        return 1
    if not fits:
        errors.append(_mistyped(path, types, given))
        return 0
    return 1


def _mistyped(path: str, types: tuple[str, ...], given: str) -> FieldError:
    return invalid_type(path, given, f'{path} in body must be of type {",".join(types)}: "{given}"')


def _is_choice(value: Any, choice: Any) -> bool:
    if isinstance(value, bool) or isinstance(choice, bool):
        return value is choice
    if isinstance(value, float) and isinstance(choice, int) and math.isfinite(value):
        # The server converts the value to the type of the choice, which drops the fractional part.
        return int(value) == choice
    return bool(value == choice) and (value is None) == (choice is None)


def _string(schema: Schema, is_format: Predicate | None, format_: str) -> Check:
    longest, shortest, pattern = schema.get("maxLength"), schema.get("minLength"), schema.get("pattern")
    search = _searching(pattern) if pattern else None

    def check(value: str, path: str, old: Any, errors: list[FieldError]) -> int:
        # Only the first problem with length and pattern is reported.
        if longest is not None and len(value) > longest:
            errors.append(too_long(path, longest))
        elif shortest is not None and len(value) < shortest:
            errors.append(
                invalid_value(path, value, f"{path} in body should be at least {shortest} chars long")
            )
        elif search is not None and not search(value):
            errors.append(invalid_value(path, value, f"{path} in body should match '{pattern}'"))
        if is_format is None:
            return 0
        if not is_format(value):
            errors.append(
                invalid_type(path, value, f"{path} in body must be of type {format_}: {_quoted(value)}")
            )
        return 1

    return check


def _quoted(text: str) -> str:
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


def _searching(pattern: str) -> Callable[[str], Any]:
    try:
        return searching(pattern)
    except ValueError:
        # A definition with an invalid pattern is rejected, but one stored by another program must remain readable.
        return lambda text: True


def _array(schema: Schema) -> Check:
    longest, shortest = schema.get("maxItems"), schema.get("minItems")
    items = schema.get("items")
    item_check = compiled(items) if isinstance(items, Mapping) else None
    keys = schema.get("x-kubernetes-list-map-keys") or ()
    correlates = schema.get("x-kubernetes-list-type") == "map"

    def check(value: list[Any], path: str, old: Any, errors: list[FieldError]) -> int:
        matches = 1
        if item_check is not None:
            before: dict[Any, Any] = {}
            if correlates and isinstance(old, list):
                before = by_key(old, keys)
            for index, item in enumerate(value):
                was = before.get(key_of(item, keys), NOTHING) if before else NOTHING
                matches += item_check(item, f"{path}[{index}]", was, errors)
        if shortest is not None and len(value) < shortest:
            errors.append(
                invalid_value(path, len(value), f"{path} in body should have at least {shortest} items")
            )
        if longest is not None and len(value) > longest:
            errors.append(too_many(path, len(value), longest))
        return matches

    return check


def _object(schema: Schema) -> Check:
    most, least = schema.get("maxProperties"), schema.get("minProperties")
    properties = {name: compiled(inner) for name, inner in (schema.get("properties") or {}).items()}
    given = schema.get("additionalProperties")
    additional = compiled(given) if isinstance(given, Mapping) else None
    forbids = given is False
    needed = tuple(schema.get("required") or ())

    def check(value: dict[str, Any], path: str, old: Any, errors: list[FieldError]) -> int:
        matches = 0
        was = old if isinstance(old, dict) else {}
        if least is not None and len(value) < least:
            errors.append(
                invalid_value(path, len(value), f"{path} in body should have at least {least} properties")
            )
        if most is not None and len(value) > most:
            errors.append(too_many(path, len(value), most))
        for name, member in value.items():
            member_check = properties.get(name, additional)
            if member_check is not None:
                matches += member_check(
                    member, f"{path}.{name}" if path else name, was.get(name, NOTHING), errors
                )
            elif forbids and name not in properties:
                errors.append(invalid_value(path, "", f"{path}.{name} in body is a forbidden property"))
        errors += [required(f"{path}.{name}" if path else name) for name in needed if name not in value]
        return matches

    return check
