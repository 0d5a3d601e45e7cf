"""Checks whether this process is fit to work: its event loop is not blocked, the watches of its main kinds are alive,
and its workers meet their deadlines.

An unfit process must not renew its Lease, although the thread that renews it is fine. Liveness (`/healthz`) only covers
what a restart would fix: workers, but never silence, whose cause may be the server. The renewing thread must not read
the event loop's data. Instead, four times a second, the loop publishes an immutable record of times, which the thread
compares with the clock. A blocked loop publishes nothing, which is how it is noticed.

| unfit when | bound |
|---|---|
| the record is old: the loop is blocked, or the process was paused | 1 s |
| the informer of a main kind that was connected has received nothing since, not even a bookmark | 90 s |
| a reconcile runs beyond its deadline, although it was cancelled then | 10 s after it |

A process whose watches are silent does not notice that it should release objects. A kind that the server does not serve
has no objects, so its silence does not count (`Hearing`). Nor do kinds that a controller only owns or maps: if they are
silent, the controller pauses (`controller.syncing`).
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple

from kubeshard.cache.informer import Informer
from kubeshard.controller.syncing import SILENCE, is_served
from kubeshard.runtime.clock import Clock

BEAT = 0.25
LOOP_LAG = 1.0
OVERDUE = 10.0
LAG_MEMORY = 60.0


class Record(NamedTuple):
    """What the loop publishes. Times are monotonic seconds."""

    beat: float
    silent: tuple[str, float] | None
    """The informer that has been silent for longest, and the time of its last event."""
    overdue: tuple[str, float] | None
    """The controller with the earliest deadline, and the deadline."""


class Hearing:
    """When informers last received something. Responses that the kind is not served count."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._excused: dict[Informer[Any], float] = {}

    def of(self, informers: Iterable[Informer[Any]]) -> Iterator[tuple[str, float | None]]:
        """Yields names and times."""
        for informer in informers:
            if not is_served(informer):
                self._excused[informer] = self._clock.monotonic()
            heard, excused = informer.last_heard, self._excused.get(informer)
            yield str(informer), heard if heard is None or excused is None else max(heard, excused)


class Vitals:
    """`heard` and `due` return names with times, or None for no time; they are called in the event loop."""

    def __init__(
        self,
        clock: Clock,
        heard: Callable[[], Iterable[tuple[str, float | None]]],
        due: Callable[[], Iterable[tuple[str, float | None]]],
    ) -> None:
        self._clock = clock
        self._heard = heard
        self._due = due
        self._record = Record(float("-inf"), None, None)
        self._runs = False
        self._lags: deque[tuple[float, float]] = deque()
        """Times and lags of the loop within the last minute, with descending lags."""

    async def run(self) -> None:
        """Publishes until cancelled."""
        self._runs = True
        try:
            while True:
                now = self._clock.monotonic()
                self._record = Record(now, _earliest(self._heard()), _earliest(self._due()))
                await asyncio.sleep(BEAT)
                self._note(self._clock.monotonic() - now - BEAT)
        finally:
            self._runs = False

    def lag(self) -> float:
        """The lag of the loop in seconds; 0 while nothing is published. May be called from any thread."""
        return max(0.0, self._clock.monotonic() - self._record.beat - BEAT) if self._runs else 0.0

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
        self._lags.append((now, max(lag, 0.0)))

    def unfit(self) -> str | None:
        """Why the process is unfit, or None. May be called from any thread."""
        record = self._record
        lag = self._clock.monotonic() - record.beat
        if lag > LOOP_LAG:
            return f"the event loop has been blocked for {lag:.1f} s"
        return self.silence() or self.overdue()

    def silence(self) -> str | None:
        """Why the caches cannot be trusted, or None."""
        silent, now = self._record.silent, self._clock.monotonic()
        if silent is not None and now - silent[1] > SILENCE:
            return f"the informer of {silent[0]} has received nothing for {now - silent[1]:.0f} s"
        return None

    def overdue(self) -> str | None:
        """Why the workers cannot be trusted, or None."""
        overdue, now = self._record.overdue, self._clock.monotonic()
        if overdue is not None and now - overdue[1] > OVERDUE:
            return f"a worker of controller {overdue[0]} is {now - overdue[1]:.0f} s past its deadline"
        return None


def _earliest(times: Iterable[tuple[str, float | None]]) -> tuple[str, float] | None:
    known = [(name, time) for name, time in times if time is not None]
    return min(known, key=lambda entry: entry[1], default=None)
