"""What changed in a store, as handlers see it.

Guaranteed per key: the deltas told to one handler, applied in order, always give the store's content; an
`Added` is never told for a key that is there, an `Updated` or `Deleted` never for one that is not. Not
guaranteed: every state in between (the API server itself does not), any order between keys or kinds.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, TypeVar

import msgspec

from kubeshard.core.objects import KubeObject

T = TypeVar("T", bound=KubeObject)
T_co = TypeVar("T_co", bound=KubeObject, covariant=True)


class Added(msgspec.Struct, Generic[T_co], frozen=True, gc=False):
    """The object entered the cache. `initial`: it was there before the handler could know, because the cache
    has just been filled or the handler has just been added.
    """

    object: T_co
    initial: bool = False


class Updated(msgspec.Struct, Generic[T_co], frozen=True, gc=False):
    """The same object (same UID) at another resourceVersion: a later one, unless the API server was restored from
    a backup.
    """

    old: T_co
    new: T_co


class Deleted(msgspec.Struct, Generic[T_co], frozen=True, gc=False):
    """The object left this cache. **It may still exist**: leaving the selector looks the same as being
    deleted.

    `object` is the last known state. `final` True: the state with which it left (its resourceVersion is that
    of the deletion, or of the write that moved it out). False, a tombstone: it was found missing, replaced by
    an object with another UID, or unreadable; the state is the last one seen before and may be old.
    """

    object: T_co
    final: bool = True


Delta = Added[T_co] | Updated[T_co] | Deleted[T_co]


def current(delta: Delta[T]) -> T:
    """The object as the delta leaves it; of a deletion its last known state."""
    return delta.new if isinstance(delta, Updated) else delta.object


def narrowed(delta: Delta[T], only: Callable[[T], bool]) -> Delta[T] | None:
    """The delta for somebody for whom there are only objects that pass the test: one that comes to pass it is added,
    one that no longer does is deleted. None: nothing happened for them.
    """
    if not isinstance(delta, Updated):
        return delta if only(delta.object) else None
    match only(delta.old), only(delta.new):
        case True, True:
            return delta
        case True, False:
            return Deleted(delta.new)
        case False, True:
            return Added(delta.new)
        case _:
            return None
