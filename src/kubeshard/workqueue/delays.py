"""Keys that shall be added later.

Guaranteed: a key waits once, and another delay only ever moves it earlier.
"""

from __future__ import annotations

import heapq
from itertools import count
from typing import Generic, NamedTuple

from kubeshard.workqueue.core import K


class Due(NamedTuple, Generic[K]):
    key: K
    reason: str


class Delays(Generic[K]):
    """Keys by the time at which they are due, on whatever clock the caller uses. `reason` belongs to the
    earliest delay.
    """

    def __init__(self) -> None:
        self._waiting: dict[K, tuple[float, str]] = {}
        """When each key is due, and why."""
        self._heap: list[tuple[float, int, K]] = []
        """Every (time, key) of `_waiting`, and outdated pairs of keys that were moved earlier."""
        self._order = count()

    def schedule(self, key: K, due: float, reason: str = "") -> None:
        known = self._waiting.get(key)
        if known is not None and known[0] <= due:
            return
        self._waiting[key] = (due, reason)
        heapq.heappush(self._heap, (due, next(self._order), key))
        if len(self._heap) > 64 + 2 * len(self._waiting):
            self._compact()

    def next_due(self) -> float | None:
        """The earliest time at which `pop_due` has something to give."""
        while self._heap and self._outdated(self._heap[0]):
            heapq.heappop(self._heap)
        return self._heap[0][0] if self._heap else None

    def pop_due(self, now: float) -> list[Due[K]]:
        """Removes and returns what is due, earliest first."""
        due: list[Due[K]] = []
        while (first := self.next_due()) is not None and first <= now:
            key = heapq.heappop(self._heap)[2]
            due.append(Due(key, self._waiting.pop(key)[1]))
        return due

    def clear(self) -> None:
        self._waiting.clear()
        self._heap.clear()

    def __contains__(self, key: K) -> bool:
        return key in self._waiting

    def __len__(self) -> int:
        return len(self._waiting)

    def _outdated(self, entry: tuple[float, int, K]) -> bool:
        known = self._waiting.get(entry[2])
        return known is None or known[0] != entry[0]

    def _compact(self) -> None:
        self._heap = [entry for entry in self._heap if not self._outdated(entry)]
        heapq.heapify(self._heap)
