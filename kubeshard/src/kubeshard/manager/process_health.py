"""Checks whether this process is fit to work: its event loop is not blocked, it hears from an API server, and its
workers can be replaced when their runs do not end.

An unfit process must not renew its Lease, although the thread that renews it is fine. Liveness (`/healthz`) only covers
what a restart would fix: workers, but never silence, whose cause may be the server. The renewing thread must not read
the event loop's data. Instead, twice a second, the loop publishes an immutable record of times, which the thread
compares with the clock. A blocked loop publishes nothing, which is how it is noticed.

| unfit when | bound |
|---|---|
| the record is old: the loop is blocked, or the process was paused | 1.25 s |
| no server has responded about any kind that the process reconciles, not even with an error | 90 s |
| more reconciles of a controller ignore their cancellation than it tolerates (`controller.deadlines`) | 0.5 s |

What concerns one kind or one object never makes the process unfit, because others would pay for it. A process that
hears about no kind is useless to its objects: as a dead shard, it lets others have them, if they hear more. A kind that
cannot be read, whether the server responds with errors or not at all, costs its own objects only: its controllers pause
(`controller.syncing`, docs/design/outages.md).
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterable
from typing import NamedTuple

from kubeshard.controller.syncing import SILENCE
from kubeshard.runtime.clock import Clock

BEAT = 0.5
"""Seconds between two records, or less: what blocks the loop for less time is not noticed between them."""
LOOP_LAG = 1.25
LAG_MEMORY = 60.0
NO_LAG = 0.001
"""What no timer is exact to."""


class Record(NamedTuple):
    """What the loop publishes. Times are monotonic seconds."""

    beat: float
    heard: tuple[object, float] | None
    """The kind about which a server responded last, and when."""
    hanging: str | None
    """What is wrong with the workers."""


class ProcessHealth:
    """Both functions are called in the event loop. `heard` returns what the process depends on, as something with a
    name that does not change, and when a server last
    responded about it, or None for never; the process is fit while it hears about any of it. `hanging` returns what is
    wrong with the workers.
    """

    def __init__(
        self,
        clock: Clock,
        heard: Callable[[], Iterable[tuple[object, float | None]]],
        hanging: Callable[[], Iterable[str]],
    ) -> None:
        self._clock = clock
        self._heard = heard
        self._hanging = hanging
        self._record = Record(float("-inf"), None, None)
        self._runs = False
        self.beat = BEAT
        self._lags: deque[tuple[float, float]] = deque()
        """Times and lags of the loop within the last minute, with descending lags."""

    async def run(self) -> None:
        """Publishes until cancelled."""
        self._runs = True
        try:
            while True:
                now = self._clock.monotonic()
                self._record = Record(now, _latest(self._heard()), next(iter(self._hanging()), None))
                beat = self.beat
                await asyncio.sleep(beat)
                if (lag := self._clock.monotonic() - now - beat) > NO_LAG:
                    self._note(lag)
        finally:
            self._runs = False

    def lag(self) -> float:
        """The lag of the loop in seconds; 0 while nothing is published. May be called from any thread."""
        return max(0.0, self._clock.monotonic() - self._record.beat - self.beat) if self._runs else 0.0

    def longest_lag(self) -> float:
        """The maximum lag of the loop within the last minute, in seconds."""
        earliest = self._clock.monotonic() - LAG_MEMORY
        return max([self.lag(), *(lag for when, lag in self._lags if when >= earliest)])

    def _note(self, lag: float) -> None:
        now = self._clock.monotonic()
        while self._lags and (self._lags[-1][1] <= lag):
            self._lags.pop()
        while self._lags and self._lags[0][0] < now - LAG_MEMORY:
            self._lags.popleft()
        self._lags.append((now, lag))

    def unfit(self) -> str | None:
        """Why the process is unfit, or None. May be called from any thread."""
        record = self._record
        lag = self._clock.monotonic() - record.beat
        if lag > LOOP_LAG:
            return f"the event loop has been blocked for {lag:.1f} s"
        return self.silence() or self.hanging()

    def silence(self) -> str | None:
        """Why the caches cannot be trusted, or None."""
        heard, now = self._record.heard, self._clock.monotonic()
        if heard is not None and now - heard[1] > SILENCE:
            return (
                f"no API server has responded for {now - heard[1]:.0f} s about any kind that this process reconciles, "
                f"{heard[0]} being the last"
            )
        return None

    def hanging(self) -> str | None:
        """Why the workers cannot be trusted, or None."""
        return self._record.hanging


def _latest(times: Iterable[tuple[object, float | None]]) -> tuple[object, float] | None:
    latest = None
    for name, time in times:
        if time is not None and (latest is None or time > latest[1]):
            latest = name, time
    return latest
