"""One cluster on virtual time whose sharders and shards are either those of the Go project (`reference_protocol`) or
ours, with default settings. A script does not know which.

The same oracles watch both (`kubeshard_lab.simulation.ring_oracles`), and excuse nobody.
"""

from __future__ import annotations

import asyncio
import json
import math
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping
from contextlib import asynccontextmanager
from enum import Enum
from itertools import count
from typing import Any, Literal, cast
from urllib.parse import parse_qsl

import msgspec
from reference_protocol import Api, Informer, Obj, ReferenceShard, ReferenceSharder, controller_key

from kubeshard.controller.context import Context
from kubeshard.controller.controller import Controller
from kubeshard.controller.dependents import ensure
from kubeshard.controller.reconciler import Reconciler, Result
from kubeshard.core.builtin import ConfigMap, Lease
from kubeshard.core.errors import ApiError
from kubeshard.core.kinds import GroupResource
from kubeshard.core.objects import Key, ObjectMeta, OwnerReference
from kubeshard.core.owners import with_owner
from kubeshard.core.patches import MergePatch
from kubeshard.core.selectors import Selector
from kubeshard.core.times import micro_time
from kubeshard.manager.manager import Manager
from kubeshard.runtime.asgi import AsgiApp
from kubeshard.runtime.transport import HttpRequest, HttpResponse, HttpStream, TransportTimeout
from kubeshard.sharding.api import ControllerRing, RingResource
from kubeshard.sharding.hash_ring import HashRing
from kubeshard.sharding.names import RING_LABEL, drain_label, shard_label, webhook_path
from kubeshard_apiserver.front.memory import InMemoryTransport
from kubeshard_lab.simulation.cluster import MAIN, SimulatedCluster, Thing, simulate
from kubeshard_lab.simulation.oracles import SimulationResult
from kubeshard_lab.simulation.processes import Before, Network, Process, StreamAround, Travelling, name_of
from kubeshard_lab.simulation.ring_oracles import CHILDREN, THINGS, RingOracles


class Side(Enum):
    """Whose processes a scene has."""

    REFERENCE = "reference"
    KUBESHARD = "kubeshard"


SHARD, DRAIN = shard_label("r"), drain_label("r")


class StrictOracles(RingOracles):
    """In a script nothing happens by chance, so nothing is excused by what users did."""

    def _excused(self, *_: object) -> bool:
        return False


