"""Whose turn it is to write an object: rings that share a resource write the same objects, one after the other.

Each write of one ring makes outdated what the jobs of the others have read. If all write at once, all but one are
refused, read again, and meet again: requests grow with the square of the rings. So a job waits for its turn, and goes
on from what the write before it returned.

Guaranteed: in this process one write of an object at a time, in the order of the jobs; who has the turn sees the newest
state that any waiting job has read, or a write has returned. A turn lasts for one request, and for another one to read
the object if it had changed: not for a whole job, which may wait for a throttling server or for a proof. Memory: only
objects that are written right now. Not guaranteed: anything about other processes; every write is a compare-and-swap.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Hashable
from contextlib import AbstractAsyncContextManager
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
    """The turn at one object."""

    __slots__ = ("_queue", "_waiting", "known")

    def __init__(self, known: Known) -> None:
        self.known = known
        """The newest state. Set it after each write, and each read in the turn: after a restore that may be older."""
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
        """The future is done when the turn has come."""
        if self._queue is None or self._waiting is None:
            self._queue, self._waiting = deque(), set()
        future = asyncio.get_running_loop().create_future()
        self._queue.append((who, future))
        self._waiting.add(who)
        return future

    def _pass_on(self) -> bool:
        """Whether there is a next one, whose turn it is now."""
        while self._queue and self._waiting is not None:
            who, future = self._queue.popleft()
            self._waiting.discard(who)
            if not future.done():  # else it was cancelled
                future.set_result(None)
                return True
        return False


class _At:
    """See `ObjectLocks.at`. Not a generator: it is entered for every write."""

    __slots__ = ("_known", "_place", "_turns", "_who")

    def __init__(
        self, turns: dict[Hashable, ObjectLock], place: Hashable, who: Hashable, known: Known
    ) -> None:
        self._turns = turns
        self._place = place
        self._who = who
        self._known = known

    async def __aenter__(self) -> ObjectLock:
        turn = self._turns.get(self._place)
        if turn is None:
            turn = self._turns[self._place] = ObjectLock(self._known)
            return turn
        turn.learn(self._known)
        future = turn._enter(self._who)
        try:
            await future
        except asyncio.CancelledError:
            if not future.cancelled():  # the turn had come
                self._leave(turn)
            raise
        return turn

    async def __aexit__(self, *_: object) -> None:
        self._leave(self._turns[self._place])

    def _leave(self, turn: ObjectLock) -> None:
        if not turn._pass_on():
            del self._turns[self._place]


class ObjectLocks:
    """The turns at all objects. `place` is an object, `who` a ring and what else distinguishes its jobs."""

    def __init__(self) -> None:
        self._turns: dict[Hashable, ObjectLock] = {}

    def of(self, place: Hashable) -> ObjectLock | None:
        """The turn at an object that is being written."""
        return self._turns.get(place)

    def at(self, place: Hashable, who: Hashable, known: Known) -> AbstractAsyncContextManager[ObjectLock]:
        """The block has the turn. `known`: the state that the job has read."""
        return _At(self._turns, place, who, known)
