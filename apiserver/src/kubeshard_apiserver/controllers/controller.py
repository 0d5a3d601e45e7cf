"""The interface of a controller: it maps changes to keys, and reconciles keys when they are due.

`concerned` runs inside a write and must be quick: it returns the keys affected by a change and does nothing else.
`reconcile` handles one key. It writes through the API server's verbs as steps, so the driver decides how admission
webhooks are called. It reads everything from the store and keeps no state that matters, so an extra reconcile is
harmless.

An agenda guarantees that a key added several times is taken once, that keys are taken in the order in which they were
added or by deadline, and that no key is taken before it is due. Pure: the time is passed in as a number.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Hashable, Iterable
from heapq import heappop, heappush
from typing import Any, Generic, TypeVar

from kubeshard.core.kinds import GroupResource
from kubeshard_apiserver.controllers.cluster import ClusterView
from kubeshard_apiserver.history import Event
from kubeshard_apiserver.steps import Steps

K = TypeVar("K", bound=Hashable)


class Controller(ABC, Generic[K]):
    watched: Collection[GroupResource] | None = None
    """The resources of which changes are told; None for all."""

    def __init__(self, cluster: ClusterView) -> None:
        self.cluster = cluster

    @abstractmethod
    def concerned(self, resource: GroupResource, event: Event) -> Iterable[K]:
        """Return the keys to reconcile because of this change."""

    def repeats(self, resource: GroupResource, event: Event) -> bool:
        """Report whether a reconcile that made this change itself has to be repeated because of it."""
        return True

    @abstractmethod
    def reconcile(self, key: K) -> Steps[float | None]:
        """Reconcile the key. Return the seconds after which to reconcile it again even without a change, or None.

        Raises ApiError if a write was refused; the key is then retried.
        """


AnyController = Controller[Any]


class Agenda(Generic[K]):
    def __init__(self) -> None:
        self._dirty: dict[K, None] = {}
        self._deadlines: dict[K, float] = {}
        # (deadline, number, key); an entry that does not match `_deadlines` is stale.
        self._heap: list[tuple[float, int, K]] = []
        self._number = 0

    def add(self, key: K) -> None:
        self._dirty[key] = None

    def set_deadline(self, key: K, when: float | None) -> None:
        """Set a deadline, unless an earlier one is set: a reconcile that runs too early sets a new one anyway. None
        removes the deadline.
        """
        if when is None:
            self._deadlines.pop(key, None)
        elif when < self._deadlines.get(key, when + 1):
            self._deadlines[key] = when
            self._number += 1
            heappush(self._heap, (when, self._number, key))

    def take(self, now: float) -> K | None:
        """Return the next key that is due, or None."""
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
        """Report whether a key is due now, regardless of deadlines."""
        return bool(self._dirty)
