"""The pending deltas of a slow handler: for each object, the minimum that brings the handler up to date.

    waiting            then comes   waits from now on
    -----------------  -----------  ------------------------------------------------
    nothing            any delta    that delta
    Added              Updated      Added, of the new state
    Added              Deleted      nothing: the handler never knew of the object
    Updated            Updated      Updated, from the state that the handler knows
    Updated            Deleted      Deleted
    Deleted            Added        Deleted, then Added: it may be a different object
    Deleted, Added     Updated      Deleted, then Added of the new state
    Deleted, Added     Deleted      the first Deleted

Guaranteed per object: the deltas taken keep the guarantees of `deltas`, and end with the newest state. Objects are
taken in the order in which they started to wait. Bounded: two deltas for each object that the handler knows or will
know, however slow it is. Not guaranteed: intermediate states, objects that were created and deleted while the handler
was busy, order between objects.
"""

from __future__ import annotations

from typing import Generic, TypeVar

from kubeshard.cache.deltas import Added, Deleted, Delta, Updated, current
from kubeshard.core.objects import Key, KubeObject

T = TypeVar("T", bound=KubeObject)


class Backlog(Generic[T]):
    """Sans-IO. A `mark` is a point in time; `passed` returns whether everything that was waiting then has
    been taken.
    """

    def __init__(self) -> None:
        self._waiting: dict[Key, tuple[int, tuple[Delta[T], ...]]] = {}
        """The deltas by object, in the order in which the objects started to wait; never empty."""
        self._begun = 0

    def __len__(self) -> int:
        """The number of waiting objects."""
        return len(self._waiting)

    def add(self, delta: Delta[T]) -> None:
        key = current(delta).key
        since, deltas = self._waiting.get(key, (self._begun + 1, ()))
        if collapsed := _collapsed(deltas, delta):
            self._waiting[key] = since, collapsed
            self._begun = max(self._begun, since)
        else:
            del self._waiting[key]

    def take(self) -> tuple[Delta[T], ...]:
        """The deltas of the object that has waited longest; empty if none waits."""
        oldest = next(iter(self._waiting), None)
        return () if oldest is None else self._waiting.pop(oldest)[1]

    def clear(self) -> None:
        self._waiting.clear()

    @property
    def mark(self) -> int:
        """Marks the current point in time."""
        return self._begun

    def passed(self, mark: int) -> bool:
        since, _ = next(iter(self._waiting.values()), (mark + 1, ()))
        return since > mark


def _collapsed(waiting: tuple[Delta[T], ...], new: Delta[T]) -> tuple[Delta[T], ...]:
    if not waiting:
        return (new,)
    *before, last = waiting
    match last, new:
        case Added(_, initial), Updated(_, obj):
            return (*before, Added(obj, initial))
        case Added(), Deleted():
            return tuple(before)
        case Updated(old, _, relisted), Updated(_, obj, again):
            return (Updated(old, obj, relisted or again),)
        case Updated(), Deleted():
            return (new,)
        case _:  # Deleted, Added
            return (*waiting, new)
