"""The deadlines of the runs of one controller.

A run is cancelled when its time is over. If it has not ended OVERDUE seconds later, because it ignores the cancellation
or a thread of it blocks, it is quarantined: reported by name, and left alone with its object, which stays busy, so that
no other run of it starts and no other shard gets it. Another worker takes the place of the one that it occupies. So an
object that cannot be reconciled costs the others nothing; if the process ended instead, the object would move on to the
next shard, and end that one.

A controller tolerates as many quarantined runs as it has workers, and at least TOLERATED: each keeps a task or a
thread. It tolerates fewer if nothing else makes progress: if as many as it has workers, and two more, were quarantined
one after the other, and no run ended in between. Beyond that, the cause is not in the objects, and `problem` says so: a
shard loses its Lease then, and liveness fails.

One timer serves all runs: all have the same timeout, so the oldest is due first, and nearly all end long before the
timer fires. A timer per run would cost more than everything else in a run that has nothing to do.

Guaranteed: the worker is cancelled once, at the deadline, if it is inside the block and has not called `lift`; `lift`
takes the cancellation back, so that a cancellation from outside can be distinguished from it. It may come RESOLUTION
seconds early.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from contextvars import Context
from typing import Any

from kubeshard.controller.in_flight import Activities
from kubeshard.controller.metrics import ControllerMetrics
from kubeshard.runtime.clock import Clock
from kubeshard.runtime.logs import Logger

OVERDUE = 1.0
"""Seconds after the deadline when a run is quarantined."""

TOLERATED = 10
"""Quarantined runs of a controller with up to as many workers."""

IN_A_ROW = 2
"""More quarantined runs in a row than workers show that nothing makes progress."""

RESOLUTION = 0.001
"""Seconds. Event loops may fire timers this much too early."""


class Deadlines:
    """`seconds`: the timeout of each run. A run that is overdue is counted and logged, and so is its end.
    `quarantined` is called with each that is.
    """

    def __init__(
        self,
        seconds: float,
        clock: Clock,
        metrics: ControllerMetrics,
        log: Logger,
        *,
        workers: int = 1,
        quarantined: Callable[[Deadline], None] = lambda deadline: None,
    ) -> None:
        self.seconds = seconds
        self.clock = clock
        self._workers = workers
        self._quarantined = quarantined
        self._hanging: dict[Deadline, None] = {}
        """The quarantined runs, the first one first."""
        self._in_a_row = 0
        """How many were quarantined since any run ended."""
        self._metrics = metrics
        self._log = log
        self._present: dict[Deadline, None] = {}
        """The current runs, in the order in which they started."""
        self._timer: asyncio.TimerHandle | None = None

    @property
    def hanging(self) -> int:
        """The number of quarantined runs."""
        return len(self._hanging)

    def problem(self) -> str | None:
        """Why the controller cannot go on; None while it can."""
        if not self._hanging:
            return None
        bound = max(TOLERATED, self._workers)
        if len(self._hanging) <= bound and self._in_a_row < self._workers + IN_A_ROW:
            return None
        which = ", ".join(str(deadline.fields["object"]) for deadline in self._hanging)
        if len(self._hanging) > bound:
            return f"{len(self._hanging)} reconciles do not end, more than the {bound} that are tolerated: {which}"
        return f"{self._in_a_row} reconciles in a row do not end, and no other one has ended since: {which}"

    def stop(self) -> None:
        """Stops checking runs."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def report(self, deadline: Deadline) -> None:
        seconds = self.clock.monotonic() - deadline.began
        if deadline.ended:
            del self._hanging[deadline]
            self._metrics.overdue(-1)
            self._log.info("Overdue reconcile has ended", seconds=seconds)
        else:
            self._hanging[deadline] = None
            self._in_a_row += 1
            self._metrics.overdue(1)
            self._log.bind(**deadline.fields).error(
                "Reconcile is overdue and still running",
                threads=len(deadline.activities.threads),
                seconds=seconds,
                hanging=len(self._hanging),
            )
            self._quarantined(deadline)

    def _add(self, deadline: Deadline) -> None:
        self._present[deadline] = None
        if self._timer is not None and self._timer.when() > asyncio.get_running_loop().time() + self.seconds:
            self.stop()  # the timer is set for an overdue run, which is due later than this one
        if self._timer is None:
            self._arm(deadline.due)

    def _remove(self, deadline: Deadline) -> None:
        del self._present[deadline]
        self._in_a_row = 0

    def _arm(self, moment: float) -> None:
        seconds = max(0.0, moment - self.clock.monotonic())
        # Not in the run's context, which would stay alive as long as the timer.
        self._timer = asyncio.get_running_loop().call_later(seconds, self._check, context=Context())

    def _check(self) -> None:
        self._timer = None
        now = self.clock.monotonic() + RESOLUTION
        moments = [moment for deadline in tuple(self._present) if (moment := deadline.check(now)) is not None]
        if moments:
            self._arm(min(moments))


class Deadline:
    """`with Deadline(...)` around one run. `fields`: for log lines about it."""

    __slots__ = (
        "_cancelled",
        "_deadlines",
        "_lifted",
        "activities",
        "began",
        "due",
        "ended",
        "fields",
        "overdue",
        "worker",
    )

    def __init__(self, deadlines: Deadlines, activities: Activities, fields: Mapping[str, Any]) -> None:
        self.activities = activities
        self.fields = fields
        self.began = deadlines.clock.monotonic()
        self.due = self.began + deadlines.seconds
        self.ended = self.overdue = False
        self._deadlines = deadlines
        self.worker: asyncio.Task[Any] | None = None
        """The task of the run, once that has begun."""
        self._cancelled = self._lifted = False

    def __enter__(self) -> Deadline:
        self.worker = asyncio.current_task()
        self._deadlines._add(self)
        return self

    def __exit__(self, *_: object) -> None:
        self.ended = True
        self._deadlines._remove(self)
        if self.overdue:
            self._deadlines.report(self)

    def lift(self) -> bool:
        """Called when the reconcile has ended: what it left behind is no longer cancelled. Returns whether it was
        cancelled.
        """
        if self._cancelled and not self._lifted and self.worker is not None:
            self.worker.uncancel()
        self._lifted = True
        return self._cancelled

    def check(self, now: float) -> float | None:
        """Does what is due. Returns when to check again, or None for never."""
        if now < self.due:
            return self.due
        if self.worker is not None and not self._lifted and not self._cancelled:
            self._cancelled = True
            self.worker.cancel()
            self.activities.out_of_time = self.worker.cancelling()
        if now < self.due + OVERDUE:
            return self.due + OVERDUE
        if not self.overdue:
            self.overdue = True
            self._deadlines.report(self)
        return None
