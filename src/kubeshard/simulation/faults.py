"""Faults, by name. Each is a coroutine that inflicts one fault and returns when it is over, at the
latest when all faults are (`Weather.over`).
"""

from __future__ import annotations

import asyncio
import json
import random
from collections import Counter
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import suppress
from typing import Any

import msgspec

from kubeshard.core.builtin import ConfigMap
from kubeshard.core.errors import AlreadyExists, ApiError
from kubeshard.core.objects import ObjectMeta
from kubeshard.core.patches import MergePatch
from kubeshard.core.selectors import LabelSelector
from kubeshard.runtime.transport import (
    HttpRequest,
    HttpResponse,
    HttpStream,
    TransportError,
    TransportTimeout,
)
from kubeshard.sharding.api import ControllerRing
from kubeshard.sharding.names import drain_label
from kubeshard.simulation.cluster import MAIN, SimulatedCluster, Thing
from kubeshard.simulation.oracles import Oracles
from kubeshard.simulation.processes import Network, Process, StreamAround, Travelling, refusal
from kubeshard.simulation.workload import Workload

LATEST = 40.0
"""The maximum number of seconds by which a write is delayed."""


class Weather:
    """What the networks of all processes do to requests: the probability of each misfortune, from 0 to 1. `silent`
    names processes whose watches are stalled; their events are delivered later.
    """

    def __init__(self, world: SimulatedCluster, oracles: Oracles, rng: random.Random) -> None:
        self.over = asyncio.Event()
        self.counts = Counter[str]()
        self.throttled = self.failing = self.unavailable = self.lost = self.late = 0.0
        self.silent: dict[str, asyncio.Event] = {}
        self._oracles = oracles
        self._rng = rng
        self._landing: set[asyncio.Task[None]] = set()
        world.connected = self._connected

    async def lasts(self, low: float, high: float) -> None:
        """Returns after a while, at the latest when all faults are over."""
        with suppress(TimeoutError):
            async with asyncio.timeout(self._rng.uniform(low, high)):
                await self.over.wait()

    def _happens(self, what: str, chance: float) -> bool:
        if not chance or self._rng.random() >= chance:
            return False
        self.counts[f"happened: {what}"] += 1
        return True

    def _connected(self, process: Process, network: Network) -> None:
        async def before(request: HttpRequest) -> HttpResponse | None:
            if self._happens("429", self.throttled):
                answer = refusal(429, "TooManyRequests")
                wait = str(self._rng.randint(1, 8))
                return HttpResponse(429, {**answer.headers, "retry-after": wait}, answer.body)
            if self._happens("500", self.failing):
                return refusal(500, "InternalError")
            if self._happens("503", self.unavailable):
                return refusal(503, "ServiceUnavailable")
            if request.method != "GET" and self._happens("late", self.late):
                landing = asyncio.create_task(land(request), name="late write")
                self._landing.add(landing)
                landing.add_done_callback(self._landing.discard)
                await asyncio.sleep(LATEST)
                raise TransportTimeout("no answer in time")
            return None

        async def land(request: HttpRequest) -> None:
            await asyncio.sleep(self._rng.uniform(0.5, LATEST))
            self._oracles.arriving(process, request)
            with suppress(TransportError):
                answer = await network._inner.request(request)
                self.counts["happened: late, and landed"] += answer.status < 300

        async def after(request: HttpRequest, answer: HttpResponse) -> None:
            if request.method != "GET" and self._happens("lost", self.lost):
                raise TransportError("connection reset", sent=True)

        network.before, network.after = before, after
        network.leaving = self._oracles.sending
        network.through = lambda request, stream: _Silenced(self, process, network, stream)


class _Silenced(StreamAround):
    """A watch that delivers nothing while its process must not hear anything."""

    def __init__(self, weather: Weather, process: Process, network: Network, inner: HttpStream) -> None:
        super().__init__(Travelling(network, inner))
        self._weather = weather
        self._process = process

    async def chunks(self) -> AsyncIterator[bytes]:
        async for chunk in self._inner.chunks():
            if silence := self._weather.silent.get(self._process.name):
                await silence.wait()
            yield chunk


