"""Semantic versions, and the comparison that they share with quantities. Source: semver.org 2.0.0."""

from __future__ import annotations

import re
from typing import Any

from kubeshard_apiserver.cel.quantities import is_quantity, number

_MARK = "$semver"
_NUMBER = "(0|[1-9][0-9]*)"
_PRE = r"(?:0|[1-9]\d*|\d*[a-zA-Z-][0-9a-zA-Z-]*)"
_FORM = re.compile(
    rf"{_NUMBER}\.{_NUMBER}\.{_NUMBER}(?:-({_PRE}(?:\.{_PRE})*))?(?:\+([0-9a-zA-Z-]+(?:\.[0-9a-zA-Z-]+)*))?"
)
_LOOSE = re.compile(r"v?0*(\d+)(?:\.0*(\d+))?(?:\.0*(\d+))?(.*)")


def semver(text: str, normalize: bool = False) -> dict[str, Any]:
    if normalize and (loose := _LOOSE.fullmatch(text.strip())):
        major, minor, patch, rest = loose.groups()
        text = f"{major}.{minor or 0}.{patch or 0}{rest}"
    if not _FORM.fullmatch(text):
        raise ValueError(f"semver parse error: {text}")
    return {_MARK: text}


def part(version: dict[str, Any], index: int) -> int:
    return int(_groups(version)[index])


def compare(one: dict[str, Any], other: dict[str, Any]) -> int:
    """-1, 0 or 1. Of two versions, or of two quantities."""
    before, after = (number(one), number(other)) if is_quantity(one) else (_order(one), _order(other))
    return (before > after) - (before < after)


def _order(version: dict[str, Any]) -> Any:
    major, minor, patch, pre, _ = _groups(version)
    identifiers = [
        (not item.isdecimal(), int(item) if item.isdecimal() else item) for item in (pre or "").split(".")
    ]
    return int(major), int(minor), int(patch), not pre, identifiers


def _groups(version: dict[str, Any]) -> tuple[Any, ...]:
    found = _FORM.fullmatch(version.get(_MARK, ""))
    if found is None:
        raise ValueError("no such overload")
    return found.groups()
