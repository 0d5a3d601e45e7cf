"""Until when the runs of one controller have to have ended.

A run is cancelled when its time is over, and said to be overdue when it has not ended OVERDUE seconds later. One timer
serves all of them: they have the same time, so the oldest is due first, and nearly all end long before anybody has to
look. Timers of its own would cost a run that has nothing to do more than the rest of it.

Guaranteed: the worker is cancelled once, at the deadline, if it is inside of the block then and has not come to `lift`;
`lift` takes the cancellation back, so that one from outside can be told from it. RESOLUTION is how early it may be.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from contextvars import Context
from typing import Any

from kubeshard.controller.in_flight import Run
from kubeshard.runtime.clock import Clock

OVERDUE = 1.0
"""Seconds after a run's limit when it is said that it does not end."""

RESOLUTION = 0.001
"""Seconds. Event loops call timers by that much too early."""


class Deadlines:
    """`seconds` is what each run has. `overdue` is called for each that is overdue, and once more when it has ended."""

    def __init__(self, seconds: float, clock: Clock, overdue: Callable[[Deadline], None]) -> None:
        self.seconds = seconds
        self.clock = clock
        self.overdue = overdue
        self._present: dict[Deadline, None] = {}
        """In the order in which they began."""
        self._timer: asyncio.TimerHandle | None = None

    @property
    def first(self) -> float | None:
        """When (monotonic) the first of the present runs has to have ended; None while there are none."""
        return next((run.due for run in self._present), None)

    def stop(self) -> None:
        """Nobody is looked at any more."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _add(self, run: Deadline) -> None:
        self._present[run] = None
        if self._timer is not None and self._timer.when() > asyncio.get_running_loop().time() + self.seconds:
            self.stop()  # it is set for one that is overdue, which can wait longer than this one
        if self._timer is None:
            self._look_at(run.due)

    def _remove(self, run: Deadline) -> None:
        del self._present[run]

    def _look_at(self, moment: float) -> None:
        seconds = max(0.0, moment - self.clock.monotonic())
        # Not in the run's context, all of which would live as long as the timer.
        self._timer = asyncio.get_running_loop().call_later(seconds, self._look, context=Context())

    def _look(self) -> None:
        self._timer = None
        now = self.clock.monotonic() + RESOLUTION
        moments = [moment for run in tuple(self._present) if (moment := run.look(now)) is not None]
        if moments:
            self._look_at(min(moments))


class Deadline:
    """`with Deadline(...)` around one run. `fields`: for log lines about it."""

    __slots__ = ("_cancelled", "_deadlines", "_worker", "began", "due", "ended", "fields", "overdue", "run")

    def __init__(self, deadlines: Deadlines, run: Run, fields: Mapping[str, Any]) -> None:
        self.run = run
        self.fields = fields
        self.began = deadlines.clock.monotonic()
        self.due = self.began + deadlines.seconds
        self.ended = self.overdue = False
        self._deadlines = deadlines
        self._worker: asyncio.Task[Any] | None = None
        self._cancelled = False

    def __enter__(self) -> Deadline:
        self._worker = asyncio.current_task()
        self._deadlines._add(self)
        return self

    def __exit__(self, *_: object) -> None:
        self.ended = True
        self._deadlines._remove(self)
        if self.overdue:
            self._deadlines.overdue(self)

    def lift(self) -> bool:
        """The reconcile has ended, only what it left behind has not: it is not cancelled any more. True: it was."""
        worker, self._worker = self._worker, None
        if self._cancelled and worker is not None:
            worker.uncancel()
        return self._cancelled

    def look(self, now: float) -> float | None:
        """Does what is due. When to look again; None: never."""
        if now < self.due:
            return self.due
        if self._worker is not None and not self._cancelled:
            self._cancelled = self.run.out_of_time = True
            self._worker.cancel()
        if now < self.due + OVERDUE:
            return self.due + OVERDUE
        if not self.overdue:
            self.overdue = True
            self._deadlines.overdue(self)
        return None
