"""Sharding as one argument of the Manager.

    run(Manager(controllers=[controller], sharding=Sharding(ring="my-ring")))

Everything that a shard needs, put together: identity, Lease on its own thread with a kernel watchdog,
filtered caches, predicate, drain acknowledgement, fenced writes, release when the controllers have stopped.
The pieces are usable one by one;
`docs/shard-in-any-language.md` says what each is for.

Guaranteed: as the modules of this package say. Not guaranteed: that a change of the ring's resources is
noticed; restart the shards after it.

RBAC: `get` on `controllerrings` (not with `resources`); `get`, `create`, `update`, `watch` on `leases` in the
shard's namespace; `get`, `list`, `watch`, `patch` on the ring's main kinds; `list`, `watch`, `patch` on those that
they control; and what the controllers do.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from typing import Any, TypeVar

from kubeshard.cache.cache import Cache
from kubeshard.cache.scope import Scope
from kubeshard.client.client import Client
from kubeshard.client.discovery import KindNotServed
from kubeshard.controller.controller import Controller
from kubeshard.core.errors import (
    ApiError,
    ConfigurationError,
    Forbidden,
    NotFound,
    NotOurs,
    Throttled,
    Timeout,
    Unavailable,
)
from kubeshard.core.kinds import GroupKind, Kind
from kubeshard.core.namespaces import ALL, All
from kubeshard.core.selectors import Selector
from kubeshard.manager.membership import HealthGate
from kubeshard.runtime.logs import get_logger
from kubeshard.shard.fence import ShardFence
from kubeshard.shard.identity import ShardIdentity, check_ring_name, check_shard_name, identify
from kubeshard.shard.reclaiming import reclaim
from kubeshard.shard.shard_claim import Takeover
from kubeshard.shard.shard_lease import ShardLease, ShardTenure
from kubeshard.shard.timing import LeaseTiming
from kubeshard.shard.wrapper import Handovers, shard_predicate
from kubeshard.sharding.api import ControllerRing, RingResource
from kubeshard.sharding.classification import RingResources

T = TypeVar("T")

_log = get_logger("kubeshard.shard")

RING_PATIENCE = 5.0
"""Seconds between two looks for a ring that does not exist yet."""


class Sharding:
    """This process's part in a ring (`kubeshard.manager.membership.Membership`); one per process.

    `name` defaults to the pod's name, outside of a pod to the host's; `namespace`, of the Lease, to the
    pod's. `resources` spares the shard from reading the ControllerRing. `takeover`: when a Lease that a
    sharder took is taken back. `keep_lease_on_stop`: do not give the Lease back, so that a restart under the
    same name, within the Lease's time, finds its objects still its own (StatefulSets).
    `pod_name_required`: the ring has admission policies.

    Raises ConfigurationError for names that cannot work, here or in `prepare`.
    """

    def __init__(
        self,
        ring: str,
        name: str | None = None,
        namespace: str | None = None,
        *,
        resources: Iterable[RingResource] | None = None,
        timing: LeaseTiming | None = None,
        takeover: Takeover = Takeover.AFTER_RECORD,
        keep_lease_on_stop: bool = False,
        pod_name_required: bool = False,
    ) -> None:
        check_ring_name(ring)
        if name is not None:
            check_shard_name(name)
        self.ring = ring
        self._name = name
        self._namespace = namespace
        self._given = None if resources is None else tuple(resources)
        self._timing = timing or LeaseTiming()
        self._takeover = takeover
        self._keep_lease_on_stop = keep_lease_on_stop
        self._pod_name_required = pod_name_required
        self._prepared: _Prepared | None = None
        self._tenure: ShardTenure | None = None

    async def prepare(self, client: Client, controllers: Sequence[Controller[Any]]) -> None:
        """Reads the ring, waiting for it if need be. Raises ConfigurationError."""
        shard = identify(
            self.ring,
            self._name,
            self._namespace,
            pod_name_required=self._pod_name_required,
            world=client.world,
        )
        given = self._given
        resources = RingResources(
            given if given is not None else await self._waiting(lambda: self._read_ring(client))
        )
        for problem in resources.problems:
            _log.warning("ControllerRing has a mistake", ring=self.ring, problem=problem.message)
        kinds = await self._waiting(lambda: _kinds(client, resources, controllers))
        self._prepared = _Prepared(shard, resources, kinds, client)
        self._prepared.warn_about_idle_resources(controllers)

    @property
    def shard(self) -> ShardIdentity:
        """Who this process is. Known after `prepare`."""
        return self._ready.shard

    def scopes(self) -> Mapping[GroupKind, Scope]:
        """All kinds of the ring, main and controlled, filtered by the shard label."""
        mine = Scope(labels=Selector.equals(self.shard.label, self.shard.name))
        return dict.fromkeys(self._ready.kinds, mine)

    def client(self, client: Client) -> Client:
        """`client` with fenced writes, each of which is over within `LeaseTiming.request_bound`."""
        fence = ShardFence(self.shard, self._ready.resources, self._check)
        return client.with_timeout(self._timing.request_bound).fenced(fence)

    def wrap(self, controller: Controller[Any]) -> Controller[Any]:
        """A controller of a main kind with predicate and wrapper; of a controlled kind, which is moved but never
        drained, with the wrapper; others as they are.
        """
        primary, resources = controller.primary_watch, self._ready.resources
        resource = primary.form.kind.group_resource
        if resource not in resources:
            return controller
        if resources.entry(resource).main:
            controller = controller.filtered(shard_predicate(self.ring, self.shard.name, primary.when))
        handovers = self._ready.handovers
        return controller.guarded(handovers.sharded, undecodable=handovers.draining)

    @asynccontextmanager
    async def held(self, health: HealthGate, cache: Cache) -> AsyncIterator[ShardTenure]:
        """The Lease, for the time of the block, with all objects that carry the shard's name made sure of. See
        `ShardLease.held` and `reclaim`.
        """
        prepared = self._ready
        lease = ShardLease(
            prepared.shard,
            prepared.client,
            timing=self._timing,
            takeover=self._takeover,
            keep_on_stop=self._keep_lease_on_stop,
        )
        loop = asyncio.get_running_loop()

        def rewound() -> None:
            with suppress(RuntimeError):  # the loop is closed: nobody reads the cache any more
                loop.call_soon_threadsafe(cache.distrust)

        async with lease.held(health, rewound) as tenure:
            self._tenure = tenure
            await self._reclaim(prepared, tenure, cache)
            yield tenure

    async def _reclaim(self, prepared: _Prepared, tenure: ShardTenure, cache: Cache) -> None:
        """Before any work, after the name had been given up. Ends early when the Lease is lost."""
        if not tenure.returning:
            return
        try:
            async with asyncio.TaskGroup() as tasks:
                reclaiming = tasks.create_task(
                    reclaim(self.client(prepared.client), prepared.shard, prepared.places(cache))
                )
                losing = tasks.create_task(tenure.lost())
                await asyncio.wait((reclaiming, losing), return_when=asyncio.FIRST_COMPLETED)
                lost = losing.done()
                reclaiming.cancel()
                losing.cancel()
        except asyncio.CancelledError:
            tenure.stopped_cleanly()  # no work has begun
            raise
        if not lost:
            tenure.objects_reclaimed()

    @property
    def _ready(self) -> _Prepared:
        assert self._prepared is not None, "prepare has to come first"
        return self._prepared

    def _check(self) -> None:
        if self._tenure is None:
            raise NotOurs("the lease of this shard is not held yet")
        self._tenure.check()

    async def _read_ring(self, client: Client) -> tuple[RingResource, ...]:
        try:
            return (await client.get(ControllerRing, self.ring)).spec.resources
        except Forbidden as error:
            raise ConfigurationError(
                f"reading ControllerRing {self.ring!r} is forbidden: grant get on controllerrings, "
                "or pass resources"
            ) from error

    async def _waiting(self, asking: Callable[[], Awaitable[T]]) -> T:
        """The server's answer, as soon as there is one. Says what it waits for whenever that changes."""
        told = ""
        while True:
            try:
                return await asking()
            except ApiError as error:
                problem = _problem(error)
                if problem != told:
                    _log.warning(
                        "Waiting for the ControllerRing", ring=self.ring, problem=problem, error=error
                    )
                    told = problem
            await asyncio.sleep(RING_PATIENCE)


