"""The work queue as a pure state machine: which keys want processing, and which are being processed.

Guaranteed:

- Fair: keys are handed out in the order in which they were first added, unless another `Order` is given.
- Stingy: a key added many times before it is handed out is processed once.
- Exclusive: a key is handed out to one worker at a time.
- Nothing is lost: a key added while it is processed is processed again, after it is done.

| state | add | take | done |
|---|---|---|---|
| `IDLE` | → `QUEUED`, at the tail | - | - |
| `QUEUED` | stays where it is | → `RUNNING` | - |
| `RUNNING` | → `RUNNING_DIRTY` | - | → `IDLE` |
| `RUNNING_DIRTY` | stays | - | → `QUEUED`, at the tail |

After `close` adds are ignored; what was added before is still handed out, unless it is discarded.

Not here: waiting, delays, limits, time (`queue`, `delays`, `limits`, `metrics`). After client-go's
`util/workqueue`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable
from enum import Enum, auto
from typing import Generic, Protocol, TypeVar

K = TypeVar("K", bound=Hashable)


class KeyState(Enum):
    IDLE = auto()
    """Unknown to the queue."""
    QUEUED = auto()
    """Waits for a worker."""
    RUNNING = auto()
    """A worker has it."""
    RUNNING_DIRTY = auto()
    """A worker has it, and it was added since."""


class Order(Protocol[K]):
    """Which of the keys that are ready is next. A `collections.deque`, first in and first out, is one; so may be a heap
    with priorities, or a turn for each namespace. It holds what it is given until it hands it out, and hands out each
    once: exclusion and collapsing are the queue's, and rest on no more than this.
    """

    def append(self, key: K, /) -> None:
        """The key is ready. It is not held already."""
        ...

    def popleft(self) -> K:
        """The next key, which is held no longer. Raises IndexError when none is held."""
        ...

    def clear(self) -> None: ...

    def __len__(self) -> int: ...


class QueueCore(Generic[K]):
    """The queue's state. Every method is one step; none blocks."""

    def __init__(self, order: Order[K] | None = None) -> None:
        self._dirty: set[K] = set()
        """Keys that want processing."""
        self._running: set[K] = set()
        """Keys handed out and not yet done."""
        self._order: Order[K] = deque() if order is None else order
        """Exactly the dirty keys that are not running, each once."""
        self._closed = False

    def add(self, key: K) -> bool:
        """Whether this made the key want processing; False when it did already, or when the queue is
        closed.
        """
        if self._closed or key in self._dirty:
            return False
        self._dirty.add(key)
        if key not in self._running:
            self._order.append(key)
        return True

    def take(self) -> K:
        """Hands out the next key. Raises IndexError when none waits."""
        key = self._order.popleft()
        self._dirty.remove(key)
        self._running.add(key)
        return key

    def done(self, key: K) -> bool:
        """Ends the processing of a key; whether it is queued again. Raises KeyError for a key that is not
        running.
        """
        self._running.remove(key)
        if key not in self._dirty:
            return False
        self._order.append(key)
        return True

    def close(self) -> None:
        self._closed = True

    def discard(self) -> list[K]:
        """Forgets all keys that want processing, and returns them. Those that are running stay so until they
        are done.
        """
        dropped = list(self._dirty)
        self._dirty.clear()
        self._order.clear()
        return dropped

    def state(self, key: K) -> KeyState:
        if key in self._running:
            return KeyState.RUNNING_DIRTY if key in self._dirty else KeyState.RUNNING
        return KeyState.QUEUED if key in self._dirty else KeyState.IDLE

    @property
    def closed(self) -> bool:
        return self._closed

    @property
    def ready(self) -> int:
        """Keys that a worker could take now."""
        return len(self._order)

    @property
    def depth(self) -> int:
        """Keys that want processing: the ready ones, and those that will be ready when their run is done."""
        return len(self._dirty)

    @property
    def running(self) -> int:
        return len(self._running)
