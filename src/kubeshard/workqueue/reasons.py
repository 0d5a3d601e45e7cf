"""Why a key is in the queue.

Deduplication forgets what triggered a key; this remembers a few of the triggers, for log lines and traces. No
decision may rest on them: a key is processed by its current state, whatever brought it there.
"""

from __future__ import annotations

from typing import Generic

from kubeshard.workqueue.core import K

MAX_REASONS = 8
"""Distinct reasons kept per key; later ones are dropped."""


class Reasons(Generic[K]):
    """The reasons of each key's next run, and of its present one."""

    def __init__(self) -> None:
        self._next: dict[K, tuple[str, ...]] = {}
        self._present: dict[K, tuple[str, ...]] = {}

    def add(self, key: K, reason: str) -> None:
        known = self._next.get(key, ())
        if reason not in known and len(known) < MAX_REASONS:
            self._next[key] = (*known, reason)

    def start(self, key: K) -> None:
        if reasons := self._next.pop(key, ()):
            self._present[key] = reasons

    def finish(self, key: K) -> None:
        self._present.pop(key, None)

    def discard(self, key: K) -> None:
        self._next.pop(key, None)

    def of(self, key: K) -> tuple[str, ...]:
        """Of the present run; of the next one when the key is not running."""
        return self._present.get(key) or self._next.get(key, ())
