"""What a controller tells about itself.

Observations as they happen; the manager turns them into the metrics that Kubernetes dashboards know:
`controller_runtime_reconcile_total`, `controller_runtime_reconcile_time_seconds`, ...
"""

from __future__ import annotations

from typing import Literal, Protocol

from kubeshard.controller.outcomes import Outcome

TriggerStep = Literal["predicate", "map"]


class ControllerMetrics(Protocol):
    """Observations of one controller. Called inline: must neither block nor raise."""

    def started(self) -> None:
        """A worker began a run."""
        ...

    def finished(self, outcome: Outcome | None, seconds: float) -> None:
        """The run ended; without an outcome when the right to work ended first."""
        ...

    def overdue(self, change: int) -> None:
        """One run more (1) or less (-1) has not ended although its time is over."""
        ...

    def trigger_failed(self, source: str, step: TriggerStep) -> None:
        """A predicate or map function of the watch of `source` raised."""
        ...


class NoMetrics:
    def started(self) -> None: ...

    def finished(self, outcome: Outcome | None, seconds: float) -> None: ...

    def overdue(self, change: int) -> None: ...

    def trigger_failed(self, source: str, step: TriggerStep) -> None: ...
