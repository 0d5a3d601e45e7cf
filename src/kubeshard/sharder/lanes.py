"""Every resource of every ring has a `Lane`, in which its objects are looked at on its `Schedule`.

Isolation: a list that hangs, or a resource that cannot be read, blocks only its own lane, until its deadline.
Other rings, and other resources of the same ring, do not wait for it. In a lane an urgent look (a shard was lost)
does not wait for a running thorough one, which may take minutes; they may run concurrently, because
every change is a compare-and-swap.

There is one ordering rule: a thorough look at a controlled resource follows one at the resources that control
it, so that drains are requested, and known, before decisions on the objects that wait for them. It waits for that
look to end, not to succeed: after a failure drains are unknown, and `owners` blocks moves that depend on them.

Limits on memory and requests: each track of a lane has one page of one list at a time in memory, or of one list for
each of a few namespaces, and `concurrent_moves` patches in flight. At most `AT_ONCE` looks of a track start within
`PATIENCE` seconds, and of one resource at most `OF_A_RESOURCE` within `PATIENCE_WITH_A_RESOURCE`; lanes that failed
their last look have `AT_ONCE_FAILING` separate slots, so that they do not block others. So a start with many rings
is paced: it uses a few connections for each resource, however slow the API server becomes.

Guaranteed: an exception ends only the work that raised it (`supervised`), and a look is retried like after any failure.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from contextlib import nullcontext
from functools import partial

from kubeshard.core.kinds import GroupResource
from kubeshard.runtime.clock import Clock
from kubeshard.runtime.logs import get_logger
from kubeshard.runtime.rng import Rng
from kubeshard.sharder.crew import Places
from kubeshard.sharder.lease_observer import LeaseObserver
from kubeshard.sharder.moves import Mover
from kubeshard.sharder.repairs import Repairs, failures
from kubeshard.sharder.resync import Resync
from kubeshard.sharder.ring import Lane, Ring
from kubeshard.sharder.rings import Rings
from kubeshard.sharder.schedule import Found, Reach, Track, Work
from kubeshard.sharder.unassigned import UnassignedWatches

AT_ONCE, AT_ONCE_FAILING = 20, 5
PATIENCE = 0.5
OF_A_RESOURCE, PATIENCE_WITH_A_RESOURCE = 5, 2.0
SHORTEST_WAIT = 0.01
RINGS_A_TURN = 50
"""Rings whose work ends together when this process does not lead any more."""

_log = get_logger("kubeshard.sharder")


class Lanes:
    """The work in the lanes of all rings: looks, the watch on unassigned objects, and retries. It lasts as long as
    `run` does.
    """

    def __init__(
        self,
        rings: Rings,
        observer: LeaseObserver,
        resync: Resync,
        unassigned: UnassignedWatches,
        mover: Mover,
        *,
        sync_period: float,
        clock: Clock,
        rng: Rng,
    ) -> None:
        self._rings = rings
        self._observer = observer
        self._resync = resync
        self._unassigned = unassigned
        self._mover = mover
        self._sync_period = sync_period
        self._clock = clock
        self._rng = rng
        self._group: asyncio.TaskGroup | None = None
        self._places = {track: Places(AT_ONCE, PATIENCE) for track in Track}
        self._failing = {track: Places(AT_ONCE_FAILING, PATIENCE) for track in Track}
        self._failures = failures(clock)
        self._of_resource = defaultdict[tuple[Track, GroupResource], Places](
            lambda: Places(OF_A_RESOURCE, PATIENCE_WITH_A_RESOURCE)
        )
        self._relisting: asyncio.Task[bool] | None = None
        self._all_outdated = asyncio.Event()

    async def run(self) -> None:
        """Runs until cancelled. Starts with a look at everything."""
        async with asyncio.TaskGroup() as self._group:
            self._group.create_task(self._request_all(), name="looks at everything")
            try:
                for ring in self._rings:
                    self.follow(ring)
                    await asyncio.sleep(0)  # each has several tasks, which now begin
                await asyncio.get_running_loop().create_future()
            finally:  # before the tasks have ended: a task started now would not be cancelled with them
                self._group = self._relisting = None
                for number, ring in enumerate(self._rings, 1):
                    ring.rest()
                    if number % RINGS_A_TURN == 0:
                        await asyncio.sleep(0)

    def look_at_everything(self) -> None:
        """The labels of all objects may be old."""
        self._all_outdated.set()

    async def _request_all(self) -> None:
        while True:
            await self._all_outdated.wait()
            self._all_outdated.clear()
            for ring in self._rings:
                ring.request(Reach.ALL)
                await asyncio.sleep(0)  # each has several tasks, which now wake

    def follow(self, ring: Ring) -> None:
        """Opens a lane for each new resource of the ring. All its objects are looked at."""
        if self._group is None or ring.view is None:
            return
        for entry in ring.resources.entries:
            if entry.resource in ring.lanes:
                continue
            lane = ring.lanes[entry.resource] = Lane(ring, entry, self._sync_period, self._group)
            lane.repairs = Repairs(self._clock, self._rng, self._failures, lane.request)
            for track in Track:
                lane.start(partial(self._keep_looking, lane, track), f"{track.value} look")
            lane.start(partial(self._unassigned.keep_watching, lane), "watch")
            lane.start(partial(lane.repairs.run, self._mover), "repairs")

    async def _keep_looking(self, lane: Lane, track: Track) -> None:
        while True:
            now = self._clock.monotonic()
            lane.schedule.members(lane.ring.available, now)
            if lane.schedule.due(track, now) is None:
                wait = max(lane.schedule.wait(track, now), SHORTEST_WAIT)
                await lane.news(wait if wait < float("inf") else None)
                continue
            if track is Track.THOROUGH:
                await self._turn(lane)
            failing = lane.schedule.failing(track)
            of_resource = self._of_resource[track, lane.entry.resource].taken()
            places = (self._failing if failing else self._places)[track]
            async with nullcontext() if failing else of_resource, places.taken():
                now = self._clock.monotonic()
                if (work := lane.schedule.due(track, now)) is not None:
                    await self._look(lane, track, work, now)

    async def _turn(self, lane: Lane) -> None:
        """Waits for the looks that a thorough one must follow: urgent work in the same lane, and its owners."""
        await lane.passed(Track.URGENT, self._clock)
        for owner in sorted(lane.entry.owners):
            other = lane.ring.lanes.get(owner)
            if other is not None and not other.schedule.failing(Track.THOROUGH):
                now = self._clock.monotonic()
                view = lane.ring.view
                if view is not None and not other.pending.is_known(view.hashring):
                    other.request(
                        Reach.ALL, now
                    )  # otherwise this lane would wait for the next periodic look there
                elif not other.due_soon(Track.THOROUGH, now):
                    other.request(Reach.CONTROLLED, now)
                await other.passed(Track.THOROUGH, self._clock)

    async def _look(self, lane: Lane, track: Track, work: Work, started: float) -> None:
        outcome = Found(failed=True)
        lane.begin(track, started)
        try:
            if await self._up_to_date():
                outcome = await self._resync.look(lane, work.reach)
        finally:
            ended = self._clock.monotonic()
            lane.schedule.done(track, work, outcome, started, ended)
            lane.end(track)
        _log.info(
            "Checked the objects of the ring",
            ring=lane.ring.name,
            resource=lane.entry.resource,
            reach=work.reach.name.lower(),
            reason=work.reason,
            waiting=outcome.waiting,
            failed=outcome.failed,
            seconds=ended - started,
        )

    async def _up_to_date(self) -> bool:
        """Whether the view of the shards' Leases is fresh: they are read if it may not be, once for all callers."""
        if self._observer.fresh() or self._group is None:
            return True
        if self._relisting is None or self._relisting.done():
            self._relisting = self._group.create_task(self._relist(), name="relist")
        return await asyncio.shield(self._relisting)

    async def _relist(self) -> bool:
        try:
            await self._observer.relist()
        except Exception as error:  # the observer meets it too, and logs it once for all lanes
            _log.debug("Cannot list shard Leases", error=error)
            return False
        return True
