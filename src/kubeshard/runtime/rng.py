"""Randomness."""

from __future__ import annotations

import random
import secrets
import uuid
from typing import Protocol


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
        return str(uuid.uuid4())


def secret_token() -> str:
    """256 bits that nobody can guess, as text that needs no quoting."""
    return secrets.token_urlsafe(32)
