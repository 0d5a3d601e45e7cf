"""Merges a desired object into the live one.

| desired value | live value |
|---|---|
| a field left at its default of None or UNSET, or at any default in a class that omits defaults | kept |
| None that is not the default | removed |
| a struct | its fields, each by these rules |
| a map whose members are declared as `Any` | the desired members, each by these rules; None removes |
| the labels and annotations of an `ObjectMeta`, for example of a pod template | the desired ones; others stay |
| another map | exactly the desired one; members that are in both by these rules |
| a list | exactly the desired one; items that are in both by these rules |
| a quantity of the same amount | kept |
| another value | the desired value |

The fields of the first row are not sent by a create either (see `Struct`). Items of two lists are matched by `name`;
if not all items have unique names, by index in lists of the same length. An empty
map or list equals an absent one, as for the API server.

Quantities (`500m`, `1Gi`) are compared by amount: the API server stores `1000m` as `1`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any, NamedTuple, TypeVar, get_args, get_origin

import msgspec
from msgspec import UNSET

from kubeshard.core.documents import type_hints_of
from kubeshard.core.objects import ObjectMeta

S = TypeVar("S", bound=msgspec.Struct)

_ABSENT = (None, UNSET)


def overlaid(live: S, desired: S, *, without: tuple[str, ...] = ()) -> S:
    """`live` with `desired` merged, except for the fields `without`; `live` itself if nothing changes."""
    changes = {}
    for name, unsaid, exact, any_member, quantity in _fields(type(desired), without):
        value, have = getattr(desired, name), getattr(live, name)
        if (exact and value == have) or value is UNSET:
            continue
        if unsaid is not _SAID and value == unsaid:
            continue
        new = _laid_over(have, value, any_member, quantity)
        if new is not have:
            changes[name] = new
    return msgspec.structs.replace(live, **changes) if changes else live


def pairs(old: Sequence[Any], new: Sequence[Any]) -> list[int | None]:
    """The index of the matching old item for each new item, if there is one."""
    places = _by_name(old)
    if places is not None and _by_name(new) is not None:
        return [places.get(_name(item)) for item in new]
    return list(range(len(new))) if len(old) == len(new) else [None] * len(new)


def spliced(whole: Any, old: Any, new: Any) -> Any:
    """The JSON `whole` with its declared part `old` replaced by `new`. Undeclared fields are kept, also
    within lists for items that `pairs` matches; a class default that is in neither `old` nor `whole` is not added.
    """
    match whole, old, new:
        case Mapping(), Mapping(), Mapping():
            kept = {key: value for key, value in whole.items() if key not in old or key in new}
            said = {
                key: value
                for key, value in new.items()
                if key in whole or key not in old or old[key] != value
            }
            return kept | {
                key: spliced(whole.get(key, {}), old.get(key), value) for key, value in said.items()
            }
        case list(), list(), list() if len(whole) == len(old):
            return [
                item if place is None else spliced(whole[place], old[place], item)
                for place, item in zip(pairs(old, new), new, strict=True)
            ]
        case _:
            return new


class _Field(NamedTuple):
    name: str
    unsaid: Any
    """The value that is not sent; `_SAID` if every value is sent."""
    exact: bool
    """Not for type Any, as True equals 1. Checked first: most objects are already as desired."""
    any_member: bool
    """Whether the map may have members of others: of type `Any`, or part of an `ObjectMeta`."""
    quantity: bool


_SAID: Any = object()


@cache
def _fields(type_: type[msgspec.Struct], without: tuple[str, ...]) -> tuple[_Field, ...]:
    hints = type_hints_of(type_)
    omits = type_.__struct_config__.omit_defaults
    return tuple(
        _Field(
            field.name,
            _unsaid(field) if omits else UNSET,
            field.name in hints and _is_exact(hints[field.name]),
            issubclass(type_, ObjectMeta) or _has_any(hints.get(field.name)),
            field.encode_name in QUANTITIES,
        )
        for field in msgspec.structs.fields(type_)
        if field.name not in without
    )


def _unsaid(field: msgspec.structs.FieldInfo) -> Any:
    """The default, if the encoder omits it."""
    if field.default is not msgspec.NODEFAULT:
        return field.default
    return field.default_factory() if field.default_factory in (list, dict, set) else _SAID


def _has_any(hint: Any) -> bool:
    return hint is Any or (get_origin(hint) is not None and any(map(_has_any, get_args(hint))))


_EXACT: set[type[msgspec.Struct]] = set()
"""Structs in which nothing is declared as `Any`, at any depth. What a Deployment is made of is looked at once."""


def _is_exact(hint: Any) -> bool:
    todo, seen = [hint], set[type[msgspec.Struct]]()
    while todo:
        hint = todo.pop()
        if hint is Any:
            return False
        todo += get_args(hint)
        if (
            isinstance(hint, type)
            and issubclass(hint, msgspec.Struct)
            and hint not in seen
            and hint not in _EXACT
        ):
            seen.add(hint)
            hints = type_hints_of(hint)
            if hints.keys() < set(hint.__struct_fields__):
                return False
            todo += hints.values()
    _EXACT.update(seen)
    return True


def _laid_over(live: Any, desired: Any, any_member: bool, quantity: bool) -> Any:
    match desired:
        case None:
            return live if live in _ABSENT else None
        case msgspec.Struct():
            return overlaid(live, desired) if type(live) is type(desired) else desired
        case Mapping():
            return _map(live, desired, any_member, quantity)
        case list() | tuple():
            return _list(live, desired, any_member)
    same = live == desired and isinstance(live, bool) == isinstance(desired, bool)
    return live if same or (quantity and same_quantity(live, desired)) else desired


def _map(live: Any, desired: Mapping[Any, Any], any_member: bool, quantity: bool) -> Any:
    if not isinstance(live, Mapping):
        return live if not desired and live in _ABSENT else desired
    new = dict(live) if any_member else {}
    for key, value in desired.items():
        if value is None and any_member:
            new.pop(key, None)
        elif key in live:
            new[key] = _laid_over(live[key], value, any_member, quantity or key in QUANTITIES)
        else:
            new[key] = value
    return live if new.keys() == live.keys() and all(new[key] is live[key] for key in new) else new


def _list(live: Any, desired: Sequence[Any], any_member: bool) -> Any:
    if not isinstance(live, list | tuple):
        return live if not desired and live in _ABSENT else desired
    new = [
        item if place is None else _laid_over(live[place], item, any_member, quantity=False)
        for place, item in zip(pairs(live, desired), desired, strict=True)
    ]
    same = len(new) == len(live) and all(a is b for a, b in zip(new, live, strict=True))
    return live if same else type(live)(new)


def _by_name(items: Sequence[Any]) -> dict[str, int] | None:
    """The indexes of items by name, if all have unique names."""
    places = {name: place for place, item in enumerate(items) if (name := _name(item))}
    return places if len(places) == len(items) else None


def _name(item: Any) -> Any:
    name = item.get("name") if isinstance(item, Mapping) else getattr(item, "name", None)
    return name if isinstance(name, str) else None


QUANTITIES = frozenset({"limits", "requests", "capacity", "hard", "overhead", "sizeLimit", "size_limit"})
"""Fields that are quantities everywhere in the Kubernetes API."""

_QUANTITY = re.compile(
    r"([+-]?(?:\d+\.?\d*|\.\d+))(?:([KMGTPE]i)|([numkMGTPE])|[eE]([+-]?\d{1,3}))?", re.ASCII
)
_LONGEST = 64
_BINARY = {suffix: 1024**power for power, suffix in enumerate(("Ki", "Mi", "Gi", "Ti", "Pi", "Ei"), 1)}
_DECIMAL = {"n": -9, "u": -6, "m": -3, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}


def same_quantity(a: Any, b: Any) -> bool:
    """Whether both are quantities (text, or numbers as YAML has them) of the same amount."""
    amount = _amount(a)
    return amount is not None and amount == _amount(b)


def _amount(value: Any) -> Any:
    # Imported late: rarely needed, because quantities rarely differ.
    from fractions import Fraction

    if isinstance(value, bool) or not isinstance(value, str | int | float):
        return None
    text = str(value)
    match = _QUANTITY.fullmatch(text) if len(text) <= _LONGEST else None
    if match is None:
        return None
    number, binary, decimal, exponent = match.groups()
    if binary:
        return Fraction(number) * _BINARY[binary]
    return Fraction(number) * Fraction(10) ** (_DECIMAL[decimal] if decimal else int(exponent or 0))
