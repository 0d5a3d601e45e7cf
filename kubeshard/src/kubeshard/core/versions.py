"""Resource versions.

Ordered within one resource since KEP-5504: decimal without leading zeros, so longer is newer and equal lengths compare
as text. Some aggregated API servers send versions that are no such numbers: of two different ones, nobody can tell
which is newer. So there are two questions, `at_least` and `may_be_at_least`; who asks takes the one whose wrong answer
does no harm. `""` is older than everything.
"""

from __future__ import annotations

from collections.abc import Iterable


def compare(a: str, b: str) -> int:
    """-1, 0 or 1 if `a` is older than, equal to, or newer than `b`. The order of versions that are no numbers is total,
    and means nothing.
    """
    if a == b:
        return 0
    return -1 if (len(a), a) < (len(b), b) else 1


def precedes(a: str, b: str) -> bool:
    """Whether `a` is certainly older. False if one is no decimal number."""
    return (len(a), a) < (len(b), b) and a != "" and _are_numbers(a, b)


def at_least(a: str, b: str) -> bool:
    """Whether `a` is `b`, or certainly newer."""
    return a == b or ((len(a), a) > (len(b), b) and (not b or _are_numbers(a, b)))


def may_be_at_least(a: str, b: str) -> bool:
    """`at_least`, and true if nobody can tell."""
    return (len(a), a) >= (len(b), b) or (a != "" and not _are_numbers(a, b))


def newest(a: str, b: str) -> str:
    """`a` if nobody can tell."""
    return a if (len(a), a) >= (len(b), b) or may_be_at_least(a, b) else b


def oldest(versions: Iterable[str]) -> str:
    """`""` if there are none."""
    return min(versions, key=lambda version: (len(version), version), default="")


def _are_numbers(a: str, b: str) -> bool:
    both = a + b
    return both.isascii() and both.isdigit()
