"""When which key is to be looked at.

Guaranteed: a key that was added several times is taken once; keys come in the order in which they were added,
those with a deadline in the order of their deadlines; nothing is said about a key while it is not due. Pure:
time comes in as a number.
"""

from __future__ import annotations

from collections.abc import Hashable
from heapq import heappop, heappush
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)


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
        """An earlier deadline stays: whoever takes the key too early says again when. None: no deadline."""
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
        """Whether a key is due whatever the time."""
        return bool(self._dirty)
