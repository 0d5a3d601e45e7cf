"""When a controller gives an object up (`Controller.give_up_after`): after so many failed runs in a row, or so long
after the first of them.

Failed runs are counted by key. A run that succeeds, a change of the object's spec (`metadata.generation`) and its end
reset the count; a run that only had stale reads, or met a kind that is not served, does not count. After giving up,
nothing is retried; a trigger still leads to a run, and if that fails, the object is given up again.

In memory only: a process that restarts counts anew.
"""

from __future__ import annotations

from datetime import timedelta
from typing import NamedTuple

from kubeshard.core.objects import Key
from kubeshard.runtime.clock import Clock

GiveUpAfter = int | timedelta | None
"""A number of failed runs in a row, or the time since the first of them; None for never."""


class _Failures(NamedTuple):
    runs: int
    since: float
    """When the first of them ended (monotonic seconds)."""


class Patience:
    """The failed runs of one controller's objects."""

    def __init__(self, limit: GiveUpAfter, clock: Clock) -> None:
        self._limit = limit
        self._clock = clock
        self._failures: dict[Key, _Failures] = {}

    def is_last(self, key: Key) -> bool:
        """Whether the object is given up if its current run fails."""
        failures = self._failures.get(key)
        match self._limit:
            case int(runs):
                return (failures.runs if failures else 0) + 1 >= runs
            case timedelta() as time:
                since = self._clock.monotonic() if failures is None else failures.since
                return self._clock.monotonic() - since >= time.total_seconds()
        return False

    def failed(self, key: Key) -> None:
        if self._limit is not None:
            before = self._failures.get(key) or _Failures(0, self._clock.monotonic())
            self._failures[key] = before._replace(runs=before.runs + 1)

    def forget(self, key: Key) -> None:
        self._failures.pop(key, None)
