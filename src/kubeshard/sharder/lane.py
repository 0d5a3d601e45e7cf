"""One resource of a ring, where this process leads: when its objects are looked at, and what is remembered of them.

Bounded: the age of at most `REMEMBERED` objects that wait is known, those seen first, though their count is exact; so
many names of namespaces are remembered, and where there are more, any that appears may be meant.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import TYPE_CHECKING

from kubeshard.core.objects import Key
from kubeshard.runtime.clock import Clock
from kubeshard.sharder.owners import Pending
from kubeshard.sharder.schedule import Reach, Schedule, Track
from kubeshard.sharding.classification import RingEntry

if TYPE_CHECKING:
    from kubeshard.sharder.repairs import Repairs
    from kubeshard.sharder.ring import Ring

REMEMBERED = 1000


class Lane:
    """`group` is where its tasks run."""

    def __init__(
        self, ring: Ring, entry: RingEntry, sync_period: float, group: asyncio.TaskGroup | None = None
    ) -> None:
        self.ring = ring
        self.entry = entry
        self.schedule = Schedule(sync_period)
        self.open = True
        """Whether the ring still has the resource."""
        self.pending = Pending()
        """Drains of a main resource, for what its objects control."""
        self.drains = Waiting()
        """Objects that are being drained."""
        self.unassigned = Waiting()
        """Objects without an available shard."""
        self.asked: dict[str, float] = {}
        """When the server was asked whether a verb is allowed."""
        self.passed_over = Namespaces()
        """In which objects were seen before the namespace was: whether the ring selects them could not be told."""
        self.appeared: set[str] = set()
        """Namespaces to be looked at."""
        self.looking_for = False
        """Whether somebody does."""
        self.repairs: Repairs | None = None
        self._group = group
        self._tasks: dict[asyncio.Task[None], None] = {}
        self._busy: set[Track] = set()
        self._ended = dict.fromkeys(Track, 0)
        self._news = asyncio.Event()

    def __str__(self) -> str:
        return f"{self.entry.resource} of {self.ring}"

    def start(self, work: Coroutine[object, object, None], what: str) -> None:
        """Something that ends with the lane."""
        if not self.open or self._group is None:
            work.close()
            return
        task = self._group.create_task(work, name=f"{what} {self}")
        self._tasks[task] = None
        task.add_done_callback(lambda task: self._tasks.pop(task, None))

    def close(self) -> None:
        """The ring does not have the resource any more."""
        self.open = False
        self.tell()
        for task in tuple(self._tasks):
            task.cancel()

    def request(self, reach: Reach, now: float) -> None:
        """Something asks for a look."""
        self.schedule.request(reach, now)
        self.tell()

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

    def due_soon(self, track: Track, now: float) -> bool:
        """Whether a look of the track is under way, or about to begin."""
        return self.open and (track in self._busy or self.schedule.due(track, now) is not None)

    async def passed(self, track: Track, clock: Clock) -> None:
        """Waits for the end of the look that is under way or about to begin, if one is."""
        ended = self._ended[track]
        while self._ended[track] == ended and self.due_soon(track, clock.monotonic()):
            await self.news()


class Waiting:
    """Objects that wait for something, and for how long, as the last look at them showed. `count`: how many."""

    def __init__(self) -> None:
        self._since: dict[Key, float] = {}
        self.count = 0

    def look(self) -> Sight:
        """A look begins; it counts once it says that it is complete."""
        return Sight(self)

    def oldest(self, now: float) -> float:
        """Age in seconds of the oldest; 0 without any."""
        return now - min(self._since.values(), default=now)

    def older_than(self, age: float, now: float) -> int:
        return sum(now - since > age for since in self._since.values())


class Sight:
    """What one look at the objects sees."""

    def __init__(self, waiting: Waiting) -> None:
        self._waiting = waiting
        self._seen: dict[Key, float] = {}
        self._count = 0

    def pending(self, key: Key, now: float) -> None:
        known = self._waiting._since
        self._count += 1
        if key in known or len(self._seen) < REMEMBERED:
            self._seen[key] = known.get(key, now)

    def complete(self) -> None:
        self._waiting._since, self._waiting.count = self._seen, self._count


class Namespaces:
    """Names of namespaces, or the knowledge that there are too many to remember."""

    def __init__(self) -> None:
        self._names: set[str] = set()
        self._many = False

    def add(self, name: str) -> None:
        if name not in self._names and len(self._names) >= REMEMBERED:
            self._many = True
        else:
            self._names.add(name)

    def take(self, name: str) -> bool:
        """Whether the name may have been added. It is forgotten."""
        found = name in self._names
        self._names.discard(name)
        return found or self._many
