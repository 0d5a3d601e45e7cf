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

Guaranteed: the worker is cancelled once, at the deadline, if the run has begun and `lift` was not called; `lift`
takes the cancellation back, so that a cancellation from outside can be distinguished from it. It may come RESOLUTION
seconds early.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from contextvars import Context
from typing import Any

from kubeshard.controller.in_flight import Activities, InFlight
from kubeshard.controller.outcomes import ControllerMetrics
from kubeshard.core.kinds import GroupKind
from kubeshard.core.objects import Key
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


class Timed(Activities):
    """A run with a deadline, from `Deadlines.begin` to `Deadlines.end`. `fields`: for log lines about it. `worker`: its
    task.
    """

    _cancelled = _lifted = _overdue = False

    def __init__(
        self,
        in_flight: InFlight,
        owner: str,
        kind: GroupKind,
        key: Key,
        fields: Mapping[str, Any],
        worker: asyncio.Task[Any],
    ) -> None:
        super().__init__(in_flight, owner, kind, key)
        self.fields = fields
        self.worker = worker
        self.began: float
        """Monotonic seconds."""
        self.due: float

    def lift(self) -> bool:
        """Called when the reconcile has ended: what it left behind is no longer cancelled. Returns whether it was
        cancelled.
        """
        if self._cancelled and not self._lifted:
            self.worker.uncancel()
        self._lifted = True
        return self._cancelled


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
        quarantined: Callable[[Timed], None] = lambda run: None,
    ) -> None:
        self.seconds = seconds
        self._clock = clock
        self._workers = workers
        self._quarantined = quarantined
        self._hanging: dict[Timed, None] = {}
        """The quarantined runs, the first one first."""
        self._in_a_row = 0
        """How many were quarantined since any run ended."""
        self._metrics = metrics
        self._log = log
        self._present: dict[Timed, None] = {}
        """The current runs, in the order in which they started."""
        self._timer: asyncio.TimerHandle | None = None
        self._armed_for = 0.0
        """When it checks (monotonic seconds)."""

    def problem(self) -> str | None:
        """Why the controller cannot go on; None while it can."""
        if not self._hanging:
            return None
        bound = max(TOLERATED, self._workers)
        if len(self._hanging) <= bound and self._in_a_row < self._workers + IN_A_ROW:
            return None
        which = ", ".join(str(run.fields["object"]) for run in self._hanging)
        if len(self._hanging) > bound:
            return f"{len(self._hanging)} reconciles do not end, more than the {bound} that are tolerated: {which}"
        return f"{self._in_a_row} reconciles in a row do not end, and no other one has ended since: {which}"

    def stop(self) -> None:
        """Stops checking runs."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def begin(self, run: Timed) -> None:
        run.timeout = self.seconds
        run.began = self._clock.monotonic()
        run.due = run.began + self.seconds
        self._present[run] = None
        if self._timer is not None and self._armed_for > run.due:
            self.stop()  # the timer is set for an overdue run, which is due later than this one
        if self._timer is None:
            self._arm(run.due)

    def end(self, run: Timed) -> float:
        """Returns how many seconds it took."""
        seconds = self._clock.monotonic() - run.began
        del self._present[run]
        self._in_a_row = 0
        if run in self._hanging:
            del self._hanging[run]
            self._metrics.overdue(-1)
            self._log.bind(**run.fields).info("Overdue reconcile has ended", seconds=seconds)
        return seconds

    def _arm(self, moment: float) -> None:
        self._armed_for = moment
        seconds = max(0.0, moment - self._clock.monotonic())
        # Not in the run's context, which would stay alive as long as the timer.
        self._timer = asyncio.get_running_loop().call_later(seconds, self._check, context=Context())

    def _check(self) -> None:
        self._timer = None
        now = self._clock.monotonic() + RESOLUTION
        if moments := [moment for run in tuple(self._present) if (moment := self._checked(run, now))]:
            self._arm(min(moments))

    def _checked(self, run: Timed, now: float) -> float | None:
        """Does what is due. Returns when to check again, or None for never."""
        if now < run.due:
            return run.due
        if not run._lifted and not run._cancelled:
            run._cancelled = True
            run.worker.cancel()
            run.out_of_time = run.worker.cancelling()
        if now < run.due + OVERDUE:
            return run.due + OVERDUE
        if not run._overdue:
            run._overdue = True
            self._quarantine(run)
        return None

    def _quarantine(self, run: Timed) -> None:
        self._hanging[run] = None
        self._in_a_row += 1
        self._metrics.overdue(1)
        self._log.bind(**run.fields).error(
            "Reconcile is overdue and still running",
            threads=len(run.threads),
            seconds=self._clock.monotonic() - run.began,
            hanging=len(self._hanging),
        )
        self._quarantined(run)
