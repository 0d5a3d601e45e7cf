"""Everything that must not notice when one of it misbehaves: two rings with their shards, a sharder, and an operator
without a ring that works in two clusters.

| neighbour | its objects | reconciled by |
|---|---|---|
| THINGS | Things, a main kind of ring `r`; each has a ConfigMap | the shards s0 and s1 |
| OTHERS | Others, the other main kind of ring `r` | the same processes |
| QUIETS | Quiets, the main kind of ring `q` | the shard q0 |
| PLAINS | Plains | a controller of the operator `op` |
| PEERS | Bads, except `b0` | another controller of `op`, whose author's functions can misbehave |
| FARS | Plains in the cluster `far` | a third controller of `op` |
| NEW | Things that are created now | they get a shard |

`Neighbourhood.goes_on` changes all objects of a neighbour and waits until every change is reconciled.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from typing import Any

from kubeshard.client import ClusterConfig
from kubeshard.controller import Context, Controller, Daemon, Reconciler, Result, Watch
from kubeshard.controller.dependents import ensure
from kubeshard.controller.when import matching
from kubeshard.core import ConfigMap, Key, KubeObject, Namespace, ObjectMeta, field
from kubeshard.core.patches import MergePatch
from kubeshard.core.selectors import LabelSelector
from kubeshard.core.times import micro_time
from kubeshard.manager import LeaderElection, Manager
from kubeshard.runtime.transport import (
    HttpRequest,
    HttpResponse,
    HttpStream,
    TransportError,
    TransportTimeout,
)
from kubeshard.shard import Sharding
from kubeshard.sharding.api import ControllerRing, RingResource
from kubeshard.sharding.names import RING_LABEL, shard_label
from kubeshard_apiserver import ApiServer
from kubeshard_apiserver.front.handlers import Front
from kubeshard_lab.simulation.cluster import MAIN, SimulatedCluster, Thing, definition
from kubeshard_lab.simulation.processes import Network, Process, StreamAround, Travelling, refusal

THINGS, OTHERS, QUIETS, PLAINS, PEERS, FARS, NEW = (
    "things",
    "others",
    "quiets",
    "plains",
    "peers",
    "fars",
    "new",
)

NAMESPACE = "team"
TENANT = "tenant"
POISON = "b0"
"""The object for which an author's functions misbehave."""

RUN_LIMIT = 15.0
"""Seconds that a reconcile may take."""


class Other(KubeObject, group="sim.example", version="v1", plural="others"):
    spec: dict[str, Any] = field(default_factory=dict)


class Quiet(KubeObject, group="sim.example", version="v1", plural="quiets"):
    spec: dict[str, Any] = field(default_factory=dict)


class Plain(KubeObject, group="sim.example", version="v1", plural="plains"):
    spec: dict[str, Any] = field(default_factory=dict)


class Bad(KubeObject, group="sim.example", version="v1", plural="bads"):
    spec: dict[str, Any] = field(default_factory=dict)


OTHER_RESOURCE = RingResource(group="sim.example", resource="others")
QUIET_RESOURCE = RingResource(group="sim.example", resource="quiets")
KINDS: dict[str, type[KubeObject]] = {
    THINGS: Thing,
    OTHERS: Other,
    QUIETS: Quiet,
    PLAINS: Plain,
    PEERS: Bad,
    FARS: Plain,
}

_LOG = logging.getLogger("kubeshard")

Answer = Callable[[HttpRequest], Awaitable[HttpResponse | None]]


