"""Sharding as one argument of the Manager.

    run(Manager(controllers=[controller], sharding=Sharding(ring="my-ring")))

| mode | holds a shard's Lease, runs sharded controllers | is a candidate for the ring's sharder |
|---|---|---|
| `shard` | yes | no: a sharder service works on the ring, or instances in other modes do |
| `both` | yes | yes: no service, no webhook (docs/in-manager-sharding.md) |
| `sharder` | no | yes |

It combines everything that a shard needs: identity, a Lease on its own thread with a kernel watchdog, the delivery of
its objects (`delivery`), fenced writes, and the release when the controllers have stopped. The parts can also be used
separately; `docs/shard-in-any-language.md` explains each.

For guarantees see the modules of this package. Not guaranteed: that a change of the ring's resources is noticed;
restart the shards after it.

RBAC: `get` on `controllerrings` (not with `resources`); `get`, `create`, `update`, `watch` on `leases` in the shard's
namespace; what the delivery and the controllers need. `create` and `patch` on `events` in the shard's namespace, to
report kinds that cannot be read. Candidates also need that of `kubeshard.sharder.in_manager`.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import AsyncIterator, Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, nullcontext, suppress
from dataclasses import fields, replace
from functools import partial
from typing import Any, Literal, NamedTuple, get_args

from kubeshard.cache.cache import Cache
from kubeshard.cache.scope import ALL_NAMESPACES, Scope
from kubeshard.client.client import Client
from kubeshard.client.fence import WhileAllowed
from kubeshard.controller.controller import Controller
from kubeshard.controller.event_series import ObjectReference
from kubeshard.controller.events import EventRecorder
from kubeshard.core.argument_hints import ArgumentHints
from kubeshard.core.builtin import Lease
from kubeshard.core.clusters import HOME_CLUSTER
from kubeshard.core.errors import ConfigurationError, NotOurs
from kubeshard.core.grants import READ, Grant
from kubeshard.core.kinds import GroupKind, GroupResource, Kind
from kubeshard.core.namespaces import AllNamespaces
from kubeshard.core.selectors import Selector
from kubeshard.leases.former import until_free
from kubeshard.leases.held_lease import Gate, HeldLease, Renewal
from kubeshard.manager.leader_election import ElectionTiming, LeaderElection
from kubeshard.manager.membership import HealthGate, Right, SharedClusters
from kubeshard.manager.metrics import Metrics
from kubeshard.manager.roles import EVENTS, ScopeOf, places
from kubeshard.manager.runnable import Work
from kubeshard.runtime.logs import get_logger
from kubeshard.shard.cluster_delivery import ClusterDelivery
from kubeshard.shard.declared_resources import (
    declared_resources,
    find_kinds,
    find_ring,
    owned_mains,
    undeclared_resources,
)
from kubeshard.shard.delivery import Delivery, RingMember, Share
from kubeshard.shard.identity import ShardIdentity, check_shard_name, identify
from kubeshard.shard.label_delivery import Labels
from kubeshard.shard.metrics import ShardMetrics
from kubeshard.shard.range_delivery import RangeDelivery
from kubeshard.shard.settings import DeclaredRing, LeaseTerms, Ranges, SharderSettings
from kubeshard.shard.shard_lease import HeldShardLease, ShardLease
from kubeshard.sharding.api import ControllerRing
from kubeshard.sharding.names import (
    LEAVING_ANNOTATION,
    RING_LABEL,
    STRICT_HANDOVER_ANNOTATION,
    inside_election,
)
from kubeshard.sharding.ring_resources import RingResources
from kubeshard.sharding.shard_states import proves_end

Mode = Literal["shard", "sharder", "both"]
MODES: tuple[Mode, ...] = get_args(Mode)

_log = get_logger("kubeshard.shard")


_INSTEAD = {
    **{
        each.name: f'Sharding(DeclaredRing("NAME", {each.name}=...)), from kubeshard.shard'
        for each in fields(DeclaredRing)[1:]
    },
    **{each.name: f"lease=LeaseTerms({each.name}=...), from kubeshard.shard" for each in fields(LeaseTerms)},
    **{
        each.name: f"sharder=SharderSettings({each.name}=...), from kubeshard.shard"
        for each in fields(SharderSettings)
    },
}
"""Where arguments that are grouped belong."""


class Sharding(ArgumentHints):
    """This process's membership in a ring (`kubeshard.manager.membership.Membership`); one per process.

    `ring`: its name, or what else the program declares about it. The ControllerRing of that name determines what is
    sharded. If there is none, the watches with `sharded=True` do, and if there are none either, the process waits for
    the ControllerRing. `name` defaults to the pod's name or, outside a pod, to the host's. `namespace`, that of the
    Lease, defaults to the pod's or, outside a pod, to that of the kubeconfig's context. `mode`: see the module.
    `delivery`: how its objects reach it, by labels on them or by hash ranges (`Ranges`). `lease`: how it holds its
    Lease. `sharder`: how it works while it is the ring's sharder. `objects_in`: which of the
    manager's other clusters has the ring's objects; the Leases and the ControllerRing are always in the home cluster.
    `replaces`: what kept instances of this program apart before. With a LeaderElection, the ring's processes begin when
    its Lease is free, and hold it together while any of them works, so that no instance with that election acts beside
    them, also after a roll-back. With another ring's Sharding, they begin when no shard of that ring is left. See
    docs/how-to/rollout.md.

    Raises ConfigurationError for names that cannot work, here or in `prepare`.
    """

    INSTEAD = _INSTEAD

    def __init__(
        self,
        ring: str | DeclaredRing,
        name: str | None = None,
        namespace: str | None = None,
        *,
        mode: Mode = "shard",
        delivery: Literal["labels", "ranges"] | Ranges = "labels",
        lease: LeaseTerms | None = None,
        sharder: SharderSettings | None = None,
        objects_in: str = HOME_CLUSTER,
        replaces: LeaderElection | Sharding | None = None,
    ) -> None:
        self._declares = DeclaredRing(ring) if isinstance(ring, str) else ring
        self.ring: str = self._declares.name
        if name is not None:
            check_shard_name(name)
        if mode not in MODES:
            raise ConfigurationError(f"sharding mode {mode!r} is not one of {', '.join(MODES)}")
        if isinstance(replaces, Sharding) and replaces.ring == self.ring:
            raise ConfigurationError(
                f"replaces: {self.ring!r} is this ring itself: name the former one, or leave it out"
            )
        self.mode: Mode = mode
        self._name = name
        self._number = ""
        self._namespace = namespace
        self._terms = lease or LeaseTerms()
        self._timing = self._terms.timing
        self._sharder = sharder or SharderSettings()
        self.objects_in = objects_in
        self._replaces = replaces
        self._handover = self._declares.handover
        self._delivery = _delivery_of(delivery, objects_in)
        self._declares = self._delivery.declared(self._declares, self._terms.says)
        self._prepared: _Prepared | None = None
        self._read = _Read()
        """Of the cluster with the ring's objects."""
        self._writes = _Writes()
        self._own = _OwnLease()
        self._held: HeldShardLease | None = None
        self._shared: HeldLease | None = None
        """The Lease of the election that the ring replaces."""

    def rename(self, name: str) -> None:
        """Gives the shard this name, before `prepare`. Raises ConfigurationError for one that cannot work."""
        check_shard_name(name)
        self._name = name

    def number(self, process: int) -> None:
        """The shard's name ends with this number, as that of one of several processes of a pod; before `prepare`.
        Raises ConfigurationError.
        """
        if not self._is_shard:
            raise ConfigurationError("a process in the mode sharder has no share: take the mode both")
        if self._terms.pod_name_required:
            raise ConfigurationError(
                "the ring's admission policies know one shard for each pod, of its name: leave out "
                "pod_name_required, and render the ring without --shards"
            )
        self._number = str(process)
        if self._name:
            check_shard_name(f"{self._name}-{process}")

    async def prepare(
        self,
        client: Client,
        controllers: Sequence[Controller[Any]],
        clusters: Mapping[str, Client] | None = None,
    ) -> None:
        """Reads the ring, waiting for it if necessary. Raises ConfigurationError."""
        objects = {HOME_CLUSTER: client, **(clusters or {})}.get(self.objects_in)
        if objects is None:
            raise ConfigurationError(
                f"sharding: objects_in={self.objects_in!r} is not a cluster of the manager: name it in its `clusters`"
            )
        controllers = self._delivery.concerned(controllers)
        shard = identify(
            self.ring,
            self._name,
            self._namespace,
            outside=client.namespace,
            number=self._number,
            pod_name_required=self._terms.pod_name_required,
            world=client.world,
        )
        resources, found = await find_ring(
            client, self.ring, controllers, self._declares.resources, shares_out=self._shares_out
        )
        if found is not None and (stated := found.metadata.annotation(STRICT_HANDOVER_ANNOTATION)):
            self._handover = stated
        divided = self._delivery.divided
        if (divided is None or divided.by == "uid") and (apart := owned_mains(controllers)):
            _log.warning(
                "Objects and what owns them may be on different shards",
                kinds=", ".join(apart),
                advice='delivery=Ranges(by="namespace") keeps them together',
            )
        kinds = await find_kinds(objects, self.ring, resources, controllers)
        metrics = ShardMetrics(
            shard,
            margin=lambda: self._held.margin() if self._held else 0.0,
            refused=lambda: self._writes.refused,
            unfenced=lambda: self._writes.unfenced,
        )
        member = RingMember(
            shard=shard,
            resources=resources,
            kinds=kinds,
            home=client,
            objects=objects,
            objects_in=self.objects_in,
            looks_for_ring=self._looks_for_ring,
            request_bound=self._timing.request_bound,
            check=self._check,
            metrics=metrics,
        )
        share = self._delivery.begin(member, controllers) if self._is_shard else None
        self._prepared = _Prepared(member, share, self.declared_ring(controllers))
        if share is None:
            refuse_shares(resources, controllers)

    @property
    def shard(self) -> ShardIdentity:
        """The identity of this process. It is known after `prepare`."""
        return self._ready.member.shard

    @property
    def named(self) -> str:
        """The name that the program has given the shard; empty if it is that of the pod or the host."""
        return self._name or ""

    def grants(self, controllers: Iterable[Controller[Any]], scope_of: ScopeOf) -> Iterator[Grant]:
        """The RBAC rules that it needs (`kubeshard.manager.roles`). If only a ControllerRing determines what is
        sharded, everything that the controllers watch as their primary kind or own is assumed to be. A process that is
        a shard only, or works by ranges, has rights on objects in the namespaces that the manager reads.
        """
        controllers = list(controllers)
        yield Grant.on(Lease, "get", "list", "create", "update", "watch", namespace=self._namespace or None)
        yield Grant.on(EVENTS, "create", "patch", namespace=self._namespace or None)
        ring = self._declares.resources
        if ring is None:
            ring = declared_resources(controllers) or undeclared_resources(controllers)
        read: defaultdict[GroupResource, set[str | AllNamespaces]] = defaultdict(set)
        for watch in (watch for each in controllers for watch in each.all_watches if self._is_shard):
            read[watch.form.kind.group_resource].update(places(watch, scope_of))
        yield from self._delivery.grants(
            self.ring, self._namespace or "", ring, read, shares_out=self._shares_out
        )
        if self._looks_for_ring:
            yield Grant.on(ControllerRing, "get")
        if isinstance(self._replaces, LeaderElection):
            yield from self._replaces.grants(controllers)
        elif self._replaces is not None:
            yield self._replaces.grant_to_replace
        if not self._shares_out:
            return
        yield Grant.on(Lease, "list", "watch", "create", "update", "patch", "delete")
        yield Grant.on(EVENTS, "create", "patch")
        if self._looks_for_ring:
            yield Grant.on(ControllerRing, *READ)

    def scopes(self, cluster: str) -> Mapping[GroupKind, Scope]:
        """The scopes of all kinds of the ring, main and controlled, in the cluster of the objects."""
        share = self._ready.share
        return share.scopes() if share is not None and cluster in self._delivery.clusters else {}

    def client(self, client: Client, cluster: str) -> Client:
        """`client` with fenced writes, each of which ends within `LeaseTiming.request_bound`. In clusters that the ring
        does not share out, no write starts without the Lease, but objects there belong to no shard.
        """
        share, client = self._ready.share, client.with_timeout(self._timing.request_bound)
        if share is None:
            return client
        if cluster not in self._delivery.clusters:
            return client.fenced(WhileAllowed(self._check))
        self._writes.count(cluster, client)
        return share.client(client, cluster)

    @property
    def shares_clusters(self) -> bool:
        return self._delivery.shares_clusters

    @property
    def about(self) -> ObjectReference | None:
        """The shard's Lease."""
        if self._prepared is None or not self._is_shard:
            return None
        return ObjectReference(
            api_version=Lease.KIND.api_version,
            kind=Lease.KIND.kind,
            namespace=self.shard.namespace,
            name=self.shard.name,
        )

    @property
    def state(self) -> str:
        """The shard, and how many buckets it has in which state, if its ring is one by ranges."""
        if self._prepared is None or not self._is_shard:
            return ""
        ranges = self._prepared.member.metrics.ranges
        has = "by labels" if ranges is None else f"by ranges: {ranges.summary}"
        return f"shard {self.shard.name} of ring {self.ring}, {has}"

    @property
    def unready(self) -> str:
        share = None if self._prepared is None else self._prepared.share
        return "" if share is None else share.unready

    @property
    def election(self) -> LeaderElection | None:
        """The election for controllers that are not sharded, if this process may be the sharder. Its Lease is
        `leader-<ring>`.
        """
        return self._election(f"leader-{self.ring}") if self._shares_out else None

    def beside(self, events: EventRecorder, metrics: Metrics, health: HealthGate) -> Sequence[Work]:
        """The candidate for the ring's sharder, whose Lease is `sharder-<ring>` next to those of the shards; and the
        shard's metrics.
        """
        if self._is_shard:
            metrics.registry.register(self._ready.member.metrics)
        if not self._shares_out:
            return ()
        # A shard that uses a sharder service does not need it.
        from kubeshard.manager.config_file import Duration
        from kubeshard.sharder.config import SharderControllerConfig
        from kubeshard.sharder.in_manager import InManagerSharder

        return (
            InManagerSharder(
                self.ring,
                self._ready.declared,
                self._ready.member.home,
                # Patches of a former sharder are safe, and the process goes on as a shard.
                self._election(inside_election(self.ring), watchdog=False),
                objects=self._ready.member.objects,
                objects_in=self.objects_in,
                events=events,
                metrics=metrics,
                health=health,
                looks_for_ring=self._looks_for_ring,
                ranges=self._delivery.divided,
                read=self._read,
                own=self._own,
                config=SharderControllerConfig(
                    sync_period=Duration(self._sharder.sync_period),
                    concurrent_moves=self._sharder.concurrent_moves,
                    mass_failure_grace=Duration(self._sharder.mass_failure_grace),
                    drain_timeout=Duration(self._sharder.drain_timeout),
                ),
            ),
        )

    def wrap(self, controller: Controller[Any], cluster: str) -> Controller[Any] | None:
        """A controller of the ring as a shard runs it, or None in a process that is not a shard. Others are returned
        unchanged.
        """
        share = self._ready.share
        if not self._shares(controller, cluster):
            return controller
        return None if share is None else share.wrap(controller, cluster)

    def gate(self, controller: Controller[Any], cluster: str) -> Gate | None:
        """Closed until the controller may begin with what is delivered of the ring's kinds that it watches."""
        ready = self._ready
        if ready.share is None or not self._shares(controller, cluster):
            return None
        watched = {watch.form.kind.group_kind for watch in controller.all_watches}
        return ready.share.gate(watched & ready.member.kinds.keys())

    @property
    def grant_to_replace(self) -> Grant:
        return Grant.on(Lease, "list", namespace=self._namespace or None)

    async def ended(self, client: Client) -> None:
        """Returns when no shard of the ring is left in the namespace. See
        `kubeshard.manager.leader_election.ReplacedRight`.
        """
        namespace = self._namespace or client.world.host.pod_namespace() or client.namespace
        labels = Selector.equals(RING_LABEL, self.ring)
        await until_free(client, namespace, labels=labels, ended=proves_end)

    @asynccontextmanager
    async def _after_the_former(self) -> AsyncIterator[HeldLease | None]:
        """Enters when nobody has the right that the ring replaces; with a Lease that has to be held while this process
        works, if there is one.
        """
        client = self._ready.member.home
        if isinstance(self._replaces, LeaderElection):
            async with self._replaces.held_by_group(client, f"ring/{self.ring}") as held:
                yield held
            return
        if self._replaces is not None:
            await self._replaces.ended(client)
        yield None

    @asynccontextmanager
    async def held(
        self,
        health: HealthGate,
        caches: Mapping[str, Cache],
        refused: Callable[[str], None],
        clusters: SharedClusters,
    ) -> AsyncIterator[Right]:
        """Holds the Lease during the block, in which objects are delivered. See `ShardLease.held` and `Share.working`.
        A process that is not a shard needs no Lease. What `replaces` names comes first.
        """
        self._read.cache = caches.get(self.objects_in)
        share = self._ready.share
        async with nullcontext() if share is None else share.asking(), self._after_the_former() as shared:
            self._shared = shared
            if share is None:
                yield shared or _NothingToLose()
                return
            async with self._held_as_shard(share, health, caches, refused, clusters) as held:
                if shared is None:
                    yield held
                    return
                watching = asyncio.create_task(_lose_with(held, shared), name="replaced right")
                try:
                    yield held
                finally:
                    watching.cancel()
                    await asyncio.wait([watching])
            if held.stopped:
                shared.stopped_cleanly()

    @asynccontextmanager
    async def _held_as_shard(
        self,
        share: Share,
        health: HealthGate,
        caches: Mapping[str, Cache],
        refused: Callable[[str], None],
        clusters: SharedClusters,
    ) -> AsyncIterator[HeldShardLease]:
        member = self._ready.member
        lease = ShardLease(
            member.shard,
            member.home,
            timing=self._timing,
            takeover=self._terms.takeover,
            keep_on_stop=self._terms.keep_on_stop,
            strict_handover=self._handover not in ("", "false"),
            report=await share.report(),
            says={**self._terms.says, **share.says},
            metrics=member.metrics,
            abort=self._abort,
        )
        loop = asyncio.get_running_loop()

        def here(call: Callable[..., None], *arguments: str) -> None:
            with suppress(RuntimeError):  # the loop is closed: the cache is no longer read, nothing is told
                loop.call_soon_threadsafe(call, *arguments)

        rewound = partial(here, caches[HOME_CLUSTER].distrust)
        async with lease.held(health, rewound, partial(here, refused)) as held:
            self._held = self._own.held = held
            async with share.working(held, caches, clusters):
                yield held

    def leaving(self) -> None:
        """By ranges, others get what nothing works on here any more. By labels, all of it waits for the last run."""
        if self._held is not None and self._delivery.divided is not None:
            self._held.says(LEAVING_ANNOTATION, "true")

    @property
    def _ready(self) -> _Prepared:
        assert self._prepared is not None, "prepare has to come first"
        return self._prepared

    @property
    def _is_shard(self) -> bool:
        return self.mode != "sharder"

    @property
    def _shares_out(self) -> bool:
        """Whether this process may be the ring's sharder."""
        return self.mode != "shard"

    @property
    def _looks_for_ring(self) -> bool:
        """Whether a ControllerRing may say what is sharded."""
        return self._declares.resources is None

    def _shares(self, controller: Controller[Any], cluster: str) -> bool:
        """Whether the ring shares out what the controller works on in the cluster."""
        resource = controller.primary_watch.form.kind.group_resource
        delivery = self._delivery
        return cluster in delivery.clusters and delivery.shares(resource, self._ready.member.resources)

    def _election(self, name: str, *, watchdog: bool = True) -> LeaderElection:
        shared = {each.name: getattr(self._timing, each.name) for each in fields(ElectionTiming)}
        world = self._ready.member.home.world
        return LeaderElection(
            name=name,
            namespace=self.shard.namespace,
            identity=f"{self.shard.name}_{world.rng.token()}",
            timing=ElectionTiming(**shared),
            watchdog=watchdog,
        )

    def declared_ring(self, controllers: Iterable[Controller[Any]]) -> ControllerRing | None:
        """The ring to use if there is no ControllerRing. Raises ConfigurationError for an impossible one."""
        given = self._declares.resources
        resources = declared_resources(controllers) if given is None else given
        return self._declares.controller_ring(resources) if resources or given is not None else None

    def _abort(self) -> None:
        """Resets the connections to all clusters in which this shard may write. From any thread."""
        self._ready.member.home.transport.abort()
        self._writes.abort()

    def _check(self) -> None:
        if self._held is None:
            raise NotOurs("the Lease of this shard is not held yet")
        self._held.check()
        if self._shared is not None:  # whose loss may not have been noticed yet
            self._shared.check()


