"""Processes on virtual time: a manager's task, with its own networks and clock, and faults in all three.

A process is dead once it is killed or its watchdog has fired: nothing that it does from then on reaches the server.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from contextvars import Context, ContextVar
from dataclasses import replace
from typing import Self

import msgspec

from kubeshard.client.client import Client
from kubeshard.client.config import ClusterConfig
from kubeshard.client.limiter import Limiter
from kubeshard.manager.manager import Manager
from kubeshard.runtime import world as runtime
from kubeshard.runtime.pod import Pod
from kubeshard.runtime.tls import Tls
from kubeshard.runtime.transport import (
    HttpRequest,
    HttpResponse,
    HttpStream,
    Transport,
    TransportError,
    TransportTimeout,
)
from kubeshard_apiserver.front.handlers import Replier
from kubeshard_apiserver.front.memory import InMemoryTransport
from kubeshard_lab.virtual_time import VirtualClock, VirtualThread, VirtualThreadRunner, virtual_loop
from kubeshard_lab.virtual_world import VirtualHost

Before = Callable[[HttpRequest], Awaitable[HttpResponse | None]]
"""Sees a request before it reaches the server; if it returns a response, the server does not get the request."""


def refusal(code: int, reason: str, message: str = "") -> HttpResponse:
    status = {"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": reason, "code": code}
    body = msgspec.json.encode({**status, "message": message})
    return HttpResponse(code, {"content-type": "application/json"}, body)


class Network:
    """The connection of one process to the API server.

    `down`: nothing gets through in either direction; requests in flight wait, and take effect late. `cut` breaks one
    direction only. `leaving` is called when the process sends, `before` ahead of the server, `after` behind it;
    `through` may wrap the server's stream before its reader gets it.
    """

    def __init__(self, process: Process, front: Replier, server: str = "http://sim") -> None:
        self.server = server
        self._process = process
        self._world = process.world
        self._inner = InMemoryTransport(front)
        self._there, self._back = asyncio.Event(), asyncio.Event()
        self.whole_since = 0.0
        """Since when both ways are open; NaN while one is not."""
        self.down = False
        self.leaving: Callable[[HttpRequest], None] | None = None
        self.before: Before | None = None
        self.after: Callable[[HttpRequest, HttpResponse], Awaitable[None]] | None = None
        self.through: Callable[[HttpRequest, HttpStream], HttpStream] | None = None

    @property
    def down(self) -> bool:
        return not (self._there.is_set() and self._back.is_set())

    @down.setter
    def down(self, down: bool) -> None:
        self.cut(there=down, back=down)

    def cut(self, *, there: bool, back: bool) -> None:
        """Nothing gets to the server (`there`), or from it (`back`). New connections need both."""
        for way, is_cut in ((self._there, there), (self._back, back)):
            if is_cut:
                way.clear()
            else:
                way.set()
        if self.down:
            self.whole_since = math.nan
        elif math.isnan(self.whole_since):
            self.whole_since = self._world.loop.time()

    async def request(self, request: HttpRequest) -> HttpResponse:
        try:
            outcome = await self._outcome(request)
        except TransportError as error:
            self._world.learn(self._process, request, error)
            raise
        self._world.learn(self._process, request, outcome)
        return outcome

    async def _outcome(self, request: HttpRequest) -> HttpResponse:
        if self.leaving:
            self.leaving(request)
            await asyncio.sleep(0)  # a process that was stopped there sends it when it is resumed
        # What was sent is under way, whatever becomes of the sender: no thread of the process owns it.
        exchange = asyncio.create_task(
            self._exchange(request), name=f"{self._process.name} request", context=Context()
        )
        exchange.add_done_callback(lambda done: done.cancelled() or done.exception())  # nobody may ask
        try:
            async with asyncio.timeout(request.timeout):
                return await asyncio.shield(exchange)
        except TimeoutError:
            raise TransportTimeout("no answer in time") from None
        finally:
            exchange.cancel()

    async def _exchange(self, request: HttpRequest) -> HttpResponse:
        await self._travel(self._there)
        if self.before and (answer := await self.before(request)) is not None:
            return answer
        self._process.check()
        self._world.observe(self._process, request, None)
        answer = await self._inner.request(request)
        self._world.observe(self._process, request, answer)
        if self.after:
            await self.after(request, answer)
        await self._travel(self._back)
        return answer

    @asynccontextmanager
    async def stream(self, request: HttpRequest) -> AsyncIterator[HttpStream]:
        if self.down:
            await asyncio.sleep(1)
            raise TransportError("connection refused", sent=False)
        await self._travel(self._there)
        if self.before and (answer := await self.before(request)) is not None:
            yield Answered(answer)
            return
        self._process.check()
        self._world.observe(self._process, request, None)
        async with self._inner.stream(request) as stream:
            stream = self.through(request, stream) if self.through else Travelling(self, stream)
            yield Heard(self._process, request, stream)

    async def _travel(self, way: asyncio.Event) -> None:
        await asyncio.sleep(self._world.rng.uniform(*self._world.latency))
        await way.wait()

    def abort(self) -> None:
        self._inner.abort()

    def renew(self, tls: Tls, /) -> None:
        """There is no TLS."""

    async def close(self) -> None:
        await self._inner.close()


class Answered:
    """An answer that came instead of a stream."""

    def __init__(self, answer: HttpResponse) -> None:
        self.status, self.headers = answer.status, answer.headers
        self._body = answer.body

    async def read(self) -> bytes:
        return self._body

    async def chunks(self) -> AsyncIterator[bytes]:
        yield self._body


class StreamAround:
    def __init__(self, inner: HttpStream) -> None:
        self._inner = inner

    @property
    def status(self) -> int:
        return self._inner.status

    @property
    def headers(self) -> Mapping[str, str]:
        return self._inner.headers

    async def read(self) -> bytes:
        return await self._inner.read()

    async def chunks(self) -> AsyncIterator[bytes]:
        async for chunk in self._inner.chunks():
            yield chunk


class Travelling(StreamAround):
    """A stream whose bytes take time, and wait while the network is down."""

    def __init__(self, network: Network, inner: HttpStream) -> None:
        super().__init__(inner)
        self._network = network

    async def chunks(self) -> AsyncIterator[bytes]:
        async for chunk in self._inner.chunks():
            await self._network._travel(self._network._back)
            yield chunk


class Heard(StreamAround):
    """A stream of whose chunks hearers are told when the process gets them."""

    def __init__(self, process: Process, request: HttpRequest, inner: HttpStream) -> None:
        super().__init__(inner)
        self._process, self._request = process, request

    async def chunks(self) -> AsyncIterator[bytes]:
        async for chunk in self._inner.chunks():
            self._process.world.hear(self._process, self._request, chunk)
            yield chunk


Observer = Callable[["Process", HttpRequest, HttpResponse | None], None]
"""Sees every request twice: when it reaches the server (None), and with the server's response."""

