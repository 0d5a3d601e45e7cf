"""The oracles of an author's operator: they need know nothing about its kinds.

Not judged: what a filter or a narrower scope of its watch keeps from a controller.
"""

from __future__ import annotations

import dataclasses
import functools
import json
from collections import Counter, defaultdict, deque
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, NamedTuple

import msgspec

from kubeshard.cache.deltas import Added
from kubeshard.controller.context import Context
from kubeshard.controller.controller import Controller
from kubeshard.controller.reconciler import ReconcileFn, Result
from kubeshard.core.encoding import decode
from kubeshard.core.kinds import GroupResource
from kubeshard.core.objects import Key, KubeObject, ObjectMeta
from kubeshard.manager.leader_election import USER_AGENT as ELECTION
from kubeshard.runtime.logs import error_line
from kubeshard.runtime.transport import HttpRequest, HttpResponse
from kubeshard_apiserver.history import Event
from kubeshard_lab.simulation import properties as rules
from kubeshard_lab.simulation.cluster import SimulatedCluster
from kubeshard_lab.simulation.deliveries import LEASES
from kubeshard_lab.simulation.history import Began, Ended, Recorder
from kubeshard_lab.simulation.operators.families import Families, controller_uid
from kubeshard_lab.simulation.operators.recording import Requested
from kubeshard_lab.simulation.operators.shape import Shape
from kubeshard_lab.simulation.operators.snapshot import Invariant, Snapshot
from kubeshard_lab.simulation.oracles import Job, Oracles, Sender, SimulationResult, labels_of
from kubeshard_lab.simulation.processes import Process, is_sharders, name_of

_Counted = Counter[tuple[str, str]]


class _Run(NamedTuple):
    """A reconcile, or (`lasting`) a daemon."""

    number: int
    controller: str
    key: Key
    lasting: bool = False


class _Child(NamedTuple):
    key: Key
    process: str
    run: _Run | None
    at: float


DaemonFn = Callable[[Context, Any], Awaitable[None]]

_RUN: ContextVar[_Run | None] = ContextVar("run", default=None)


