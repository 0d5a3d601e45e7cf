"""What work costs in a simulation: an API server of limited speed, and processes that need CPU time.

Without this, only messages take time. With it, the production classes can be loaded until something is the limit: the
workers, the processor of a process, or the API server.

Guaranteed: the server answers at most `rate` writes per second, or three times as many reads, in the order in which
they arrive, each `latency` seconds after it was sent and the time that it takes; a watch shows a change half of the
latency and `watch_delay` after it was stored. A process does one thing at a time: each request and each event that it
reads keeps it busy for a while.

Not guaranteed: anything about what a process does between its requests, so `request_cpu` stands for all of it. Threads
of a process share its processor; processes do not share one.
"""

from __future__ import annotations

import asyncio
from collections import Counter, defaultdict
from collections.abc import AsyncIterator, Collection
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace

from kubeshard.runtime.transport import HttpRequest, HttpResponse, HttpStream
from kubeshard_apiserver.controllers.controllers import Controllers
from kubeshard_apiserver.front.gate import UNKNOWN, Peer
from kubeshard_apiserver.front.handlers import Replier
from kubeshard_apiserver.front.latency import delayed
from kubeshard_apiserver.front.replies import Reply
from kubeshard_lab.simulation.cluster import SimulatedCluster
from kubeshard_lab.simulation.processes import Environment, Network, Process, StreamAround


@dataclass(frozen=True, kw_only=True)
class Costs:
    """In seconds; `rate` in writes per second."""

    latency: float = 0.0
    rate: float = float("inf")
    watch_delay: float = 0.0
    request_cpu: float = 0.0
    event_cpu: float = 0.0


READ_SHARE = 1 / 3
"""In writes: a read, or opening a watch, has neither admission nor validation."""


class _Turns:
    """Who gets here waits until all who came before have had their time, and then takes its own."""

    def __init__(self) -> None:
        self._free = 0.0

    async def take(self, seconds: float) -> None:
        now = asyncio.get_running_loop().time()
        self._free = max(now, self._free) + seconds
        if self._free > now:
            await asyncio.sleep(self._free - now)


class SlowFront:
    def __init__(self, front: Replier, costs: Costs) -> None:
        self._front = front
        self._costs = costs
        self._turns = _Turns()

    async def reply(self, request: HttpRequest, peer: Peer = UNKNOWN) -> Reply:
        await asyncio.sleep(self._costs.latency / 2)
        await self._turns.take((READ_SHARE if request.method == "GET" else 1.0) / self._costs.rate)
        reply = await self._front.reply(request, peer)
        await asyncio.sleep(self._costs.latency / 2)
        if reply.stream is None:
            return reply
        return replace(reply, stream=delayed(reply.stream, self._costs.latency / 2 + self._costs.watch_delay))


class Charged:
    """Create it before the processes start. `requests`, `events` and seconds `busy` are counted by process."""

    def __init__(self, world: Environment, costs: Costs) -> None:
        self.requests: Counter[str] = Counter()
        self.events: Counter[str] = Counter()
        self.busy: defaultdict[str, float] = defaultdict(float)
        self._costs = costs
        self._turns: dict[str, _Turns] = {}
        world.connected = self._connected

    async def works(self, process: Process, seconds: float) -> None:
        if seconds:
            self.busy[process.name] += seconds
            await self._turns.setdefault(process.name, _Turns()).take(seconds)

    def _connected(self, process: Process, network: Network) -> None:
        async def before(request: HttpRequest) -> HttpResponse | None:
            self.requests[process.name] += 1
            await self.works(process, self._costs.request_cpu)
            return None

        network.before = before
        network.through = lambda request, stream: _Read(self, process, stream)

    async def read(self, process: Process, chunk: bytes) -> None:
        events = chunk.count(b"\n")
        self.events[process.name] += events
        await self.works(process, events * self._costs.event_cpu)


@asynccontextmanager
async def costly_cluster(
    costs: Costs, ring: str, seed: int = 1, feature_gates: Collection[str] = ()
) -> AsyncIterator[tuple[SimulatedCluster, Charged]]:
    """An empty cluster with these costs, and with the controllers of Deployments, of namespaces and of garbage."""
    async with (
        SimulatedCluster(seed, latency=(0.0, 0.0), ring=ring, feature_gates=feature_gates) as cluster,
        Controllers(cluster.server, caller=cluster.caller),
    ):
        cluster.fronts = {"sim": SlowFront(cluster.front, costs)}
        yield cluster, Charged(cluster, costs)


class _Read(StreamAround):
    """A watch that its process has to work on."""

    def __init__(self, charged: Charged, process: Process, inner: HttpStream) -> None:
        super().__init__(inner)
        self._charged = charged
        self._process = process

    async def chunks(self) -> AsyncIterator[bytes]:
        async for chunk in super().chunks():
            await self._charged.read(self._process, chunk)
            yield chunk
