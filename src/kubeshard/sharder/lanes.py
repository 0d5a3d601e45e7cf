"""Every resource of every ring has a lane of its own, in which its objects are looked at as its `Schedule` says.

Bulkheads: a list that hangs, or a resource that cannot be read, holds up its own lane only, until its deadline.
Other rings, and other resources of the same ring, do not wait for it. In a lane an urgent look (a shard was lost)
does not wait for a thorough one that is under way, which may take minutes; they may run beside each other, since
every change is a compare-and-swap.

The one order that there is: a thorough look at a controlled resource comes after one at the resources that control
it, so that drains are asked for, and known, before what they hold back is decided on. It waits for that look to
end, not for it to succeed: after a failure nobody knows of drains, and `owners` holds back what must not move.

What bounds memory and requests: each track of a lane has one page of one list at a time in memory, and
`concurrent_moves` patches under way. At most `AT_ONCE` looks of a track begin within `PATIENCE` seconds; those
whose last look failed have `AT_ONCE_FAILING` places of their own, so that they do not stand in the way of others.

Guaranteed: what a look raises ends that look, and it is tried again as after any failure.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

from kubeshard.core.errors import ApiError
from kubeshard.runtime.clock import Clock
from kubeshard.runtime.logs import get_logger
from kubeshard.sharder.lease_observer import LeaseObserver
from kubeshard.sharder.moves import Job
from kubeshard.sharder.places import Places
from kubeshard.sharder.resync import Resync
from kubeshard.sharder.schedule import Outcome, Reach, Schedule, Track, Work
from kubeshard.sharder.views import RingViews
from kubeshard.sharding.classification import RingEntry

AT_ONCE, AT_ONCE_FAILING = 20, 5
PATIENCE = 0.5
SHORTEST_WAIT = 0.01

_log = get_logger("kubeshard.sharder")


class Lane:
    """One resource of one ring."""

    def __init__(self, ring: str, entry: RingEntry, sync_period: float) -> None:
        self.ring = ring
        self.entry = entry
        self.schedule = Schedule(sync_period)
        self.open = True
        """Whether the ring still has the resource."""
        self._busy: set[Track] = set()
        self._ended = dict.fromkeys(Track, 0)
        self._news = asyncio.Event()

    def __str__(self) -> str:
        return f"{self.entry.resource} of {self.ring}"

    def tell(self) -> None:
        """Something has changed: whoever waits for this lane looks again."""
        self._news.set()
        self._news = asyncio.Event()

    async def news(self, within: float | None = None) -> None:
        try:
            async with asyncio.timeout(within):
                await self._news.wait()
        except TimeoutError:
            pass

    def begin(self, track: Track) -> None:
        self._busy.add(track)

    def end(self, track: Track) -> None:
        self._busy.discard(track)
        self._ended[track] += 1
        self.tell()

    def pending(self, track: Track, now: float) -> bool:
        """Whether a look of the track is under way, or about to begin."""
        return self.open and (track in self._busy or self.schedule.due(track, now) is not None)

    async def passed(self, track: Track, clock: Clock) -> None:
        """Waits for the end of the look that is pending, if one is."""
        ended = self._ended[track]
        while self._ended[track] == ended and self.pending(track, clock.monotonic()):
            await self.news()


class Lanes:
    """The lanes of all rings. `run` is the scope in which they live, `follow` says which there should be."""

    def __init__(
        self, resync: Resync, views: RingViews, observer: LeaseObserver, *, sync_period: float, clock: Clock
    ) -> None:
        self._resync = resync
        self._views = views
        self._observer = observer
        self._sync_period = sync_period
        self._clock = clock
        self._group: asyncio.TaskGroup | None = None
        self._lanes: dict[str, dict[RingEntry, Lane]] = {}
        self._tasks: dict[Lane, list[asyncio.Task[None]]] = {}
        self._places = {track: Places(AT_ONCE, PATIENCE) for track in Track}
        self._failing = {track: Places(AT_ONCE_FAILING, PATIENCE) for track in Track}
        self._relisting: asyncio.Task[ApiError | None] | None = None

    async def run(self) -> None:
        """Looks until cancelled. Begins with a look at everything."""
        rings = {ring: tuple(lanes) for ring, lanes in self._lanes.items()}
        self._lanes.clear()
        try:
            async with asyncio.TaskGroup() as self._group:
                for ring, entries in rings.items():
                    self.follow(ring, entries)
                await asyncio.get_running_loop().create_future()
        finally:
            self._group = self._relisting = None
            self._tasks.clear()

    def follow(self, ring: str, entries: Iterable[RingEntry]) -> None:
        """From now on the ring has these resources. Those that are new to it are looked at in full."""
        wanted, lanes = tuple(entries), self._lanes.pop(ring, {})
        for entry, lane in lanes.items():
            if entry not in wanted:
                lane.open = False
                lane.tell()
                for task in self._tasks.pop(lane, ()):
                    task.cancel()
        if wanted:
            self._lanes[ring] = {entry: lanes.get(entry) or self._opened(ring, entry) for entry in wanted}
        self._resync.keep(ring, wanted)

    def request(self, ring: str, reach: Reach) -> None:
        """Something asks for a look at all resources of the ring."""
        now = self._clock.monotonic()
        for lane in self._lanes.get(ring, {}).values():
            lane.schedule.request(reach, now)
            lane.tell()

    def drained(self, job: Job) -> None:
        """An object was asked to be let go: it is looked after, together with what it may control."""
        now, resource = self._clock.monotonic(), job.entry.resource
        self._resync.drained(job)
        for entry, lane in self._lanes.get(job.ring, {}).items():
            if entry.resource == resource or resource in entry.owners:
                lane.schedule.follow(now)
                lane.tell()

    def members_changed(self, ring: str) -> None:
        """The ring's available shards may have changed. To be called at once, also for a shard that comes back soon:
        a look that is under way may have seen the ring without it.
        """
        now = self._clock.monotonic()
        available = self._views.available(ring)
        for lane in self._lanes.get(ring, {}).values():
            lane.schedule.members(available, now)
            lane.tell()

    def _opened(self, ring: str, entry: RingEntry) -> Lane:
        lane = Lane(ring, entry, self._sync_period)
        if self._group is not None:
            self._tasks[lane] = [
                self._group.create_task(
                    self._keep_looking(lane, track), name=f"{track.value} looks at {lane}"
                )
                for track in Track
            ]
        return lane

    async def _keep_looking(self, lane: Lane, track: Track) -> None:
        while True:
            now = self._clock.monotonic()
            lane.schedule.members(self._views.available(lane.ring), now)
            if lane.schedule.due(track, now) is None:
                wait = max(lane.schedule.wait(track, now), SHORTEST_WAIT)
                await lane.news(wait if wait < float("inf") else None)
                continue
            if track is Track.THOROUGH:
                await self._turn(lane)
            places = (self._failing if lane.schedule.failing(track) else self._places)[track]
            async with places.taken():
                now = self._clock.monotonic()
                if (work := lane.schedule.due(track, now)) is not None:
                    await self._look(lane, track, work, now)

    async def _turn(self, lane: Lane) -> None:
        """Waits for what a thorough look has to come after: urgent work in the same lane, and its owners."""
        await lane.passed(Track.URGENT, self._clock)
        for owner in sorted(lane.entry.owners):
            for other in self._lanes.get(lane.ring, {}).values():
                if other.entry.resource == owner and not other.schedule.failing(Track.THOROUGH):
                    now = self._clock.monotonic()
                    if not other.pending(Track.THOROUGH, now):
                        other.schedule.request(Reach.CONTROLLED, now)
                        other.tell()
                    await other.passed(Track.THOROUGH, self._clock)

    async def _look(self, lane: Lane, track: Track, work: Work, started: float) -> None:
        outcome = Outcome(failed=True)
        lane.begin(track)
        try:
            await self._up_to_date()
            outcome = await self._resync.look(lane.ring, lane.entry, work.reach)
        except ApiError as error:
            _log.debug("Cannot list shard Leases", error=error)  # for every lane; the observer says it once
        except Exception as error:  # of one resource, which must not end the others
            _log.crash(
                "looking at a ring's objects crashed", error, ring=lane.ring, resource=lane.entry.resource
            )
        finally:
            ended = self._clock.monotonic()
            lane.schedule.done(track, work, outcome, started, ended)
            lane.end(track)
        _log.info(
            "Checked the objects of the ring",
            ring=lane.ring,
            resource=lane.entry.resource,
            reach=work.reach.name.lower(),
            reason=work.reason,
            waiting=outcome.waiting,
            failed=outcome.failed,
            seconds=ended - started,
        )

    async def _up_to_date(self) -> None:
        """Reads the shards' Leases where the view of them may be old; once for all who ask. Raises ApiError."""
        if self._views.fresh() or self._group is None:
            return
        if self._relisting is None or self._relisting.done():
            self._relisting = self._group.create_task(self._relist())
        if (error := await asyncio.shield(self._relisting)) is not None:
            raise error

    async def _relist(self) -> ApiError | None:
        try:
            await self._observer.relist()
        except ApiError as error:
            return error
        return None
