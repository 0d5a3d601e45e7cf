"""The work queue as a pure state machine: which keys are queued, and which are being processed.

Guaranteed:

- Fair: keys of one priority are handed out in the order in which they were first added, unless another `Order` is
  given; for priorities see `order`.
- Stingy: a key added many times before it is handed out is processed once.
- Exclusive: a key is handed out to one worker at a time.
- Nothing is lost: a key added while it is processed is processed again, after it is done.

| state | add | take | done |
|---|---|---|---|
| `IDLE` | → `QUEUED`, at the tail | - | - |
| `QUEUED` | stays where it is, or rises to the tail of its new priority | → `RUNNING` | - |
| `RUNNING` | → `RUNNING_DIRTY` | - | → `IDLE` |
| `RUNNING_DIRTY` | stays; its priority may rise | - | → `QUEUED`, at the tail |

After `close` adds are ignored; keys that were added before are still handed out, unless they are discarded.

Not here: clocks, waiting workers, limits (`queue`, `limits`). Modelled on client-go's `util/workqueue` and the
priority queue of controller-runtime.

Keys that will be added later are in `Delays`: a key waits once, and another delay can only move it earlier, and its
priority up.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Callable
from enum import Enum, auto
from itertools import count
from typing import Generic

from kubeshard.workqueue.order import NORMAL, K, Levels, Order
from kubeshard.workqueue.reasons import Reason, Wanted


class KeyState(Enum):
    IDLE = auto()
    QUEUED = auto()
    """The key waits for a worker."""
    RUNNING = auto()
    RUNNING_DIRTY = auto()
    """A worker has the key, and it was added again."""


class QueueCore(Generic[K]):
    """The queue's state. Every method is one step; none blocks. `now` returns the time, `order` creates the order of
    the keys of one priority. Attributes are read-only.
    """

    def __init__(self, now: Callable[[], float], order: Callable[[], Order[K]] = deque) -> None:
        self._now = now
        self.wanted: dict[K, Wanted] = {}
        """Queued keys, the oldest first."""
        self.taken: dict[K, Wanted] = {}
        """Keys handed out and not yet done, in the order in which they were handed out."""
        self.levels: Levels[K] = Levels(order)
        """Contains exactly the wanted keys that are not taken, each once."""
        self.closed = False

    def add(self, key: K, priority: int = NORMAL, reason: Reason | str = "") -> bool:
        """Whether this queued the key: it may be queued already, or the queue closed."""
        if self.closed:
            return False
        wanted = self.wanted.get(key)
        if wanted is None:
            if key not in self.taken:
                self.levels.append(key, priority)
            self.wanted[key] = Wanted(priority, self._now(), reason)
            return True
        if priority > wanted.priority:
            if key not in self.taken:
                self.levels.rise(key, wanted.priority, priority)
            wanted.priority = priority
        if reason and wanted.lacks(reason):
            wanted.note(reason, self._now())
        return False

    def take(self) -> K:
        """Hands out the next key. Raises IndexError if there is none."""
        key = self.levels.popleft()
        wanted = self.wanted.pop(key)
        wanted.started = self._now()
        self.taken[key] = wanted
        return key

    def done(self, key: K) -> bool:
        """Returns whether the key is queued again. Raises KeyError for one that is not running."""
        del self.taken[key]
        wanted = self.wanted.get(key)
        if wanted is None:
            return False
        self.levels.append(key, wanted.priority)
        return True

    def close(self) -> None:
        self.closed = True

    def discard(self) -> list[K]:
        """Removes and returns all queued keys. Running keys stay until they are done."""
        dropped = list(self.wanted)
        self.wanted.clear()
        self.levels.clear()
        return dropped

    def state(self, key: K) -> KeyState:
        if key in self.taken:
            return KeyState.RUNNING_DIRTY if key in self.wanted else KeyState.RUNNING
        return KeyState.QUEUED if key in self.wanted else KeyState.IDLE

    @property
    def ready(self) -> int:
        """Keys that a worker could take now."""
        return self.levels.ready

    @property
    def depth(self) -> int:
        """Queued keys: the ready ones, and those that will be ready when their run is done."""
        return len(self.wanted)

    @property
    def running(self) -> int:
        return len(self.taken)

    def depths(self) -> dict[int, int]:
        """`depth` by priority."""
        depths = self.levels.depths()
        for key in self.taken:
            if (wanted := self.wanted.get(key)) is not None:
                depths[wanted.priority] = depths.get(wanted.priority, 0) + 1
        return depths


class Delays(Generic[K]):
    """Keys by the time at which they are due, on the caller's clock. `reason` is that of the earliest delay,
    `priority` is the highest of all. `retry`: nobody but a failure asked for it.
    """

    def __init__(self) -> None:
        self._waiting: dict[K, tuple[float, Reason | str, int, bool, int]] = {}
        """Time, reason and priority of each key, whether all of its delays are retries, and its entry in the heap."""
        self._heap: list[tuple[float, int, K]] = []
        """Every (time, entry, key) of `_waiting`, and outdated ones of keys that were moved earlier, or dropped."""
        self._order = count()

    def schedule(
        self, key: K, due: float, reason: Reason | str = "", priority: int = NORMAL, *, retry: bool = False
    ) -> None:
        known = self._waiting.get(key)
        if known is not None:
            priority, retry = max(priority, known[2]), retry and known[3]
            if known[0] <= due:
                self._waiting[key] = (known[0], known[1], priority, retry, known[4])
                return
        entry = next(self._order)
        self._waiting[key] = (due, reason, priority, retry, entry)
        heapq.heappush(self._heap, (due, entry, key))
        self._tidy()

    def drop_retry(self, key: K) -> None:
        """Drops the delay of the key if it is a retry's only."""
        known = self._waiting.get(key)
        if known is not None and known[3]:
            del self._waiting[key]

    def drop(self, key: K) -> None:
        if self._waiting.pop(key, None) is not None:
            self._tidy()

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
            _, reason, priority, _, _ = self._waiting.pop(key)
            due.append((key, reason, priority))
        return due

    def earliest(self, limit: int) -> list[tuple[float, K, Reason | str]]:
        """Up to `limit` of the keys that are due first: time, key and reason."""
        first = heapq.nsmallest(limit, self._waiting.items(), key=_due)
        return [(due, key, reason) for key, (due, reason, _, _, _) in first]

    def clear(self) -> None:
        self._waiting.clear()
        self._heap.clear()

    def __len__(self) -> int:
        return len(self._waiting)

    def _outdated(self, entry: tuple[float, int, K]) -> bool:
        known = self._waiting.get(entry[2])
        return known is None or known[4] != entry[1]

    def _tidy(self) -> None:
        if len(self._heap) <= 64 + 2 * len(self._waiting):
            return
        self._heap = [entry for entry in self._heap if not self._outdated(entry)]
        heapq.heapify(self._heap)


def _due(entry: tuple[K, tuple[float, Reason | str, int, bool, int]]) -> float:
    return entry[1][0]
