"""Rules for single fields, independent of the rest of the object: required, enums, formats, ranges, lengths.

These rules are data. They are in `schema/field_rules.json`, next to the types: by struct type, in the order in which
the server reports them. This module checks them in one pass over a struct's rules and the structs below it. Rules that
depend on a second field or on the old object are code, in the module of the kind.

One type may stand for others that have the same fields under a different name. The text after a `#` names a subset of a
type's rules, for types whose other rules come in between.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from functools import cache
from importlib.resources import files
from typing import Any, NamedTuple

import msgspec

from kubeshard_apiserver import schema
from kubeshard_apiserver.objects import JsonObject
from kubeshard_apiserver.resources import value_rules as values
from kubeshard_apiserver.resources.addresses import address_errors, block_errors, endpoint_errors
from kubeshard_apiserver.resources.pod_resources import (
    container_resource_name_errors,
    positive_errors,
    quantity_errors,
)
from kubeshard_apiserver.schema import name_formats as forms
from kubeshard_apiserver.status import (
    FieldError,
    duplicate,
    immutable,
    invalid_value,
    required,
    too_long,
    too_many,
    unsupported,
)

ACCESS_MODES = ("ReadOnlyMany", "ReadWriteMany", "ReadWriteOnce", "ReadWriteOncePod")
RULES: Mapping[str, Callable[[str, Any], list[FieldError]]] = {
    "address": address_errors,
    "block": block_errors,
    "container_resource": container_resource_name_errors,
    "domain_path": values.domain_path_errors,
    "endpoint": endpoint_errors,
    "label_selector": values.label_selector_errors,
    "labels": forms.labels,
    "port_number_or_name": forms.port_number_or_name,
    "positive": positive_errors,
    "provisioner": values.provisioner_errors,
    "quantity": lambda path, quantity: quantity_errors(path, "", quantity),
    "share": values.share_errors,
    "share_up_to_all": values.bounded_share_errors,
    "toleration": values.toleration_errors,
}
"""The functions that a rule can name as its `rule`."""
_EMPTY: tuple[Any, ...] = (None, "", 0, [])


class FieldRule(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A rule for one field, or for several. A missing field has the value `absent`; if that is None, nothing else is
    checked.

    * `needed`: the field must be present and not empty; otherwise nothing else is reported about it.
    * `most`: the maximum number of items in a list; nothing else is reported about a longer list.
    * `longest`: the maximum number of characters in a string; nothing else is reported about a longer string.
    * `among`: the allowed values, of the field or of each item in a list.
    * `form`: the required format of the string, or of each string in a list: the name of a format in `name_formats`.
    * `within`: the lowest and the highest value, or None for an open end.
    * `rule`: a rule for the value, or for each item in a list: a name in `RULES`.
    * `unique`: no earlier item has the same value. Applies to a field in a list of structs, or to the items of a list.
    * `blank`: an empty string is always allowed.
    * `words`: the server's message for a missing value, too many items, or a number out of range.
    * `told`: the server's message for a value that is not in `among`.
    * `whole`: errors in an item are reported at the path of the list instead of the item's.
    * `of`: the type of the struct, or of the structs in the list, whose rules apply to it.
    * `stops`: if this rule is violated, the remaining rules of the struct are not checked.
    """

    fields: str
    needed: bool = False
    most: int | None = None
    longest: int | None = None
    among: tuple[str, ...] = ()
    form: str = ""
    within: tuple[int | None, int | None] | None = None
    rule: str = ""
    unique: bool = False
    blank: bool = False
    words: str = ""
    told: str = ""
    absent: str | int | None = None
    whole: bool = False
    of: str = ""
    stops: bool = False


def field_rule_errors(
    type_: str, path: str, given: JsonObject, seen: dict[str, set[Any]] | None = None
) -> list[FieldError]:
    """Check the rules of one struct. `path` is empty for a whole object. `seen` contains the values that the unique
    fields of earlier list items have; those of this item are added.
    """
    errors: list[FieldError] = []
    get = given.get
    for field, absent, needed, holds, rule in _checks_of(type_):
        value = get(field, absent)
        if value is None:
            if not needed:
                continue
        elif type(value) is not list and holds(value) and (value or not needed):
            continue  # the usual case: do not even build the path
        at = f"{path}.{field}" if path else field
        taken = seen.setdefault(field, set()) if rule.unique and seen is not None else None
        found = _field_errors(rule, at, value, taken, holds)
        errors += found
        if found and rule.stops:
            break
    return errors


