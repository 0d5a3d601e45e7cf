"""What holds for single fields, whatever the rest of the object says: required, enumerations, forms, ranges.

These facts are data, in `schema/facts.json` beside the types: by the type of the struct, in the order in which the
server tells them. Here they are checked, in one walk along the facts of a struct and into the structs below it. What
needs a second field, a neighbour in a list or the old object is logic, and is in the module of the kind.

A type stands for those that have the same fields under another name; what it says after a `#` is which part of its
facts, where rules stand between them.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from functools import cache
from importlib.resources import files
from typing import Any, NamedTuple

import msgspec

from kubeshard_apiserver import schema
from kubeshard_apiserver.resources import pod_names as forms
from kubeshard_apiserver.status import FieldError, immutable, invalid_value, required, unsupported

Given = Mapping[str, Any]
ACCESS_MODES = ("ReadOnlyMany", "ReadWriteMany", "ReadWriteOnce", "ReadWriteOncePod")
_EMPTY: tuple[Any, ...] = (None, "", 0, [])


class Fact(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Of one field, or of each of several. One that is not given is `absent`, and where that is None nothing else
    holds for it.

    * `needed`: it must be there and not be empty; nothing else is said of one that is.
    * `among`: its value, or each one of a list.
    * `form`: what its text, or each one of a list, must look like: the name of a rule of `pod_names`.
    * `within`: the lowest and the highest value, or None for no such bound.
    * `words`: the server's own, of a missing value or of one out of range.
    * `whole`: an item is told by the path of the list, not by its own.
    * `of`: the type of the struct, or of the structs in the list, whose facts hold in it.
    """

    fields: str
    needed: bool = False
    words: str = ""
    among: tuple[str, ...] = ()
    form: str = ""
    within: tuple[int | None, int | None] | None = None
    absent: str | int | None = None
    whole: bool = False
    of: str = ""


def fact_errors(type_: str, path: str, given: Given) -> list[FieldError]:
    """`path` is empty for a whole object."""
    errors: list[FieldError] = []
    get = given.get
    for field, absent, needed, holds, fact in _checks_of(type_):
        value = get(field, absent)
        if value is None:
            if not needed:
                continue
        elif type(value) is not list and holds(value) and (value or not needed):
            continue  # as nearly always: not even the path is made
        errors += _field_errors(fact, f"{path}.{field}" if path else field, value)
    return errors


def changed_errors(path: str, fields: Collection[str], new: Given, old: Given) -> list[FieldError]:
    """Of fields that never change."""
    return [
        immutable(f"{path}.{field}" if path else field, new.get(field))
        for field in fields
        if new.get(field) != old.get(field)
    ]


def _field_errors(fact: Fact, at: str, value: Any) -> list[FieldError]:
    if fact.needed and value in _EMPTY:
        return [required(at, fact.words)]
    if not isinstance(value, list):
        return _value_errors(fact, at, value)
    errors: list[FieldError] = []
    for index, one in enumerate(value):
        errors += _value_errors(fact, at if fact.whole else f"{at}[{index}]", one)
    return errors


def _value_errors(fact: Fact, at: str, value: Any) -> list[FieldError]:
    if fact.of:
        return fact_errors(fact.of, at, value)
    if fact.among and value not in fact.among:
        return [unsupported(at, value, fact.among)]
    if fact.form:
        return forms.wrong(at, value, getattr(forms, fact.form))
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
    """Tells of one value whether nothing is wrong with it; of a struct that is not known."""
    fact: Fact


@cache
def _checks_of(type_: str) -> tuple[_Check, ...]:
    return tuple(
        _Check(field, fact.absent, fact.needed, _holds(fact), fact)
        for fact in facts()[type_]
        for field in fact.fields.split()
    )


def _holds(fact: Fact) -> Callable[[Any], bool]:
    if fact.of:
        return lambda value: False
    if fact.among:
        return frozenset(fact.among).__contains__
    if fact.form:
        form = getattr(forms, fact.form)
        return lambda value: not form(value)
    low, high = fact.within or (None, None)
    if low is not None and high is not None:
        return lambda value: low <= value <= high
    return lambda value: (low is None or value >= low) and (high is None or value <= high)


@cache
def facts() -> Mapping[str, list[Fact]]:
    """All of them, by type."""
    text = (files(schema) / "facts.json").read_bytes()
    return msgspec.json.decode(text, type=dict[str, list[Fact]])
