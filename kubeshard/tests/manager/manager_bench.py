"""Parts around a manager that a test controls: caches that sync at once, Leases in memory, a ring membership."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any

import msgspec

from kubeshard.cache import Cache, Scope
from kubeshard.client import Client, ClusterConfig
from kubeshard.controller import Context, Controller, Reconciler, Result
from kubeshard.core import GroupKind, KubeObject, ObjectMeta
from kubeshard.leases.held_lease import Gate
from kubeshard.listwatch.state_machine import Listed
from kubeshard.manager import LeaderElection, Manager
from kubeshard.manager.membership import HealthGate, SharedClusters
from kubeshard.manager.runnable import Work
from kubeshard.runtime.transport import HttpRequest, HttpResponse
from kubeshard_lab.virtual_time import VirtualClock, settle
from kubeshard_lab.virtual_world import virtual_world

JSON = {"content-type": "application/json"}


class Item(KubeObject, group="example.com", version="v1"):
    pass


def item(name: str = "a", version: int = 1) -> Item:
    return Item(metadata=ObjectMeta(name=name, namespace="ns", uid=name, resource_version=str(version)))


class FilledCache(Cache):
    """A cache that contains `objects` as soon as it runs, and gets no events."""

    def __init__(self, client: Client, objects: Sequence[KubeObject]) -> None:
        super().__init__(client)
        self._objects = objects
        self.order: list[str] = []

    async def tell(self, obj: KubeObject) -> None:
        """Reports the object as added or changed."""
        self.informer(type(obj)).put(obj, "")
        await settle()

    @asynccontextmanager
    async def running(self) -> AsyncIterator[Cache]:
        self.order.append("cache started")
        for informer in self.informers:
            entries = {obj.key: obj for obj in self._objects if informer.form.kind == obj.KIND}
            await informer.listed(Listed("1"), entries, "")
        try:
            yield self
        finally:
            self.order.append("cache stopped")


class Leases:
    """An API server that serves Leases."""

    def __init__(self) -> None:
        self.leases: dict[str, dict[str, Any]] = {}
        self._version = 0

    async def request(self, request: HttpRequest) -> HttpResponse:
        path = request.target.partition("?")[0]
        if request.method == "GET":
            found = self.leases.get(path)
            return HttpResponse(200, JSON, msgspec.json.encode(found)) if found else _status(404, "NotFound")
        body = msgspec.json.decode(request.body or b"")
        if request.method == "POST":
            path = f"{path}/{body['metadata']['name']}"
        self._version += 1
        body["metadata"]["resourceVersion"] = str(self._version)
        self.leases[path] = body
        return HttpResponse(200, JSON, msgspec.json.encode(body))

    def stream(self, request: HttpRequest) -> Any:
        raise NotImplementedError

    def abort(self) -> None: ...

    async def close(self) -> None: ...

    @property
    def holders(self) -> list[str]:
        return [lease["spec"].get("holderIdentity", "") for lease in self.leases.values()]


def _status(code: int, reason: str) -> HttpResponse:
    return HttpResponse(code, JSON, msgspec.json.encode({"kind": "Status", "reason": reason, "code": code}))


class Act(Reconciler[Item]):
    """A reconciler that takes `seconds`."""

    def __init__(self, seconds: float = 0.0, order: list[str] | None = None) -> None:
        self.seconds = seconds
        self.began: list[float] = []
        self.ended: list[str] = []
        self.order = order if order is not None else []

    async def reconcile(self, ctx: Context, obj: Item, /) -> Result | None:
        self.began.append(asyncio.get_running_loop().time())
        try:
            await asyncio.sleep(self.seconds)
        except asyncio.CancelledError:
            self.ended.append("cancelled")
            self.order.append("reconcile cancelled")
            raise
        self.ended.append("done")
        self.order.append("reconcile done")
        return None


class FakeHeldLease:
    def __init__(self, order: list[str]) -> None:
        self.gate = Gate()
        self.loss: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self._order = order

    async def lost(self) -> str:
        return await asyncio.shield(self.loss)

    def stopped_cleanly(self) -> None:
        self._order.append("stopped cleanly")


class FakeMembership:
    """The membership of a ring that shards controllers whose names begin with `sharded`. `wait`: seconds until the
    Lease is acquired.
    """

    objects_in = ""
    unready = ""

    def __init__(self, order: list[str], wait: float = 0.0, *, shares_clusters: bool = False) -> None:
        self.order = order
        self.wait = wait
        self.shares_clusters = shares_clusters
        self.held_lease: FakeHeldLease | None = None
        self.health: HealthGate = lambda: None
        self.clusters: SharedClusters

    def leaving(self) -> None:
        self.order.append("leaving")

    async def prepare(
        self, client: Client, controllers: Sequence[Controller[Any]], clusters: Mapping[str, Client]
    ) -> None:
        self.order.append("prepared")

    def scopes(self, cluster: str) -> Mapping[GroupKind, Scope]:
        return {}

    def client(self, client: Client, cluster: str) -> Client:
        return client

    @property
    def election(self) -> LeaderElection | None:
        return None

    @property
    def about(self) -> None:
        return None

    @property
    def state(self) -> str:
        return ""

    def gate(self, controller: Controller[Any], cluster: str) -> Gate | None:
        return None

    def beside(self, events: object, metrics: object, health: HealthGate) -> Sequence[Work]:
        return ()

    def wrap(self, controller: Controller[Any], cluster: str) -> Controller[Any]:
        return (
            controller.wrapped(lambda inner: inner) if controller.name.startswith("sharded") else controller
        )

    @asynccontextmanager
    async def held(
        self,
        health: HealthGate,
        caches: Mapping[str, Cache],
        refused: Callable[[str], None],
        clusters: SharedClusters,
    ) -> AsyncIterator[FakeHeldLease]:
        self.health = health
        await asyncio.sleep(self.wait)
        self.clusters = clusters
        self.order.append("held")
        self.held_lease = FakeHeldLease(self.order)
        try:
            yield self.held_lease
        finally:
            self.order.append("left")


class ManagerBench:
    """`start` runs the manager in a task."""

    def __init__(self, *objects: KubeObject) -> None:
        self.clock = VirtualClock()
        self.server = Leases()
        self.client = Client(
            ClusterConfig("http://kube.test"), transport=self.server, world=virtual_world(clock=self.clock)
        )
        self.cache = FilledCache(self.client, objects)
        self.order = self.cache.order

    def manager(self, controllers: Sequence[Controller[Any]] = (), **options: Any) -> Manager:
        options.setdefault("status_pages", None)
        manager = Manager(controllers, client=self.client, **options)
        # Sharding determines the scopes of a cache, so a manager accepts no prepared cache with it. This one has no
        # scopes.
        manager._declared.cache = self.cache
        return manager