Learner = Callable[["Process", HttpRequest, HttpResponse | TransportError], None]
"""Sees what a process gets for a request, also if the server has not seen it."""


class Environment:
    """What the processes of a simulation share: the loop, the API servers that they can reach, by name, and those who
    watch. `latency`: seconds one way, drawn for every message. `outside`: the network of everyone who is not a process.
    """

    def __init__(
        self, outside: runtime.World, fronts: Mapping[str, Replier], latency: tuple[float, float]
    ) -> None:
        self.loop = virtual_loop()
        self.outside = outside
        self.rng, self.clock = outside.rng, outside.clock
        self.fronts = fronts
        self.latency = latency
        self.processes: dict[str, Process] = {}
        self.observers: list[Observer] = []
        self.leaving: list[Callable[[Process, HttpRequest], None]] = []
        """Called when a process sends a request, if its networks say so (`Network.leaving`)."""
        self.learners: list[Learner] = []
        self.hearers: list[Callable[[Process, HttpRequest, bytes], None]] = []
        """Called with the body of each answer that a process gets, and with each chunk of a list or a watch."""
        self.deaths: list[Callable[[Process], None]] = []
        self.sender: ContextVar[tuple[Process, HttpRequest] | None] = ContextVar("sender", default=None)
        """For whom the current task acts inside the API server; None for a user."""
        self.connected: Callable[[Process, Network], None] | None = None
        """Called for every network that a process gets."""
        self.requests = 0
        self.log: list[tuple[float, str]] = []

    def config(self, process: str = "") -> ClusterConfig:
        """Returns how a process reaches its API server."""
        return ClusterConfig("http://sim")

    def note(self, text: str) -> None:
        self.log.append((round(self.loop.time(), 3), text))

    def arriving(self, process: Process, request: HttpRequest) -> None:
        """From now on this task acts for the API server, on behalf of the request."""
        self.sender.set((process, request))

    def observe(self, process: Process, request: HttpRequest, answer: HttpResponse | None) -> None:
        self.sender.set(None if answer else (process, request))
        self.requests += answer is None
        for observer in self.observers:
            observer(process, request, answer)

    def learn(self, process: Process, request: HttpRequest, outcome: HttpResponse | TransportError) -> None:
        for learner in self.learners:
            learner(process, request, outcome)
        if isinstance(outcome, HttpResponse):
            self.hear(process, request, outcome.body)

    def hear(self, process: Process, request: HttpRequest, body: bytes) -> None:
        for hearer in self.hearers:
            hearer(process, request, body)


