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

Not here: clocks, waiting workers, delays, limits (`queue`, `delays`, `limits`). Modelled on client-go's
`util/workqueue` and the priority queue of controller-runtime.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Generic

from kubeshard.workqueue.order import NORMAL, K, Levels, Order
from kubeshard.workqueue.reasons import Reason, Wanted


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
