"""The rings by ranges of a sharder service, with the annotation `DELIVERY_ANNOTATION`: each is coordinated as inside an
operator (`range_coordinator`), while this process leads. What the coordinator finds wrong is in the ring's conditions.

Guaranteed: a ring that cannot be coordinated, or crashes, holds up no other. Nobody writes labels for such a ring, nor
does it have a webhook: whoever does that asks `Ring.by_ranges`.

RBAC: that of `range_coordinator`.
"""

from __future__ import annotations

import asyncio
from functools import partial
from typing import NamedTuple

from kubeshard.cache.cache import Cache
from kubeshard.client.client import Client
from kubeshard.sharder.lease_observer import LeaseObserver
from kubeshard.sharder.range_coordinator import RangeDelivery
from kubeshard.sharder.rings import Rings
from kubeshard.sharder.tasks import Crashes, supervised
from kubeshard.sharding.api import SharedRanges
from kubeshard.sharding.ring import Ring

_PART = "ranges"


class _Coordinated(NamedTuple):
    ring: Ring
    ranges: SharedRanges
    task: asyncio.Task[None]


class RangeRings:
    """For one term. `client` writes only while this process leads."""

    def __init__(self, rings: Rings, observer: LeaseObserver, client: Client, sync_period: float) -> None:
        self._rings = rings
        self._observer = observer
        self._client = client
        self._sync_period = sync_period
        self._coordinated: dict[str, _Coordinated] = {}

    async def run(self) -> None:
        """Runs until cancelled."""
        news = asyncio.Event()
        with self._rings.subscribed(lambda _: news.set()):
            async with asyncio.TaskGroup() as tasks:
                while True:
                    news.clear()
                    self._adjust(tasks)
                    await news.wait()

    def _adjust(self, tasks: asyncio.TaskGroup) -> None:
        wanted = {(ring.name, ring, ring.ranges) for ring in self._rings if not ring.releasing}
        for name, (ring, ranges, task) in tuple(self._coordinated.items()):
            if (name, ring, ranges) not in wanted:
                task.cancel()
                del self._coordinated[name]
        for name, ring, stated in wanted:
            if stated is not None and name not in self._coordinated:
                work = partial(self._coordinate, ring, stated)
                crashes = Crashes(ring.crashed, self._client.clock, ring=name)
                task = tasks.create_task(supervised(work, _PART, crashes), name=f"ranges of {name}")
                self._coordinated[name] = _Coordinated(ring, stated, task)

    async def _coordinate(self, ring: Ring, ranges: SharedRanges) -> None:
        """The cache ends with it, as the ring may."""
        buckets, namespace = ranges
        cache, client = Cache(self._client), self._client
        delivery = RangeDelivery(ring.name, buckets, namespace, client, cache, self._sync_period)
        async with cache.running(), delivery.ready(self._rings):
            await delivery.assigning(self._rings, self._observer, client, client, first=False).run()
