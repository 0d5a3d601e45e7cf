"""The observations of a controller.

Reported as they happen; the manager turns them into the metrics that Kubernetes dashboards know:
`controller_runtime_reconcile_total`, `controller_runtime_reconcile_time_seconds`, ...
"""

from __future__ import annotations

from typing import Literal, Protocol

from kubeshard.controller.outcomes import Outcome

TriggerStep = Literal["predicate", "map"]


class ControllerMetrics(Protocol):
    """Observations of one controller. Called inline: must neither block nor raise."""

    def started(self) -> None:
        """A worker started a run."""
        ...

    def finished(self, outcome: Outcome | None, seconds: float) -> None:
        """The run ended; without an outcome if the process lost its Lease first."""
        ...

    def overdue(self, change: int) -> None:
        """A run has become overdue (1), or an overdue run has ended (-1)."""
        ...

    def trigger_failed(self, source: str, step: TriggerStep) -> None:
        """A predicate or map function of the watch of `source` raised."""
        ...


class NoMetrics:
    def started(self) -> None: ...

    def finished(self, outcome: Outcome | None, seconds: float) -> None: ...

    def overdue(self, change: int) -> None: ...

    def trigger_failed(self, source: str, step: TriggerStep) -> None: ...
