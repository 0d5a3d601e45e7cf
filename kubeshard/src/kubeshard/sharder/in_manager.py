"""The sharder of one ring inside the ring's own controllers: all instances are candidates for leader election.

    every candidate   caches (shard Leases, Namespaces, the ring's ControllerRing if there is one), lease observer
    the leader        what the leader of the sharder service runs: shardlease controller, assignments

There is no webhook: objects are assigned by the watch on unassigned ones, soon after they were created. Memory does
not grow with the number of objects.

The ring is defined by the ControllerRing if there is one, and otherwise by what the controllers declare; changes are
followed. A sharder service that works on the same ring makes the same decisions, and both may run at once, like any two
sharders: each write is a compare-and-swap on the state that was decided on. Only a service cleans up after a ring:
while one is being deleted that has the finalizer for that, nothing is assigned here.

The leader writes to its Lease, `sharder-<ring>`, which ring that is and what the controllers declare, for people and
tools (`kubectl shard`). What a service would write into the ring's conditions are events about that Lease, or, by
ranges, about the ConfigMap with the assignment.

An instance that loses leadership stops the sharder, not the process, and becomes a candidate again: writes in progress
are refused from that moment on, and a write that was sent already takes effect only on an unchanged object. The same
holds for an instance with a crashed sharder; its leadership is left to expire, so that another instance leads next.

An instance that lacks a right, or whose ranges are not those of the ring, cannot do a sharder's work, but it can renew
the sharder's Lease. So it gives the Lease up when that has lasted for `PATIENCE`, and from then on leaves it to others:
it leads only when none of them wants to. All that it can do alone, it does meanwhile. Nobody knows who of the others
can do better, so each time it waits twice as long until it gives the Lease up again.

RBAC: get, list, watch on namespaces, and on the ControllerRing unless the ring's resources are given; list, watch,
create, update, patch, delete on leases in all namespaces; get, list, watch, patch on the ring's resources in all
namespaces; create, patch on events.

With ranges, what the leader runs in place of assignments is `range_coordinator`, and the rights are those on Leases and
events, and its own.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager, suppress
from functools import partial
from typing import Protocol

from msgspec.structs import replace

from kubeshard.cache.cache import Cache
from kubeshard.cache.deltas import Added, Deleted, Delta, Updated
from kubeshard.cache.informer import Informer
from kubeshard.cache.scope import Scope
from kubeshard.cache.stats import PATIENCE_FOR_LOGS
from kubeshard.client.client import Client
from kubeshard.controller.cluster import Cluster
from kubeshard.controller.event_series import ObjectReference, reference
from kubeshard.controller.events import EventRecorder
from kubeshard.controller.syncing import is_served, sync_problem, until_filled
from kubeshard.core.builtin import ConfigMap, Lease
from kubeshard.core.conditions import Condition
from kubeshard.core.encoding import encode
from kubeshard.core.objects import ObjectMeta
from kubeshard.core.selectors import FieldSelector, LabelSelector
from kubeshard.leases.held_lease import Gate, Renews
from kubeshard.manager.controllers import measured
from kubeshard.manager.leader_election import LeaderElection, LeaderElector, LeaderFence
from kubeshard.manager.membership import HealthGate, RightLost, holding
from kubeshard.manager.metrics import Metrics
from kubeshard.manager.runnable import Runnable, RunnableWork, Stop, WorkGroup
from kubeshard.runtime.backoff import Backoff, BackoffPolicy
from kubeshard.runtime.clock import Clock
from kubeshard.runtime.logs import get_logger
from kubeshard.runtime.loop import apart
from kubeshard.runtime.notices import Notices
from kubeshard.sharder.assignments import LabelAssignor
from kubeshard.sharder.bucket_labels import EVERYWHERE, Read
from kubeshard.sharder.config import SharderControllerConfig, WebhookConfig
from kubeshard.sharder.lease_controller import lease_controller
from kubeshard.sharder.lease_observer import LeaseObserver
from kubeshard.sharder.metrics import SharderMetrics, StateCollector
from kubeshard.sharder.range_coordinator import RangeAssignor
from kubeshard.sharder.rings import Rings, reading
from kubeshard.sharder.tasks import Crashes, supervised
from kubeshard.sharding.api import ControllerRing
from kubeshard.sharding.buckets import Buckets
from kubeshard.sharding.conditions import CHANGING, LOGGED_BEFORE, OWN_CONDITIONS, findings, hindering
from kubeshard.sharding.names import (
    DECLARED_RING_ANNOTATION,
    SHARDER_FIELD_MANAGER,
    SHARDER_LABEL,
    assignment_name,
)
from kubeshard.sharding.ring import Chains, Namespaces, OwnerKinds, Ring, RingInputs
from kubeshard.sharding.ring_resources import RingResources

PATIENCE = BackoffPolicy(initial=10.0, cap=600.0, jitter=0.0, reset_after=1800.0)
"""How long a leader tries what it cannot do, and after how many seconds without trouble the next one is the first."""
AFTER_FAILURE = 30.0
"""Seconds until an instance is a candidate again after its sharder crashed: another one leads meanwhile."""

_log = get_logger("kubeshard.sharder")


def default_selector() -> LabelSelector:
    """The selector for rings without a namespace selector: the default of the sharder service."""
    return WebhookConfig().namespace_selector


class Assignor(Protocol):
    """How objects reach the shards of a ring, as far as its sharder is concerned: `LabelAssignor`, `RangeAssignor`."""

    @property
    def kinds(self) -> OwnerKinds: ...
    @property
    def chains(self) -> Chains | None: ...
    @property
    def namespaces(self) -> Namespaces: ...

    def ready(self, rings: Rings) -> AbstractAsyncContextManager[None]:
        """Enters when decisions are possible, and keeps them so."""
        ...

    async def lead(
        self, rings: Rings, observer: LeaseObserver, objects: Client, leases: Client, *, first: bool
    ) -> None:
        """For one term, until cancelled. The clients write only while this process leads. `first`: nobody has led
        before.
        """
        ...


class Patience:
    """Whether a leader that cannot do what it has to gives the leadership up, and for how long others lead rather than
    it. Sans-IO; all times are monotonic seconds.
    """

    def __init__(self) -> None:
        self._backoff = Backoff(PATIENCE)
        self.ends_at = math.inf
        """When it is exhausted; infinite while nothing hinders."""
        self.defers_until = -math.inf

    def leads(self) -> None:
        """A term begins."""
        self.ends_at = math.inf

    def exhausted(self, now: float, *, hindered: bool) -> bool:
        """Whether it is time to give up."""
        if not hindered:
            self.ends_at = math.inf
        elif self.ends_at == math.inf:
            self.ends_at = now + self._backoff.failed(now)
        elif now >= self.ends_at:
            self.defers_until = now + PATIENCE.reset_after
            return True
        return False


class InManagerSharder:
    """A candidate (`kubeshard.manager.runnable.Work`), run once. `declared` is the ring if there is no ControllerRing;
    None means that there is nothing to do then. `looks_for_ring` False: `declared` is always used. `client` is for the
    cluster with Leases and ControllerRing, `objects` for the one with the ring's objects and their Namespaces, called
    `objects_in` in logs. `ranges`: how objects are divided in a ring by ranges, and None in one by labels; `read`: what
    its shards read. `own`: the Lease of this process's own shard.
    """

    name = "sharder"

    def __init__(
        self,
        ring: str,
        declared: ControllerRing | None,
        client: Client,
        election: LeaderElection,
        *,
        objects: Client,
        objects_in: str,
        events: EventRecorder,
        metrics: Metrics,
        health: HealthGate,
        looks_for_ring: bool = True,
        ranges: Buckets | None = None,
        read: Read = EVERYWHERE,
        own: Renews | None = None,
        config: SharderControllerConfig | None = None,
    ) -> None:
        self._config = config or SharderControllerConfig()
        self._client = client.with_user_agent("sharder").with_field_manager(SHARDER_FIELD_MANAGER)
        self._objects = objects.with_user_agent("sharder").with_field_manager(SHARDER_FIELD_MANAGER)
        self._election = election
        self._events = events
        self._metrics = metrics
        self._health = health
        self._clock = client.world.clock
        counts = SharderMetrics(metrics.registry)
        self._observer = LeaseObserver(self._client, self._clock, ring, own)
        self._crashes = Crashes(counts.of(""), self._clock)
        self._cache = cache = Cache(self._client, transforms=self._observer.transforms)
        self._assignor: Assignor
        namespace = election.namespace or client.namespace
        if ranges is None:
            self._assignor = LabelAssignor(self._objects, cache, self._config, cluster=objects_in)
            self._about = reference(Lease.KIND, ObjectMeta(name=election.name, namespace=namespace))
        else:
            period = self._config.sync_period
            self._assignor = RangeAssignor(ring, ranges, namespace, self._objects, cache, period, read)
            self._about = reference(
                ConfigMap.KIND, ObjectMeta(name=assignment_name(ring), namespace=namespace)
            )
        self._rings = Rings(
            RingInputs(
                shards=self._observer.states,
                kinds=self._assignor.kinds,
                namespaces=self._assignor.namespaces,
                metrics=counts,
                clock=self._clock,
                default_selector=default_selector(),
                leases=self._observer,
                chains=self._assignor.chains,
                drain_timeout=self._config.drain_timeout,
                on_deletion="pause",
            )
        )
        self._observer.declare(cache, self._rings)
        self._source = _RingSource(ring, declared, self._rings, cache if looks_for_ring else None)
        self._note = {} if declared is None or objects_in else {DECLARED_RING_ANNOTATION: _manifest(declared)}
        metrics.registry.register(StateCollector(cache, self._rings, self._observer.scope))
        self._findings = _LoggedFindings(self._observer, events, self._about)
        self._patience, self._notices = Patience(), Notices()
        self._fence = LeaderFence()
        self._stopping = asyncio.Event()
        self._term: Stop | None = None
        """The request to stop the current leadership term."""
        self._ended = asyncio.Event()

    async def run(self, gates: Sequence[Gate] = ()) -> None:
        """Runs until cancelled or drained."""
        try:
            async with self._cache.running(), asyncio.TaskGroup() as tasks:
                observing = tasks.create_task(self._observe(), name="lease observer")
                campaign = tasks.create_task(self._campaign(gates), name="campaign")
                await self._stopping.wait()
                if self._term is None:
                    campaign.cancel()
                else:
                    self._term.request()
                await asyncio.wait([campaign])
                observing.cancel()
        finally:
            self._ended.set()

    async def drain(self) -> None:
        """Gives up leadership, so that another instance is the sharder while this one finishes its work."""
        self._stopping.set()
        await self._ended.wait()

    def under_way(self) -> Sequence[str]:
        return ()

    async def _observe(self) -> None:
        await supervised(self._observer.run, "lease observer", self._crashes)

    async def _campaign(self, gates: Sequence[Gate]) -> None:
        """Leads whenever it is elected, until it is stopped."""
        await self._source.known(self._clock)
        await until_filled([self._cache.declare(Lease, self._observer.scope)])
        async with self._assignor.ready(self._rings):
            while not self._stopping.is_set():
                pause = 0.0
                try:
                    await apart(self._lead, gates)
                except* RightLost as lost:
                    _log.warning("Lost leadership of the ring; a candidate again", error=lost.exceptions[0])
                except* Exception as failure:
                    _log.crash("The sharder of this instance crashed; a candidate again soon", failure)
                    pause = AFTER_FAILURE
                await asyncio.sleep(pause)

    async def _lead(self, gates: Sequence[Gate]) -> None:
        """One term, including the candidacy. Raises RightLost, in a group, when leadership was lost, and any
        exception of the sharder's components.
        """
        elector = LeaderElector(
            self._client,
            self._election,
            self._metrics,
            labels={SHARDER_LABEL: self._source.name},
            annotations=self._note,
            watches=True,  # an instance that stops hands over at once, and so do its objects or buckets
            defers=self._clock.monotonic() < self._patience.defers_until,
        )
        stop = Stop(grace=-1)  # the caller of `drain` limits the time
        try:
            held = elector.held(self._health, self._cache.distrust)
            async with holding(held, "leadership of the ring", lambda _: None) as leadership:
                self._fence.leadership, self._term = leadership, stop
                _log.info("This instance is the sharder of the ring", ring=self._source.name)
                group = self._work_group(stop, first=elector.first)
                if await group.run((*gates, leadership.gate)):
                    leadership.stopped_cleanly()
        finally:
            self._fence.leadership = self._term = None
            for ring in self._rings:
                ring.leads_no_more()
        if stop.error is not None:
            raise stop.error

    def _work_group(self, stop: Stop, *, first: bool) -> WorkGroup:
        """What the leader runs, for one term. `first`: nobody has led before."""
        client = self._client.fenced(self._fence)
        controller = lease_controller(
            self._rings, self._observer, self._clock, self._config.mass_failure_grace
        )
        runner = measured(controller, Cluster(client, self._cache, self._events), self._metrics)
        objects = self._objects.fenced(self._fence)
        lead = partial(self._assignor.lead, self._rings, self._observer, objects, client, first=first)
        # A patch that was sent is safe whichever instance leads: there is nothing to drain.
        works = Runnable("assignments", lead), Runnable("findings", partial(self._tell_findings, stop))
        return WorkGroup("sharder", stop, [runner, *map(RunnableWork, works)])

    async def _tell_findings(self, stop: Stop) -> None:
        """Until cancelled, or until these have kept this instance from its work for too long: then another one leads,
        if there is any.
        """
        known = self._clock.monotonic() + PATIENCE.initial
        self._patience.leads()
        with reading(self._rings.news) as inbox:
            while True:
                now, found = self._clock.monotonic(), list[Condition]()
                for ring in self._rings:
                    found += self._findings.tell(ring, ended=now >= known)
                why = hindering(found)
                if self._patience.exhausted(now, hindered=bool(why)):
                    break
                wait = min(self._patience.ends_at, known if now < known else math.inf) - now
                await inbox.take(max(wait, 0.01))
        if self._notices.due("unable", why):
            _log.warning(
                "This instance cannot do all of a sharder's work; leaving it to another one, if there is any",
                ring=self._source.name,
                problem=why,
            )
        stop.request()


class _LoggedFindings:
    """What a service would write into the ring's conditions, in the log, and as events about what there is instead
    (`about`). Each finding is told once, and its end: of one process, however often it leads.
    """

    def __init__(self, observer: LeaseObserver, events: EventRecorder, about: ObjectReference) -> None:
        self._observer = observer
        self._events = events.reporting_as("sharder")
        self._about = about
        self._notices = Notices()

    def tell(self, ring: Ring, *, ended: bool = True) -> Sequence[Condition]:
        """Returns what there is. `ended`: whether what is not there any more has ended, or is not known yet."""
        shards = self._observer.shards(ring.name)
        present = [shard for shard in shards if not shard.deleted]
        found = findings(ring.report, ring.resources, present)
        for each in found:
            if self._notices.due(each.type, "" if each.type in CHANGING else each.message):
                self._events.event(self._about, "Warning", each.reason, each.message, action="Reconcile")
                if each.type not in LOGGED_BEFORE:
                    _log.warning(
                        "The ring has a problem", ring=ring.name, what=each.type, problem=each.message
                    )
        for type_ in sorted(OWN_CONDITIONS - {each.type for each in found}) if ended else ():
            if self._notices.resolved(type_) and type_ not in LOGGED_BEFORE:
                _log.info("A problem of the ring is resolved", ring=ring.name, what=type_)
        return found


def _manifest(ring: ControllerRing) -> str:
    """As JSON, with the default selector in words: what it is may change with the version."""
    selector = ring.spec.namespace_selector or default_selector()
    return encode(replace(ring, spec=replace(ring.spec, namespace_selector=selector))).decode()


class _RingSource:
    """Reports the current state of the one ring to `rings`."""

    def __init__(self, name: str, declared: ControllerRing | None, rings: Rings, cache: Cache | None) -> None:
        self.name = name
        self._declared = declared
        self._rings = rings
        self._informer: Informer[ControllerRing] | None = None
        if cache is not None:
            only = Scope(fields=FieldSelector.equals("metadata.name", name))
            self._informer = cache.declare(ControllerRing, only, optional=True)
            self._informer.add_handler(self._heard)

    async def known(self, clock: Clock) -> None:
        """Returns when it is known whether there is a ControllerRing; waits without a limit."""
        informer, notices = self._informer, Notices()
        while informer is not None and not informer.has_synced and is_served(informer):
            with suppress(TimeoutError):
                async with asyncio.timeout(PATIENCE_FOR_LOGS):
                    await until_filled([informer])
            found = sync_problem(informer, clock.monotonic())
            if found and found.cause != "not served" and notices.due(self.name, found.cause):
                _log.warning(
                    "Cannot read the ControllerRing; this instance does not assign objects until it can",
                    ring=self.name,
                    error=found.error,
                    advice=found.advice,
                )
        if self._rings.get(self.name) is None:
            self._follow_declaration()  # the shard has said so

    def _heard(self, delta: Delta[ControllerRing]) -> None:
        self._rings.apply(delta)
        ring = self._rings.get(self.name)
        if isinstance(delta, Deleted):
            _log.info("The ControllerRing is gone; using the controllers' declarations", ring=self.name)
            self._follow_declaration()
        elif ring and ring.view is None:
            if isinstance(delta, Updated) and delta.old.metadata.deleting:
                return
            _log.warning(
                "The sharder service cleans up after the ControllerRing; "
                "this instance assigns nothing until the ring is gone",
                ring=self.name,
            )
        elif ring and not self._as_declared(ring):
            _log.warning(
                "The ControllerRing differs from what the controllers declare; the ControllerRing is used, for new "
                "objects and at the next start of each instance",
                ring=self.name,
            )

    def _as_declared(self, ring: Ring) -> bool:
        if self._declared is None:
            return True
        declared = RingResources(self._declared.spec.resources)
        return set(declared.entries) <= set(ring.resources.entries)

    def _follow_declaration(self) -> None:
        if self._declared is None:
            _log.warning(
                "There is no ControllerRing, and no controller declares a sharded kind", ring=self.name
            )
        else:
            self._rings.apply(Added(self._declared))