def _problem(error: ApiError) -> str:
    match error:
        case NotFound():
            return "it does not exist: create it, or correct the name"
        case Throttled() | Timeout() | Unavailable():
            return (
                "the API server does not answer: check its address, the network, and the certificate authority "
                "of the kubeconfig"
            )
        case _:
            return str(error)


class _Prepared:
    """What is known once the ring was read."""

    def __init__(
        self,
        shard: ShardIdentity,
        resources: RingResources,
        kinds: Mapping[GroupKind, Kind],
        client: Client,
    ) -> None:
        self.shard = shard
        self.resources = resources
        self.kinds = kinds
        self.handovers = Handovers(
            shard.label,
            shard.drain,
            shard.name,
            lambda kind: kind.group_resource in resources,
            client.world.clock,
        )
        self.client = client

    def places(self, cache: Cache) -> list[tuple[Kind, str | All]]:
        """Where this process sees objects of the ring."""
        return [
            (kind, namespace or ALL)
            for kind in self.kinds.values()
            for namespace in {part for i in cache.informers_of(kind) for part in i.scope.parts(kind)}
        ]

    def warn_about_idle_resources(self, controllers: Sequence[Controller[Any]]) -> None:
        """A main resource without a controller: its objects are labelled for us, and nobody acknowledges
        drains.
        """
        reconciled = {controller.primary_watch.form.kind.group_resource for controller in controllers}
        for entry in self.resources.entries:
            if entry.main and entry.resource not in reconciled:
                _log.warning(
                    "No controller here reconciles a main resource of the ring; its objects will never be drained",
                    ring=self.shard.ring,
                    resource=str(entry.resource),
                )


async def _kinds(
    client: Client, resources: RingResources, controllers: Sequence[Controller[Any]]
) -> dict[GroupKind, Kind]:
    """The kinds behind the ring's resources: those that controllers declare are known, the others are asked
    for.
    """
    declared = {
        watch.form.kind.group_resource: watch.form.kind
        for controller in controllers
        for watch in controller.watches
    }
    kinds = {}
    for entry in resources.entries:
        kind = declared.get(entry.resource)
        if kind is None:
            try:
                kind = await client.discovery.kind(entry.resource.group, resource=entry.resource.resource)
            except KindNotServed:
                _log.warning(
                    "The API server does not serve a resource of the ring", resource=str(entry.resource)
                )
                continue
        kinds[kind.group_kind] = kind
    return kinds
