"""Resource versions.

Opaque to most clients, but ordered within one resource since KEP-5504: decimal without leading zeros, so
longer is newer and equal lengths compare as text.
"""

from __future__ import annotations

from collections.abc import Iterable


def compare(a: str, b: str) -> int:
    """-1, 0 or 1 if `a` is older than, equal to, or newer than `b`. `""` is older than everything."""
    if a == b:
        return 0
    return -1 if (len(a), a) < (len(b), b) else 1


def precedes(a: str, b: str) -> bool:
    """Whether `a` is certainly older. False if one is no decimal number, as some aggregated API servers send."""
    return (len(a), a) < (len(b), b) and _is_number(a) and _is_number(b)


def at_least(a: str, b: str) -> bool:
    """Whether `a` is `b` or newer."""
    return (len(a), a) >= (len(b), b)


def newest(a: str, b: str) -> str:
    return a if (len(a), a) >= (len(b), b) else b


def oldest(versions: Iterable[str]) -> str:
    """`""` if there are none."""
    return min(versions, key=lambda version: (len(version), version), default="")


def _is_number(version: str) -> bool:
    return version.isascii() and version.isdigit()
