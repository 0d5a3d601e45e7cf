"""Functions on lists. A list of things that cannot be compared has no such function."""

from __future__ import annotations

from datetime import timedelta
from itertools import pairwise
from typing import Any


def is_sorted(items: list[Any]) -> bool:
    try:
        return all(one <= other for one, other in pairwise(items))
    except TypeError:
        raise ValueError("no such overload") from None


def total(items: list[Any]) -> Any:
    if not all(isinstance(item, int | float | timedelta) and not isinstance(item, bool) for item in items):
        raise ValueError("no such overload")
    return sum(items[1:], items[0]) if items else 0


def smallest(items: list[Any]) -> Any:
    return _extreme(items, min, "min")


def largest(items: list[Any]) -> Any:
    return _extreme(items, max, "max")


def _extreme(items: list[Any], choose: Any, name: str) -> Any:
    if not items:
        raise ValueError(f"{name} called on empty list")
    try:
        return choose(items)
    except TypeError:
        raise ValueError("no such overload") from None
