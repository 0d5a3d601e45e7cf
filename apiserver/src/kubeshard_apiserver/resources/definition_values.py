"""Validation of the rules and defaults in a definition: rules must compile against the types of the schema, and
defaults must conform to the schema and satisfy its rules.

Source: k8s.io/apiextensions-apiserver `pkg/apis/apiextensions/validation`, `pkg/apiserver/schema/defaulting`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from copy import deepcopy
from typing import Any

from kubeshard.core.errors import ConfigurationError
from kubeshard_apiserver.cel import CelError
from kubeshard_apiserver.cel.schema_types import TypedScope
from kubeshard_apiserver.resources.custom_rules import RULES, Rules, uses_old
from kubeshard_apiserver.resources.embedded_objects import Embedded
from kubeshard_apiserver.resources.field_paths import find_field
from kubeshard_apiserver.schema import Validator, prune
from kubeshard_apiserver.schema.lists import NOTHING, same
from kubeshard_apiserver.status import FieldError, invalid_value, required, unsupported

Schema = Mapping[str, Any]
_REASONS = ("FieldValueDuplicate", "FieldValueForbidden", "FieldValueInvalid", "FieldValueRequired")


def form_errors(schema: Schema, path: str) -> Iterator[FieldError]:
    """Validate the form of the rules in a schema and below it, before they are compiled."""
    for index, said in enumerate(schema.get(RULES) or ()):
        yield from _form(said, schema, f"{path}.{RULES}[{index}]")
    for inner, below in _below(schema, path):
        yield from form_errors(inner, below)


def _form(said: Mapping[str, Any], schema: Schema, path: str) -> Iterator[FieldError]:
    rule, message = said.get("rule") or "", said.get("message") or ""
    expression, field = said.get("messageExpression") or "", said.get("fieldPath") or ""
    if not rule.strip():
        yield required(f"{path}.rule", "rule is not specified")
    elif message and not message.strip():
        yield invalid_value(f"{path}.message", message, "must be non-empty if specified")
    elif _has_breaks(message.strip()):
        yield invalid_value(f"{path}.message", message, "must not contain line breaks")
    elif _has_breaks(rule.strip()) and not message.strip():
        yield required(f"{path}.message", "message must be specified if rule contains line breaks")
    if expression and not expression.strip():
        yield required(f"{path}.messageExpression", "messageExpression must be non-empty if specified")
    if (reason := said.get("reason")) is not None and reason not in _REASONS:
        yield unsupported(f"{path}.reason", reason, _REASONS)
    if field and not field.strip():
        yield invalid_value(f"{path}.fieldPath", field, "must be non-empty if specified")
    if _has_breaks(field):
        yield invalid_value(f"{path}.fieldPath", field, "must not contain line breaks")
    if field:
        try:
            find_field(field, schema)
        except ValueError:
            yield invalid_value(f"{path}.fieldPath", field, "must be a valid path")


def _has_breaks(text: str) -> bool:
    return "\n" in text or "\r" in text


def compile_errors(
    schema: Schema, path: str, *, is_root: bool = True, uncorrelated: str = ""
) -> Iterator[FieldError]:
    """Compile the rules. `uncorrelated` is the path below which old values cannot be found."""
    rules = schema.get(RULES) or ()
    if rules:
        try:
            scope = TypedScope(schema, is_root=is_root)
        except ConfigurationError as error:
            yield invalid_value(f"{path}.{RULES}", list(rules), str(error))
            return
        for index, said in enumerate(rules):
            yield from _compile(said, scope, f"{path}.{RULES}[{index}]", uncorrelated)
    items = schema.get("items")
    for inner, below in _below(schema, path):
        here = uncorrelated
        if inner is items and schema.get("x-kubernetes-list-type") != "map":
            here = here or path
        yield from compile_errors(inner, below, is_root=False, uncorrelated=here)


def _compile(
    said: Mapping[str, Any], scope: TypedScope, path: str, uncorrelated: str
) -> Iterator[FieldError]:
    rule, optional = said["rule"], bool(said.get("optionalOldSelf"))
    shown = in_go(said)
    try:
        if scope.check(rule, optional_old=optional) != "bool":
            yield invalid_value(f"{path}.rule", shown, "cel expression must evaluate to a bool")
        elif said.get("messageExpression"):
            yield from _compile_message(said, scope, path)
        compiles = True
    except CelError as error:
        yield invalid_value(f"{path}.rule", shown, str(error))
        compiles = False
    if compiles and uses_old(rule):
        if uncorrelated:
            problem = (
                f"oldSelf cannot be used on the uncorrelatable portion of the schema within {uncorrelated}"
            )
            yield invalid_value(f"{path}.rule", rule, problem)
    elif said.get("optionalOldSelf") is not None:
        problem = "may not be set if oldSelf is not used in rule"
        yield invalid_value(f"{path}.optionalOldSelf", said["optionalOldSelf"], problem)


def _compile_message(said: Mapping[str, Any], scope: TypedScope, path: str) -> Iterator[FieldError]:
    where = f"{path}.messageExpression"
    try:
        if scope.check(said["messageExpression"], optional_old=bool(said.get("optionalOldSelf"))) != "string":
            yield invalid_value(where, in_go(said), "messageExpression must evaluate to a string")
    except CelError as error:
        yield invalid_value(where, in_go(said), f"messageExpression {error}")


def in_go(said: Mapping[str, Any]) -> dict[str, Any]:
    """Format a rule as messages show it."""
    return {
        "Rule": said.get("rule") or "",
        "Message": said.get("message") or "",
        "MessageExpression": said.get("messageExpression") or "",
        "Reason": said.get("reason"),
        "FieldPath": said.get("fieldPath") or "",
        "OptionalOldSelf": said.get("optionalOldSelf"),
    }


def _below(schema: Schema, path: str) -> Iterator[tuple[Schema, str]]:
    for name, inner in (schema.get("properties") or {}).items():
        yield inner, f"{path}.properties[{name}]"
    for name in ("items", "additionalProperties"):
        if isinstance(inner := schema.get(name), Mapping):
            yield inner, f"{path}.{name}"


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
