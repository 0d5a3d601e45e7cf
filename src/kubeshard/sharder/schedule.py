"""When to look at the objects of one resource of a ring, and at which of them. Sans-IO, one `Schedule` per resource.

There are two tracks, with one look each at a time. An *urgent* look repairs objects without a live shard, and reads
few. A *thorough* one may read everything and take long; the urgent one does not wait for it.

| why | track | which objects | when |
|---|---|---|---|
| first look, changed spec or namespaces | thorough | all | at once |
| sync period | thorough | all | `sync_period` after the last full look |
| shard gained | thorough | all (some must be drained) | at once, settle looks after 10, 30 s, an urgent one after 3 s |
| shard lost | urgent | those without an available shard | at once, settle looks after 3, 10, 30 s |
| watch on unassigned objects (re)opened | urgent | those without an available shard | at once |
| controlled objects, or their owners' drains, waited | thorough | controlled | after 1, 2, 4 ... 30 s while any waits |
| drains of main objects waited | thorough | being drained | after 8, 10, 10 ... s while any waits |
| a drain has ended | thorough | controlled | at once |
| controlled objects waited, and their owners were read with other shards | thorough | all owners | with the next look |
| a drain was requested | thorough | being drained, controlled | after 8 s, 1 s |
| the resource could not be read | its own | as before | after 5, 10, 10 ... s, or `sync_period` |
| more failed than are remembered | theirs | without an available shard; all | when one succeeds; and 30 s later |

The settle looks repair decisions that another process made with an older view. After a shard was gained the first one
reads only objects without an available shard: the rest is reconciled, if not yet by the right shard. An object that a
shard creates in its last reconcile before it acknowledges a drain is labelled with its name; it joins its owner at
most ten seconds later, because looks follow a drain until the first one that finds it gone. A released main object is
assigned by the watch on unassigned ones. So looks that follow drains of a main resource are for the metrics and for
the controlled objects, which request them, and are looked at when one finds that a drain has ended. Several reasons of
one track that are due together make one look.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum, IntEnum
from typing import NamedTuple

SETTLE = (3.0, 10.0, 30.0)
FOLLOW = (1.0, 30.0)
FOLLOW_MAIN = (8.0, 10.0)
"""The first and the longest delay of looks that follow drains. A main resource is listed by the drain label."""
RETRY_FIRST, RETRY_LAST = 5.0, 10.0


class Reach(IntEnum):
    """Which objects a look is about; on one track a larger reach includes the smaller ones."""

    CONTROLLED = 1
    """What drains are about: main objects that are being drained, controlled objects that may wait for one."""
    MISPLACED = 2
    """Objects without a shard, or labelled with one that is not available."""
    ALL = 3


class Track(Enum):
    URGENT = "urgent"
    THOROUGH = "thorough"


class Work(NamedTuple):
    """The look to do now."""

    reach: Reach
    reason: str = ""


class Found(NamedTuple):
    """What a look found. `waiting`: drains requested or pending, and controlled objects that wait. `failed`: not
    everything could be read.
    """

    waiting: int = 0
    failed: bool = False


@dataclass(slots=True)
class Schedule:
    """Call `due`, look, call `done`; `wait` returns when to call `due` again. Times are monotonic seconds."""

    sync_period: float
    follow_delays: tuple[float, float] = FOLLOW
    _known: tuple[str, ...] | None = None
    _all_at: float = float("-inf")
    _requests: list[tuple[float, Reach]] = field(default_factory=list)
    _follow: tuple[float, float] | None = None  # due, delay
    _failed: dict[Track, tuple[float, float]] = field(default_factory=dict)  # due, delay

    def request(self, reach: Reach, now: float) -> None:
        """Requests a look as soon as possible, for a reason other than membership."""
        # A look that answers this one answers those before it.
        self._requests = [(at, asked) for at, asked in self._requests if asked is not reach or at > now]
        self._requests.append((now, reach))

    def follow(self, now: float) -> None:
        """A drain was requested. One look follows some seconds later for all of them."""
        asked = sorted(at for at, reach in self._requests if reach is Reach.CONTROLLED)
        if asked and asked[-1] > now:
            return
        # A look that is due may be running already, and past the object. One look after the last request is enough.
        others = [(at, reach) for at, reach in self._requests if reach is not Reach.CONTROLLED]
        again = [(at, Reach.CONTROLLED) for at in (*asked[:1], now + self.follow_delays[0])]
        self._requests = others + again

    def members(self, available: tuple[str, ...], now: float) -> None:
        """The ring's current available shards."""
        known, self._known = self._known, available
        if known is None or known == available:
            return
        for changed, reach, settles in (
            (set(known) - set(available), Reach.MISPLACED, (Reach.MISPLACED,) * 3),
            (set(available) - set(known), Reach.ALL, (Reach.MISPLACED, Reach.ALL, Reach.ALL)),
        ):
            if changed:
                self._requests.append((now, reach))
                self._requests += [(now + delay, each) for delay, each in zip(SETTLE, settles, strict=True)]

    def due(self, track: Track, now: float) -> Work | None:
        """The look to do now, all due reasons in one; None if there is none."""
        reach = max((r for at, r in self._requests if at <= now and _track(r) is track), default=None)
        failed = self.failing(track) and self._failed[track][0] <= now
        if track is Track.URGENT:
            return Work(Reach.MISPLACED, "membership" if reach else "retry") if reach or failed else None
        if now - self._all_at >= self.sync_period:
            return Work(Reach.ALL, "periodic" if self._all_at > float("-inf") else "start")
        if reach is Reach.ALL:
            return Work(Reach.ALL, "membership")
        if failed:
            return Work(Reach.ALL, "retry")
        if reach or (self._follow is not None and self._follow[0] <= now):
            return Work(Reach.CONTROLLED, "drains pending")
        return None

    def failing(self, track: Track) -> bool:
        """Whether the track's last look failed."""
        return track in self._failed

    def done(self, track: Track, work: Work, outcome: Found, started: float, now: float) -> None:
        """The look ended. Reasons that became due while it ran stay due: it may have missed the cause."""
        reach = work.reach
        # A full look leaves objects to an urgent one that is about to begin: it does not answer the other track's.
        self._requests = [
            (at, asked)
            for at, asked in self._requests
            if at > started or asked > reach or _track(asked) is not track
        ]
        if reach is Reach.ALL:
            self._all_at = started
        if outcome.failed:
            _, delay = self._failed.get(track, (0.0, RETRY_FIRST / 2))
            delay = min(2 * delay, RETRY_LAST, self.sync_period)
            self._failed[track] = (now + delay, delay)
        else:
            self._failed.pop(track, None)
        if outcome.waiting:
            again = self._follow is not None and reach is Reach.CONTROLLED
            first, last = self.follow_delays
            delay = min(2 * self._follow[1], last) if again and self._follow else first
            self._follow = (now + delay, delay)
        elif track is Track.THOROUGH:
            self._follow = None

    def wait(self, track: Track, now: float) -> float:
        """Seconds until `due` may return a look; 0 if it does now; infinite if that needs a new event."""
        times = [at for at, reach in self._requests if _track(reach) is track]
        times += [self._failed[track][0]] if self.failing(track) else []
        if track is Track.THOROUGH:
            times.append(self._all_at + self.sync_period)
            times += [self._follow[0]] if self._follow else []
        return max(0.0, min(times, default=float("inf")) - now)


def _track(reach: Reach) -> Track:
    return Track.URGENT if reach is Reach.MISPLACED else Track.THOROUGH