def name_of(process: str) -> str:
    """Returns the name under which a process was started: of `s0~2`, the second that was, `s0`."""
    return process.partition("~")[0]


def is_sharders(process: Process, request: HttpRequest) -> bool:
    """Whether the request comes from a sharder: in its own process, or inside a shard."""
    return process.name.startswith("x") or request.headers.get("User-Agent", "").endswith("/sharder")


class Process:
    """A manager's task. `dead`: why it ended. Those of one `machine` know which have ended. `pod`: its pod."""

    def __init__(
        self, world: Environment, name: str, machine: str = "", pod: Pod | None = None, hostname: str = ""
    ) -> None:
        self.world = world
        self.name = name
        self.clock = VirtualClock(world.loop, skew=-(booted := sum((machine or name).encode()) % 20 / 10))
        self.clock.suspend(booted)  # nodes boot at different times, and renew Leases at different moments
        self.inside = replace(
            world.outside,
            clock=self.clock,
            connect=self._connect,
            watchdog=self._watchdog,
            thread=lambda _: VirtualThreadRunner(self._another_thread()),
            host=VirtualHost(
                hostname or name,
                in_pod=pod,
                boot=machine or "boot",
                named=name if machine else "",
                ended=lambda other: bool(world.processes[other].dead),
            ),
        )
        """The process's view of the world."""
        self.networks: list[Network] = []
        self._stops = 0
        self._blocks: list[float] = []
        """Since when its main loop has been blocked, while other threads go on."""
        self._frozen: float | None = None
        """Since when its machine stands still."""
        self._was_frozen = 0.0
        self._watchdogs: list[VirtualWatchdog] = []
        self.main = VirtualThread(world.loop)
        self.threads = [self.main]
        self.dead = ""
        self._began = False
        self.manager: Manager | None = None
        self._task: asyncio.Task[None] | None = None
        world.processes[name] = self

    def _watchdog(self) -> VirtualWatchdog:
        self._watchdogs.append(VirtualWatchdog(self))
        return self._watchdogs[-1]

    def _another_thread(self) -> VirtualThread:
        self.threads.append(VirtualThread(self.world.loop, self.main))
        return self.threads[-1]

    def client(self, limiter: Limiter | None = None) -> Client:
        return Client(self.world.config(self.name), world=self.inside, limiter=limiter)

    def _connect(self, server: str, tls: Tls, /, *, proxy: str | None = None) -> Transport:
        network = Network(self, self.world.fronts[server.removeprefix("http://")], server)
        self.networks.append(network)
        if self.world.connected:
            self.world.connected(self, network)
        return network

    def start(self, manager: Manager) -> Self:
        self.manager = manager
        self._task = self.main.start(self._run(manager), self.name)
        return self

    async def _run(self, manager: Manager) -> None:
        self._began = True
        try:
            await manager.run()
        except asyncio.CancelledError:
            raise
        except BaseException as error:
            self._end(f"ended: {error!r}")
        else:
            self._end("stopped")

    def _end(self, why: str) -> None:
        if not self.dead:
            self.dead = why
            self.world.note(f"{self.name} {why}")
            for heard in self.world.deaths:
                heard(self)

    def kill(self, why: str = "killed") -> None:
        """Acts like SIGKILL: no line of it runs any more, and nothing of it reaches the server."""
        if self.dead:
            return
        self._end(why)
        for thread in self.threads:
            thread.kill()
        for network in self.networks:
            network.abort()

    async def cleared(self) -> None:
        """Cancels what is left of a killed process, at the end of a simulation."""
        for thread in self.threads:
            thread.let_end()
        if self._task:
            self._task.cancel()
            await asyncio.wait([self._task])

    async def stop(self) -> None:
        """Acts like SIGTERM; returns when the process has ended."""
        assert self._task is not None
        self.terminate()
        await asyncio.wait([self._task])

    def terminate(self) -> None:
        """Asks it to stop, like SIGTERM: one that has not begun yet ends at once."""
        if not self._began:
            self.kill("killed before it began")
        elif self.manager is not None:
            self.manager.stop()

    def pause(self) -> None:
        """Acts like SIGSTOP: no line of it runs, and what its timers would do waits until `resume`."""
        self._stops += 1
        for thread in self.threads:
            thread.stop()

    def resume(self, slept: float = 0.0) -> None:
        """Ends one pause, and nothing else that stops it. Its timers stood still for the last `slept` seconds."""
        self._stops -= 1
        for thread in self.threads:
            thread.resume(slept)

    @property
    def stopped(self) -> bool:
        return self._stops > 0

    def block(self) -> None:
        """Its main loop is blocked until `unblock`; other threads go on."""
        self._blocks.append(self.world.loop.time())
        self.main.stop()

    def unblock(self) -> None:
        self._blocks.pop()
        self.main.resume()

    @property
    def blocked_for(self) -> float:
        """For how long its main loop has been blocked."""
        return self.world.loop.time() - self._blocks[0] if self._blocks else 0.0

    async def suspended(self, until: Awaitable[object]) -> None:
        """Its machine is suspended: as `pause`, but timers and monotonic time stand still."""
        began = self.world.loop.time()
        self.pause()
        await until
        slept = self.world.loop.time() - began
        self.clock.sleep(slept)
        self.resume(slept)

    async def frozen(self, until: Awaitable[object]) -> None:
        """A hypervisor stops its machine: all its clocks stand still, and the kernel's watchdog with them."""
        self._frozen = self.world.loop.time()
        for watchdog in self._watchdogs:
            watchdog.hold()
        await self.suspended(until)
        slept = self.world.loop.time() - self._frozen
        self._frozen = None
        self._was_frozen += slept
        self.clock.suspend(-slept)
        for watchdog in self._watchdogs:
            watchdog.go_on()

    @property
    def frozen_for(self) -> float:
        """For how many seconds, in all, its machine stood still."""
        return self._was_frozen + (0.0 if self._frozen is None else self.world.loop.time() - self._frozen)

    @property
    def armed(self) -> bool:
        """Whether it has armed a watchdog: it has heard that it holds a Lease."""
        return any(watchdog.armed for watchdog in self._watchdogs)

    def run_clock(self, rate: float) -> None:
        """So many seconds pass for it in each second."""
        self.clock.rate = self.main.rate = rate

    def cut_off(self, down: bool = True, *, cluster: str = "") -> None:
        """Cuts the process off from all clusters, or from one: `sim`, `home` or the name of another."""
        for network in self.networks:
            if network.server.endswith(cluster):
                network.down = down

    def check(self) -> None:
        """Raises if the process is dead: a dead process sends nothing."""
        if self.dead.startswith(("killed", "watchdog")):
            raise TransportError("the process is dead", sent=False)


class VirtualWatchdog:
    kind = "kernel timer"

    def __init__(self, process: Process) -> None:
        self._process = process
        self._timer: asyncio.TimerHandle | None = None
        self._deadline = 0.0
        self.armed = False
        """Whether it was ever armed."""

    def arm(self, deadline: float) -> None:
        self.disarm()
        self.armed = True
        self._deadline = deadline
        wait = max(0.0, deadline - self._process.clock.boottime()) / self._process.clock.rate
        loop = self._process.world.loop
        self._timer = loop.call_later(wait, self._process.kill, "watchdog", context=Context())

    def disarm(self) -> None:
        if self._timer:
            self._timer.cancel()
            self._timer = None

    def hold(self) -> None:
        if self._timer:
            self._timer.cancel()

    def go_on(self) -> None:
        if self._timer:
            self.arm(self._deadline)

    def bite(self) -> None:
        self._process.kill("watchdog bit")