def _delivery_of(named: Literal["labels", "ranges"] | Ranges, objects_in: str) -> Delivery:
    if named == "labels":
        return Labels(objects_in)
    ranges = Ranges() if named == "ranges" else named
    if not isinstance(ranges, Ranges):
        raise ConfigurationError(f'delivery {named!r}: write "labels", "ranges" or Ranges()')
    return (ClusterDelivery if ranges.by == "cluster" else RangeDelivery)(ranges, objects_in)


class _OwnLease:
    """That of this process, once it is held."""

    def __init__(self) -> None:
        self.held: HeldLease | None = None

    @property
    def renewal(self) -> Renewal | None:
        return None if self.held is None else self.held.renewal


class _Writes:
    """The clients of the clusters that a ring shares out, and what they count, also those that were there before."""

    def __init__(self) -> None:
        self._clients: dict[str, Client] = {}
        self._before = [0, 0, 0]

    def count(self, cluster: str, client: Client) -> None:
        if (former := self._clients.get(cluster)) is not None:
            counted = (*former.refused_writes, former.unfenced_writes)
            self._before = [sum(pair) for pair in zip(self._before, counted, strict=True)]
        self._clients[cluster] = client

    def abort(self) -> None:
        for client in tuple(self._clients.values()):
            client.transport.abort()

    @property
    def refused(self) -> tuple[int, int]:
        here, server, _ = self._before
        counted = [each.refused_writes for each in self._clients.values()]
        return here + sum(each[0] for each in counted), server + sum(each[1] for each in counted)

    @property
    def unfenced(self) -> int:
        return self._before[2] + sum(each.unfenced_writes for each in self._clients.values())


