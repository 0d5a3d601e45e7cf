"""Who works in a process: its controllers and runnables, each in the shift that its rights allow.

`always` works whenever the process may work at all, `elected` once it leads. What is engaged before the cluster is
known begins with its shift; what is engaged later begins at once.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from kubeshard.controller.cluster import Cluster
from kubeshard.controller.controller import Controller, check_controllers
from kubeshard.controller.runner import ControllerRunner
from kubeshard.controller.watch import check_classes
from kubeshard.core.errors import ConfigurationError
from kubeshard.manager.membership import Membership
from kubeshard.manager.metrics import Metrics
from kubeshard.manager.runnable import Runnable, RunnableWork, Shift, Stop, Work


class Staff:
    """`sharding`: the process is a shard; `election` is set before `begin` where somebody is elected.

    Raises ValueError for controllers of one name, ConfigurationError for controllers that read one kind as two classes.
    """

    def __init__(
        self,
        controllers: Sequence[Controller[Any]],
        *,
        sharding: Membership | None,
        metrics: Metrics,
        stop: Stop,
    ) -> None:
        _check(controllers)
        self.controllers = list(controllers)
        self.runners: list[ControllerRunner] = []
        self.main: list[ControllerRunner] = []
        """Those of what the ring shards."""
        self.always = Shift("always", stop)
        self.elected = Shift("elected", stop)
        self._sharding = sharding
        self._metrics = metrics
        self._clusters: tuple[Cluster, Cluster] | None = None
        self._election = False

    def begin(self, cluster: Cluster, leading: Cluster, *, election: bool) -> None:
        """The clusters are known, as those see them who need no leadership, and who do. Nothing of it runs before the
        shifts do.
        """
        self._clusters, self._election = (cluster, leading), election
        for controller in self.controllers:
            self._employ(controller)

    def add(self, controller: Controller[Any]) -> None:
        """Raises as the class; then nothing has changed."""
        _check([*self.controllers, controller])
        if self._clusters is not None:
            self._employ(controller)
        self.controllers.append(controller)

    async def remove(self, name: str) -> None:
        """Returns when the controller's runs have ended. Cancelled, it cancels them, and the controller is gone all the
        same. Raises KeyError, ValueError for one that the ring shards.
        """
        (controller,) = [each for each in self.controllers if each.name == name] or (None,)
        if controller is None:
            raise KeyError(name)
        runner = next((each for each in self.runners if each.name == name), None)
        if runner in self.main:
            raise ValueError(
                f"controller {name} is one of a ring: without it this shard would keep objects that nobody works on"
            )
        if runner is None:
            self.controllers.remove(controller)
            return
        try:
            await self.always.remove(runner)
            await self.elected.remove(runner)
        finally:
            if runner in self.runners:  # else another removal, which waited for the same end, was here before
                self.runners.remove(runner)
                self.controllers.remove(controller)
                self._metrics.unwatch_queue(runner.queue)
                await runner.close()

    def employ(self, runnables: Iterable[Runnable], works: Iterable[Work]) -> None:
        """What is no controller; `works` need no leadership."""
        for runnable in runnables:
            shift = self.elected if self._gated(runnable.needs_leadership, runnable.name) else self.always
            shift.add(RunnableWork(runnable))
        for work in works:
            self.always.add(work)

    def due(self) -> Iterable[tuple[str, float | None]]:
        """When (monotonic) the first of each controller's runs has to have ended."""
        return ((runner.name, runner.overdue_since) for runner in self.runners)

    def _employ(self, controller: Controller[Any]) -> None:
        wrapped = controller if self._sharding is None else self._sharding.wrap(controller)
        if wrapped is None:
            return
        assert self._clusters is not None
        sharded = wrapped is not controller
        gated = self._gated(controller.needs_leadership and not sharded, controller.name)
        runner = measured(wrapped, self._clusters[gated], self._metrics)
        self.runners.append(runner)
        if sharded:
            self.main.append(runner)
        (self.elected if gated else self.always).add(runner)

    def _gated(self, needs_leadership: bool, name: str) -> bool:
        """Whether it has to wait for leadership."""
        if needs_leadership and not self._election and self._sharding is not None:
            raise ConfigurationError(
                f"{name} needs leadership and is not sharded, so every shard would run it: give the manager a "
                "leader_election, or say needs_leadership=False; a controller is sharded if its kind is a main "
                "resource of the ring"
            )
        return needs_leadership and self._election


def measured(controller: Controller[Any], cluster: Cluster, metrics: Metrics) -> ControllerRunner:
    """The controller's workers, which tell of themselves in `metrics`."""
    runner = ControllerRunner(
        controller,
        cluster,
        metrics=metrics.controller(controller.name, controller.workers),
        queue_metrics=metrics.queue(controller.name),
    )
    metrics.watch_queue(runner.queue)
    return runner


def _check(controllers: Sequence[Controller[Any]]) -> None:
    check_controllers(controllers)
    check_classes(watch for controller in controllers for watch in controller.watches)
