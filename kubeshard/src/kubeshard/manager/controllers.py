"""The controllers and runnables of a process, each in the work group that fits the Lease it needs.

`always` works whenever the process may work at all, `elected` once it leads. What is added before the home cluster is
known starts with its group; what is added later starts at once. A controller has separate workers in each of its
clusters, so none of them waits for another cluster.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from typing import Any, NamedTuple

from kubeshard.cache.informer import Informer
from kubeshard.controller.cluster import Cluster
from kubeshard.controller.controller import Controller, check_controllers
from kubeshard.controller.in_flight import current_owner
from kubeshard.controller.runner import ControllerRunner, RemoteWatches
from kubeshard.controller.watch import check_classes
from kubeshard.core.clusters import located
from kubeshard.core.errors import ConfigurationError
from kubeshard.manager.membership import Membership
from kubeshard.manager.metrics import Metrics
from kubeshard.manager.runnable import Runnable, RunnableWork, Stop, Work, WorkGroup


class _Entry(NamedTuple):
    part: ControllerRunner | RemoteWatches
    group: WorkGroup
    sharded: bool = False


class Controllers:
    """`controllers`: those that are declared, in a list that follows what is added and removed. `sharding`: the process
    is a shard.

    Raises ValueError for duplicate controller names, ConfigurationError for controllers that read one kind as two
    classes.
    """

    def __init__(
        self,
        controllers: list[Controller[Any]],
        *,
        sharding: Membership | None,
        metrics: Metrics,
        stop: Stop,
    ) -> None:
        _check(controllers)
        self.declared = controllers
        self.runners: list[ControllerRunner] = []
        self.main: list[ControllerRunner] = []
        """The controllers of kinds that the ring shards."""
        self.always = WorkGroup("always", stop)
        self.elected = WorkGroup("elected", stop)
        self.clusters: tuple[dict[str, Cluster], dict[str, Cluster]] = ({}, {})
        """The current clusters by name: one for controllers that do not need leadership, and one for those that do."""
        self._entries: list[_Entry] = []
        self._leaving: set[str] = set()
        """Controllers that are being removed."""
        self._sharding = sharding
        self._metrics = metrics
        self._election = False

    def begin(self, cluster: Cluster, leading: Cluster, *, election: bool) -> None:
        """Sets the home cluster. Nothing runs before the groups do."""
        self._election = election
        self.engage(cluster, leading)

    def engage(self, cluster: Cluster, leading: Cluster) -> None:
        """Adds a cluster. Raises ConfigurationError; nothing has changed then."""
        for clusters, each in zip(self.clusters, (cluster, leading), strict=True):
            clusters[cluster.name] = each
        try:
            self._create(
                (controller, cluster.name)
                for controller in self.declared
                if controller.name not in self._leaving
            )
        except BaseException:
            self._forget(cluster.name)
            raise

    async def disengage(self, cluster: str) -> None:
        """Removes a cluster, whose objects are gone for reconcilers. Returns when all runs there have ended; if
        cancelled, it cancels them.
        """
        self._forget(cluster)
        for runner in self.runners_in(cluster):
            runner.leaves = True
        await self._remove_entries(each for each in self._entries if each.part.cluster == cluster)

    def add(self, controller: Controller[Any]) -> None:
        """Adds a controller. Raises like the class; nothing has changed then."""
        _check([*self.declared, controller])
        self._create((controller, cluster) for cluster in self.clusters[0])
        self.declared.append(controller)

    async def remove(self, name: str) -> None:
        """Returns when the controller's runs have ended. If cancelled, it cancels them, and the controller is removed
        anyway. Raises KeyError, ValueError for a controller that the ring shards, and RuntimeError in one of its own
        runs.
        """
        (controller,) = [each for each in self.declared if each.name == name] or (None,)
        if controller is None:
            raise KeyError(name)
        if any(runner.controller.name == name for runner in self.main):
            raise ValueError(
                f"controller {name} belongs to a ring: without it this shard would keep objects that nobody reconciles"
            )
        self.refuse_own_run(runner for runner in self.runners if runner.controller.name == name)
        self._leaving.add(name)
        try:
            await self._remove_entries(
                each for each in self._entries if _controller_of(each.part).name == name
            )
        finally:
            self._leaving.discard(name)
            if (
                controller in self.declared
            ):  # else another removal, which waited for the same, was here before
                self.declared.remove(controller)

    def refuse_own_run(self, leaving: Iterable[ControllerRunner]) -> None:
        """Raises RuntimeError if called in a run of one of them, which would wait for its own end."""
        owner = current_owner()
        if owner and any(runner.name == owner for runner in leaving):
            raise RuntimeError(
                f"a run of controller {owner} cannot remove the controller or its cluster, because it would wait for "
                "its own end: let a Runnable of the manager do it"
            )

    def add_work(self, runnables: Iterable[Runnable], works: Iterable[Work]) -> None:
        """Adds what is not a controller; `works` do not need leadership."""
        for runnable in runnables:
            group = self.elected if self._gated(runnable.needs_leadership, runnable.name) else self.always
            group.add(RunnableWork(runnable))
        for work in works:
            self.always.add(work)

    def runners_in(self, cluster: str) -> list[ControllerRunner]:
        return [runner for runner in self.runners if runner.cluster == cluster]

    def remote_watches_in(self, cluster: str) -> list[RemoteWatches]:
        parts = (entry.part for entry in self._entries)
        return [part for part in parts if isinstance(part, RemoteWatches) and part.cluster == cluster]

    def waiting(self) -> Sequence[str]:
        """What keeps controllers from working, for a person."""
        found = [
            f"controller {runner.name} waits for {', '.join(map(str, runner.waits_for())) or 'its right to work'}"
            for runner in self.runners
            if not runner.has_workers or runner.waits_for()
        ]
        return found or ([] if self.always.started else ["nothing has started yet"])

    def lasting(self) -> Iterator[str]:
        """A human-readable list of what a stop waits for."""
        yield from self.always.lasting()
        yield from self.elected.lasting()

    def heard(self) -> Iterator[tuple[Informer[Any], float | None]]:
        """The primary kinds of a shard's controllers, and when a server last responded about each (monotonic). Nothing
        if the process owns no objects that others could have.
        """
        if self.main:
            for runner in self.runners:
                yield runner.primary, runner.primary.last_answered

    def hanging(self) -> Iterator[str]:
        """The controllers that cannot go on, and why."""
        for runner in self.runners:
            if problem := runner.hanging():
                yield f"controller {runner.name}: {problem}"

    def _create(self, wanted: Iterable[tuple[Controller[Any], str]]) -> None:
        """Creates workers for controllers in clusters, and their watches across clusters. May raise; nothing
        has changed then.
        """
        made: list[_Entry] = []
        names: list[str] = []
        try:
            for controller, cluster in wanted:
                names.append(located(controller.name, cluster))
                if cluster in controller.clusters and (entry := self._entry_for(controller, cluster)):
                    made.append(entry)
            for entry in [*self._entries, *made]:
                made += self._remote_watches(entry)
        except BaseException:
            for entry in made:
                entry.part.discard()
            for name in names:
                self._metrics.forget(name)
            raise
        self._entries += made
        for part, group, sharded in made:
            if isinstance(part, ControllerRunner):
                self.runners.append(part)
                self._metrics.watch_queue(part.queue)
                if sharded:
                    self.main.append(part)
            group.add(part)

    def _entry_for(self, controller: Controller[Any], cluster: str) -> _Entry | None:
        wrapped = controller if self._sharding is None else self._sharding.wrap(controller, cluster)
        if wrapped is None:
            return None
        sharded = wrapped is not controller
        gated = self._gated(controller.needs_leadership and not sharded, controller.name)
        runner = _measured(wrapped, self.clusters[gated][cluster], self._metrics)
        runner.runner_in = partial(self._runner_in, controller.name)
        runner.gate = None if self._sharding is None else self._sharding.gate(controller, cluster)
        return _Entry(runner, self.elected if gated else self.always, sharded)

    def _remote_watches(self, entry: _Entry) -> Iterable[_Entry]:
        """The remote watches that a controller still lacks."""
        runner = entry.part
        if not isinstance(runner, ControllerRunner) or not runner.controller.crossing_watches:
            return
        if runner.cluster not in self.clusters[0] or runner.controller.name in self._leaving:
            return  # it is being removed together with its remote watches
        there = [
            each.part.cluster
            for each in self._entries
            if isinstance(each.part, RemoteWatches) and each.part.runner is runner
        ]
        clusters = self.clusters[entry.group is self.elected]
        for name, cluster in clusters.items():
            if name not in there and any(
                name in (w.clusters or ()) for w in runner.controller.crossing_watches
            ):
                yield _Entry(RemoteWatches(runner, cluster), entry.group)

    def _runner_in(self, controller: str, cluster: str) -> ControllerRunner | None:
        return next((each for each in self.runners_in(cluster) if each.controller.name == controller), None)

    async def _remove_entries(self, entries: Iterable[_Entry]) -> None:
        """Returns when all of them, and the remote watches of the controllers among them, have ended. If cancelled, it
        ends them at once.
        """
        leaving = list(entries)
        runners = [each.part for each in leaving]
        leaving += [
            each
            for each in self._entries
            if isinstance(each.part, RemoteWatches) and each.part.runner in runners and each not in leaving
        ]
        async with asyncio.TaskGroup() as tasks:
            for each in leaving:
                tasks.create_task(self._end(each), name=f"{each.part.name} leaves")

    async def _end(self, entry: _Entry) -> None:
        part, group, _ = entry
        try:
            await group.remove(part)
        finally:
            if entry in self._entries:  # else another removal, which waited for the same end, was here before
                self._entries.remove(entry)
                if isinstance(part, ControllerRunner):
                    self.runners.remove(part)
                    self._metrics.forget(part.name)
                    if part in self.main:
                        self.main.remove(part)
                await part.close()

    def _forget(self, cluster: str) -> None:
        for clusters in self.clusters:
            clusters.pop(cluster, None)

    def _gated(self, needs_leadership: bool, name: str) -> bool:
        """Whether it must wait for leadership."""
        if needs_leadership and not self._election and self._sharding is not None:
            raise ConfigurationError(
                f"{name} needs leadership and is not sharded, so every shard would run it: give the manager a "
                "leader_election, or set needs_leadership=False; a controller is sharded if its kind is a main "
                "resource of the ring"
            )
        return needs_leadership and self._election


def measured(controller: Controller[Any], cluster: Cluster, metrics: Metrics) -> ControllerRunner:
    """The controller's workers, which report to `metrics`."""
    runner = _measured(controller, cluster, metrics)
    metrics.watch_queue(runner.queue)
    return runner


def _measured(controller: Controller[Any], cluster: Cluster, metrics: Metrics) -> ControllerRunner:
    name = located(controller.name, cluster.name)
    return ControllerRunner(
        controller,
        cluster,
        metrics=metrics.controller(name, controller.workers),
        queue_metrics=metrics.queue(name),
    )


def _controller_of(part: ControllerRunner | RemoteWatches) -> Controller[Any]:
    return part.controller if isinstance(part, ControllerRunner) else part.runner.controller


def _check(controllers: Sequence[Controller[Any]]) -> None:
    check_controllers(controllers)
    check_classes(
        watch
        for controller in controllers
        for watch in (*controller.all_watches, *controller.crossing_watches)
    )
