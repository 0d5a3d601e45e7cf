"""Retries for single objects: a rejected patch is retried later, on its own.

Guaranteed: after a rejected patch (an admission policy, another webhook, a brownout) the object is read and
decided on again after 1, 2, 4, 8, 10, 10 ... s, or after the server's Retry-After (a minute at most), without affecting
others; no old state of the ring is kept. Ten seconds, because the end of a rejection is not announced (a brownout is
over, a policy was changed), and until then no shard works on the object, or its next shard waits for it.

Limited: over all syncs, retries that fail are at most `FAILURES` per second, so more than ten times as many objects
are retried less often each, until one of a sync succeeds: then all of the sync are, because the cause may be gone for
all. A sync remembers at most `REMEMBERED` objects. If more fail, it is scanned again when one of these succeeds, and
objects without an available shard also every `MORE_AFTER` seconds.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable
from typing import NamedTuple

from kubeshard.core.errors import ApiError
from kubeshard.core.kinds import Kind
from kubeshard.core.objects import Key
from kubeshard.runtime.clock import Clock
from kubeshard.runtime.rng import Rng
from kubeshard.sharder.moves import Job, Mover, MoveResult
from kubeshard.sharder.resource_sync import ResourceSync
from kubeshard.sharding.planner import Action
from kubeshard.sharding.scans import ScanScope
from kubeshard.workqueue.limits import ItemExponential, Limiter, MaxOf, OverallRate
from kubeshard.workqueue.queue import WorkQueue

REMEMBERED = 1000
WORKERS = 5
LONGEST, JITTER = 10.0, 0.2
FAILURES = 100.0
LONGEST_RETRY_AFTER = 60.0
MORE_AFTER = 30.0
TOGETHER = 10.0
"""Seconds between two times at which a success leads to the retry of all."""


class _Place(NamedTuple):
    kind: Kind
    key: Key


class Retries:
    """Retries of all resources. `add` takes a rejected job; `run` retries those of one resource."""

    def __init__(self, clock: Clock, rng: Rng) -> None:
        self._clock = clock
        self._rng = rng
        self._failures = OverallRate(FAILURES, burst=round(FAILURES), clock=clock)
        self._of: dict[ResourceSync, _ResourceRetries] = {}

    def add(self, job: Job, error: Exception) -> None:
        sync = job.sync.resources.get(job.entry.resource)
        if sync is not None and (retries := self._of.get(sync)) is not None:
            retries.add(job, error)

    async def run(self, sync: ResourceSync, mover: Mover) -> None:
        """Runs until cancelled."""
        if (retries := self._of.get(sync)) is None:
            own = ItemExponential(1.0, LONGEST / (1 + JITTER), jitter=JITTER, rng=self._rng)
            limiter = MaxOf(own, self._failures)
            retries = self._of[sync] = _ResourceRetries(self._clock, limiter, sync.request)
        try:
            await retries.run(mover)
        finally:
            if not sync.open:  # else this crashed, and starts again
                del self._of[sync]


class _ResourceRetries:
    """Retries for one resource of a ring. `scan` requests a scan at a time, of objects that were not remembered."""

    def __init__(self, clock: Clock, limiter: Limiter, scan: Callable[[ScanScope, float], None]) -> None:
        self._clock = clock
        self._scan = scan
        self._limiter = limiter
        self._queue: WorkQueue[_Place] | None = None
        self._running = False
        self._jobs: dict[_Place, Job] = {}
        self._needed = asyncio.Event()
        """Most syncs never have anything to retry: the queue and its workers start with the first rejection."""
        self._more: dict[ScanScope, float] = {}
        """When the scans were requested for that will find the objects that were not remembered."""
        self._woken = float("-inf")

    def add(self, job: Job, error: Exception) -> None:
        place = _Place(job.kind, job.key)
        if not self._running:
            return
        if place not in self._jobs and len(self._jobs) >= REMEMBERED:
            self._ask_for_more(
                ScanScope.ALL if job.decision.source in job.sync.ring.available else ScanScope.MISPLACED
            )
            return
        self._jobs[place] = job
        retry_after = error.retry_after if isinstance(error, ApiError) else None
        self._begun().add_after(
            place, max(self._limiter.when(place), min(retry_after or 0.0, LONGEST_RETRY_AFTER))
        )
        self._needed.set()

    def _begun(self) -> WorkQueue[_Place]:
        if self._queue is None:
            self._queue = WorkQueue("sharder-retries", clock=self._clock, limiter=self._limiter)
        return self._queue

    def _ask_for_more(self, scope: ScanScope) -> None:
        now = self._clock.monotonic()
        if self._more.get(scope, now) <= now:
            self._more[scope] = at = now + MORE_AFTER if scope is ScanScope.MISPLACED else math.inf
            if at < math.inf:  # a scan of all is too expensive to be tried in vain
                self._scan(scope, at)

    async def run(self, mover: Mover) -> None:
        """Runs until cancelled."""
        self._running = True
        for place in self._jobs:  # of a run that crashed
            self._begun().add_after(place, self._limiter.when(place))
        try:
            await self._needed.wait()
            async with asyncio.TaskGroup() as group:
                for _ in range(WORKERS):
                    group.create_task(self._work(mover, self._begun()), name="retries")
        finally:
            self._running, self._queue = False, None

    async def _work(self, mover: Mover, queue: WorkQueue[_Place]) -> None:
        while True:
            async with queue.get() as place:
                job = self._jobs.get(place)
                if job is None:
                    continue
                outcome = await mover.carry_out(job, again=True)
                if outcome is not MoveResult.FAILED:  # a failure returned through `add`
                    self._done(place)
                    job.sync.ended(job.entry.resource, job.key)
                    if job.decision.action is Action.DRAIN:
                        # What seemed to fail may have taken effect late: the drain is followed until a scan finds it
                        # gone. Else what waits for its end would wait for the next scan of everything.
                        job.sync.drained(job.entry.resource, job.decision)
                if outcome in (MoveResult.MOVED, MoveResult.DRAINED):
                    self._succeeded(queue)

    def _succeeded(self, queue: WorkQueue[_Place]) -> None:
        now, may = self._clock.monotonic(), self._woken + TOGETHER
        for scope in self._more:
            self._scan(scope, max(now, may))
        self._more.clear()
        if now >= may:
            self._woken = now
            for place in self._jobs:
                queue.add(place)

    def _done(self, place: _Place) -> None:
        self._jobs.pop(place, None)
        self._limiter.forget(place)