class _Prepared(NamedTuple):
    """What is known once the ring has been read. `share` is None in a process that is not a shard."""

    member: RingMember
    share: Share | None
    declared: ControllerRing | None


def refuse_shares(resources: RingResources, controllers: Sequence[Controller[Any]]) -> None:
    """For a process that is not a shard: raises ConfigurationError for a controller that would run here but reads kinds
    of which a shard only sees its share.
    """
    for controller in controllers:
        primary, *others = (watch.form.kind.group_resource for watch in controller.all_watches)
        if primary not in resources and (shared := [each for each in others if each in resources]):
            raise ConfigurationError(
                f"controller {controller.name} is not sharded but watches {', '.join(map(str, shared))}, of which "
                "a process in the mode sharder has no share: take the mode both"
            )


async def _lose_with(held: HeldLease, shared: HeldLease) -> None:
    held.lose(await shared.lost())


class _Read:
    """What this process reads of the ring's objects, and so do all instances."""

    cache: Cache | None = None

    def places(self, kind: Kind) -> Collection[str]:
        """The namespaces with those of the kind; everywhere, if it reads none."""
        informers = self.cache.informers_of(kind) if self.cache is not None else ()
        scopes = [replace(informer.scope, hashes=None) for informer in informers]
        return {place for scope in scopes for place in scope.parts(kind)} or (ALL_NAMESPACES,)


class _NothingToLose:
    """The right of a process that is not a shard: its work needs leadership, which is another right."""

    def __init__(self) -> None:
        self.gate = Gate()

    async def lost(self) -> str:
        await asyncio.get_running_loop().create_future()
        raise AssertionError

    def stopped_cleanly(self) -> None: ...
