"""Ready keys by priority.

Guaranteed: of two levels the higher one is served first, but every SHARE-th key handed out while lower ones wait is
one of theirs: an object that triggers itself without end delays them, and starves none. Within a level an
`Order` says who is next; a key that rises goes to the end of its new level.

Bounded: a key that rose is left in the order of its former level, to be passed over, until its turn comes there or
the level is empty. So no order must be able to give up a key from its middle, and an operation costs what the
orders cost.
"""

from __future__ import annotations

from bisect import insort
from collections.abc import Callable, Hashable
from typing import Generic, Protocol, TypeVar

K = TypeVar("K", bound=Hashable)

LOW = -100
"""What can wait for what just happened: the objects that were there at the start, and those of a resync. The number
is controller-runtime's.
"""
NORMAL = 0

SHARE = 20
"""While lower levels wait, one of so many keys is theirs."""

KEPT = 16
"""Levels that are kept for later while they are empty."""


class Order(Protocol[K]):
    """Which of the ready keys of one priority is next. A `collections.deque`, first in and first out, is one; so is
    `RoundRobin`, a turn for each tenant.

    It holds what it is given until it hands it out, and hands out each once: exclusion, collapsing and priorities
    are the queue's, and rest on no more than this. It must not raise: what raises in a worker ends the worker.
    """

    def append(self, key: K, /) -> None:
        """The key is ready. It is not held already."""
        ...

    def popleft(self) -> K:
        """The next key, which is held no longer. Raises IndexError when none is held."""
        ...

    def clear(self) -> None: ...


class _Level(Generic[K]):
    __slots__ = ("gone", "order", "priority", "ready", "served")

    def __init__(self, priority: int, order: Order[K]) -> None:
        self.priority = priority
        self.order = order
        self.gone: set[K] = set()
        """Keys that rose from here and that the order still holds."""
        self.ready = 0
        """Keys of this level; the order holds these and `gone`."""
        self.served = 0
        """Keys handed out while lower levels waited."""


class Levels(Generic[K]):
    """Holds each key once. `order` makes the order of a level."""

    def __init__(self, order: Callable[[], Order[K]]) -> None:
        self._order = order
        self._levels: dict[int, _Level[K]] = {NORMAL: _Level(NORMAL, order())}
        self._waiting: list[_Level[K]] = []
        """Those with ready keys, the highest last."""
        self.ready = 0

    def append(self, key: K, priority: int) -> None:
        level = self._levels.get(priority)
        if level is None:
            level = self._levels[priority] = _Level(priority, self._order())
        if level.gone and key in level.gone:
            level.gone.remove(key)  # and takes its old place
        else:
            level.order.append(key)
        if not level.ready:
            if self._waiting:
                insort(self._waiting, level, key=_priority)
            else:
                self._waiting.append(level)
        level.ready += 1
        self.ready += 1

    def rise(self, key: K, old: int, new: int) -> None:
        """Moves a key that is held to a higher level."""
        self.append(key, new)
        level = self._levels[old]
        level.gone.add(key)
        self.ready -= 1
        level.ready -= 1
        if not level.ready:
            self._emptied(level)

    def popleft(self) -> K:
        """Raises IndexError when none is held."""
        waiting = self._waiting
        level = waiting[-1] if len(waiting) < 2 else self._served()
        key = level.order.popleft()
        while level.gone and key in level.gone:
            level.gone.remove(key)
            key = level.order.popleft()
        self.ready -= 1
        level.ready -= 1
        if not level.ready:
            self._emptied(level)
        return key

    def clear(self) -> None:
        for level in self._levels.values():
            level.order.clear()
            level.gone.clear()
            level.ready = 0
        self._waiting.clear()
        self.ready = 0

    def depths(self) -> dict[int, int]:
        """Ready keys by priority."""
        return {priority: level.ready for priority, level in self._levels.items()}

    def _served(self) -> _Level[K]:
        """Whose turn it is among several levels."""
        lowest = self._waiting[0]
        for level in reversed(self._waiting):
            if level is lowest:
                break
            level.served += 1
            if level.served % SHARE:
                return level
        return lowest

    def _emptied(self, level: _Level[K]) -> None:
        self._waiting.remove(level)
        if level.gone:
            level.gone.clear()
            level.order.clear()
        if len(self._levels) > KEPT and level.priority != NORMAL:
            del self._levels[level.priority]


def _priority(level: _Level[K]) -> int:
    return level.priority
