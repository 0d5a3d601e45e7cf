"""Keys that will be added later: after a delay, or when they are not triggered any more.

| | a key is due |
|---|---|
| `schedule` | at the earliest of the times that it was given |
| `touch` | `quiet` seconds after it was last touched, but at the latest `longest` seconds after it was first touched |

Guaranteed: a key waits once, with the highest of its priorities. However often it is moved, the heap stays small.
"""

from __future__ import annotations

import heapq
import math
from dataclasses import dataclass
from itertools import count
from typing import Generic

from kubeshard.workqueue.order import NORMAL, K
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


class _Delay:
    __slots__ = ("due", "latest", "retry", "wanted")

    def __init__(self, wanted: Wanted, due: float, latest: float, retry: bool) -> None:
        self.wanted = wanted
        self.due = due
        self.latest = latest
        self.retry = retry
        """Whether nobody but a failure asked for it."""


class Delays(Generic[K]):
    """Keys by the time at which they are due, on the caller's clock, and what is known about them: the reason of the
    earliest delay, or all reasons of touches.
    """

    def __init__(self) -> None:
        self._waiting: dict[K, _Delay] = {}
        self._heap: list[tuple[float, int, K, _Delay]] = []
        """Each waiting key once, no later than it is due, and outdated entries. A touch changes nothing here."""
        self._order = count()

    def schedule(
        self, key: K, due: float, reason: Reason | str = "", priority: int = NORMAL, *, retry: bool = False
    ) -> None:
        """Has the key wait until then, if not for a shorter time. `retry`: only a failure asks for it."""
        delay, wanted = self._waiting.get(key), Wanted(priority, due, reason)
        if delay is None:
            self._file(key, _Delay(wanted, due, due, retry))
            return
        delay.retry = delay.retry and retry
        if delay.due <= due:
            delay.wanted.priority = max(priority, delay.wanted.priority)
            return
        wanted.priority = max(priority, delay.wanted.priority)
        self._file(key, _Delay(wanted, due, due, delay.retry))

    def touch(
        self, key: K, now: float, rule: Debounce, reason: Reason | str = "", priority: int = NORMAL
    ) -> None:
        delay = self._waiting.get(key)
        if delay is None:
            self._file(
                key, _Delay(Wanted(priority, now, reason), now + rule.quiet, now + rule.longest, False)
            )
            return
        delay.due = min(now + rule.quiet, delay.latest)
        delay.wanted.priority = max(delay.wanted.priority, priority)
        if reason and delay.wanted.lacks(reason):
            delay.wanted.note(reason, now)

    def drop(self, key: K) -> Wanted | None:
        """The key does not wait any more. Returns what was known about it."""
        delay = self._waiting.pop(key, None)
        if delay is None:
            return None
        self._tidy()
        return delay.wanted

    def drop_retry(self, key: K) -> None:
        """Drops the delay of the key if it is a retry's only."""
        if (delay := self._waiting.get(key)) is not None and delay.retry:
            del self._waiting[key]

    def next_due(self) -> float | None:
        """The earliest time at which `pop_due` returns something."""
        heap = self._heap
        while heap:
            due, number, key, delay = heap[0]
            if self._waiting.get(key) is not delay:
                heapq.heappop(heap)
            elif delay.due > due:
                heapq.heapreplace(heap, (delay.due, number, key, delay))
            else:
                return due
        return None

    def pop_due(self, now: float) -> list[tuple[K, Wanted]]:
        """Removes and returns the keys that are due, earliest first."""
        due: list[tuple[K, Wanted]] = []
        while (first := self.next_due()) is not None and first <= now:
            _, _, key, delay = heapq.heappop(self._heap)
            del self._waiting[key]
            due.append((key, delay.wanted))
        return due

    def earliest(self, limit: int) -> list[tuple[float, K, Reason | str]]:
        """Up to `limit` of the keys that are due first: time, key and reason."""
        first = heapq.nsmallest(limit, self._waiting.items(), key=lambda item: item[1].due)
        return [
            (delay.due, key, next((reason for reason, _ in delay.wanted.given), "")) for key, delay in first
        ]

    def clear(self) -> None:
        self._waiting.clear()
        self._heap.clear()

    def __len__(self) -> int:
        return len(self._waiting)

    def _file(self, key: K, delay: _Delay) -> None:
        self._waiting[key] = delay
        heapq.heappush(self._heap, (delay.due, next(self._order), key, delay))
        self._tidy()

    def _tidy(self) -> None:
        if len(self._heap) > 64 + 2 * len(self._waiting):
            self._heap = [entry for entry in self._heap if self._waiting.get(entry[2]) is entry[3]]
            heapq.heapify(self._heap)
