"""Changes of a store, as handlers see them.

Guaranteed per key: the deltas passed to one handler, applied in order, always give the store's content; there is
no `Added` for a key that exists, and no `Updated` or `Deleted` for one that does not. Not guaranteed: every
intermediate state (the API server does not guarantee it either), any order between keys or kinds.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, TypeVar

import msgspec

from kubeshard.core.objects import KubeObject

T = TypeVar("T", bound=KubeObject)
T_co = TypeVar("T_co", bound=KubeObject, covariant=True)


class Added(msgspec.Struct, Generic[T_co], frozen=True, gc=False):
    """The object entered the cache. `initial`: it existed before, and the cache has just been filled, or the handler
    has just been added.
    """

    object: T_co
    initial: bool = False


class Updated(msgspec.Struct, Generic[T_co], frozen=True, gc=False):
    """The same object (same UID) at another resourceVersion: a later one, unless the API server was restored from
    a backup.

    `relisted`: it was found by a full list. Then the two may be of different histories, in which equal versions and
    generations mean nothing: compare contents, or take the object for a new one. After a restore that was noticed,
    every object is reported so, even one that is the same as before: what was written because of it may be undone.
    """

    old: T_co
    new: T_co
    relisted: bool = False


class Deleted(msgspec.Struct, Generic[T_co], frozen=True, gc=False):
    """The object left this cache. **It may still exist**: no longer matching the selector looks the same as being
    deleted.

    `object` is the last known state. `final` True: the state with which it left (its resourceVersion is that
    of the deletion, or of the write that moved it out). False, a tombstone: it was found missing, replaced by
    an object with another UID, or unreadable; the state is the last one seen before and may be old.
    """

    object: T_co
    final: bool = True


Delta = Added[T_co] | Updated[T_co] | Deleted[T_co]


def current(delta: Delta[T]) -> T:
    """The object after the delta; for a deletion, its last known state."""
    return delta.new if isinstance(delta, Updated) else delta.object


def narrowed(delta: Delta[T], only: Callable[[T], bool]) -> Delta[T] | None:
    """The delta for a handler that only sees objects that pass the test: one that starts to pass is added, one that no
    longer passes is deleted. None: nothing to report.
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
