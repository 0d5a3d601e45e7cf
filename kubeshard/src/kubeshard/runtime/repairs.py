"""How often a thing is put right that somebody else keeps changing: two writers never fight.

| repairs of the thing so far | the next one |
|---|---|
| fewer than `FREE`, since it was last left alone for `QUIET` seconds | at once |
| more: it is *contested* | `EVERY` seconds after the last one, or `every` |

Whoever repairs asks `wait` first, calls `repaired` after a write that took effect, and says who else writes while the
thing is `contested`: in a condition, an event or a log line. A write of something new, because the wish has changed, is
no repair: it neither waits nor counts.

Guaranteed: in any period of T seconds a thing is repaired at most `free * (1 + T / QUIET) + T / every + 1` times,
whatever the other writer does. Not guaranteed: that for things beyond `most`; those that were repaired least recently
are forgotten first. No I/O. Not thread-safe.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable

from kubeshard.runtime.clock import Clock

FREE = 3
EVERY = 60.0
QUIET = 600.0
MOST = 10_000


class Repairs:
    """Those of one component. Things are any hashable values."""

    def __init__(self, clock: Clock, *, most: int = MOST, free: int = FREE, every: float = EVERY) -> None:
        self._clock = clock
        self._free = free
        self._every = every
        self._most = most
        self._done: OrderedDict[Hashable, tuple[int, float]] = OrderedDict()
        """How often each was repaired, and when last (monotonic); the latest last."""

    def __len__(self) -> int:
        return len(self._done)

    def wait(self, thing: Hashable) -> float:
        """The seconds until it may be repaired; 0: now."""
        count, last = self._known(thing)
        return max(0.0, last + self._every - self._clock.monotonic()) if count >= self._free else 0.0

    def repaired(self, thing: Hashable) -> None:
        count, _ = self._known(thing)
        self._done[thing] = count + 1, self._clock.monotonic()
        self._done.move_to_end(thing)
        if len(self._done) > self._most:
            self._done.popitem(last=False)

    def contested(self, thing: Hashable) -> bool:
        return self._known(thing)[0] >= self._free

    def quiet_in(self, thing: Hashable) -> float:
        """The seconds until it is not contested any more, unless it has to be repaired again."""
        count, last = self._known(thing)
        return last + QUIET - self._clock.monotonic() if count >= self._free else 0.0

    def forget(self, thing: Hashable) -> None:
        """It is gone, or somebody else's now."""
        self._done.pop(thing, None)

    def _known(self, thing: Hashable) -> tuple[int, float]:
        now = self._clock.monotonic()
        while self._done and next(iter(self._done.values()))[1] + QUIET <= now:
            self._done.popitem(last=False)
        return self._done.get(thing, (0, 0.0))
