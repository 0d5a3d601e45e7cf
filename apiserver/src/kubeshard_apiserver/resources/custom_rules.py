"""Validation rules of custom resources: a schema's `x-kubernetes-validations`, compiled once, checked on every write.

A rule sees `self`, the value it is attached to, with the type from its schema: numbers are doubles, formatted strings
are timestamps and durations, and field names are escaped. Rules with `oldSelf` are evaluated only if there is an old
value. The library bounds the work of a rule (10 000 comprehension steps); what rules may cost is estimated when they
are defined (`rule_costs`).

Source: k8s.io/apiextensions-apiserver `pkg/apiserver/schema/cel`; k8s.io/apiserver
`pkg/cel/common/valuesunstructured.go`; KEP-2876.
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any, NamedTuple

from kubeshard_apiserver.cel import CelError, Program, compile_expression
from kubeshard_apiserver.cel.schema_types import OPTIONAL, duration, members, names_in_expressions, timestamp
from kubeshard_apiserver.resources.field_paths import find_field
from kubeshard_apiserver.schema.structural import NOTHING, by_key, key_of, same, unchanged
from kubeshard_apiserver.status import FieldError, forbidden_field, invalid_value, required, shown

Schema = Mapping[str, Any]
Conversion = Callable[[Any], Any]
"""Converts a value. Raises ValueError if the schema does not allow it."""


def conversion(schema: Schema, *, is_root: bool = False, strict: bool = False) -> Conversion:
    """Unless it is `strict`, a value inside another one may be something else than its schema says, as far as the
    schema is checked: 1.0 is an integer, and a list is a string with a format. It becomes null, so that only the rules
    that use it fail.
    """
    convert = _conversion(schema, is_root=is_root, strict=strict)
    nullable = bool(schema.get("nullable"))

    def checked(value: Any) -> Any:
        if value is None:
            if nullable:
                return None
            raise ValueError("invalid data, got null for schema with nullable=false")
        return convert(value)

    return checked


def _inner(schema: Schema, *, strict: bool) -> Conversion:
    convert = conversion(schema, strict=strict)

    def tried(value: Any) -> Any:
        try:
            return convert(value)
        except ValueError:
            return None

    return convert if strict else tried


def _conversion(schema: Schema, *, is_root: bool, strict: bool) -> Conversion:
    if schema.get("x-kubernetes-int-or-string"):
        return _as_it_is
    match schema.get("type"):
        case "object":
            return _object(schema, is_root=is_root, strict=strict)
        case "array":
            items = schema.get("items")
            convert = _inner(items, strict=strict) if isinstance(items, Mapping) else _as_it_is
            return _of_type("array", list, lambda value: [convert(item) for item in value])
        case "number":
            return _of_type("number", (int, float), float)
        case "integer":
            return _of_type("int", int, _as_it_is)
        case "string":
            return _of_type("string", str, _FORMATTED.get(schema.get("format") or "", _as_it_is))
    return _as_it_is


def _object(schema: Schema, *, is_root: bool, strict: bool) -> Conversion:
    additional = schema.get("additionalProperties")
    if isinstance(additional, Mapping):
        convert = _inner(additional, strict=strict)
        return _of_type("map", dict, lambda value: {name: convert(member) for name, member in value.items()})
    # Fields that are not in the schema cannot be used in expressions, but they count when objects are compared.
    fields = {
        name: (names_in_expressions(name) or (name,), _inner(inner, strict=strict))
        for name, inner in members(schema, is_root=is_root).items()
    }

    def convert_fields(value: dict[str, Any]) -> dict[str, Any]:
        converted = {}
        for name, member in value.items():
            known = fields.get(name)
            if known is not None:
                names, convert = known
                converted.update(dict.fromkeys(names, convert(member)))
            else:
                converted[name] = member
        return converted

    return _of_type("map", dict, convert_fields)


def _of_type(name: str, kinds: type | tuple[type, ...], convert: Conversion) -> Conversion:
    def checked(value: Any) -> Any:
        if not isinstance(value, kinds):
            raise ValueError(f"invalid data, expected {name}, got {_IN_GO.get(type(value), 'nil')}")
        return convert(value)

    return checked


_IN_GO = {
    bool: "bool",
    int: "int64",
    float: "float64",
    str: "string",
    list: "[]interface {}",
    dict: "map[string]interface {}",
}


def _as_it_is(value: Any) -> Any:
    return value


def _bytes(text: str) -> bytes:
    try:
        return base64.b64decode(text, altchars=b"-_", validate=True)
    except (binascii.Error, ValueError):
        raise ValueError(f"Invalid byte formatted string {text}") from None


def _time(text: str) -> Any:
    try:
        then = datetime.fromisoformat(text.upper().replace("Z", "+00:00"))
    except ValueError:
        raise ValueError(f"Invalid date-time formatted string {text}") from None
    since = (then if then.tzinfo else then.replace(tzinfo=UTC)) - _EPOCH
    return timestamp(since.days * 86400 + since.seconds, since.microseconds * 1000)


_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_PART = re.compile(r"(\d+\.?\d*|\.\d+)\s*([A-Za-zµμ]+)")
_NANOSECONDS = (
    *(("ns", 1), ("nano", 1), ("us", 10**3), ("µs", 10**3), ("μs", 10**3), ("micro", 10**3)),
    *(("ms", 10**6), ("milli", 10**6), ("s", 10**9), ("min", 60 * 10**9), ("m", 60 * 10**9)),
    *(("h", 3600 * 10**9), ("d", 86400 * 10**9), ("w", 604800 * 10**9)),
)
_LONGEST = (1 << 63) - 1


def _duration(text: str) -> Any:
    total = 0
    for number, unit in _PART.findall(text):
        factor = next((length for name, length in _NANOSECONDS if unit.lower().startswith(name)), 0)
        total += int(Decimal(number) * factor)
    if total > _LONGEST:
        raise ValueError(f"Invalid duration {text}: unable to parse {text} as duration")
    seconds, nanos = divmod(total, 10**9)
    return duration(-seconds, -nanos) if text.startswith("-") else duration(seconds, nanos)


_FORMATTED: Mapping[str, Conversion] = {
    "byte": _bytes,
    "date": _time,
    "date-time": _time,
    "duration": _duration,
}


def _aligned(schema: Schema, new: Any, old: Any) -> Any:
    """Return the old value with its sets and maps in the order of the new ones, if they have the same items. Rules
    ignore their order in comparisons.
    """
    if isinstance(new, dict) and isinstance(old, dict):
        properties, additional = schema.get("properties") or {}, schema.get("additionalProperties")
        return {
            name: _aligned(inner, new[name], was)
            if name in new and isinstance(inner := properties.get(name, additional), Mapping)
            else was
            for name, was in old.items()
        }
    if isinstance(new, list) and isinstance(old, list) and isinstance(items := schema.get("items"), Mapping):
        match schema.get("x-kubernetes-list-type"):
            case "map":
                keys = schema.get("x-kubernetes-list-map-keys") or ()
                return _in_order(new, old, lambda item: key_of(item, keys), items)
            case "set":
                return _in_order(new, old, lambda item: key_of({"item": item}, ("item",)), items)
        if same(len(new), len(old)):
            return [_aligned(items, item, was) for item, was in zip(new, old, strict=True)]
    return old


def _in_order(new: list[Any], old: list[Any], key: Callable[[Any], bytes], items: Schema) -> list[Any]:
    before = {key(item): item for item in old}
    if len(before) != len(old) or len(new) != len(old) or any(key(item) not in before for item in new):
        return old
    return [_aligned(items, item, before[key(item)]) for item in new]


RULES = "x-kubernetes-validations"
UNCHECKED = FieldError(
    "<nil>",
    "FieldValueInvalid",
    "Invalid value: null: some validation rules were not checked because the object was invalid; correct the existing "
    "errors to complete validation",
)
_BLOCKING = frozenset(
    f"FieldValue{kind}" for kind in ("NotSupported", "Required", "TooLong", "TooMany", "TypeInvalid")
)
_OVER_BUDGET = "Iteration budget exceeded"
_LONGEST_MESSAGE = 5 * 1024
_TEXT = re.compile(
    r"""[rR]?(?:\"\"\"(?s:.*?)\"\"\"|'''(?s:.*?)'''|"(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*')|//[^\n]*"""
)


def uses_old(rule: str) -> bool:
    return re.search(r"\boldSelf\b", _TEXT.sub("''", rule)) is not None


@dataclass(frozen=True)
class _Rule:
    said: Mapping[str, Any]
    program: Program
    message: Program | None
    uses_old: bool
    optional: bool
    below: str
    """The path of the field that the rule reports, relative to the rule."""


class OverBudget(Exception):
    """Raised when the cost budget is used up. No further rule is evaluated then."""


class Rules:
    """The rules of one schema. Raises ConfigurationError without the extra `apiserver`."""

    def __init__(self, schema: Schema, *, is_root: bool = True) -> None:
        self._node = _node(schema, is_root=is_root)

    def __bool__(self) -> bool:
        return self._node is not None

    def errors(self, value: Any, old: Any = NOTHING, *, path: str = "") -> list[FieldError]:
        errors: list[FieldError] = []
        if self._node is not None:
            with suppress(OverBudget):
                self._node.check(value, old, path, _Pair(self._node.schema, value, old), errors)
        return errors


def is_blocking(errors: list[FieldError]) -> bool:
    """Report whether the errors mean that the rules could not handle the values."""
    return any(error.reason in _BLOCKING for error in errors)


class _Node:
    """A schema that has rules, or contains schemas with rules."""

    def __init__(self, schema: Schema, *, is_root: bool) -> None:
        self.schema = schema
        self.type = schema.get("type") or ""
        self.rules = [
            _compiled(said, schema) for said in schema.get(RULES) or () if said.get("rule", "").strip()
        ]
        self.conversion: Conversion = conversion(schema, is_root=is_root)
        self._is_root = is_root
        items, additional = schema.get("items"), schema.get("additionalProperties")
        self.items = _node(items) if isinstance(items, Mapping) else None
        self.additional = _node(additional) if isinstance(additional, Mapping) else None
        self.properties = {
            name: found
            for name, inner in (schema.get("properties") or {}).items()
            if (found := _node(inner)) is not None
        }
        self.keys = (
            tuple(schema.get("x-kubernetes-list-map-keys") or ())
            if schema.get("x-kubernetes-list-type") == "map"
            else None
        )

    def __bool__(self) -> bool:
        return bool(self.rules or self.items or self.additional or self.properties)

    def check(self, value: Any, old: Any, path: str, pair: _Pair, errors: list[FieldError]) -> None:
        """Check a value and everything below it. `pair`: this value and the old one, or those of the nearest ancestor
        that has both.
        """
        if value is None:
            return
        if self.rules:
            self._ask(value, None if old is NOTHING else old, path, pair, errors)
        if isinstance(value, list) and self.items is not None:
            before: dict[bytes, Any] = {}
            if self.keys is not None and isinstance(old, list):
                before = by_key(old, self.keys)
            for index, item in enumerate(value):
                was = before.get(key_of(item, self.keys or ()), NOTHING) if before else NOTHING
                self.items.check(item, was, f"{path}[{index}]", pair.below(self.items, item, was), errors)
        elif isinstance(value, dict):
            olds = old if isinstance(old, dict) else {}
            for name, member in value.items():
                node = self.properties.get(name)
                below = f"{path}.{name}" if path else name
                if node is None and self.additional is not None:
                    node, below = self.additional, f"{path}[{name}]"
                if node is not None:
                    was = olds.get(name, NOTHING)
                    node.check(member, was, below, pair.below(node, member, was), errors)

    def _ask(self, value: Any, old: Any, path: str, pair: _Pair, errors: list[FieldError]) -> None:
        place = path or "<nil>"
        try:
            variables = {
                "self": self.conversion(value),
                "oldSelf": None,
                "old_self_": None,
                "has_old_": False,
            }
            if old is not None and any(rule.uses_old for rule in self.rules):
                was = self.conversion(_aligned(self.schema, value, old))
                variables |= {"oldSelf": was, "old_self_": was, "has_old_": True}
        except ValueError as error:
            errors += [
                invalid_value(place, self.type, f"{error} evaluating rule: {_told(r.said)}")
                for r in self.rules
            ]
            return
        for rule in self.rules:
            if rule.uses_old and old is None and not rule.optional:
                continue
            try:
                holds = rule.program.evaluate(variables)
                holds = holds[0] if rule.optional and isinstance(holds, list) else holds
            except CelError as error:
                told = self._misfit(value) if str(error).startswith("no such overload") else ""
                errors.append(invalid_value(place, self.type, _failure(told or str(error), rule)))
                if _OVER_BUDGET in str(error):
                    raise OverBudget from None
                continue
            if holds is True:
                continue
            violation = self._violation(rule, value, variables, path)
            errors.append(violation._replace(is_old=not rule.uses_old and pair.is_unchanged()))

    def _misfit(self, value: Any) -> str:
        """What is wrong with the first value inside this one that is null to the rules because it does not fit."""
        try:
            conversion(self.schema, is_root=self._is_root, strict=True)(value)
        except ValueError as error:
            return str(error)
        return ""

    def _violation(self, rule: _Rule, value: Any, variables: Mapping[str, Any], path: str) -> FieldError:
        detail = _said(rule, variables)
        place = (
            (f"{path}.{rule.below}" if path and not rule.below.startswith("[") else path + rule.below)
            if rule.below
            else path
        )
        place = place or "<nil>"
        match rule.said.get("reason"):
            case "FieldValueForbidden":
                return forbidden_field(place, detail)
            case "FieldValueRequired":
                return required(place, detail)
            case reason:
                is_duplicate = reason == "FieldValueDuplicate"
                words = "Duplicate value" if is_duplicate else "Invalid value"
                words += "" if self.type in ("object", "array") else f": {shown(value)}"
                words += "" if is_duplicate else f": {detail}"
                return FieldError(
                    place, "FieldValueDuplicate" if is_duplicate else "FieldValueInvalid", words
                )


def _node(schema: Schema, *, is_root: bool = False) -> _Node | None:
    if RULES not in repr(schema):
        return None
    return _Node(schema, is_root=is_root) or None


class _Pair(NamedTuple):
    schema: Schema
    value: Any
    old: Any

    def below(self, node: _Node, value: Any, old: Any) -> _Pair:
        return self if old is NOTHING else _Pair(node.schema, value, old)

    def is_unchanged(self) -> bool:
        return self.old is not NOTHING and unchanged(self.schema, self.value, self.old)


def _compiled(said: Mapping[str, Any], schema: Schema) -> _Rule:
    """Compile a rule. Raises CelError for an invalid rule that another program has stored."""
    names = ("self", "oldSelf", "old_self_", "has_old_")
    rule, optional = said["rule"], bool(said.get("optionalOldSelf"))
    before, after = OPTIONAL
    text = f"{before}{rule}{after}" if optional else rule
    message = said.get("messageExpression") or ""
    below = ""
    if said.get("fieldPath"):
        below = find_field(said["fieldPath"], schema)[1]
    return _Rule(
        said,
        compile_expression(text, names),
        compile_expression(message, names) if message.strip() else None,
        uses_old(rule),
        optional,
        below,
    )


def _told(said: Mapping[str, Any]) -> str:
    return str(said.get("message") or said["rule"]).strip()


def _failure(error: str, rule: _Rule) -> str:
    if error.startswith("no such overload"):
        return (
            f"'{error}': call arguments did not match a supported operator, function or macro signature for rule: "
            f"{_told(rule.said)}"
        )
    if _OVER_BUDGET in error:
        return (
            "'operation cancelled: actual cost limit exceeded': no further validation rules will be run due to call "
            f"cost exceeds limit for rule: {_told(rule.said)}"
        )
    return f"{error} evaluating rule: {_told(rule.said)}"


def _said(rule: _Rule, variables: Mapping[str, Any]) -> str:
    """Return why a rule is violated. If the message expression fails, the fixed message is used."""
    if rule.message is not None:
        try:
            made = rule.message.evaluate(variables)
        except CelError:
            made = None
        text = made.strip() if isinstance(made, str) else ""
        if text and "\n" not in text and len(text.encode()) <= _LONGEST_MESSAGE:
            return text
    given = (rule.said.get("message") or "").strip()
    return given or f"failed rule: {rule.said['rule'].strip()}"
