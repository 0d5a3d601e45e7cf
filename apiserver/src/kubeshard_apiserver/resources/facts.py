"""What holds for single fields, whatever the rest of the object says: required, enumerations, forms, ranges, lengths.

These facts are data, in `schema/facts.json` beside the types: by the type of the struct, in the order in which the
server reports them. Here they are checked, in one walk along the facts of a struct and into the structs below it. What
depends on a second field or on the old object is logic, and is in the module of the kind.

A type stands for those that have the same fields under another name. What follows a `#` names a part of its facts,
where other rules come in between.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from functools import cache
from importlib.resources import files
from typing import Any, NamedTuple

import msgspec

from kubeshard_apiserver import schema
from kubeshard_apiserver.resources import pod_names as forms
from kubeshard_apiserver.resources import value_rules as values
from kubeshard_apiserver.resources.addresses import address_errors, block_errors, endpoint_errors
from kubeshard_apiserver.resources.quantity_rules import (
    container_resource_name_errors,
    positive_errors,
    quantity_errors,
)
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

Given = Mapping[str, Any]
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
"""What a fact can name as its `rule`."""
_EMPTY: tuple[Any, ...] = (None, "", 0, [])


class Fact(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Of one field, or of each of several. A field that is not given is `absent`; where that is None, nothing else
    holds for it.

    * `needed`: it must be there and not be empty; nothing else is reported of one that is not.
    * `most`: how many items a list may have; nothing else is reported of one with more.
    * `longest`: how many characters a text may have; nothing else is reported of a longer one.
    * `among`: its value, or each one of a list.
    * `form`: what its text, or each one of a list, must look like: the name of a rule of `pod_names`.
    * `within`: the lowest and the highest value, or None for no such bound.
    * `rule`: a rule for its value, or for each one of a list: a name in `RULES`.
    * `unique`: no other item before this one has the same value: of a field in a list of structs, or of a list.
    * `blank`: an empty text is allowed, whatever else holds.
    * `words`: the server's own, for a missing value, for too many items or for a number out of range.
    * `told`: the server's own words for a value that is not `among` these.
    * `whole`: an item is reported by the path of the list, not by its own.
    * `of`: the type of the struct, or of the structs in the list, whose facts hold in it.
    * `stops`: if this does not hold, the remaining facts of the struct are not checked.
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


def fact_errors(
    type_: str, path: str, given: Given, seen: dict[str, set[Any]] | None = None
) -> list[FieldError]:
    """`path` is empty for a whole object. `seen`: of unique fields, what the earlier items of the list have; what this
    one has is added.
    """
    errors: list[FieldError] = []
    get = given.get
    for field, absent, needed, holds, fact in _checks_of(type_):
        value = get(field, absent)
        if value is None:
            if not needed:
                continue
        elif type(value) is not list and holds(value) and (value or not needed):
            continue  # as nearly always: not even the path is made
        at = f"{path}.{field}" if path else field
        taken = seen.setdefault(field, set()) if fact.unique and seen is not None else None
        found = _field_errors(fact, at, value, taken, holds)
        errors += found
        if found and fact.stops:
            break
    return errors


def list_errors(type_: str, path: str, items: Sequence[Given]) -> list[FieldError]:
    """The facts of each item."""
    seen: dict[str, set[Any]] = {}
    return [
        error
        for index, item in enumerate(items)
        for error in fact_errors(type_, f"{path}[{index}]", item, seen)
    ]


def changed_errors(
    path: str, fields: Collection[str], new: Given, old: Given, *, absent: Any = None
) -> list[FieldError]:
    """Of fields that never change."""
    return [
        immutable(f"{path}.{field}" if path else field, new.get(field, absent))
        for field in fields
        if new.get(field, absent) != old.get(field, absent)
    ]


def _field_errors(
    fact: Fact, at: str, value: Any, taken: set[Any] | None, holds: Callable[[Any], bool]
) -> list[FieldError]:
    if fact.needed and value in _EMPTY:
        return [required(at, fact.words)]
    if not isinstance(value, list):
        return _value_errors(fact, at, value, taken)
    if fact.most is not None and len(value) > fact.most:
        return [invalid_value(at, value, fact.words) if fact.words else too_many(at, len(value), fact.most)]
    if fact.of:
        return list_errors(fact.of, at, value)
    errors: list[FieldError] = []
    taken = set()
    for index, one in enumerate(value):
        if not holds(one):
            errors += _value_errors(fact, at if fact.whole else f"{at}[{index}]", one, taken)
    return errors


def _value_errors(fact: Fact, at: str, value: Any, taken: set[Any] | None) -> list[FieldError]:
    if fact.of:
        return fact_errors(fact.of, at, value)
    errors = [] if fact.blank and not value else _own_errors(fact, at, value)
    if fact.unique and taken is not None:
        errors += [duplicate(at, value)] if value in taken else []
        taken.add(value)
    return errors


def _own_errors(fact: Fact, at: str, value: Any) -> list[FieldError]:
    if fact.longest is not None and len(value) > fact.longest:
        return [too_long(at, fact.longest)]
    if fact.among and value not in fact.among:
        return [invalid_value(at, value, fact.told) if fact.told else unsupported(at, value, fact.among)]
    if fact.form:
        return forms.wrong(at, value, getattr(forms, fact.form))
    if fact.rule:
        return RULES[fact.rule](at, value)
    if fact.within is not None:
        low, high = fact.within
        if (low is not None and value < low) or (high is not None and value > high):
            return [invalid_value(at, value, fact.words or _range(low, high))]
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
    """Whether a value is known to be right; of most it is known at once."""
    fact: Fact


@cache
def _checks_of(type_: str) -> tuple[_Check, ...]:
    return tuple(
        _Check(field, fact.absent, fact.needed, _holds(fact), fact)
        for fact in facts()[type_]
        for field in fact.fields.split()
    )


def _holds(fact: Fact) -> Callable[[Any], bool]:
    if fact.unique or fact.longest is not None:
        return lambda value: False
    if fact.of:
        of = fact.of
        return lambda value: not fact_errors(of, "", value)
    if fact.among:
        return frozenset((*fact.among, "") if fact.blank else fact.among).__contains__
    if fact.form or fact.rule:
        right = _text_holds(fact)
        return (lambda value: not value or right(value)) if fact.blank else right
    low, high = fact.within or (None, None)
    if low is not None and high is not None:
        return lambda value: low <= value <= high
    return lambda value: (low is None or value >= low) and (high is None or value <= high)


def _text_holds(fact: Fact) -> Callable[[Any], bool]:
    if fact.form:
        form = getattr(forms, fact.form)
        return lambda value: not form(value)
    rule = RULES[fact.rule]
    return lambda value: not rule("", value)


@cache
def facts() -> Mapping[str, list[Fact]]:
    """All of them, by type."""
    text = (files(schema) / "facts.json").read_bytes()
    return msgspec.json.decode(text, type=dict[str, list[Fact]])
