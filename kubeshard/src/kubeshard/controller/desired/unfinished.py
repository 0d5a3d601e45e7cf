"""The sets that are being applied, or are not complete: every event of their members counts.

A `when` usually lets no change of a status pass, but that is what the next member of a set may be waiting for, and a
removal is what a deletion waits for. Guaranteed: from before a set is read until it is complete, `concerns` passes all
events of its members. Kept for each reconciled key until it is forgotten; a new process applies every set once.
"""

from __future__ import annotations

from typing import Any

from kubeshard.cache.deltas import Delta, current
from kubeshard.controller.desired.applyset import index_values
from kubeshard.core.objects import Key


class UnfinishedSets:
    """Those of one controller, by their index values."""

    def __init__(self) -> None:
        self._keys: dict[str, set[Key]] = {}
        self._values: dict[Key, set[str]] = {}

    def begin(self, key: Key, value: str) -> None:
        """Called before a run for the key reads the set."""
        self._keys.setdefault(value, set()).add(key)
        self._values.setdefault(key, set()).add(value)

    def end(self, key: Key, value: str) -> None:
        """Called when the set is complete."""
        values = self._values.get(key, set())
        if value in values:
            self._drop(key, value)
            values.discard(value)
            if not values:
                del self._values[key]

    def forget(self, key: Key) -> None:
        """Called when the object is gone or belongs to another shard."""
        for value in self._values.pop(key, ()):
            self._drop(key, value)

    def concerns(self, delta: Delta[Any]) -> bool:
        """Whether the object is a member of an unfinished set."""
        return bool(self._keys) and any(value in self._keys for value in index_values(current(delta)))

    def _drop(self, key: Key, value: str) -> None:
        keys = self._keys[value]
        keys.discard(key)
        if not keys:
            del self._keys[value]
