"""Debounced keys, which wait until they are not triggered any more.

Guaranteed: a key is due `quiet` seconds after it was last touched, but at the latest `longest` seconds after it was
first touched.
"""

from __future__ import annotations

import heapq
import math
from dataclasses import dataclass
from itertools import count
from typing import Generic

from kubeshard.workqueue.order import K
from kubeshard.workqueue.reasons import Reason, Wanted


@dataclass(frozen=True, slots=True)
class Debounce:
    """Merges a burst of triggers into one run: `quiet` seconds after the last one, and no later than `longest` seconds
    after the first. Raises ValueError unless 0 < quiet <= longest.
    """

    quiet: float
    longest: float

    def __post_init__(self) -> None:
        if not 0 < self.quiet <= self.longest < math.inf:
            raise ValueError(
                f"Debounce(quiet={self.quiet}, longest={self.longest}): seconds, the second not below the first, both "
                "positive"
            )


class _Pending:
    __slots__ = ("due", "latest", "wanted")

    def __init__(self, wanted: Wanted, due: float, latest: float) -> None:
        self.wanted = wanted
        self.due = due
        self.latest = latest


class Settling(Generic[K]):
    """Touched keys by the time at which they are due, on the caller's clock."""

    def __init__(self, rule: Debounce) -> None:
        self._rule = rule
        self._pending: dict[K, _Pending] = {}
        self._heap: list[tuple[float, int, K, _Pending]] = []
        """Each pending key once, no later than it is due, and outdated entries. A touch changes nothing here."""
        self._order = count()

    def touch(self, key: K, now: float, priority: int, reason: Reason | str) -> None:
        pending = self._pending.get(key)
        if pending is not None:
            pending.due = min(now + self._rule.quiet, pending.latest)
            pending.wanted.priority = max(pending.wanted.priority, priority)
            if reason and pending.wanted.lacks(reason):
                pending.wanted.note(reason, now)
            return
        pending = _Pending(Wanted(priority, now, reason), now + self._rule.quiet, now + self._rule.longest)
        self._pending[key] = pending
        heapq.heappush(self._heap, (pending.due, next(self._order), key, pending))
        if len(self._heap) > 64 + 2 * len(self._pending):
            self._compact()

    def drop(self, key: K) -> Wanted | None:
        """Removes the key, and returns what was known about it."""
        pending = self._pending.pop(key, None)
        return None if pending is None else pending.wanted

    def next_due(self) -> float | None:
        """The earliest time at which `pop_due` returns something."""
        heap = self._heap
        while heap:
            due, number, key, pending = heap[0]
            if self._pending.get(key) is not pending:
                heapq.heappop(heap)
            elif pending.due > due:
                heapq.heapreplace(heap, (pending.due, number, key, pending))
            else:
                return due
        return None

    def pop_due(self, now: float) -> list[tuple[K, Wanted]]:
        """Removes and returns what is due, earliest first."""
        due: list[tuple[K, Wanted]] = []
        while (first := self.next_due()) is not None and first <= now:
            _, _, key, pending = heapq.heappop(self._heap)
            del self._pending[key]
            due.append((key, pending.wanted))
        return due

    def earliest(self, limit: int) -> list[tuple[float, K, Reason | str]]:
        """Up to `limit` of the keys that are due first: time, key and reason."""
        first = heapq.nsmallest(limit, self._pending.items(), key=_due)
        return [
            (pending.due, key, next((reason for reason, _ in pending.wanted.given), ""))
            for key, pending in first
        ]

    def __len__(self) -> int:
        return len(self._pending)

    def _compact(self) -> None:
        self._heap = [entry for entry in self._heap if self._pending.get(entry[2]) is entry[3]]
        heapq.heapify(self._heap)


def _due(entry: tuple[K, _Pending]) -> float:
    return entry[1].due
