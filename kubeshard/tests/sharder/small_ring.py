"""A ring without a cluster: the test says which shards live, what is known of kinds, and which namespaces exist."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Hashable, Mapping
from contextlib import asynccontextmanager
from types import SimpleNamespace
from typing import Any

import msgspec
from prometheus_client import CollectorRegistry
from small_api import SmallApi

from kubeshard.cache import Added, Deleted, Updated
from kubeshard.core.builtin import Lease, Namespace
from kubeshard.core.kinds import GroupResource, Kind
from kubeshard.core.objects import Key, ObjectMeta
from kubeshard.core.selectors import LabelSelector
from kubeshard.runtime.clock import Clock, SystemClock
from kubeshard.sharder.assignments import JITTER, LONGEST_RETRY, Assignments
from kubeshard.sharder.config import SharderControllerConfig
from kubeshard.sharder.kinds_and_rights import ResourceKinds
from kubeshard.sharder.metrics import SharderMetrics
from kubeshard.sharder.moves import ObjectLocks
from kubeshard.sharder.rings import Rings
from kubeshard.sharder.tasks import DrivenResource
from kubeshard.sharding.api import ControllerRing, ControllerRingSpec, RingResource
from kubeshard.sharding.object_job import Job, Known
from kubeshard.sharding.planner import Decision, RingView
from kubeshard.sharding.ring import Namespaces, OnDeletion, Ring, RingInputs
from kubeshard.sharding.ring_machine import RingMachine
from kubeshard.sharding.ring_resources import PossibleOwners, RingEntry, RingResources
from kubeshard.sharding.shard_states import Availability, ShardChange
from kubeshard.workqueue.limits import ItemExponential, Limiter, MaxOf
from kubeshard_lab.virtual_world import SeededRng


class SmallRing:
    """The ring `name` and everything through which it is seen."""

    def __init__(
        self,
        *shards: str,
        name: str = "ring",
        resources: tuple[RingResource, ...] = (RingResource(resource="secrets"),),
        selector: LabelSelector | None = None,
        on_deletion: OnDeletion = "nothing",
        system_namespaces: tuple[str, ...] = (),
        registry: CollectorRegistry | None = None,
        clock: Clock | None = None,
    ) -> None:
        self._available = shards
        self.is_fresh = True
        self.leases: dict[str, list[Lease]] = {}
        """By shard, for rings with strict hand-over."""
        self.kinds: Mapping[GroupResource, PossibleOwners] = {}
        self.learned = 0
        self.namespaces: dict[str, Mapping[str, str]] = {"default": {"space": "default"}}
        """Labels by name."""
        self.knows_all = False
        """Whether it is known that there are no other namespaces."""
        self.registry = registry or CollectorRegistry()
        self.clock = clock or SystemClock()
        self.rings = Rings(
            RingInputs(
                shards=self,
                kinds=self,
                metrics=SharderMetrics(self.registry),
                clock=self.clock,
                default_selector=LabelSelector(),
                on_deletion=on_deletion,
                system_namespaces=system_namespaces,
                namespaces=_Namespaces(self),
            )
        )
        spec = ControllerRingSpec(resources=resources, namespace_selector=selector)
        self.resource = ControllerRing(metadata=ObjectMeta(name=name, uid="uid", generation=1), spec=spec)
        self.rings.apply(Added(self.resource))
        found = self.rings.get(name)
        assert found is not None
        self.ring: Ring = found
        self.ring_sync = ring_machine(self.ring)
        """What a leader keeps for the ring."""

    def add(self, name: str, *resources: RingResource, selector: LabelSelector | None = None) -> Ring:
        """Adds another ring, which has the same shards."""
        spec = ControllerRingSpec(resources=resources, namespace_selector=selector)
        self.rings.apply(
            Added(ControllerRing(metadata=ObjectMeta(name=name, uid=name, generation=1), spec=spec))
        )
        ring = self.rings.get(name)
        assert ring is not None
        return ring

    # What happens to the ring

    def become(
        self, *resources: RingResource, selector: LabelSelector | None = None, uid: str = "uid"
    ) -> None:
        """Replaces the ControllerRing."""
        meta = self.resource.metadata
        new = ControllerRing(
            metadata=ObjectMeta(name=meta.name, uid=uid, generation=meta.generation + 1),
            spec=ControllerRingSpec(resources=resources, namespace_selector=selector),
        )
        self.rings.apply(Updated(self.resource, new))
        self.resource = new

    def begin_deletion(self, *finalizers: str) -> None:
        """The ControllerRing is deleted, and stays because of the finalizers."""
        meta = msgspec.structs.replace(
            self.resource.metadata, deletion_timestamp="2026-01-01T00:00:00Z", finalizers=finalizers
        )
        new = msgspec.structs.replace(self.resource, metadata=meta)
        self.rings.apply(Updated(self.resource, new))
        self.resource = new

    def delete(self) -> None:
        self.rings.apply(Deleted(self.resource))

    # The state of the ring

    @property
    def view(self) -> RingView:
        view = self.ring.view
        assert view is not None
        return view

    def sync(self, resource: str, group: str = "", tasks: asyncio.TaskGroup | None = None) -> DrivenResource:
        """Returns the resource's sync, as a leader would have it."""
        place = GroupResource(group, resource)
        if place not in self.ring_sync.resources:
            DrivenResource(self.ring_sync, self.ring.resources.entry(place), 300.0, tasks)
        return self.ring_sync.resources[place]

    # Views of the ring

    @property
    def shards(self) -> tuple[str, ...]:
        return self._available

    @shards.setter
    def shards(self, shards: tuple[str, ...]) -> None:
        self._available = shards
        rings = frozenset(ring.name for ring in self.rings)
        news = ShardChange(Key("", ""), rings, None, None, availability=False, presence=False, news=True)
        self.rings.shard_changed(news)

    def availability(self, ring: str, now: float) -> Availability:
        return Availability(self._available, self._available)

    def fresh(self, now: float) -> bool:
        return self.is_fresh

    def named(self, ring: str, shard: str) -> list[Lease]:
        return self.leases.get(shard, [])

    def signs(self, ring: str, shard: str) -> bool:
        return False

    def owner_kinds(self, resources: RingResources) -> Mapping[GroupResource, PossibleOwners]:
        return self.kinds


