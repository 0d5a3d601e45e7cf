"""Keys that will be added later.

Guaranteed: a key waits once, and another delay can only move it earlier, and its priority up.
"""

from __future__ import annotations

import heapq
from itertools import count
from typing import Generic

from kubeshard.workqueue.levels import NORMAL, K
from kubeshard.workqueue.reasons import Reason


class Delays(Generic[K]):
    """Keys by the time at which they are due, on the caller's clock. `reason` is that of the earliest delay,
    `priority` is the highest of all.
    """

    def __init__(self) -> None:
        self._waiting: dict[K, tuple[float, Reason | str, int]] = {}
        """Time, reason and priority of each key."""
        self._heap: list[tuple[float, int, K]] = []
        """Every (time, key) of `_waiting`, and outdated pairs of keys that were moved earlier."""
        self._order = count()

    def schedule(self, key: K, due: float, reason: Reason | str = "", priority: int = NORMAL) -> None:
        known = self._waiting.get(key)
        if known is not None:
            if known[0] <= due:
                if priority > known[2]:
                    self._waiting[key] = (known[0], known[1], priority)
                return
            priority = max(priority, known[2])
        self._waiting[key] = (due, reason, priority)
        heapq.heappush(self._heap, (due, next(self._order), key))
        if len(self._heap) > 64 + 2 * len(self._waiting):
            self._compact()

    def next_due(self) -> float | None:
        """The earliest time at which `pop_due` returns something."""
        while self._heap and self._outdated(self._heap[0]):
            heapq.heappop(self._heap)
        return self._heap[0][0] if self._heap else None

    def pop_due(self, now: float) -> list[tuple[K, Reason | str, int]]:
        """Removes and returns the due keys, with reason and priority, earliest first."""
        due: list[tuple[K, Reason | str, int]] = []
        while (first := self.next_due()) is not None and first <= now:
            key = heapq.heappop(self._heap)[2]
            _, reason, priority = self._waiting.pop(key)
            due.append((key, reason, priority))
        return due

    def earliest(self, limit: int) -> list[tuple[float, K, Reason | str]]:
        """Up to `limit` of the keys that are due first: time, key and reason."""
        first = heapq.nsmallest(limit, self._waiting.items(), key=_due)
        return [(due, key, reason) for key, (due, reason, _) in first]

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


def _due(entry: tuple[K, tuple[float, Reason | str, int]]) -> float:
    return entry[1][0]
