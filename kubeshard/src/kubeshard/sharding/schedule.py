"""When the objects of one resource of a ring are scanned. Sans-IO.

There are two priorities, with one scan each at a time. An *urgent* scan reassigns objects without a live shard, and
reads few. A *normal* one may read everything and take long; the urgent one does not wait for it.

| why | priority | which objects | when |
|---|---|---|---|
| first scan, changed spec or namespaces | normal | all | at once |
| sync period | normal | all | `sync_period` after the last full scan |
| shard gained | normal | all (some must be drained) | at once, settle scans after 10, 30 s, an urgent one after 3 s |
| shard lost | urgent | those without an available shard | at once, settle scans after 3, 10, 30 s |
| watch on unassigned objects (re)opened | urgent | those without an available shard | at once |
| controlled objects, or their owners' drains, waited | normal | controlled | after 1, 2, 4 ... 30 s while any waits |
| drains of main objects waited | normal | being drained | after 8, 10, 10 ... s while any waits |
| a drain has ended | normal | controlled | at once |
| a drain was requested | normal | being drained, controlled | after 8 s, 1 s |
| the resource could not be read | its own | as before | after 5, 10, 10 ... s, or `sync_period` |
| more failed than are remembered | theirs | without an available shard; all | when one succeeds; and 30 s later |

The settle scans repair decisions that another process made with an older view. After a shard was gained the first one
reads only objects without an available shard: the rest is reconciled, if not yet by the right shard. An object that a
shard creates in its last reconcile before it acknowledges a drain is labelled with its name; it joins its owner at
most ten seconds later, because scans follow a drain until the first one that finds it gone. A released main object is
assigned by the webhook or, if that missed it, by the watch on unassigned ones. So scans that follow drains of a main
resource are for the metrics and for the controlled objects, which request them, and are scanned when one finds that a
drain has ended. Several reasons of one priority that are due together make one scan.
"""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass, field
from enum import Enum, IntEnum
from typing import NamedTuple

SETTLE = (3.0, 10.0, 30.0)
FOLLOW = (1.0, 30.0)
FOLLOW_MAIN = (8.0, 10.0)
"""The first and the longest delay of scans that follow drains. A main resource is listed by the drain label."""
RETRY_FIRST, RETRY_LAST = 5.0, 10.0
PUT_OFF = 5.0
"""Seconds."""


class ScanScope(IntEnum):
    """Which objects a scan is about; of one priority a larger scope includes the smaller ones."""

    CONTROLLED = 1
    """What drains are about: main objects that are being drained, controlled objects that may wait for one."""
    MISPLACED = 2
    """Objects without a shard, or labelled with one that is not available."""
    ALL = 3


class ScanPriority(Enum):
    URGENT = "urgent"
    NORMAL = "normal"


class DueScan(NamedTuple):
    """The scan to do now."""

    scope: ScanScope
    reason: str = ""


class ScanResult(NamedTuple):
    """What a scan found. `waiting`: drains requested or pending, and controlled objects that wait. `failed`: not
    everything could be read. `moved`: objects that got a shard, or were asked to leave theirs.
    """

    waiting: int = 0
    failed: bool = False
    moved: int = 0


FAILED = ScanResult(failed=True)