Fault = Callable[[Workload, Weather], Coroutine[Any, Any, None]]
KINDS: dict[str, Fault] = {}


def fault(function: Fault) -> Fault:
    KINDS[function.__name__] = function
    return function


def one(workload: Workload, prefix: str) -> Process | None:
    live = workload.live(prefix)
    return workload.rng.choice(live) if live else None


def name_of(process: Process) -> str:
    return process.name.split("~")[0]


@fault
async def kill(workload: Workload, weather: Weather) -> None:
    if process := one(workload, "s"):
        process.kill()


@fault
async def replace(workload: Workload, weather: Weather) -> None:
    """A shard dies, and one with another name takes its place."""
    if process := one(workload, "s"):
        name = name_of(process)
        process.kill()
        if name in workload.names:
            workload.names[workload.names.index(name)] = f"s{int(name[1:]) + 10}"


@fault
async def restart(workload: Workload, weather: Weather) -> None:
    """A shard dies and is restarted at once."""
    if process := one(workload, "s"):
        process.kill()
        workload.start(name_of(process))


@fault
async def twin(workload: Workload, weather: Weather) -> None:
    """A second process starts under the name of a running one."""
    if process := one(workload, "s"):
        workload.start(name_of(process))


@fault
async def terminate(workload: Workload, weather: Weather) -> None:
    if process := one(workload, "s"):
        assert process.manager is not None
        process.manager.stop()


@fault
async def scale(workload: Workload, weather: Weather) -> None:
    """The number of shards is increased by one, and decreased the next time."""
    if "s9" in workload.names:
        workload.names.remove("s9")
        for process in workload.live("s9~"):
            assert process.manager is not None
            process.manager.stop()
    else:
        workload.names.append("s9")


async def _paused(process: Process | None, weather: Weather, longest: float) -> None:
    if process:
        process.pause()
        await weather.lasts(0.1, longest)
        process.resume()


@fault
async def pause(workload: Workload, weather: Weather) -> None:
    await _paused(one(workload, "s"), weather, 25)


@fault
async def sharder_pause(workload: Workload, weather: Weather) -> None:
    await _paused(one(workload, "x"), weather, 60)


async def _cut(process: Process | None, weather: Weather) -> None:
    if process:
        process.cut_off()
        await weather.lasts(3, 50)
        process.cut_off(down=False)


@fault
async def cut(workload: Workload, weather: Weather) -> None:
    await _cut(one(workload, "s"), weather)


@fault
async def sharder_cut(workload: Workload, weather: Weather) -> None:
    await _cut(one(workload, "x"), weather)


@fault
async def sharder_kill(workload: Workload, weather: Weather) -> None:
    if process := one(workload, "x"):
        process.kill()


@fault
async def throttled(workload: Workload, weather: Weather) -> None:
    weather.throttled = 0.5
    await weather.lasts(5, 40)
    weather.throttled = 0.0


@fault
async def failing(workload: Workload, weather: Weather) -> None:
    weather.failing = weather.unavailable = 0.2
    await weather.lasts(5, 40)
    weather.failing = weather.unavailable = 0.0


@fault
async def lost(workload: Workload, weather: Weather) -> None:
    """Writes take effect, but their responses are lost."""
    weather.lost = 0.3
    await weather.lasts(5, 40)
    weather.lost = 0.0


@fault
async def late(workload: Workload, weather: Weather) -> None:
    """Writes get no response, and take effect later."""
    weather.late = 0.2
    await weather.lasts(5, 40)
    weather.late = 0.0


@fault
async def watches_cut(workload: Workload, weather: Weather) -> None:
    for process in workload.live(""):
        for network in process.networks:
            network.abort()


@fault
async def watches_silent(workload: Workload, weather: Weather) -> None:
    if process := one(workload, workload.rng.choice("ssx")):
        silence = weather.silent[process.name] = asyncio.Event()
        await weather.lasts(3, 80)
        silence.set()
        weather.silent.pop(process.name, None)


@fault
async def compaction(workload: Workload, weather: Weather) -> None:
    workload.world.server.store.compact()