class Slow:
    """Passes a request on after `seconds`, or fails after the client's patience."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds

    async def __call__(self, request: HttpRequest) -> None:
        try:
            async with asyncio.timeout(request.timeout):
                await asyncio.sleep(self._seconds)
        except TimeoutError:
            raise TransportTimeout("no answer in time") from None


class Fault:
    """What happens to some requests until it is over: `answer` decides, None lets one pass. Open watches of these
    deliver nothing if there is no `answer`, go on if it is only slow, and break otherwise.
    """

    def __init__(
        self,
        concerns: Callable[[Process, HttpRequest], bool],
        answer: Answer | None,
        cluster: str,
    ) -> None:
        self.concerns = concerns
        self.streams = "mute" if answer is None else "pass" if isinstance(answer, Slow) else "cut"
        self.cluster = cluster
        self.over = asyncio.Event()
        self._answer = answer

    async def __call__(self, request: HttpRequest) -> HttpResponse | None:
        if self._answer is not None:
            return await self._answer(request)
        try:
            async with asyncio.timeout(request.timeout):
                await self.over.wait()
        except TimeoutError:
            raise TransportTimeout("no answer in time") from None
        return None


class _Disturbed(StreamAround):
    """A stream whose chunks wait, or which breaks, while a fault concerns its request."""

    def __init__(
        self,
        neighbourhood: Neighbourhood,
        process: Process,
        network: Network,
        request: HttpRequest,
        stream: HttpStream,
    ) -> None:
        super().__init__(Travelling(network, stream))
        self._neighbourhood = neighbourhood
        self._process = process
        self._network = network
        self._request = request

    async def chunks(self) -> AsyncIterator[bytes]:
        async for chunk in self._inner.chunks():
            while (
                fault := self._neighbourhood.fault(self._process, self._network, self._request)
            ) is not None:
                if fault.streams == "pass":
                    break
                if fault.streams == "cut":
                    raise TransportError("connection reset", sent=True)
                try:
                    async with asyncio.timeout(self._request.idle_timeout):
                        await fault.over.wait()
                except TimeoutError:
                    raise TransportTimeout("nothing received in time") from None
            yield chunk


class _Lines(logging.Handler):
    """All that was logged, with the facts of each record."""

    def __init__(self) -> None:
        super().__init__(logging.INFO)
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(f"{record.levelname} {record.getMessage()} {getattr(record, 'fields', '')}")


class Seeing(Reconciler[Any]):
    """Notes what it has seen of an object, after what `Neighbourhood.misbehaves` lets it do first."""

    def __init__(self, neighbourhood: Neighbourhood, name: str) -> None:
        self._neighbourhood = neighbourhood
        self._name = name

    async def reconcile(self, ctx: Context, obj: Any) -> Result | None:
        at = self._neighbourhood
        if act := at.acts.get("reconcile"):
            await act(ctx, obj)
        if self._name == THINGS:
            metadata = ObjectMeta(name=f"c-{obj.metadata.name}", namespace=obj.metadata.namespace)
            await ensure(ctx, ConfigMap(metadata=metadata, data={"v": str(obj.spec.get("v"))}), owner=obj)
        at.seen[self._name, obj.metadata.namespace, obj.metadata.name] = obj.spec.get("v")
        return None


class Neighbourhood:
    """See the module. `acts`: what an author's function does instead of the usual: `reconcile` and `daemon` are awaited
    with the context and the object; `predicate` and `mapper` return what the function is to return.
    """

    def __init__(self, world: SimulatedCluster) -> None:
        self.world = world
        self.seen: dict[tuple[str, str, str], object] = {}
        self.acts: dict[str, Callable[..., Any]] = {}
        self.reached: set[str] = set()
        """The acts and faults that really happened."""
        self.expected_deaths: set[str] = set()
        self._lines = _Lines()
        self._level = _LOG.level
        self._faults: list[Fault] = []
        self._value = 0
        self._objects: dict[str, list[Key]] = {name: [] for name in KINDS}
        self.far = ApiServer(world=world.outside)
        world.fronts["far"] = Front(self.far)

    # -- the start

    async def begin(self) -> None:
        _LOG.addHandler(self._lines)
        _LOG.setLevel(logging.INFO)
        world = self.world
        world.connected = self._connected
        kinds = (Other, Quiet, Plain, Bad)
        await world.install(*(definition(cls.KIND.plural, cls.__name__) for cls in kinds))
        await self.create(Namespace, TENANT)
        async with self.client(FARS) as far:
            await far.apply(definition("plains", "Plain"))
            await far.create(Namespace(metadata=ObjectMeta(name=NAMESPACE)))
        await world.make_ring("r", [MAIN, OTHER_RESOURCE])
        await self.make_quiet_ring()
        world.sharder("x0")
        for name in ("s0", "s1"):
            self.shard(name)
        self.quiet_shard("q0")
        self.operator()
        await asyncio.sleep(10)
        for name, count in ((THINGS, 4), (OTHERS, 4), (QUIETS, 2), (PLAINS, 2), (PEERS, 2), (FARS, 2)):
            for number in range(count):
                await self.add(name, f"{name[0]}{number + 1}")
        for name in KINDS:
            await self.goes_on(name, 60)

    def close(self) -> None:
        _LOG.removeHandler(self._lines)
        _LOG.setLevel(self._level)

    def shard(self, name: str, process: str = "") -> Process:
        return self.start(
            process or name,
            [self.controller(THINGS), self.controller(OTHERS)],
            sharding=Sharding("r", name, "ops"),
        )

    def quiet_shard(self, process: str, name: str = "q0") -> Process:
        return self.start(process, [self.controller(QUIETS)], sharding=Sharding("q", name, "ops"))

    async def make_quiet_ring(self) -> None:
        selector = LabelSelector(match_labels={"kubernetes.io/metadata.name": NAMESPACE})
        await self.world.make_ring("q", [QUIET_RESOURCE], selector)

    def kill(self, process: str) -> None:
        self.expected_deaths.add(process)
        self.world.processes[process].kill()
        self.reached.add("killed")

    def operator(self, process: str = "op", **options: Any) -> Process:
        bad = self.controller(
            PEERS,
            primary=Watch(Bad, when=matching(self._predicate)),
            watches=[Watch(ConfigMap, to=self._mapper)],
            daemons=[Daemon(self._daemon, restart_on=lambda obj: obj.spec.get("daemon"))],
        )
        return self.start(
            process,
            [self.controller(PLAINS), bad, self.controller(FARS, clusters=["far"])],
            leader_election=LeaderElection(name="op", namespace="ops"),
            clusters={"far": ClusterConfig("http://far")},
            **options,
        )

    def controller(self, name: str, **options: Any) -> Controller[Any]:
        sharded = name in (THINGS, OTHERS, QUIETS)
        declared: dict[str, Any] = {"primary": Watch(KINDS[name], sharded=sharded)}
        if name == THINGS:
            declared["owns"] = [Watch(ConfigMap, sharded=True)]
        return Controller(
            name=name,
            reconciler=Seeing(self, name),
            workers=3,
            reconcile_timeout=RUN_LIMIT,
            **{**declared, **options},
        )

    def start(self, name: str, controllers: Sequence[Controller[Any]], **manager: Any) -> Process:
        """The process ends as one with `kubeshard.run` does if its shutdown takes too long."""
        process = Process(self.world, name)
        made = Manager(controllers, client=process.client(), status_pages=None, **manager)

        def bound(seconds: float | None) -> None:
            if seconds is not None:
                self.world.loop.call_later(seconds, process.kill, "killed: the shutdown takes too long")

        made.on_ending(bound)
        return process.start(made)

    def _predicate(self, obj: Bad) -> bool:
        act = self.acts.get("predicate")
        return True if act is None else act(obj)

    def _mapper(self, reader: Any, obj: ConfigMap) -> Any:
        act = self.acts.get("mapper")
        return () if act is None else act(obj)

    async def _daemon(self, ctx: Context, obj: Bad) -> None:
        if act := self.acts.get("daemon"):
            await act(ctx, obj)

    # -- objects

    def client(self, name: str = "") -> Any:
        world = self.world
        return world.admin("far" if name == FARS else "sim")

    async def create(self, cls: type[KubeObject], name: str, namespace: str = "", **fields: Any) -> None:
        async with self.world.admin() as client:
            await client.create(cls(metadata=ObjectMeta(name=name, namespace=namespace), **fields))

    async def add(self, neighbour: str, name: str, namespace: str = NAMESPACE) -> None:
        """Creates an object of the neighbour, which `goes_on` changes from now on."""
        self._objects[neighbour].append(Key(namespace, name))
        async with self.client(neighbour) as client:
            cls: Any = KINDS[neighbour]
            await client.create(
                cls(metadata=ObjectMeta(name=name, namespace=namespace), spec={"v": self._value})
            )

    async def change(self, neighbour: str, name: str, namespace: str = NAMESPACE, **spec: Any) -> None:
        async with self.client(neighbour) as client:
            await client.patch(KINDS[neighbour], name, namespace, MergePatch({"spec": spec}))

    async def lease(
        self, name: str, ring: str, *, holder: str | None = None, namespace: str = "ops", seconds: int = 300
    ) -> None:
        """Writes a Lease that is renewed by nobody."""
        now = micro_time(self.world.clock.wall())
        spec = {
            "holderIdentity": name if holder is None else holder,
            "leaseDurationSeconds": seconds,
            "acquireTime": now,
            "renewTime": now,
        }
        metadata = {"name": name, "namespace": namespace, "labels": {RING_LABEL: ring}}
        async with self.world.admin() as client:
            lease = {
                "apiVersion": "coordination.k8s.io/v1",
                "kind": "Lease",
                "metadata": metadata,
                "spec": spec,
            }
            await client.apply(lease, force=True)

    async def patch_ring(self, name: str, patch: dict[str, Any]) -> None:
        async with self.world.admin() as client:
            await client.patch(ControllerRing, name, "", MergePatch(patch))

    def owner(self, name: str, neighbour: str = THINGS, ring: str = "r") -> str:
        objects = self.world.objects("sim.example", neighbour)
        labels = objects[Key(NAMESPACE, name)]["metadata"].get("labels") or {}
        return str(labels.get(shard_label(ring), ""))

    async def goes_on(self, neighbour: str, within: float) -> float:
        """Changes every object of the neighbour; returns after how many seconds all changes were reconciled. Fails
        after `within`.
        """
        self._value += 1
        value = self._value
        if neighbour == NEW:
            name = f"new-{value}"
            async with self.world.admin() as client:
                metadata = ObjectMeta(name=name, namespace=NAMESPACE)
                await client.create(Thing(metadata=metadata, spec={"v": value}))
            missing = lambda: [] if self.seen.get((THINGS, NAMESPACE, name)) == value else [name]  # noqa: E731
        else:
            for key in self._objects[neighbour]:
                await self.change(neighbour, key.name, key.namespace, v=value)

            def missing() -> list[str]:
                keys = self._objects[neighbour]
                return [str(k) for k in keys if self.seen.get((neighbour, k.namespace, k.name)) != value]

        began = self.world.loop.time()
        while left := missing():
            took = self.world.loop.time() - began
            assert took < within, f"{neighbour}: {left} not reconciled within {within} s; {self.story()}"
            await asyncio.sleep(0.05)
        return self.world.loop.time() - began

    def forget(self, neighbour: str, name: str, namespace: str = NAMESPACE) -> None:
        """`goes_on` no longer waits for this object."""
        self._objects[neighbour].remove(Key(namespace, name))

    def remember(self, neighbour: str, name: str, namespace: str = NAMESPACE) -> None:
        self._objects[neighbour].append(Key(namespace, name))

    # -- faults

    def fault(self, process: Process, network: Network, request: HttpRequest) -> Fault | None:
        cluster = network.server.removeprefix("http://")
        faults = (each for each in self._faults if each.cluster == cluster)
        return next((each for each in faults if each.concerns(process, request)), None)

    @asynccontextmanager
    async def requests(
        self,
        concerns: Callable[[Process, HttpRequest], bool],
        answer: Answer | None = None,
        *,
        cluster: str = "sim",
    ) -> AsyncIterator[None]:
        """While the block runs, `answer` answers the requests concerned; without it they get no answer at all, and
        their open watches deliver nothing.
        """

        def really(process: Process, request: HttpRequest) -> bool:
            if not concerns(process, request):
                return False
            self.reached.add("request")
            return True

        fault = Fault(really, answer, cluster)
        self._faults.append(fault)
        if fault.streams == "cut":
            for process in self.world.processes.values():
                for network in process.networks:
                    network.abort()
        try:
            yield
        finally:
            self._faults.remove(fault)
            fault.over.set()

    @asynccontextmanager
    async def crashing(self, part: str, of: str = "") -> AsyncIterator[None]:
        """While the block runs, reading an answer to such a request raises ValueError: a mistake in our own code."""

        async def answer(request: HttpRequest) -> HttpResponse:
            raise ValueError("a mistake")

        async with self.requests(about(part, of=of), answer):
            yield

    def _connected(self, process: Process, network: Network) -> None:
        async def before(request: HttpRequest) -> HttpResponse | None:
            fault = self.fault(process, network, request)
            return None if fault is None else await fault(request)

        network.before = before
        network.through = lambda request, stream: _Disturbed(self, process, network, request, stream)

    @contextmanager
    def act(self, function: str, act: Callable[..., Any]) -> Iterator[None]:
        """While the block runs, an author's function does this."""
        self.acts[function] = act
        try:
            yield
        finally:
            self.acts.pop(function, None)

    @asynccontextmanager
    async def meanwhile(self, work: Awaitable[None]) -> AsyncIterator[None]:
        """Something that goes on while the block runs."""
        task = asyncio.ensure_future(work)
        try:
            yield
        finally:
            failed = task.exception() if task.done() and not task.cancelled() else None
            task.cancel()
            await asyncio.wait([task])
            if failed:
                raise failed

    # -- what can be read of it

    def deaths(self) -> dict[str, str]:
        """The processes that ended, and why."""
        return {
            process.name: process.dead
            for process in self.world.processes.values()
            if process.dead and process.name not in self.expected_deaths
        }

    def says(self, where: str, what: str) -> bool:
        """Whether it was said: `log`, part of a line; `condition`, type, status and reason of one that a ring has;
        `event`, the reason of one; `metric`, the name of one that is not 0.
        """
        if where == "log":
            return any(what in line for line in self._lines.lines)
        if where == "condition":
            rings = self.world.objects("sharding.timebertt.dev", "controllerrings").values()
            conditions = [c for ring in rings for c in (ring.get("status") or {}).get("conditions", ())]
            return any(f"{c['type']} {c['status']} {c['reason']}" == what for c in conditions)
        if where == "event":
            events = self.world.objects("events.k8s.io", "events") | self.world.objects("", "events")
            return any(event.get("reason") == what for event in events.values())
        assert where == "metric", where
        return any(
            sample.name == what and sample.value
            for process in self.world.processes.values()
            if process.manager is not None
            for family in process.manager.metrics.registry.collect()
            for sample in family.samples
        )

    def story(self) -> str:
        return f"ended: {self.deaths()}; last lines: {self._lines.lines[-8:]}"


def raising() -> Answer:
    async def answer(request: HttpRequest) -> HttpResponse | None:
        raise ValueError(request.target)

    return answer


def refused(code: int = 500, reason: str = "InternalError") -> Answer:
    async def answer(request: HttpRequest) -> HttpResponse:
        return refusal(code, reason)

    return answer


def garbage(body: bytes = b"<html>a proxy's page</html>", kind: str = "text/html") -> Answer:
    async def answer(request: HttpRequest) -> HttpResponse:
        return HttpResponse(200, {"content-type": kind}, body)

    return answer


def about(*parts: str, of: str = "") -> Callable[[Process, HttpRequest], bool]:
    """Requests whose target contains all these parts; `of`: only of processes whose name begins so."""
    return lambda process, request: (
        process.name.startswith(of) and all(part in request.target for part in parts)
    )
