"""`allOf`, `anyOf`, `oneOf` and `not`: evaluates them and selects the alternative whose errors are reported.

Source: k8s.io/kube-openapi `pkg/validation/validate/schema_props.go`.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

from kubeshard_apiserver.status import FieldError, invalid_value

Check = Callable[[Any, str, Any, list[FieldError]], int]
_NONE: list[FieldError] = []


def combined(schema: Mapping[str, Any], compiled: Callable[[Mapping[str, Any]], Check]) -> Check | None:
    """Returns a check, or None if the schema has none of them."""
    any_of, one_of, all_of = (
        [compiled(inner) for inner in schema.get(name) or ()] for name in ("anyOf", "oneOf", "allOf")
    )
    negated = compiled(schema["not"]) if isinstance(schema.get("not"), Mapping) else None
    if not (any_of or one_of or all_of or negated):
        return None

    def check(value: Any, path: str, old: Any, errors: list[FieldError]) -> int:
        matches = 1
        named = json.dumps(path, ensure_ascii=False)
        if any_of:
            matches += _any(any_of, value, path, old, errors, named)
        if one_of:
            matches += _one(one_of, value, path, old, errors, named)
        if all_of:
            matches += _all(all_of, value, path, old, errors, named)
        if negated is not None:
            found: list[FieldError] = []
            negated(value, path, old, found)
            if not found:
                errors.append(_problem(f"{named} must not validate the schema (not)"))
        return matches

    return check


def _any(checks: list[Check], value: Any, path: str, old: Any, errors: list[FieldError], named: str) -> int:
    best, fewest = -1, _NONE
    for check in checks:
        found: list[FieldError] = []
        matches = check(value, path, old, found)
        if not found:
            return matches
        if matches > best:
            best, fewest = matches, found
    errors.append(_problem(f"{named} must validate at least one schema (anyOf)"))
    errors += fewest
    return best


def _one(checks: list[Check], value: Any, path: str, old: Any, errors: list[FieldError], named: str) -> int:
    valid, first, best, nearest = 0, 0, -1, _NONE
    for check in checks:
        found: list[FieldError] = []
        matches = check(value, path, old, found)
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


def _all(checks: list[Check], value: Any, path: str, old: Any, errors: list[FieldError], named: str) -> int:
    matches, valid = 0, 0
    for check in checks:
        found: list[FieldError] = []
        matches += check(value, path, old, found)
        valid += not found
        errors += found
    if valid != len(checks):
        told = "" if valid else ". None validated"
        errors.append(_problem(f"{named} must validate all the schemas (allOf){told}"))
    return matches


def _problem(message: str) -> FieldError:
    """Returns an error without a field, as on the server; the message names the field."""
    return invalid_value("", "", message)