class Scene:
    """`takes`: how many seconds a reconcile takes before it writes, by controller. `children`: whether each Thing has a
    child of a fixed name, one of a new name each time, or none.
    """

    def __init__(self, side: Side, world: SimulatedCluster, result: SimulationResult) -> None:
        self.side, self.world, self.result = side, world, result
        self.oracles = StrictOracles(world, result)
        self.takes: dict[str, float] = {}
        self.children: Literal["named", "generated", "none"] = "named"
        self._numbers = count()
        self._webhooks: dict[str, AsgiApp] = {}
        self.silent: dict[tuple[str, str], tuple[asyncio.Event, float]] = {}
        """Watches that deliver nothing: of a process, whose target contains a text, if opened before a time."""
        self._lags: dict[str, tuple[str, dict[GroupResource, dict[Key, Any]]]] = {}
        self._before: dict[str, Before] = {}
        self._leaving: dict[str, Callable[[HttpRequest], None]] = {}
        self._after: dict[str, Callable[[HttpRequest], Awaitable[None]]] = {}
        world.connected = self._connected

    # -- processes

    async def begin(
        self,
        *shards: str,
        things: Iterable[str] = (),
        sharders: Iterable[str] = ("x0",),
        resources: Iterable[RingResource] = (MAIN,),
    ) -> None:
        """Returns when all shards are in the ring, and the Things exist and are owned."""
        await self.world.install()
        await self.world.make_ring(resources=resources)
        for name in sharders:
            await self.sharder(name)
        for name in shards:
            self.shard(name)
        await self.ready(*shards)
        for name in things:
            await self.create(name)
        await self.world.until(lambda: self.world.all_owned(*shards), within=20)
        await asyncio.sleep(2)

    async def sharder(self, name: str) -> Process:
        """Returns when its webhook is served."""
        apps, prefix = self.world.caller.apps, webhook_path("")
        before = apps.get(prefix)
        if self.side is Side.KUBESHARD:
            process = self.world.sharder(name)
        else:
            process = Process(self.world, name)
            process.start(cast(Manager, ReferenceSharder(process, apps)))
        await self.world.until(lambda: apps.get(prefix) is not before, within=30)
        self._webhooks[name] = apps[prefix]
        return process

    def answers(self, name: str) -> None:
        """From now on the API server calls the webhook of this sharder."""
        self.world.caller.apps[webhook_path("")] = self._webhooks[name]

    def shard(
        self, name: str, process: str = "", *, controllers: Iterable[str] = ("thing",), **options: Any
    ) -> Process:
        """`options` are those of our `Sharding`."""
        called = process or name
        if self.side is Side.KUBESHARD:
            first, *more = controllers
            others = [
                Controller(name=each, reconciler=_Ours(self, called, each), primary=Thing, workers=5)
                for each in more
            ]
            return self.world.shard(
                name, _Ours(self, called, first), process=called, controllers=others, sharding=options
            )
        started = Process(self.world, called)

        async def work(api: Api, children: Informer, thing: Obj, controller: str) -> None:
            async with self.reconciling(called, _metadata(thing), controller):
                if controller == "thing":
                    await self._reference_work(called, api, children, thing)

        program = ReferenceShard(started, self.world.ring, name, work, controllers)
        return started.start(cast(Manager, program))

    async def stop(self, process: str) -> None:
        """Sends SIGTERM, and returns when the process has ended."""
        stopped = self.world.processes[process]
        assert stopped.manager is not None
        stopped.manager.stop()
        await self.world.until(lambda: stopped.dead, within=90)

    async def ready(self, *shards: str, within: float = 60.0) -> None:
        """Returns when these shards hold their Leases."""
        await self.world.until(lambda: all(self.holder(name) == name for name in shards), within)
        await asyncio.sleep(1)

    def holder(self, shard: str) -> str | None:
        lease = self.lease(shard)
        return lease and lease["spec"].get("holderIdentity")

    def lease(self, shard: str, namespace: str = "ops") -> Obj | None:
        leases = self.world.objects("coordination.k8s.io", "leases")
        return next(
            (obj for key, obj in leases.items() if (key.namespace, key.name) == (namespace, shard)), None
        )

    # -- what an author's reconcile does

    @asynccontextmanager
    async def reconciling(self, process: str, metadata: ObjectMeta, controller: str) -> AsyncIterator[None]:
        self.oracles.begins(process, metadata)
        try:
            await asyncio.sleep(self.takes.get(controller, 0.0))
            yield
        finally:
            self.oracles.ends(process, metadata)

    async def _reference_work(self, process: str, api: Api, children: Informer, thing: Obj) -> None:
        metadata, value = thing["metadata"], str(thing["spec"].get("v", 0))
        path = "/api/v1/namespaces/team/configmaps"
        data = {"v": value, "by": name_of(process)}
        own = [
            child
            for child in children.objects.values()
            if controller_key(child).endswith(f"/{metadata['name']}")
        ]
        if self.children == "none":
            pass
        elif not own:
            owner = {key: thing[key] for key in ("apiVersion", "kind")}
            owner |= {"name": metadata["name"], "uid": metadata["uid"], "controller": True}
            meta = {"name": self.child_of(metadata["name"]), "ownerReferences": [owner]}
            await api.call("POST", path, {"metadata": meta, "data": data})
        elif own[0]["data"] != data:
            patch = {"data": data}
            target = f"{path}/{own[0]['metadata']['name']}"
            await api.call("PATCH", target, patch, "application/merge-patch+json")
        if metadata.get("annotations", {}).get("seen") != value:
            target = f"/apis/sim.example/v1/namespaces/team/things/{metadata['name']}"
            await api.patch(target, {"annotations": {"seen": value}})

    def child_of(self, thing: str) -> str:
        return f"c-{thing}" if self.children == "named" else f"c-{thing}-{next(self._numbers)}"

    # -- users, and others

    async def create(self, name: str, **metadata: Any) -> None:
        """A user creates a Thing; it is a break if that is refused."""
        try:
            async with self.world.admin() as admin:
                await admin.create(Thing(metadata=ObjectMeta(name=name, namespace="team", **metadata)))
        except ApiError as error:
            self.broken("refused", f"a user's Thing {name}: {error}")

    async def change(self, name: str) -> None:
        """A user changes the spec of a Thing."""
        async with self.world.admin() as admin:
            await admin.patch(Thing, name, "team", MergePatch({"spec": {"v": next(self._numbers) + 1}}))

    def owner_reference(self, name: str) -> OwnerReference:
        """Returns what an object has that this Thing controls."""
        thing = self.world.objects(*THINGS)[Key("team", name)]
        uid = thing["metadata"]["uid"]
        return OwnerReference(api_version="sim.example/v1", kind="Thing", name=name, uid=uid, controller=True)

    async def edit_ring(self, times: int) -> None:
        """A user changes what does not matter in the ring, every two seconds; the sharder scans all objects."""
        for _ in range(times):
            values = [str(next(self._numbers))]
            selector = {"matchExpressions": [{"key": "edit", "operator": "NotIn", "values": values}]}
            async with self.world.admin() as admin:
                await admin.patch(
                    ControllerRing, "r", None, MergePatch({"spec": {"namespaceSelector": selector}})
                )
            await asyncio.sleep(2)

    async def label(self, name: str, labels: Mapping[str, str | None], kind: type = Thing) -> None:
        async with self.world.admin() as admin:
            await admin.patch(kind, name, "team", MergePatch({"metadata": {"labels": dict(labels)}}))

    async def replace(self, name: str) -> None:
        """A user replaces a Thing by a manifest without labels."""
        path = f"/apis/sim.example/v1/namespaces/team/things/{name}"
        async with self.world.admin() as admin:
            thing = json.loads((await admin.raw("GET", path)).body)
            thing["metadata"].pop("labels", None)
            await admin.raw("PUT", path, json.dumps(thing).encode())

    async def put_lease(self, name: str, holder: str, namespace: str = "ops") -> None:
        """Somebody writes a Lease of the ring."""
        path = f"/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases"
        lease, now = self.lease(name, namespace), micro_time(self.world.clock.wall())
        spec = {"holderIdentity": holder, "leaseDurationSeconds": 15, "acquireTime": now, "renewTime": now}
        async with self.world.admin() as admin:
            if lease is None:
                lease = {"metadata": {"name": name, "labels": {RING_LABEL: "r"}}, "spec": spec}
                await admin.raw("POST", path, json.dumps(lease).encode())
            else:
                lease = {**lease, "spec": {**lease["spec"], **spec}}
                await admin.raw("PUT", f"{path}/{name}", json.dumps(lease).encode())

    async def delete_lease(self, name: str) -> None:
        async with self.world.admin() as admin:
            await admin.delete(Lease, name, "ops")

    # -- networks

    def silence(self, process: str, of: str = "", *, only_open: bool = False) -> Callable[[], None]:
        """The watches of the process, or those whose target contains `of`, deliver nothing until the returned function
        is called; then all that they held back. `only_open`: watches that are opened later work.
        """
        silence = asyncio.Event()
        self.silent[process, of] = silence, self.world.loop.time() if only_open else math.inf

        def end() -> None:
            silence.set()
            self.silent.pop((process, of), None)

        return end

    def leaving(self, process: str, hook: Callable[[HttpRequest], None]) -> None:
        """The hook sees the requests of the process when it sends them."""
        self._leaving[process] = hook

    def before(self, process: str, hook: Before) -> None:
        """The hook sees the requests of the process ahead of the server, and may answer them itself."""
        self._before[process] = hook

    def after(self, process: str, hook: Callable[[HttpRequest], Awaitable[None]]) -> None:
        """The hook sees the requests of the process after the server has processed them."""
        self._after[process] = hook

    async def deliver(self, process: str, request: HttpRequest) -> None:
        """The request reaches the server now, whatever became of its sender."""
        self.world.arriving(self.world.processes[process], request)
        await InMemoryTransport(self.world.front).request(request)

    def lag(self, process: str) -> Callable[[], None]:
        """The API server that the process reaches lags: its cache of Things and children stays at this moment, and
        their watches deliver nothing, until the returned function is called. Consistent reads are not affected.
        """
        store = self.world.server.store
        hear = [self.silence(process, f"/{resource.resource}?") for resource in (THINGS, CHILDREN)]
        objects = {resource: dict(store.objects(resource)) for resource in (THINGS, CHILDREN)}
        self._lags[process] = str(store.revision), objects

        def end() -> None:
            del self._lags[process]
            for each in hear:
                each()

        return end

    def _from_cache(self, process: str, request: HttpRequest) -> HttpResponse | None:
        """Answers a list at version 0."""
        path, _, query = request.target.partition("?")
        asked = dict(parse_qsl(query))
        if process not in self._lags or asked.get("resourceVersion") != "0":
            return None
        version, objects = self._lags[process]
        found = next(found for resource, found in objects.items() if path.endswith(f"/{resource.resource}"))
        selector = Selector.parse(asked.get("labelSelector", ""))
        items = [obj for obj in found.values() if selector.matches(obj["metadata"].get("labels"))]
        body = {"metadata": {"resourceVersion": version}, "items": items}
        return HttpResponse(200, {"content-type": "application/json"}, json.dumps(body).encode())

    def _connected(self, process: Process, network: Network) -> None:
        async def before(request: HttpRequest) -> HttpResponse | None:
            hook = self._before.get(process.name)
            answer = await hook(request) if hook else None
            return answer or self._from_cache(process.name, request)

        async def after(request: HttpRequest, answer: HttpResponse) -> None:
            if hook := self._after.get(process.name):
                await hook(request)

        def leaving(request: HttpRequest) -> None:
            for heard in self.world.leaving:
                heard(process, request)
            if hook := self._leaving.get(process.name):
                hook(request)

        network.before, network.after, network.leaving = before, after, leaving
        network.through = lambda request, inner: _Silenced(self, process, network, request, inner)

    # -- what must hold

    async def must(self, oracle: str, condition: Callable[[], object], within: float) -> None:
        """It is a break of `oracle` if the condition does not hold within so many seconds."""
        began = self.world.loop.time()
        while not condition():
            if self.world.loop.time() - began > within:
                self.broken(oracle, f"not within {within:g} s; {self.world.owners()}")
                return
            await asyncio.sleep(0.1)

    def broken(self, oracle: str, what: str) -> None:
        """Called by a script that judges something itself."""
        self.result.noticed(self.world.loop.time(), oracle, what)

    def owner(self, name: str) -> str:
        return self.world.owners()[name]


