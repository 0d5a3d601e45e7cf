"""When a ring's objects are looked at, and which of them. Sans-IO, one `Schedule` per ring.

| why | which objects | when |
|---|---|---|
| first sight, changed spec or namespaces | all | at once |
| sync period | all | `sync_period` after the last complete look |
| shard gained | all (some must be drained) | at once, settle passes after 3, 10, 30 s |
| shard lost | those without an available shard | at once, settle passes after 3, 10, 30 s |
| watch on unassigned objects (re)opened | those without an available shard | at once |
| drains or controlled objects waited | controlled objects | after 1, 2, 4 ... 30 s while any waits |
| a resource could not be read | that resource | after 5 s, doubled up to `sync_period` |

Sources: protocol 4.2, 14-A19, B3; reliability F10. The settle passes repair what another process decided on
an older view. Several reasons that are due together make one pass. A complete look includes the others.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import IntEnum
from typing import NamedTuple

from kubeshard.core.kinds import GroupResource

SETTLE = (3.0, 10.0, 30.0)
FOLLOW_FIRST, FOLLOW_LAST = 1.0, 30.0
RETRY_FIRST = 5.0


class Reach(IntEnum):
    """Which objects a pass looks at; a larger reach includes the smaller ones that can be due with it."""

    CONTROLLED = 1
    """Controlled objects that wait for their owner's drain."""
    MISPLACED = 2
    """Objects without shard, or whose label names no available one."""
    ALL = 3


class Pass(NamedTuple):
    """What to do now. `resources` None: all of the ring."""

    reach: Reach
    resources: frozenset[GroupResource] | None = None
    reason: str = ""


class Outcome(NamedTuple):
    """What a pass found. `waiting`: drains sent or pending, and controlled objects held back."""

    waiting: int = 0
    failed: frozenset[GroupResource] = frozenset()


@dataclass(slots=True)
class Schedule:
    """Ask `due`, do the pass, tell `done`; `wait` says when to ask again. Times are monotonic seconds."""

    sync_period: float
    _known: tuple[str, ...] | None = None
    _full_at: float = float("-inf")
    _settle: list[tuple[float, Reach]] = field(default_factory=list)
    _follow: tuple[float, float] | None = None  # due, delay
    _failed: dict[GroupResource, tuple[float, float]] = field(default_factory=dict)  # due, delay

    def request(self, reach: Reach, now: float) -> None:
        """Something outside membership asks for a pass as soon as possible."""
        self._settle.append((now, reach))

    def members(self, available: tuple[str, ...], now: float) -> None:
        """The ring's available shards as they are now."""
        if self._known is None:
            self._known = available
            return
        if available == self._known:
            return
        gained = not set(available) <= set(self._known)
        reach = Reach.ALL if gained else Reach.MISPLACED
        self._known = available
        self._settle.append((now, reach))
        self._settle += [(now + delay, reach) for delay in SETTLE]

    def due(self, now: float) -> Pass | None:
        """The pass that has to be done now, all due reasons in one; None if there is none."""
        reach = max((reach for at, reach in self._settle if at <= now), default=None)
        if now - self._full_at >= self.sync_period:
            return Pass(Reach.ALL, reason="periodic" if self._full_at > float("-inf") else "start")
        failed = frozenset(resource for resource, (at, _) in self._failed.items() if at <= now)
        following = self._follow is not None and self._follow[0] <= now
        if reach is not None:
            return Pass(Reach.ALL if failed or following else reach, reason="membership")
        if failed:
            return Pass(Reach.ALL, None if following else failed, "retry")
        if following:
            return Pass(Reach.CONTROLLED, reason="drains pending")
        return None

    def done(self, work: Pass, outcome: Outcome, started: float, now: float) -> None:
        """The pass ended. What became due while it ran stays due: the pass may have missed its cause."""
        complete = work.resources is None
        if complete:
            self._settle = [(at, r) for at, r in self._settle if at > started or r > work.reach]
        if complete and work.reach is Reach.ALL:
            self._full_at = started
        tried = (
            self._failed
            if complete
            else {r: self._failed[r] for r in work.resources or () if r in self._failed}
        )
        for resource in [r for r in tried if r not in outcome.failed]:
            del self._failed[resource]
        for resource in outcome.failed:
            _, delay = self._failed.get(resource, (0.0, RETRY_FIRST / 2))
            delay = min(2 * delay, self.sync_period)
            self._failed[resource] = (now + delay, delay)
        if not complete:
            return
        if outcome.waiting:
            again = self._follow is not None and work.reach is Reach.CONTROLLED
            delay = min(2 * self._follow[1], FOLLOW_LAST) if again and self._follow else FOLLOW_FIRST
            self._follow = (now + delay, delay)
        elif work.reach is not Reach.MISPLACED:
            self._follow = None

    def wait(self, now: float) -> float:
        """Seconds until `due` may give a pass again; 0 if it does now."""
        times = [self._full_at + self.sync_period, *(at for at, _ in self._settle)]
        times += [at for at, _ in self._failed.values()]
        times += [self._follow[0]] if self._follow else []
        return max(0.0, min(times) - now)