def list_errors(type_: str, path: str, items: Sequence[JsonObject]) -> list[FieldError]:
    """Check the rules of each item in a list."""
    seen: dict[str, set[Any]] = {}
    return [
        error
        for index, item in enumerate(items)
        for error in field_rule_errors(type_, f"{path}[{index}]", item, seen)
    ]


def changed_errors(
    path: str,
    fields: Collection[str],
    new: JsonObject,
    old: JsonObject,
    *,
    absent: Any = None,
    declared: bool = False,
) -> list[FieldError]:
    """Reject changes of immutable fields. Where the server's rule is `declared` in the type, it does not show the
    value.
    """
    return [
        immutable(f"{path}.{field}" if path else field, None if declared else new.get(field, absent))
        for field in fields
        if new.get(field, absent) != old.get(field, absent)
    ]


def _field_errors(
    rule: FieldRule, at: str, value: Any, taken: set[Any] | None, holds: Callable[[Any], bool]
) -> list[FieldError]:
    if rule.needed and value in _EMPTY:
        return [required(at, rule.words)]
    if not isinstance(value, list):
        return _value_errors(rule, at, value, taken)
    if rule.most is not None and len(value) > rule.most:
        return [invalid_value(at, value, rule.words) if rule.words else too_many(at, len(value), rule.most)]
    if rule.of:
        return list_errors(rule.of, at, value)
    errors: list[FieldError] = []
    taken = set()
    for index, one in enumerate(value):
        if not holds(one):
            errors += _value_errors(rule, at if rule.whole else f"{at}[{index}]", one, taken)
    return errors


def _value_errors(rule: FieldRule, at: str, value: Any, taken: set[Any] | None) -> list[FieldError]:
    if rule.of:
        return field_rule_errors(rule.of, at, value)
    errors = [] if rule.blank and not value else _own_errors(rule, at, value)
    if rule.unique and taken is not None:
        errors += [duplicate(at, value)] if value in taken else []
        taken.add(value)
    return errors


def _own_errors(rule: FieldRule, at: str, value: Any) -> list[FieldError]:
    if rule.longest is not None and len(value) > rule.longest:
        return [too_long(at, rule.longest)]
    if rule.among and value not in rule.among:
        return [invalid_value(at, value, rule.told) if rule.told else unsupported(at, value, rule.among)]
    if rule.form:
        return forms.wrong(at, value, getattr(forms, rule.form))
    if rule.rule:
        return RULES[rule.rule](at, value)
    if rule.within is not None:
        low, high = rule.within
        if (low is not None and value < low) or (high is not None and value > high):
            return [invalid_value(at, value, rule.words or _range(low, high))]
    return []


def _range(low: int | None, high: int | None) -> str:
    if high is None:
        return f"must be greater than or equal to {low}"
    return f"must be between {low} and {high}, inclusive"


class _Check(NamedTuple):
    field: str
    absent: str | int | None
    needed: bool
    holds: Callable[[Any], bool]
    """A quick check that a value is valid. If it fails, the value is checked in full."""
    rule: FieldRule


@cache
def _checks_of(type_: str) -> tuple[_Check, ...]:
    return tuple(
        _Check(field, rule.absent, rule.needed, _holds(rule), rule)
        for rule in field_rules()[type_]
        for field in rule.fields.split()
    )


def _holds(rule: FieldRule) -> Callable[[Any], bool]:
    if rule.unique or rule.longest is not None:
        return lambda value: False
    if rule.of:
        of = rule.of
        return lambda value: not field_rule_errors(of, "", value)
    if rule.among:
        return frozenset((*rule.among, "") if rule.blank else rule.among).__contains__
    if rule.form or rule.rule:
        right = _text_holds(rule)
        return (lambda value: not value or right(value)) if rule.blank else right
    low, high = rule.within or (None, None)
    if low is not None and high is not None:
        return lambda value: low <= value <= high
    return lambda value: (low is None or value >= low) and (high is None or value <= high)


def _text_holds(rule: FieldRule) -> Callable[[Any], bool]:
    if rule.form:
        form = getattr(forms, rule.form)
        return lambda value: not form(value)
    check = RULES[rule.rule]
    return lambda value: not check("", value)


@cache
def field_rules() -> Mapping[str, list[FieldRule]]:
    """Return all rules, by type."""
    text = (files(schema) / "field_rules.json").read_bytes()
    return msgspec.json.decode(text, type=dict[str, list[FieldRule]])
