"""Retries for single objects: a rejected patch is retried later, on its own.

Guaranteed: after a rejected patch (an admission policy, another webhook, a brownout) the object is read and
decided on again after 1 s, doubled up to a minute, or after the server's Retry-After, without affecting others;
no old state of the ring is kept. A minute, because the end of a rejection is not announced (a brownout is over, a
policy was changed), and until then no shard works on the object, or its next shard waits for it. Limited: at most
`REMEMBERED` objects of a lane, which is 17 requests per second if all fail forever; the next full look retries more.
"""

from __future__ import annotations

import asyncio
from typing import NamedTuple

from kubeshard.core.errors import ApiError
from kubeshard.core.kinds import Kind
from kubeshard.core.objects import Key
from kubeshard.runtime.clock import Clock
from kubeshard.runtime.rng import Rng
from kubeshard.sharder.moves import Job, Mover, Outcome
from kubeshard.workqueue.limits import ItemExponential
from kubeshard.workqueue.queue import WorkQueue

REMEMBERED = 1000
WORKERS = 5
LONGEST, JITTER = 60.0, 0.2


class _Place(NamedTuple):
    kind: Kind
    key: Key


class Repairs:
    """Retries for one resource of a ring. `add` takes a rejected job; `run` retries it."""

    def __init__(self, clock: Clock, rng: Rng) -> None:
        self._clock = clock
        self._limiter = ItemExponential(1.0, LONGEST / (1 + JITTER), jitter=JITTER, rng=rng)
        self._queue: WorkQueue[_Place] | None = None
        self._jobs: dict[_Place, Job] = {}
        self._needed = asyncio.Event()
        """Most lanes never have anything to retry: the workers start with the first rejection."""

    def add(self, job: Job, error: Exception) -> None:
        place = _Place(job.kind, job.key)
        if self._queue is None or (place not in self._jobs and len(self._jobs) >= REMEMBERED):
            return
        self._jobs[place] = job
        retry_after = error.retry_after if isinstance(error, ApiError) else None
        self._needed.set()
        self._queue.add_after(place, max(self._limiter.when(place), retry_after or 0.0))

    async def run(self, mover: Mover) -> None:
        """Runs until cancelled."""
        self._queue = WorkQueue("sharder-repairs", clock=self._clock, limiter=self._limiter)
        for place in self._jobs:  # of a run that crashed
            self._queue.add_after(place, self._limiter.when(place))
        try:
            await self._needed.wait()
            async with asyncio.TaskGroup() as group:
                for _ in range(WORKERS):
                    group.create_task(self._work(mover, self._queue), name="repairs")
        finally:
            self._queue = None

    async def _work(self, mover: Mover, queue: WorkQueue[_Place]) -> None:
        while True:
            async with queue.get() as place:
                job = self._jobs.get(place)
                # A failure returns through `add`.
                if job is not None and await mover.carry_out(job, again=True) is not Outcome.FAILED:
                    self._done(place)

    def _done(self, place: _Place) -> None:
        self._jobs.pop(place, None)
        self._limiter.forget(place)
