"""A cluster on virtual time: sharders and shards as the production classes, an API server in memory, and faults at
network, process and clock.

    async def scene() -> None:
        async with SimulatedCluster(seed=1) as world:
            await world.install()
            await world.make_ring()
            world.sharder("x0")
            world.shard("s0", Touch())
            ...

What is real: everything from `Manager` down to `Transport`, and the webhook's application. What is not: sockets,
threads and TLS; a process is a task, a network of its own and a clock of its own.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import AsyncIterator, Callable, Collection, Coroutine, Iterable, Mapping
from contextlib import asynccontextmanager, suppress
from functools import partial
from types import TracebackType
from typing import Any, Self

import msgspec

from kubeshard.client.client import Client
from kubeshard.client.config import BearerToken, ClusterConfig
from kubeshard.client.limiter import Limiter
from kubeshard.controller.context import Context
from kubeshard.controller.controller import Controller
from kubeshard.controller.dependents import ensure
from kubeshard.controller.reconciler import Reconciler, Result
from kubeshard.controller.watch import Watch
from kubeshard.core.builtin import ConfigMap, Namespace
from kubeshard.core.clusters import HOME_CLUSTER, OTHER_CLUSTERS
from kubeshard.core.kinds import GroupResource
from kubeshard.core.objects import Key, KubeObject, ObjectMeta, field
from kubeshard.core.selectors import LabelSelector
from kubeshard.manager.manager import Manager
from kubeshard.runtime import world as runtime
from kubeshard.runtime.pod import Pod
from kubeshard.shard.settings import Ranges
from kubeshard.shard.sharding import Sharding
from kubeshard.sharder.app import build_sharder
from kubeshard.sharder.config import SharderConfig
from kubeshard.sharding.api import ControllerRing, ControllerRingSpec, RingGroupResource, RingResource
from kubeshard.sharding.crd import controller_ring_crd
from kubeshard.sharding.names import (
    DELIVERY_ANNOTATION,
    SHARD_NAMESPACES_ANNOTATION,
    drain_label,
    shard_label,
)
from kubeshard.webhook.app import AdmissionApp
from kubeshard.webhook.metrics import WebhookMetrics
from kubeshard.webhook.server import WebhookServer
from kubeshard_apiserver.access import ADMINISTRATOR, User
from kubeshard_apiserver.admission.caller import AppCaller
from kubeshard_apiserver.front.gate import Identity
from kubeshard_apiserver.front.handlers import Front
from kubeshard_apiserver.front.memory import InMemoryTransport
from kubeshard_apiserver.history import History
from kubeshard_apiserver.resources.definitions import DEFINITIONS, resource_of
from kubeshard_apiserver.server import ApiServer
from kubeshard_apiserver.steps import WebhookCall, WebhookReply
from kubeshard_apiserver.store import Store
from kubeshard_lab.simulation.deliveries import Labelled, Ranged
from kubeshard_lab.simulation.processes import Environment, Process
from kubeshard_lab.virtual_time import run_virtual
from kubeshard_lab.virtual_world import virtual_world

A_YEAR = 365 * 86_400.0
WORK = "work"
TEAMS = ("team", "a-team", "e-team", "i-team", "m-team", "q-team", "u-team", "x-team", "z-team")
"""The namespaces of Things, in different buckets. Only one is needed unless they are shared out by namespace."""
PLACES = ("c0", "c1", "c2", "c3")
"""The clusters of Things, in different buckets, if clusters are shared out. No two Things have the same name."""


class Thing(KubeObject, group="sim.example", version="v1"):
    """The main kind of the world's ring; it controls ConfigMaps."""

    spec: dict[str, Any] = field(default_factory=dict)
    status: dict[str, Any] = field(default_factory=dict)


def definition(plural: str = "things", kind: str = "Thing") -> dict[str, Any]:
    """Returns a CustomResourceDefinition that accepts everything."""
    schema = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{plural}.sim.example"},
        "spec": {
            "group": "sim.example",
            "scope": "Namespaced",
            "names": {"kind": kind, "listKind": f"{kind}List", "plural": plural, "singular": kind.lower()},
            "versions": [
                {
                    "name": "v1",
                    "served": True,
                    "storage": True,
                    "subresources": {"status": {}},
                    "schema": {"openAPIV3Schema": schema},
                }
            ],
        },
    }


MAIN = RingResource(
    group="sim.example",
    resource="things",
    controlled_resources=(RingGroupResource(group="", resource="configmaps"),),
)


