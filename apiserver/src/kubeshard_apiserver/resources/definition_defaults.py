"""Defaults in a schema are values of it: pruned, valid, and by the rules.

Source: k8s.io/apiextensions-apiserver `pkg/apiserver/schema/defaulting/validation.go`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from copy import deepcopy
from typing import Any

from kubeshard_apiserver.resources.custom_rules import RULES, Rules
from kubeshard_apiserver.resources.embedded_objects import Embedded
from kubeshard_apiserver.schema import Validator, prune
from kubeshard_apiserver.schema.ratcheting import NOTHING, same
from kubeshard_apiserver.status import FieldError, invalid_value

Schema = Mapping[str, Any]


def default_errors(schema: Schema, path: str, *, is_root: bool = True) -> Iterator[FieldError]:
    default = schema.get("default")
    if default is not None:
        yield from _of(schema, default, f"{path}.default")
    if isinstance(items := schema.get("items"), Mapping):
        yield from default_errors(items, f"{path}.items", is_root=False)
    for name, inner in (schema.get("properties") or {}).items():
        if not (is_root and name in ("apiVersion", "kind", "metadata")):
            yield from default_errors(inner, f"{path}.properties[{name}]", is_root=False)


def _of(schema: Schema, default: Any, path: str) -> Iterator[FieldError]:
    pruned = deepcopy(default)
    prune(schema, pruned)
    if not same(pruned, default):
        yield invalid_value(path, default, "must not have unknown fields")
    if errors := Embedded(schema).errors(default):
        yield from (error._replace(path=f"{path}{error.path}") for error in errors)
    elif errors := Validator(schema).errors(default, under=path):
        yield from errors
    elif RULES in repr(schema):
        rules = Rules(schema, is_root=False)
        yield from rules.errors(default, default, path=path) or rules.errors(default, NOTHING, path=path)
