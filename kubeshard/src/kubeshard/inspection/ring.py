"""One ring of a cluster, and the sharder's own view of it, on which all reported decisions are based."""

from __future__ import annotations

import math
from collections.abc import Container, Iterable, Mapping
from dataclasses import dataclass, field, replace

from prometheus_client import CollectorRegistry

from kubeshard.client.client import Client
from kubeshard.client.discovery import KindNotServed
from kubeshard.core.builtin import Lease
from kubeshard.core.errors import ApiError
from kubeshard.core.kinds import GroupResource, Kind, TypeMeta
from kubeshard.core.objects import ObjectMeta
from kubeshard.inspection.cluster import ClusterSnapshot, SeenShard, Webhook, default_selector, read_webhook
from kubeshard.inspection.ranges import SeenRanges, hashed, read_ranges
from kubeshard.sharder.config import SharderConfig
from kubeshard.sharder.kinds_and_rights import ResourceKinds
from kubeshard.sharder.metrics import SharderMetrics
from kubeshard.sharder.owners import OwnerChains
from kubeshard.sharding.api import ControllerRing
from kubeshard.sharding.hash_ring import ring_of
from kubeshard.sharding.names import RETURNING
from kubeshard.sharding.planner import Action, Decision, RingView, plan
from kubeshard.sharding.ring import Namespaces, Ring, RingInputs
from kubeshard.sharding.ring_resources import ControllerUnknown, RingEntry
from kubeshard.sharding.shard_states import Availability


@dataclass(frozen=True, slots=True, kw_only=True)
class SeenRing:
    """A ring at the time of `see`. `kinds` are those of its served resources, in the order of a resync; `unresolved`
    says why the kinds of the others are unknown.
    """

    resource: ControllerRing
    cluster: ClusterSnapshot
    webhook: Webhook
    view: RingView
    chains: OwnerChains
    kinds: Mapping[GroupResource, Kind]
    unresolved: Mapping[GroupResource, str]
    problems: tuple[str, ...] = ()
    left_out: tuple[str, ...] = ()
    """System namespaces that its selector selects without being confirmed."""
    members: tuple[SeenShard, ...] = field(default=())
    strict_handover: bool = False
    """Whether it asks for confirmations that dead shards have ended."""
    unconfirmed: frozenset[str] = frozenset()
    """Shards with a Lease that is not held, and not confirmed."""
    ranges: SeenRanges | None = None
    """Who has which bucket; None in a ring by labels."""

    @property
    def name(self) -> str:
        return self.resource.name

    @property
    def entries(self) -> list[tuple[RingEntry, Kind]]:
        return [
            (entry, self.kinds[entry.resource])
            for entry in self.view.resources.entries
            if entry.resource in self.kinds
        ]

    @property
    def available(self) -> frozenset[str]:
        """The shards that may have objects."""
        return self.view.available if self.ranges is None else self.ranges.present

    def with_shards(self, shards: Iterable[str]) -> SeenRing:
        """The ring as it would be with these."""
        names = tuple(sorted(set(shards)))
        ranges = None if self.ranges is None else self.ranges.with_shards(names)
        return replace(self, view=replace(self.view, hashring=ring_of(names)), ranges=ranges)

    async def hashed(self, entry: RingEntry, meta: ObjectMeta) -> ObjectMeta | None:
        """The metadata that say where the object is: others than its own in a ring by ranges, if it is controlled; None
        then if it belongs to nothing of the ring. Raises ApiError like `decide`.
        """
        if self.ranges is None:
            return meta
        try:
            return hashed(self.view, self.chains, self.ranges.buckets, entry, meta)
        except ControllerUnknown:
            await self.chains.look_up(self.view, entry, meta)
            return hashed(self.view, self.chains, self.ranges.buckets, entry, meta)

    def draining(self, meta: ObjectMeta | None) -> bool:
        """Whether the object's shard is asked to release it; of what is `hashed`."""
        if self.ranges is not None:
            return meta is not None and bool(self.ranges.place_of(meta).target)
        return meta is not None and meta.has_label(self.view.drain_label)

    def marked(self, meta: ObjectMeta) -> bool:
        """Whether it looks like that, but it is the mark of a shard that is back."""
        return self.ranges is None and meta.label(self.view.drain_label) == RETURNING

    async def decide(self, entry: RingEntry, meta: ObjectMeta, *, leaving: Container[str] = ()) -> Decision:
        """What the sharder would do next with an object in this state. `leaving` contains the keys of main objects that
        have not left their shard yet. Raises ApiError if something has to be looked up that cannot be read.
        """
        if self.ranges is not None:
            return self.ranges.decide(await self.hashed(entry, meta))
        view, type_ = self.view, type_of(self.kinds[entry.resource])
        decision = plan(view, entry, type_, meta, draining=leaving)
        if decision.action is not Action.LOOK_UP:
            return decision
        await self.chains.look_up(view, entry, meta)
        return plan(view, entry, type_, meta, draining=leaving)


def type_of(kind: Kind) -> TypeMeta:
    return TypeMeta(kind.api_version, kind.kind)


async def see(client: Client, cluster: ClusterSnapshot, name: str) -> SeenRing:
    """Reads a ring. Raises Unanswerable if it does not exist, ApiError."""
    resource = cluster.ring(name)
    webhook = Webhook(known=True) if cluster.is_declared(name) else await read_webhook(client, name)
    learner = ResourceKinds(client)
    chains = OwnerChains(client, learner)
    ring = Ring(
        resource,
        RingInputs(
            shards=_Members(cluster),
            kinds=learner,
            namespaces=Namespaces(cluster.namespaces),
            metrics=SharderMetrics(CollectorRegistry()),
            clock=client.world.clock,
            default_selector=default_selector(webhook),
            system_namespaces=SharderConfig().system_namespaces,
            chains=chains,
        ),
    )
    kinds, unresolved = {}, {}
    for entry in ring.resources.entries:
        try:
            kinds[entry.resource] = await learner.learn(entry.resource)
        except KindNotServed as error:
            unresolved[entry.resource] = str(error)
        except ApiError as error:
            unresolved[entry.resource] = (
                f"{entry.resource.group or 'the core group'} does not answer: {error}"
            )
    view = ring.view
    assert view is not None  # the CRD bounds the length of its name
    problems = [problem.message for problem in ring.resources.problems]
    if ring.report.selector_problem:
        problems.append(f"namespaceSelector: {ring.report.selector_problem}")
    return SeenRing(
        resource=resource,
        cluster=cluster,
        webhook=webhook,
        view=view,
        chains=chains,
        kinds=kinds,
        unresolved=unresolved,
        problems=tuple(problems),
        left_out=ring.report.unconfirmed_namespaces,
        members=tuple(cluster.members(name)),
        strict_handover=ring.confirmations is not None,
        unconfirmed=frozenset(
            member.name
            for member in cluster.members(name)
            if not (member.held or ring.has_ended(member.name))
        ),
        ranges=await read_ranges(client, cluster, name),
    )


class _Members:
    """`kubeshard.sharding.ring.Shards` at one moment."""

    def __init__(self, cluster: ClusterSnapshot) -> None:
        self._cluster = cluster

    def availability(self, ring: str, now: float) -> Availability:
        return self._cluster.states.availability(ring, self._cluster.now)._replace(until=math.inf)

    def fresh(self, now: float) -> bool:
        return True

    def named(self, ring: str, shard: str) -> list[Lease]:
        return self._cluster.states.named(ring, shard)

    def signs(self, ring: str, shard: str) -> bool:
        return self._cluster.states.signs(ring, shard)
