"""What a controller is here: it maps changes to keys, and reconciles keys when they are due.

`concerned` is called within a write and must be quick: it returns the keys that a change concerns and does nothing
else. `reconcile` handles one key and writes through the verbs of the model, as steps, so the driver decides how
admission webhooks are called. It reads everything from the store and remembers nothing, so an extra reconcile does no
harm.

An agenda guarantees that a key that was added several times is taken once, that keys are taken in the order in which
they were added or by their deadlines, and that none is taken before it is due. Pure: time comes in as a number.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Hashable, Iterable
from heapq import heappop, heappush
from typing import Any, Generic, TypeVar

from kubeshard.core.kinds import GroupResource
from kubeshard_apiserver.controllers.cluster import Cluster
from kubeshard_apiserver.history import Event
from kubeshard_apiserver.steps import Steps

K = TypeVar("K", bound=Hashable)


class Controller(ABC, Generic[K]):
    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster

    @abstractmethod
    def concerned(self, resource: GroupResource, event: Event) -> Iterable[K]:
        """The keys to reconcile because of this change."""

    @abstractmethod
    def reconcile(self, key: K) -> Steps[float | None]:
        """Returns after how many seconds to reconcile again without a change; None for never.

        Raises ApiError if a write was refused; the key is retried later.
        """


AnyController = Controller[Any]


class Agenda(Generic[K]):
    def __init__(self) -> None:
        self._dirty: dict[K, None] = {}
        self._deadlines: dict[K, float] = {}
        # (deadline, number, key); an entry that `_deadlines` does not confirm is void.
        self._heap: list[tuple[float, int, K]] = []
        self._number = 0

    def add(self, key: K) -> None:
        self._dirty[key] = None

    def set_deadline(self, key: K, when: float | None) -> None:
        """An earlier deadline stays: a reconcile that comes too early sets a new one. None: no deadline."""
        if when is None:
            self._deadlines.pop(key, None)
        elif when < self._deadlines.get(key, when + 1):
            self._deadlines[key] = when
            self._number += 1
            heappush(self._heap, (when, self._number, key))

    def take(self, now: float) -> K | None:
        """The next key that is due."""
        if self._dirty:
            key = next(iter(self._dirty))
            del self._dirty[key]
            return key
        deadline = self.next_deadline()
        if deadline is None or deadline > now:
            return None
        _, _, key = heappop(self._heap)
        del self._deadlines[key]
        return key

    def next_deadline(self) -> float | None:
        while self._heap and self._deadlines.get(self._heap[0][2]) != self._heap[0][0]:
            heappop(self._heap)
        return self._heap[0][0] if self._heap else None

    def __bool__(self) -> bool:
        """Whether a key is due now, regardless of deadlines."""
        return bool(self._dirty)