def _metadata(obj: Obj) -> ObjectMeta:
    return msgspec.convert(obj["metadata"], ObjectMeta, strict=False)


class _Silenced(StreamAround):
    """A watch that delivers nothing while it is silent. Its reader gives up when nothing has come for too long."""

    def __init__(
        self, scene: Scene, process: Process, network: Network, request: HttpRequest, inner: HttpStream
    ) -> None:
        super().__init__(Travelling(network, inner))
        self._scene, self._process, self._request = scene, process.name, request
        self._opened = process.world.loop.time()

    async def chunks(self) -> AsyncIterator[bytes]:
        loop = asyncio.get_running_loop()
        heard = loop.time()
        async for chunk in self._inner.chunks():
            for (process, of), (silence, before) in [*self._scene.silent.items()]:
                if process == self._process and of in self._request.target and self._opened < before:
                    patience = self._request.idle_timeout
                    try:
                        async with asyncio.timeout_at(None if patience is None else heard + patience):
                            await silence.wait()
                    except TimeoutError:
                        raise TransportTimeout(f"no byte for {patience} s") from None
            yield chunk
            heard = loop.time()


class _Ours(Reconciler[Thing]):
    """The author's reconcile as it is written for kubeshard."""

    def __init__(self, scene: Scene, process: str, controller: str) -> None:
        self._scene, self._process, self._controller = scene, process, controller

    async def reconcile(self, ctx: Context, obj: Thing) -> Result | None:
        scene, metadata, value = self._scene, obj.metadata, str(obj.spec.get("v", 0))
        async with scene.reconciling(self._process, metadata, self._controller):
            if self._controller != "thing":
                return None
            data = {"v": value, "by": name_of(self._process)}
            child = ObjectMeta(name=scene.child_of(metadata.name), namespace="team")
            if scene.children == "named":
                await ensure(ctx, ConfigMap(metadata=child, data=data), owner=obj)
            elif scene.children == "generated":
                own = [each for each in await ctx.list(ConfigMap) if each.metadata.owner_references]
                own = [each for each in own if each.metadata.owner_references[0].uid == metadata.uid]
                if not own:
                    await ctx.client.create(
                        ConfigMap(metadata=with_owner(child, obj, controller=True), data=data)
                    )
            if metadata.annotation("seen") != value:
                patch = MergePatch({"metadata": {"annotations": {"seen": value}}})
                await ctx.client.patch(Thing, metadata.name, "team", patch, base=obj)
        return None


def a_thing(*where: tuple[str, Iterable[str]], but: Iterable[str] = ()) -> str:
    """Returns a name for a Thing that in each of these rings belongs to the shard: `("a", "ab"), ("c", "abc")`."""
    names = (f"t{number}" for number in count())
    rings = [(owner, HashRing(shards)) for owner, shards in where]
    return next(
        name
        for name in names
        if name not in but
        and all(ring.owner(f"sim.example/Thing/team/{name}") == owner for owner, ring in rings)
    )


def play(script: Callable[[Scene], Awaitable[None]], side: Side) -> SimulationResult:
    """Runs the script on virtual time, and returns what the oracles noticed."""
    result = SimulationResult()

    async def scene() -> None:
        async with SimulatedCluster(seed=1) as world:
            await script(Scene(side, world, result))
            failed = [
                process.dead for process in world.processes.values() if process.dead.startswith("ended")
            ]
            assert side is Side.KUBESHARD or not failed, failed  # only our processes end by themselves

    simulate(scene)
    return result