@dataclass(slots=True)
class Schedule:
    """Call `due`, scan, call `done`; `wait` returns when to call `due` again. Times are monotonic seconds."""

    sync_period: float
    follow_delays: tuple[float, float] = FOLLOW
    _known: tuple[str, ...] | None = None
    _all_at: float = float("-inf")
    _requests: list[tuple[float, ScanScope]] = field(default_factory=list)
    _follow: tuple[float, float] | None = None  # due, delay
    _failed: dict[ScanPriority, tuple[float, float]] = field(default_factory=dict)  # due, delay

    def request(self, scope: ScanScope, at: float, now: float) -> None:
        """Requests a scan at that time, for a reason other than membership. Of those that come earlier none is put off
        that is due or the next one, and others by `PUT_OFF` at most, however often there are requests.
        """
        times = sorted(time for time, asked in self._requests if asked is scope and time <= at)
        following = bisect_right(times, now)
        kept = [
            *times[max(0, following - 1) : following + 1],
            at,
        ]  # the last that is due stands for those before it
        kept += [time for time in times[following + 1 :] if time <= at - PUT_OFF]
        others = [(time, asked) for time, asked in self._requests if asked is not scope or time > at]
        self._requests = [*others, *((time, scope) for time in kept)]

    def follow(self, now: float) -> bool:
        """A drain was requested. One scan follows some seconds later for all of them. Returns whether it was asked for
        just now.
        """
        asked = [at for at, scope in self._requests if scope is ScanScope.CONTROLLED]
        if asked and max(asked) > now:
            return False
        # A scan that is due may be running already, and past the object. One scan after the last request is enough.
        others = [(at, scope) for at, scope in self._requests if scope is not ScanScope.CONTROLLED]
        again = [(at, ScanScope.CONTROLLED) for at in (*sorted(asked)[:1], now + self.follow_delays[0])]
        self._requests = others + again
        return True

    def members(self, available: tuple[str, ...], now: float) -> None:
        """The ring's current available shards."""
        known, self._known = self._known, available
        if known is None or known == available:
            return
        for changed, scope, settles in (
            (set(known) - set(available), ScanScope.MISPLACED, (ScanScope.MISPLACED,) * 3),
            (set(available) - set(known), ScanScope.ALL, (ScanScope.MISPLACED, ScanScope.ALL, ScanScope.ALL)),
        ):
            if changed:
                self._requests.append((now, scope))
                self._requests += [(now + delay, each) for delay, each in zip(SETTLE, settles, strict=True)]

    def due(self, priority: ScanPriority, now: float) -> DueScan | None:
        """The scan to do now, all due reasons in one; None if there is none."""
        urgent = priority is ScanPriority.URGENT
        due = [r for at, r in self._requests if at <= now and (r is ScanScope.MISPLACED) is urgent]
        scope = max(due) if due else None
        failed = priority in self._failed and self._failed[priority][0] <= now
        if urgent:
            return (
                DueScan(ScanScope.MISPLACED, "membership" if scope else "retry") if scope or failed else None
            )
        if now - self._all_at >= self.sync_period:
            return DueScan(ScanScope.ALL, "periodic" if self._all_at > float("-inf") else "start")
        if scope is ScanScope.ALL:
            return DueScan(ScanScope.ALL, "membership")
        if failed:
            return DueScan(ScanScope.ALL, "retry")
        if scope or (self._follow is not None and self._follow[0] <= now):
            return DueScan(ScanScope.CONTROLLED, "drains pending")
        return None

    def failing(self, priority: ScanPriority) -> bool:
        """Whether the priority's last scan failed."""
        return priority in self._failed

    def done(
        self, priority: ScanPriority, work: DueScan, outcome: ScanResult, started: float, now: float
    ) -> None:
        """The scan ended. Reasons that became due while it ran stay due: it may have missed the cause."""
        scope, urgent = work.scope, priority is ScanPriority.URGENT
        # A full scan leaves objects to an urgent one that is about to begin: it does not answer the other priority's.
        self._requests = [
            (at, asked)
            for at, asked in self._requests
            if at > started or asked > scope or (asked is ScanScope.MISPLACED) is not urgent
        ]
        if scope is ScanScope.ALL:
            self._all_at = started
        if outcome.failed:
            _, delay = self._failed.get(priority, (0.0, RETRY_FIRST / 2))
            delay = min(2 * delay, RETRY_LAST, self.sync_period)
            self._failed[priority] = (now + delay, delay)
        else:
            self._failed.pop(priority, None)
        if outcome.waiting:
            again = self._follow is not None and scope is ScanScope.CONTROLLED
            first, last = self.follow_delays
            delay = min(2 * self._follow[1], last) if again and self._follow else first
            self._follow = (now + delay, delay)
        elif priority is ScanPriority.NORMAL:
            self._follow = None

    def wait(self, priority: ScanPriority, now: float) -> float:
        """Seconds until `due` may return a scan; 0 if it does now; infinite if that needs a new event."""
        urgent = priority is ScanPriority.URGENT
        times = [at for at, scope in self._requests if (scope is ScanScope.MISPLACED) is urgent]
        if priority in self._failed:
            times.append(self._failed[priority][0])
        if not urgent:
            times.append(self._all_at + self.sync_period)
            times += [self._follow[0]] if self._follow else []
        return max(0.0, min(times, default=float("inf")) - now)
