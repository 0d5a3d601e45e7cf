"""Randomness."""

from __future__ import annotations

import random
import secrets
from collections.abc import Sequence
from typing import Protocol, TypeVar

T = TypeVar("T")

_LETTERS = "abcdefghijklmnopqrstuvwxyz"


class Rng(Protocol):
    """Jitter and unique names. Not for secrets: those come from `secret_token` or the `cryptography` library."""

    def uniform(self, low: float, high: float) -> float: ...

    def token(self) -> str:
        """A fresh UUID (version 4) as text."""
        ...


class SystemRng:
    def __init__(self) -> None:
        self._random = random.Random()  # noqa: S311 - jitter, not a secret

    def uniform(self, low: float, high: float) -> float:
        return self._random.uniform(low, high)

    def token(self) -> str:
        # `uuid.uuid4` makes a system call, and converting its object to text costs more than all of this.
        bits = self._random.getrandbits(128) & ~_FIXED | _VERSION_4
        digits = f"{bits:032x}"
        return f"{digits[:8]}-{digits[8:12]}-{digits[12:16]}-{digits[16:20]}-{digits[20:]}"


_FIXED = 0xF << 76 | 0x3 << 62
_VERSION_4 = 0x4 << 76 | 0x2 << 62
"""Version and variant of a random UUID."""


def below(rng: Rng, bound: int) -> int:
    """An integer from 0 to `bound - 1`, each as likely."""
    return min(int(rng.uniform(0, bound)), bound - 1)


def one_of(rng: Rng, values: Sequence[T]) -> T:
    """Raises IndexError if there is none."""
    return values[below(rng, len(values))]


def letters(rng: Rng, count: int) -> str:
    """Lower-case letters, for names."""
    return "".join(one_of(rng, _LETTERS) for _ in range(count))


def secret_token() -> str:
    """256 unguessable bits, as text that needs no quoting."""
    return secrets.token_urlsafe(32)
