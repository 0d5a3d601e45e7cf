"""Whether this process is fit to work: does its event loop turn, does it hear of what it owns, do its workers keep to
their limits.

The answer is needed for the right to work, which an unfit process must not renew although the thread that renews it is
fine, and what a restart would mend is liveness (`/healthz`): workers, never silence, which may
be the server's. That thread has no business in the data of
the event loop. So the loop publishes, four times a second, one immutable record of times; whoever asks compares it
with the clock. A loop that is blocked publishes nothing, and thereby shows.

| unfit when | bound |
|---|---|
| the record is old: the loop is blocked, or the process was paused | 1 s |
| the informer of a main kind that once heard the server has heard nothing since, not even a bookmark | 90 s |
| a reconcile runs longer than its controller's limit, although it was cancelled then | 10 s beyond it |

A process that does not hear of the objects that it owns does not see that it shall let go of them. Of a kind that the
server does not serve there are no objects, and nothing to hear: that is no reason (`Hearing`). Of kinds that a
controller only owns or maps neither; there the controller stops (`controller.syncing`).
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
    """Times are monotonic seconds."""

    beat: float
    silent: tuple[str, float] | None
    """The informer that has heard nothing for longest, and when it heard something."""
    overdue: tuple[str, float] | None
    """The controller whose run should end first, and when."""


class Hearing:
    """When informers heard the server. What is said while the kind is not served counts as heard."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._excused: dict[Informer[Any], float] = {}

    def of(self, informers: Iterable[Informer[Any]]) -> Iterator[tuple[str, float | None]]:
        """Names and times."""
        for informer in informers:
            if not is_served(informer):
                self._excused[informer] = self._clock.monotonic()
            heard, excused = informer.last_heard, self._excused.get(informer)
            yield str(informer), heard if heard is None or excused is None else max(heard, excused)


class Vitals:
    """`heard` and `due` give names with times, `None` being no time; they are called in the event loop."""

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
        """Of the last minute: when, and by how much the loop was late; each less than the one before."""

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
        """By how many seconds the loop is late; 0 while nothing is published. Any thread may ask."""
        return max(0.0, self._clock.monotonic() - self._record.beat - BEAT) if self._runs else 0.0

    def longest_lag(self) -> float:
        """By how many seconds the loop was late within the last minute, at most."""
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
        """Why the process is unfit, or None. Any thread may ask."""
        record = self._record
        lag = self._clock.monotonic() - record.beat
        if lag > LOOP_LAG:
            return f"the event loop has not turned for {lag:.1f} s"
        return self.silence() or self.overdue()

    def silence(self) -> str | None:
        """Why the caches are not to be trusted, or None."""
        silent, now = self._record.silent, self._clock.monotonic()
        if silent is not None and now - silent[1] > SILENCE:
            return f"the informer of {silent[0]} has heard nothing for {now - silent[1]:.0f} s"
        return None

    def overdue(self) -> str | None:
        """Why the workers are not to be trusted, or None."""
        overdue, now = self._record.overdue, self._clock.monotonic()
        if overdue is not None and now - overdue[1] > OVERDUE:
            return f"a worker of controller {overdue[0]} is {now - overdue[1]:.0f} s over its limit"
        return None


def _earliest(times: Iterable[tuple[str, float | None]]) -> tuple[str, float] | None:
    known = [(name, time) for name, time in times if time is not None]
    return min(known, key=lambda entry: entry[1], default=None)