class VirtualWebhookServer(WebhookServer):
    """A webhook server without TLS: the API server of the simulation calls its application directly."""

    def __init__(self, apps: dict[str, Any], own: dict[str, Any], *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._apps = apps
        self._own = own
        self._listens = False

    def ready(self) -> bool:
        return self._listens

    @asynccontextmanager
    async def running(self, world: runtime.World) -> AsyncIterator[WebhookServer]:
        if self._after:
            await self._after()
        app = AdmissionApp(self._routes, clock=world.clock, metrics=WebhookMetrics(self.registry))
        self._listens = True
        for prefix in self._routes:
            self._apps[prefix] = self._own[prefix] = app
        try:
            yield self
        finally:
            self._listens = False
            self._own.clear()
            for prefix in self._routes:
                if self._apps.get(prefix) is app:
                    del self._apps[prefix]


class _Webhooks:
    """To the webhooks of running processes: the last one that listens, unless another is `preferred`."""

    def __init__(self) -> None:
        self.apps: dict[str, Any] = {}
        self.reachable = self.trusted = True
        self.delay = 0.0
        """How many seconds it takes until a call arrives."""
        self.preferred = ""
        self.refused = 0
        self.answered = 0
        self.delayed = 0
        self.asked: Counter[str] = Counter()
        """How many calls each process got because it was preferred."""
        self._of: dict[str, dict[str, Any]] = {}

    def of(self, process: str) -> dict[str, Any]:
        return self._of.setdefault(process, {})

    def died(self, process: Process) -> None:
        """Nobody reaches the applications of a dead process."""
        gone = self._of.pop(process.name, {})
        for prefix, app in gone.items():
            if self.apps.get(prefix) is app:
                del self.apps[prefix]
                for own in self._of.values():
                    if prefix in own:
                        self.apps[prefix] = own[prefix]

    async def call(self, call: WebhookCall) -> WebhookReply:
        if self.reachable and not self.trusted:
            self.refused += 1
            return WebhookReply(problem="tls: failed to verify certificate: x509: unknown authority")
        if self.delay:
            self.delayed += 1
            await asyncio.sleep(min(self.delay, call.timeout))
            if self.delay >= call.timeout:
                return WebhookReply(problem="context deadline exceeded")
        self.refused += not self.reachable
        apps = self._of.get(self.preferred) or self.apps
        self.asked[self.preferred] += 1
        reply = await AppCaller(apps if self.reachable else {}).call(call)
        self.answered += bool(self.reachable and self.apps)
        return reply

    async def close(self) -> None:
        pass


class SimulatedCluster(Environment):
    """See the module. `users`: RBAC is enforced, and these are the
    users of processes, by name; all others are administrators. `apart`: Leases are in a separate cluster, at home, and
    shards refer to the one with the objects as `WORK`. `feature_gates`: those of the API server that are on. `ranges`:
    how shards get their objects if not by labels. `others`: the names of further clusters, at `http://NAME`.
    """

    def __init__(
        self,
        seed: int = 1,
        *,
        latency: tuple[float, float] = (0.001, 0.01),
        ring: str = "r",
        users: Mapping[str, User] | None = None,
        apart: bool = False,
        feature_gates: Collection[str] = (),
        ranges: Ranges | None = None,
        others: Collection[str] = (),
    ) -> None:
        outside = virtual_world(seed=seed)
        self.server = ApiServer(world=outside, feature_gates=feature_gates)
        self.caller = _Webhooks()
        self._users = dict(users or {})
        tokens = {ADMINISTRATOR.name: ADMINISTRATOR, **self._users}
        gate = Identity(self.server, tokens=tokens) if self._users else None
        self.front = Front(self.server, gate=gate, caller=self.caller)
        self.apart = apart
        self.home = ApiServer(world=outside) if apart else self.server
        """The cluster with the Leases."""
        home = Front(self.home) if apart else self.front
        self.shared = PLACES if ranges and ranges.by == "cluster" else ()
        """The clusters that are shared out."""
        self.others = {name: ApiServer(world=outside) for name in (*others, *self.shared)}
        fronts = {name: Front(server) for name, server in self.others.items()}
        super().__init__(outside, {"sim": self.front, "home": home, **fronts}, latency)
        self.deaths.append(self.caller.died)
        self.ring = ring
        self.ranges = ranges
        self.namespaces = TEAMS if ranges and ranges.by == "namespace" else TEAMS[:1]
        self.places = self.shared or ("sim",)
        """The clusters in which Things are."""
        self.stores = [self.server.store, *(self.others[place].store for place in self.shared)]
        """What the ring works on is there, and who has it is in the first."""
        self.works_in = OTHER_CLUSTERS if self.shared else [WORK] if apart else [HOME_CLUSTER]
        """Where the controllers of shards work."""
        self.delivery = Labelled()
        if ranges:
            self.delivery = ranged = Ranged(
                self.stores, ring, ranges.divided, self._alive, self.sender.get, self.shared, self.cluster_of
            )
            self.leaving.append(ranged.sent)
            self.observers.append(ranged.answered)
            self.hearers.append(ranged.heard)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.observers.clear()
        self.learners.clear()
        self.hearers.clear()
        self.deaths.clear()
        self.leaving.clear()
        for process in self.processes.values():
            process.kill()
        disabled = logging.root.manager.disable
        logging.disable()  # the dead say nothing
        try:
            for process in self.processes.values():
                await process.cleared()
        finally:
            logging.disable(disabled)

    # -- objects in the cluster

    def admin(self, cluster: str = "sim") -> Client:
        """A client without a network and faults."""
        transport = InMemoryTransport(self.fronts[cluster])
        return Client(self.config(), transport=transport, world=self.outside)

    def config(self, process: str = "") -> ClusterConfig:
        token = process if process in self._users else ADMINISTRATOR.name
        server = "http://home" if self.apart and process else "http://sim"
        return ClusterConfig(server, auth=BearerToken(token) if self._users else None)

    async def install(self, *more: Mapping[str, Any]) -> None:
        """Installs the kinds, and the namespaces sharding-system, ops (for the shards' Leases) and those of Things."""
        for cluster in ("sim", *self.shared):
            async with self.admin(cluster) as client:
                for manifest in (controller_ring_crd(), definition(), *more):
                    await client.apply(manifest)
                for name in ("sharding-system", "ops", *self.namespaces):
                    await client.create(Namespace(metadata=ObjectMeta(name=name)))
        if self.apart:
            async with self.admin("home") as client:
                await client.create(Namespace(metadata=ObjectMeta(name="ops")))

    async def make_ring(
        self,
        name: str | None = None,
        resources: Iterable[RingResource] = (MAIN,),
        selector: LabelSelector | None = None,
    ) -> None:
        spec = ControllerRingSpec(resources=tuple(resources), namespace_selector=selector)
        annotations = {}
        if self.ranges is not None:
            delivery = f"Ranges {self.ranges.divided}"
            annotations = {DELIVERY_ANNOTATION: delivery, SHARD_NAMESPACES_ANNOTATION: "ops"}
        meta = ObjectMeta(name=name or self.ring, annotations=annotations)
        async with self.admin() as client:
            await client.create(ControllerRing(metadata=meta, spec=spec))

    async def make_things(self, count: int, *, prefix: str = "t", **spec: Any) -> None:
        clients = {place: self.admin(place) for place in self.places}
        for number in range(count):
            name = f"{prefix}{number}"
            metadata = ObjectMeta(name=name, namespace=self.home_of(name))
            await clients[self.cluster_of(name)].create(Thing(metadata=metadata, spec=dict(spec)))
        for client in clients.values():
            await client.close()

    def store(self, cluster: str) -> Store:
        return self.server.store if cluster == "sim" else self.others[cluster].store

    def objects(self, group: str, resource: str) -> dict[Key, dict[str, Any]]:
        """Of what the ring works on, in all clusters."""
        which, found = GroupResource(group, resource), dict[Key, dict[str, Any]]()
        for store in [self.home.store] if resource == "leases" else self.stores:
            with suppress(KeyError):  # the kind does not exist at the moment
                found |= store.objects(which)
        return found

    def cluster_of(self, name: str) -> str:
        """The cluster of a Thing, or of its child."""
        return self.places[sum(name.removeprefix("c-").encode()) % len(self.places)]

    def home_of(self, name: str) -> str:
        """The namespace of a Thing, or of its child."""
        return self.namespaces[sum(name.removeprefix("c-").encode()) % len(self.namespaces)]

    def _alive(self) -> set[str]:
        return {name for name, process in self.processes.items() if not process.dead}

    def stored(self, resource: GroupResource, key: Key) -> Any:
        """The object as it is delivered; None without it, and while its kind does not exist."""
        try:
            return self.delivery.shown(self.store(self.cluster_of(key.name)).get(resource, key))
        except KeyError:
            return None

    def owners(
        self, group: str = "sim.example", resource: str = "things", namespace: str = ""
    ) -> dict[str, str]:
        """Returns the shards by name of the object; "" without one. By default, of Things and their children."""
        label = shard_label(self.ring)
        return {
            key.name: (self.delivery.shown(obj)["metadata"].get("labels") or {}).get(label, "")
            for key, obj in self.objects(group, resource).items()
            if key.namespace in ([namespace] if namespace else self.namespaces)
        }

    def draining(self) -> set[str]:
        label = drain_label(self.ring)
        things = self.objects("sim.example", "things").items()
        return {
            key.name
            for key, obj in things
            if label in (self.delivery.shown(obj)["metadata"].get("labels") or {})
        }

    def backup(self, cluster: str = "sim") -> Callable[[], None]:
        """A snapshot of etcd. What it returns restores it: watches are cut, versions go back."""
        server = self.server if cluster == "sim" else self.others[cluster]
        store, registry = server.store, server.registry
        revision = store.revision
        objects = {resource: dict(found) for resource, found in store._states.items()}

        def restore() -> None:
            for resource in list(store._states):
                store.interrupt(resource)
                if resource not in objects:  # its kind did not exist yet
                    registry.remove(resource)
                    store.close(resource)
            store.revision = revision
            gone = [resource for resource in objects if not store.has(resource)]
            for resource, found in objects.items():
                store.open(resource)
                states = store._states[resource]
                states.clear()
                states.update(found)
                store._histories[resource] = History(revision, 10_000)
            store._ordered.clear()
            for each in store.objects(DEFINITIONS).values():
                if resource_of(each) in gone:
                    server.definitions.serve(each)
            if store is self.server.store:
                self.delivery.restored()

        return restore

    # -- processes

    def sharder(
        self,
        name: str,
        config: SharderConfig | None = None,
        *,
        webhook: bool = True,
        limiter: Limiter | None = None,
    ) -> Process:
        process = Process(self, name)
        config = config or SharderConfig()
        replace = msgspec.structs.replace
        server = replace(config.webhook.server, bind_address=":9443" if webhook else "0", cert_dir="/none")
        config = replace(
            config,
            webhook=replace(config.webhook, server=server),
            metrics=replace(config.metrics, bind_address="0"),
            health=replace(config.health, bind_address="0"),
        )
        serving = partial(VirtualWebhookServer, self.caller.apps, self.caller.of(name))
        return process.start(build_sharder(config, process.client(limiter), webhook_server=serving))

    def shard(
        self,
        name: str,
        reconciler: Reconciler[Thing],
        *,
        process: str = "",
        machine: str = "",
        pod: Pod | None = None,
        workers: int = 5,
        reconcile_timeout: float = 600.0,
        owns: Iterable[type[KubeObject]] = (ConfigMap,),
        controllers: Iterable[Controller[Any]] = (),
        sharding: Mapping[str, Any] | None = None,
        **manager: Any,
    ) -> Process:
        """Its Lease is `name`; `process`: if several have it; others are for `Process`, `Sharding`, `Manager`."""
        started = Process(self, process or name, machine, pod)
        thing = Controller(
            name="thing",
            reconciler=reconciler,
            primary=Watch(Thing, sharded=not self.shared),
            owns=[Watch(kind, sharded=not self.shared) for kind in owns],
            workers=workers,
            reconcile_timeout=reconcile_timeout,
            clusters=self.works_in,
        )
        if self.shared:
            manager["clusters"] = {place: ClusterConfig(f"http://{place}") for place in self.shared}
        if self.apart:
            manager["clusters"] = {WORK: ClusterConfig("http://sim"), **manager.get("clusters", {})}
        member = Sharding(
            **{
                "ring": self.ring,
                "name": name,
                "namespace": "ops",
                "objects_in": WORK if self.apart else HOME_CLUSTER,
                "delivery": self.ranges or "labels",
                **(sharding or {}),
            }
        )
        return started.start(
            Manager(
                [thing, *controllers], client=started.client(), sharding=member, status_pages=None, **manager
            )
        )

    def operator(self, name: str, *controllers: Controller[Any], **manager: Any) -> Process:
        process = Process(self, name)
        return process.start(Manager(controllers, client=process.client(), status_pages=None, **manager))

    # -- waiting

    async def until(self, condition: Callable[[], object], within: float, step: float = 0.1) -> float:
        """Waits until the condition holds; returns after how many seconds. Fails after `within`."""
        began = self.loop.time()
        while not condition():
            waited = self.loop.time() - began
            assert waited < within, f"not within {within} s; owners: {self.owners()}; log: {self.log[-10:]}"
            await asyncio.sleep(step)
        return self.loop.time() - began

    def all_owned(self, *shards: str) -> bool:
        """Whether every Thing is owned, by one of these shards if any are named, and none is being drained."""
        owners = self.owners().values()
        return all(owner in shards if shards else owner for owner in owners) and not self.draining()


class Touch(Reconciler[Thing]):
    """Maintains a ConfigMap `c-NAME` with the Thing's `spec.v`, after `work` seconds. Counts its runs."""

    def __init__(self, work: float = 0.0) -> None:
        self._work = work
        self.runs = 0

    async def reconcile(self, ctx: Context, obj: Thing) -> Result | None:
        self.runs += 1
        if self._work:
            await asyncio.sleep(self._work)
        metadata = ObjectMeta(name=f"c-{obj.metadata.name}", namespace=obj.metadata.namespace)
        await ensure(ctx, ConfigMap(metadata=metadata, data={"v": str(obj.spec.get("v", 0))}), owner=obj)
        return None


def simulate(scene: Callable[[], Coroutine[Any, Any, None]]) -> None:
    run_virtual(scene(), limit=A_YEAR)