@fault
async def restore(workload: Workload, weather: Weather) -> None:
    """etcd is restored to an earlier state."""
    back = workload.world.backup()
    await weather.lasts(5, 60)
    workload.oracles.restored()
    back()


@fault
async def webhook(workload: Workload, weather: Weather) -> None:
    """The API server cannot reach the webhook."""
    workload.world.caller.reachable = False
    await weather.lasts(1, 40)
    workload.world.caller.reachable = True


@fault
async def lease(workload: Workload, weather: Weather) -> None:
    """A user deletes a shard's Lease."""
    if process := one(workload, "s"):
        target = f"/apis/coordination.k8s.io/v1/namespaces/ops/leases/{name_of(process)}"
        with suppress(Exception):
            await workload.admin.raw("DELETE", target)


@fault
async def skew(workload: Workload, weather: Weather) -> None:
    for process in workload.rng.sample(workload.live(""), min(2, len(workload.live("")))):
        process.clock.skew = workload.rng.uniform(-7200, 7200)


@fault
async def put_without_labels(workload: Workload, weather: Weather) -> None:
    """A user replaces objects by versions without labels: up to three that are being drained, or else any one."""
    for name in sorted(workload.world.draining())[:3] or [f"t{workload.rng.randrange(workload.count)}"]:
        path = f"/apis/sim.example/v1/namespaces/team/things/{name}"
        with suppress(ApiError):
            thing = json.loads((await workload.admin.raw("GET", path)).body)
            thing["metadata"]["labels"] = {"app": "x"}
            await workload.admin.raw("PUT", path, json.dumps(thing).encode())
            workload.outcome.counts["objects put without labels"] += 1


@fault
async def drain(workload: Workload, weather: Weather) -> None:
    """A user sets the drain label."""
    patch = MergePatch({"metadata": {"labels": {drain_label(workload.world.ring): "true"}}})
    with suppress(Exception):
        await workload.admin.patch(Thing, f"t{workload.rng.randrange(workload.count)}", "team", patch)


@fault
async def recreate(workload: Workload, weather: Weather) -> None:
    """A user deletes objects with their children, and re-creates some of them."""
    for _ in range(3):
        name = f"t{workload.rng.randrange(workload.count)}"
        with suppress(Exception):
            await workload.admin.delete(ConfigMap, f"c-{name}", "team")
        if workload.rng.random() < 0.5:
            with suppress(Exception):
                await workload.admin.delete(Thing, name, "team")
                await asyncio.sleep(workload.rng.choice((0.0, 2.0)))
                await workload.admin.create(
                    Thing(metadata=ObjectMeta(name=name, namespace="team"), spec={"v": 0})
                )


async def _ring(workload: Workload, **spec: object) -> None:
    with suppress(Exception):
        ring = await workload.admin.get(ControllerRing, workload.world.ring)
        await workload.admin.replace(
            msgspec.structs.replace(ring, spec=msgspec.structs.replace(ring.spec, **spec))
        )


@fault
async def ring_without_children(workload: Workload, weather: Weather) -> None:
    """The controlled resources are removed from the ring, and added again."""
    await _ring(workload, resources=(msgspec.structs.replace(MAIN, controlled_resources=()),))
    await weather.lasts(1, 30)
    await _ring(workload, resources=(MAIN,))


@fault
async def ring_without_namespace(workload: Workload, weather: Weather) -> None:
    """The ring's selector no longer selects the namespace, for a while."""
    await _ring(workload, namespace_selector=LabelSelector(match_labels={"nobody": "has"}))
    await weather.lasts(1, 30)
    await _ring(workload, namespace_selector=None)


@fault
async def ring_anew(workload: Workload, weather: Weather) -> None:
    """The ring is deleted and re-created."""
    with suppress(Exception):
        await workload.admin.delete(ControllerRing, workload.world.ring)
    await weather.lasts(0.1, 30)
    with suppress(Exception):
        await workload.world.make_ring()


async def ring_as_it_was(workload: Workload) -> None:
    """The ring is put back to its proper state, whatever a restore did to it."""
    with suppress(AlreadyExists):
        await workload.world.make_ring()
    await _ring(workload, resources=(MAIN,), namespace_selector=None)