class OperatorOracles(Oracles):
    """`always`: invariants of the author, by name."""

    properties = rules.OF_OPERATORS

    def __init__(
        self,
        world: SimulatedCluster,
        result: SimulationResult,
        until: str,
        shape: Shape,
        families: Families,
        always: Mapping[str, Invariant],
    ) -> None:
        super().__init__(world, result, until)
        self._shape = shape
        self._families = families
        self._always = always
        self.snapshot = Snapshot(world.server.store)
        self.recorder: Recorder
        self._number = 0
        self._seen: dict[tuple[str, Key], ObjectMeta] = {}
        """Each object as it was when a reconcile of it began that succeeded."""
        self._wrote: dict[tuple[str, str, str], int] = {}
        """The version after the last write by reconciles of each process and controller to each of their objects."""
        self._runs: dict[int, tuple[HttpRequest, _Run | None]] = {}
        """The reconcile that sent each request."""
        self._children: dict[tuple[str, GroupResource], list[_Child]] = defaultdict(list)
        self._leaders: dict[Key, str] = {}
        """The process that holds the Lease of each election."""
        self._failed: dict[tuple[str, Key], str] = {}
        """Why the last reconcile of each object has failed."""
        self._failures: deque[BaseException] = deque(maxlen=1000)
        self._calm: tuple[_Counted, _Counted] | None = None
        """Writes and reconciles since the cluster should be quiet."""
        self._violated: set[str] = set()
        self._leads = shape.in_turns and all(each.needs_leadership for each in shape.controllers)

    # -- reconciles

    def watching(self, process: str, controller: Controller[Any]) -> Controller[Any]:
        """The controller, whose reconciles are watched from now on."""
        name, exclusive = controller.name, self._shape.exclusive(controller)
        resource = GroupResource(*controller.primary_watch.form.kind.group_resource)

        def around(inner: ReconcileFn) -> ReconcileFn:
            async def reconcile(ctx: Context, obj: Any) -> Result | None:
                if obj is None:  # it is gone, or another shard's by now: there is nothing to work on
                    return await inner(ctx, obj)
                with self._working(process, name, resource, ctx.key, obj, exclusive=exclusive):
                    return await inner(ctx, obj)

            return reconcile

        daemons = tuple(
            dataclasses.replace(each, function=self._lasting(name, each.function))
            for each in controller.daemons
        )
        return dataclasses.replace(controller, daemons=daemons).wrapped(around)

    def _lasting(self, controller: str, function: DaemonFn) -> DaemonFn:
        """What a daemon writes is not what the reconcile in which it began writes."""

        @functools.wraps(function)
        async def run(ctx: Context, obj: Any) -> None:
            self._number += 1
            _RUN.set(_Run(self._number, controller, ctx.key, lasting=True))
            await function(ctx, obj)

        return run

    @contextmanager
    def _working(
        self,
        process: str,
        controller: str,
        resource: GroupResource,
        key: Key,
        obj: KubeObject,
        *,
        exclusive: bool,
    ) -> Iterator[None]:
        self._number += 1
        self._result.counts["reconciles"] += 1
        key = Key(key.namespace, key.name)
        there = self._world.objects(*resource).get(key)
        family = self._families.name(resource, there) if there else key.name
        self.recorder.add(Began, process, family, obj.metadata.uid)
        job = Job(controller, obj.metadata.uid)
        if exclusive:
            self._judge_overlap(process, job, str(key), family)
        self._judge_reads(process, controller, key, obj.metadata, family)
        if self._calm:
            self._calm[1][str(key), family] += 1
        self._at_work[job].append(process)
        token = _RUN.set(_Run(self._number, controller, key))
        try:
            yield
        except Exception as error:
            self._failures.append(error)
            self._failed[controller, key] = error_line(error)
            self._result.counts[f"failed reconciles: {type(error).__name__}"] += 1
            raise
        else:
            self._seen[controller, key] = obj.metadata
            self._failed.pop((controller, key), None)
        finally:
            _RUN.reset(token)
            self._at_work[job].remove(process)
            self.recorder.add(Ended, process, family, obj.metadata.uid)

    def _judge_reads(self, process: str, controller: str, key: Key, meta: ObjectMeta, family: str) -> None:
        wrote = self._wrote.get((process, controller, meta.uid), 0)
        if int(meta.resource_version) < wrote:
            self.broken(
                rules.STALE_READ,
                f"{process} begins with {key} at version {meta.resource_version}, and has itself written "
                f"version {wrote}",
                family,
            )

    def expects(self, error: BaseException | None) -> bool:
        return any(error is each for each in self._failures)

    # -- requests

    def _leaving(self, process: Process, request: HttpRequest) -> None:
        if request.method == "GET" or is_sharders(process, request):
            return
        run = _RUN.get()
        self._runs[id(request)] = request, run
        requested = Requested.of(request)
        if requested.says_nothing:
            return
        leaders = set(self._leaders.values())
        if self._leads and leaders and process.name not in leaders and run is not None:
            leader = " and ".join(sorted(leaders))
            if not any(map(self._dead, leaders)):
                self.broken(
                    rules.STALE_LEADER,
                    f"{process.name} sends {request.method} {requested.resource.resource}, and {leader} leads",
                    run.key.name,
                )
        if request.method == "POST" and requested.metadata.get("generateName"):
            self._judge_create(process, requested, run)

    def _judge_create(self, process: Process, requested: Requested, run: _Run | None) -> None:
        """Whoever creates another child with a name of its own has seen those that it has created."""
        owner = controller_uid(requested.metadata)
        for child in self._children.get((owner, requested.resource), ()):
            if child.run == run or child.key not in self._world.objects(*requested.resource):
                continue
            if self._sees(process, requested.resource, child.key) is False:
                family = self._families.name(requested.resource, {"metadata": requested.metadata})
                self.broken(
                    rules.STALE_READ,
                    f"{process.name} creates another {requested.body.get('kind', 'child')} for {family}, and its cache "
                    f"lacks {child.key}, which {child.process} has created {self._now - child.at:.2f} s before",
                    family,
                )
                return

    def _sees(self, process: Process, resource: GroupResource, key: Key) -> bool | None:
        """Whether the object is in a cache of the process; None if its kind is not cached there."""
        assert process.manager is not None
        caches = [
            informer
            for informer in process.manager.cache.informers
            if GroupResource(*informer.form.kind.group_resource) == resource
        ]
        return any(informer.store.metadata(key) is not None for informer in caches) if caches else None

    def _observed(self, process: Process, request: HttpRequest, answer: HttpResponse | None) -> None:
        _, run = self._runs.get(id(request), (request, None))
        if answer is None or run is None or run.lasting or request.method == "GET" or answer.status >= 300:
            return
        requested = Requested.of(request)
        if requested.resource not in self._shape.resources or requested.name != run.key.name:
            return
        there = self._world.objects(*requested.resource).get(run.key)
        written = (json.loads(answer.body).get("metadata") or {}).get("resourceVersion", "")
        if there is not None and written.isdigit():
            place = process.name, run.controller, there["metadata"]["uid"]
            self._wrote[place] = max(self._wrote.get(place, 0), int(written))

    # -- what is stored

    def _stored(self, resource: GroupResource, event: Event, sender: Sender) -> None:
        if resource == LEASES:
            self._judge_lease(event.key, event.new, sender)
            return
        if resource.resource == "events":
            return
        some: Any = event.new or event.old
        family = self._families.name(resource, some)
        if sender is not None and not is_sharders(*sender):
            process, request = sender
            self._result.counts["writes"] += 1
            if self._calm:
                what = f"{some.get('kind', resource.resource)} {event.key}"
                self._calm[0][what, family or event.key.name] += 1
            if event.old is None:
                _, run = self._runs.get(id(request), (request, None))
                owner = controller_uid(some["metadata"])
                self._children[owner, resource].append(_Child(event.key, process.name, run, self._now))
            self._judge_owner(resource, event.old, event.new, process, family)
        for name, invariant in self._always.items():
            self.judge(rules.ALWAYS, name, invariant, family)

    def _judge_lease(self, key: Key, new: Any, sender: Sender) -> None:
        if sender is None or not sender[1].headers["User-Agent"].endswith(f"/{ELECTION}"):
            return
        process = sender[0].name
        if new is not None and new["spec"].get("holderIdentity"):
            self._leaders[key] = process
        elif self._leaders.get(key) == process:
            del self._leaders[key]

    def _judge_owner(
        self, resource: GroupResource, old: Any, new: Any, process: Process, family: str
    ) -> None:
        """Of a ring's objects only: they name their shard."""
        if old is None or resource not in self._shape.resources or not self._shape.label:
            return
        shard = labels_of(old).get(self._shape.label, name_of(process.name))
        if shard != name_of(process.name) and (new is None or _but_labels(old) != _but_labels(new)):
            self.broken(rules.STALE_WRITE, f"{process.name} writes {family}, which is {shard}'s", family)

    def judge(self, oracle: rules.Property, name: str, invariant: Invariant, family: str = "") -> None:
        """Reports it once: about `family`, which was just written, or the object that the message names."""
        try:
            invariant(self.snapshot)
        except AssertionError as error:
            if name not in self._violated:
                self._violated.add(name)
                said = " ".join(str(error).split())
                about = family or self._families.named_in(said)
                self.broken(oracle, said or "does not hold", about, invariant=name)

    # -- the end

    def unsettled(self, names: frozenset[str]) -> list[str]:
        """Which of these objects have not been reconciled as they are."""
        found = []
        for controller in self._shape.controllers:
            watch = controller.primary_watch
            resource = GroupResource(*watch.form.kind.group_resource)
            for key, obj in sorted(self._world.objects(*resource).items()):
                metadata = obj["metadata"]
                if key.name not in names:
                    continue
                if metadata.get("deletionTimestamp"):
                    found.append(f"{key.name} was deleted, and its finalizers are still there")
                    continue
                seen = self._seen.get((controller.name, key))
                failed = self._failed.get((controller.name, key))
                because = f": {failed}" if failed else ""
                if seen is None or seen.uid != metadata["uid"]:
                    if watch.scope is None and watch.when(
                        Added(decode(watch.form, msgspec.json.encode(obj)))
                    ):
                        found.append(f"{key.name} was never reconciled successfully{because}")
                elif seen.generation < metadata.get("generation", 0):
                    found.append(
                        f"{key.name} was last reconciled successfully at generation {seen.generation}, and is at "
                        f"{metadata['generation']}{because}"
                    )
        return found

    def quiet(self) -> None:
        """From now on there should be nothing to do."""
        self._calm = Counter(), Counter()

    def judge_quiet(self) -> None:
        assert self._calm is not None
        judged = zip(
            (rules.ENDLESS_WRITES, rules.HOT_LOOP), ("writes", "reconciles"), self._calm, strict=True
        )
        for oracle, what, counts in judged:
            for (name, family), count in counts.most_common(1):
                if count >= oracle.bound:
                    said = f"{count} {what} of {name} in {rules.QUIET:g} s although nothing changes"
                    self.broken(oracle, said, family)
        self._calm = None


def _but_labels(obj: Any) -> Any:
    metadata = {**obj["metadata"], "labels": None, "annotations": None}
    metadata.update(resourceVersion="", managedFields=None)
    return {**obj, "metadata": metadata}