class _Namespaces(Namespaces):
    def __init__(self, small: SmallRing) -> None:
        self._small = small

    def get(self, name: str) -> Namespace | None:
        labels = self._small.namespaces.get(name)
        return None if labels is None else Namespace(metadata=ObjectMeta(name=name, labels=labels))

    def all(self) -> list[Namespace] | None:
        if not self._small.knows_all:
            return None
        return [
            Namespace(metadata=ObjectMeta(name=name, labels=labels))
            for name, labels in self._small.namespaces.items()
        ]


def a_proof(stands: Callable[[], bool] = lambda: True) -> Any:
    """That a shard is dead."""
    return SimpleNamespace(stands=stands)


def job_for(
    ring: Ring, entry: RingEntry, kind: Kind, meta: ObjectMeta, decision: Decision, read: float | None = None
) -> Job:
    """The object was read just now, or then."""
    assert ring.view is not None
    return Job(ring, entry, kind, meta, decision, ring.clock.monotonic() if read is None else read, ring.view)


def ring_machine(
    ring: Ring, failures: Limiter | None = None, *, at_once: int = 100, probes: bool = False
) -> RingMachine:
    """What a leader keeps for a ring. `failures`: a limit for all that fail."""
    rng = SeededRng(1)

    def backoff() -> Limiter:
        own = ItemExponential(1.0, LONGEST_RETRY / (1 + JITTER), jitter=JITTER, rng=rng)
        return MaxOf(own, *([failures] if failures else []))

    return RingMachine(ring, backoff, at_once=at_once, probes=probes)


def small_assignments(small: SmallRing, observer: Any, scan: Any, watch: Any = None) -> Assignments:
    """What a leader runs for the ring, with these in place of scans and watches of objects."""
    client, informer = SmallApi().client(small.clock), SimpleNamespace(add_handler=lambda _: _Handler())
    cache: Any = SimpleNamespace(declare=lambda _: informer)
    kinds, config = ResourceKinds(client), SharderControllerConfig()
    of: Any = SimpleNamespace(kinds=kinds, cache=cache, config=config, service=False)
    made: Any = Assignments(of, small.rings, observer, client, client)
    made._scanner = SimpleNamespace(scan=scan)
    made._unassigned = SimpleNamespace(keep_watching=watch)
    assert isinstance(made, Assignments)
    return made


class _Handler:
    def remove(self) -> None: ...


@asynccontextmanager
async def held(locks: ObjectLocks, place: Hashable, known: Known) -> AsyncIterator[None]:
    """The block has the lock of the object."""
    await locks.enter(place, known)
    try:
        yield
    finally:
        locks.leave(place)
