"""Objects of a sync that lost their shard a moment ago, and who assigns them when.

The object does not show whether its shard released it or a user removed the label while the shard works on it. In the
second case the shard takes it back (`kubeshard.shard.taking_back`), which takes it a fraction of a second. So an
object that is not new is assigned only after a pause.

Guaranteed: at most `MANY` are remembered; the caller assigns others at once. Not guaranteed: the pause for objects that
a scan finds before the watch shows them, and, if this machine's clock is behind the API server's, for objects that are
hardly older than the difference.
"""

from __future__ import annotations

import asyncio
from typing import Generic, TypeVar

from kubeshard.core.objects import Key, ObjectMeta
from kubeshard.core.times import parse_time
from kubeshard.runtime.clock import Clock

J = TypeVar("J")

ASSIGNMENT_DELAY = 1.0
"""Seconds without a shard before an object gets another one."""
NEW = 3.0
"""Younger objects (seconds) never had a shard. Creation times are rounded down to seconds."""
MANY = 5000


class DelayedAssignments(Generic[J]):
    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._jobs: dict[Key, tuple[float, J]] = {}
        """When each is due, the earliest first."""
        self._news = asyncio.Event()
        self.attended = False
        """Whether somebody calls `next_due`."""

    def __contains__(self, key: Key) -> bool:
        return key in self._jobs

    def waits(self, key: Key, meta: ObjectMeta) -> bool:
        """Whether an unassigned object has to wait."""
        created = parse_time(meta.creation_timestamp)
        new = created is None or self._clock.wall() - created < NEW
        return not new and (key in self._jobs or len(self._jobs) < MANY)

    def put(self, key: Key, job: J) -> None:
        """Later states of an object do not make it wait longer."""
        due, _ = self._jobs.get(key, (self._clock.monotonic() + ASSIGNMENT_DELAY, job))
        self._jobs[key] = due, job
        self._news.set()

    def drop(self, key: Key) -> None:
        """The object has a shard again, or is gone."""
        self._jobs.pop(key, None)

    async def next_due(self) -> J:
        """Removes a job when it is due."""
        while True:
            while not self._jobs:
                self._news.clear()
                await self._news.wait()
            key, (due, _) = next(iter(self._jobs.items()))
            wait = due - self._clock.monotonic()
            if wait <= 0:
                return self._jobs.pop(key)[1]
            await asyncio.sleep(wait)
