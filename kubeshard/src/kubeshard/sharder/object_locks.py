"""One write of an object at a time: rings that share a resource write the same objects, one after the other.

Each write of one ring makes outdated what the jobs of the others have read. If all write at once, all but one are
refused, read again, and meet again: requests grow with the square of the rings. So a job waits for the object's lock,
and goes on from what the write before it returned.

Guaranteed: in this process one write of an object at a time, in the order of the jobs; who holds the lock sees the
newest state that any waiting job has read, or a write has returned. A lock is held for one request, and for another one
to read the object if it had changed: not for a whole job, which may wait for a throttling server or for a proof.
Memory: only objects that are written right now. Not guaranteed: anything about other processes; every write is a
compare-and-swap.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Hashable
from typing import NamedTuple

from kubeshard.core.objects import ObjectMeta
from kubeshard.core.versions import compare


class Known(NamedTuple):
    """A state of an object, and when (monotonic) it was read at the latest."""

    meta: ObjectMeta
    read: float

    def newer_than(self, meta: ObjectMeta) -> bool:
        return compare(self.meta.resource_version, meta.resource_version) > 0


class ObjectLock:
    """The lock of one object."""

    __slots__ = ("_queue", "_waiting", "known")

    def __init__(self, known: Known) -> None:
        self.known = known
        """The newest state. Set it after each write and each read under the lock: after a restore it may be older."""
        self._queue: deque[tuple[Hashable, asyncio.Future[None]]] | None = None  # most objects never have one
        self._waiting: set[Hashable] | None = None

    @property
    def awaited(self) -> bool:
        """Whether another job waits for it."""
        return bool(self._queue)

    def waits(self, who: Hashable) -> bool:
        """Whether such a job waits for it. It will go on from what is `known` then: another one is needless."""
        return self._waiting is not None and who in self._waiting

    def learn(self, known: Known) -> None:
        """A job has read this state."""
        if known.newer_than(self.known.meta):
            self.known = known

    def _enter(self, who: Hashable) -> asyncio.Future[None]:
        """The future is done when the lock is held."""
        if self._queue is None or self._waiting is None:
            self._queue, self._waiting = deque(), set()
        future = asyncio.get_running_loop().create_future()
        self._queue.append((who, future))
        self._waiting.add(who)
        return future

    def _pass_on(self) -> bool:
        """Whether there is a next one, which holds the lock now."""
        while self._queue and self._waiting is not None:
            who, future = self._queue.popleft()
            self._waiting.discard(who)
            if not future.done():  # else it was cancelled
                future.set_result(None)
                return True
        return False


class ObjectLocks:
    """The locks at all objects. `place` is an object, `who` a ring and what else distinguishes its jobs.

    Most objects are written by one job at a time. For that one there is no `ObjectLock`, only what it has read; the
    next one that comes makes the lock.
    """

    def __init__(self) -> None:
        self._locks: dict[Hashable, ObjectLock | tuple[ObjectMeta, float]] = {}

    def take(self, place: Hashable, meta: ObjectMeta, read: float) -> bool:
        """Takes the lock, if nobody has it; returns whether it did. The job has read this state then."""
        if place in self._locks:
            return False
        self._locks[place] = meta, read
        return True

    def get(self, place: Hashable) -> ObjectLock | None:
        """The lock of an object that is being written, and for which another job has come."""
        lock = self._locks.get(place)
        return lock if lock.__class__ is ObjectLock else None

    async def wait(self, place: Hashable, who: Hashable, known: Known) -> ObjectLock:
        """Takes the lock when those before have left. `known`: the state that the job has read."""
        lock = self._locks.get(place)
        if lock is None:
            lock = self._locks[place] = ObjectLock(known)
            return lock
        if not isinstance(lock, ObjectLock):
            lock = self._locks[place] = ObjectLock(Known(*lock))
        lock.learn(known)
        future = lock._enter(who)
        try:
            await future
        except asyncio.CancelledError:
            if not future.cancelled():  # it held the lock
                self.leave(place)
            raise
        return lock

    def leave(self, place: Hashable) -> None:
        """Gives the lock to the next one."""
        lock = self._locks[place]
        if not (isinstance(lock, ObjectLock) and lock._pass_on()):
            del self._locks[place]
