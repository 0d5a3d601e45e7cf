"""Functions on lists, and regular expressions on strings.

The functions that compare items fail for lists whose items cannot be compared. Patterns use Python's syntax here and
RE2's on the real server; whatever both support has the same meaning.
"""

from __future__ import annotations

import re
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


def find(text: str, pattern: str) -> str:
    found = _compiled(pattern).search(text)
    return found.group(0) if found else ""


def find_all(text: str, pattern: str, limit: int = -1) -> list[str]:
    found = [match.group(0) for match in _compiled(pattern).finditer(text)]
    return found if limit < 0 else found[:limit]


def _compiled(pattern: str) -> re.Pattern[str]:
    try:
        return re.compile(pattern)
    except re.error as error:
        raise ValueError(f"Illegal regex: {error}") from None
