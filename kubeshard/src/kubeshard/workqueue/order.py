"""Ready keys by priority.

Guaranteed: higher levels are served first, but while lower levels wait, every SHARE-th key is one of theirs: an object
that triggers itself endlessly delays them, but does not starve them. Within a level an `Order` decides which key is
next; a key that rises goes to the end of its new level.

Bounded: a key that rose remains in the order of its former level, and is skipped when its turn comes there or the level
is empty. So an order need not support removal from the middle, and an operation costs what the orders cost.

`RoundRobin` is an order that serves tenants in turn: those that have ready keys get one key a turn, each tenant's keys
in the order in which they were added. A new tenant joins at the end of the round; an idle one accumulates no turns. So
a tenant's first key waits for at most one key of each other tenant, however many those have. Its operations are O(1).
Not guaranteed: fairness in time. A tenant whose keys take long gets as many turns as the others.
"""

from __future__ import annotations

from bisect import insort
from collections import deque
from collections.abc import Callable, Hashable
from operator import attrgetter
from typing import Generic, Protocol, TypeVar

from kubeshard.runtime.logs import get_logger
from kubeshard.runtime.notices import Notices

K = TypeVar("K", bound=Hashable)

LOW = -100
"""Below recent changes: objects of the initial list and of a resync. controller-runtime's number."""
NORMAL = 0

SHARE = 20
"""While lower levels wait, one of this many keys is theirs."""

KEPT = 16
"""Empty levels that are kept for reuse."""


class Order(Protocol[K]):
    """Decides which of the ready keys of one priority is next. A `collections.deque` (first in, first out) is one; so
    is `RoundRobin`, which takes turns between tenants.

    It keeps each key until it returns it, and returns each once: exclusion, collapsing and priorities are up to the
    queue, and depend only on this. It must not raise: an exception in a worker ends the worker.
    """

    def append(self, key: K, /) -> None:
        """Adds a ready key, which is not in the order already."""
        ...

    def popleft(self) -> K:
        """Removes and returns the next key. Raises IndexError if there is none."""
        ...

    def clear(self) -> None: ...


class _Level(Generic[K]):
    __slots__ = ("gone", "order", "priority", "ready", "served")

    def __init__(self, priority: int, order: Order[K]) -> None:
        self.priority = priority
        self.order = order
        self.gone: set[K] = set()
        """Keys that rose from here and that the order still contains."""
        self.ready = 0
        """Keys of this level; the order contains these and `gone`."""
        self.served = 0
        """Keys handed out while lower levels waited."""


class Levels(Generic[K]):
    """Contains each key once. `order` creates the order of a level."""

    def __init__(self, order: Callable[[], Order[K]]) -> None:
        self._order = order
        self._levels: dict[int, _Level[K]] = {NORMAL: _Level(NORMAL, order())}
        self._waiting: list[_Level[K]] = []
        """The levels with ready keys, the highest last."""
        self.ready = 0

    def append(self, key: K, priority: int) -> None:
        level = self._levels.get(priority)
        if level is None:
            level = self._levels[priority] = _Level(priority, self._order())
        if level.gone and key in level.gone:
            level.gone.remove(key)  # and takes its old position
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
        """Moves a ready key to a higher level."""
        self.append(key, new)
        level = self._levels[old]
        level.gone.add(key)
        self.ready -= 1
        level.ready -= 1
        if not level.ready:
            self._emptied(level)

    def popleft(self) -> K:
        """Raises IndexError if there is no key."""
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
        return {priority: level.ready for priority, level in self._levels.items()}

    def _served(self) -> _Level[K]:
        """The level whose turn it is."""
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


_log = get_logger("kubeshard.workqueue")


class RoundRobin(Generic[K]):
    """An `Order` by `tenant`, of a key: by default its namespace; one tenant for keys for which it raises."""

    def __init__(self, tenant: Callable[[K], Hashable] = attrgetter("namespace")) -> None:
        self._tenant = tenant
        self._turns: deque[tuple[Hashable, K]] = deque()
        """The next key of each tenant that has one, in the order of their turns."""
        self._further: dict[Hashable, deque[K] | None] = {}
        """The keys after that one; None for most tenants, which have none."""
        self._notices = Notices()

    def append(self, key: K, /) -> None:
        try:
            tenant = self._tenant(key)
            first = tenant not in self._further
        except Exception as error:
            self._tell(key, error)
            tenant, first = _NOBODY, _NOBODY not in self._further
        if first:
            self._further[tenant] = None
            self._turns.append((tenant, key))
            return
        further = self._further[tenant]
        if further is None:
            self._further[tenant] = deque((key,))
        else:
            further.append(key)

    def popleft(self) -> K:
        tenant, key = self._turns.popleft()
        further = self._further[tenant]
        if further:
            self._turns.append((tenant, further.popleft()))
        else:
            del self._further[tenant]
        return key

    def clear(self) -> None:
        self._turns.clear()
        self._further.clear()

    def _tell(self, key: K, error: Exception) -> None:
        if self._notices.due("tenant"):
            _log.error(
                "Cannot determine the tenant of a key; such keys share their turns", key=key, error=error
            )


_NOBODY = object()
"""The tenant of keys without one."""
