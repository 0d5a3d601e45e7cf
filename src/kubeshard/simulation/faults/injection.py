"""What faults are made of: what the networks of all processes do to requests, and one fault at work."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Coroutine
from contextlib import asynccontextmanager, suppress
from typing import Any

from kubeshard.core.objects import Key
from kubeshard.runtime.transport import (
    HttpRequest,
    HttpResponse,
    HttpStream,
    TransportError,
    TransportTimeout,
)
from kubeshard.simulation.cluster import SimulatedCluster
from kubeshard.simulation.oracles import is_sharders
from kubeshard.simulation.processes import Network, Process, StreamAround, Travelling, refusal
from kubeshard.simulation.script import stream
from kubeshard.simulation.workload import Workload

Applies = Callable[[Process, HttpRequest], bool]


LATEST = 40.0
"""The maximum number of seconds by which a write is delayed."""


class Conditions:
    """What the networks of all processes do to requests: the probability of each misfortune, from 0 to 1. `silent`
    names processes whose watches are stalled; their events are delivered later. Each misfortune is drawn from a stream
    of its own.
    """

    def __init__(self, world: SimulatedCluster, seed: int) -> None:
        self.over = asyncio.Event()
        self.kinds: Collection[str] = ()
        """What goes wrong in this run."""
        self.busy: set[str] = set()
        """Faults under way that are inflicted one at a time."""
        self.counts = Counter[str]()
        self.chances = dict.fromkeys(("429", "500", "503", "late", "lost"), 0.0)
        self.silent: dict[str, asyncio.Event] = {}
        self.children_late: asyncio.Event | None = None
        self.rules: list[Rule] = []
        self.quiet: dict[str, tuple[Applies, asyncio.Event]] = {}
        """Watches that deliver nothing until the event is set, by what happens to them."""
        self._world = world
        self._streams = {what: stream(seed, what) for what in (*self.chances, "lands")}
        self._landing: set[asyncio.Task[None]] = set()
        world.connected = self._connected

    def _happens(self, what: str) -> bool:
        chance = self.chances[what]
        if not chance or self._streams[what].random() >= chance:
            return False
        self.counts[f"happened: {what}"] += 1
        return True

    def _connected(self, process: Process, network: Network) -> None:
        async def before(request: HttpRequest) -> HttpResponse | None:
            if self._happens("429"):
                answer = refusal(429, "TooManyRequests")
                wait = str(self._streams["429"].randint(1, 8))
                return HttpResponse(429, {**answer.headers, "retry-after": wait}, answer.body)
            if self._happens("500"):
                return refusal(500, "InternalError")
            if self._happens("503"):
                return refusal(503, "ServiceUnavailable")
            for rule in self.rules:
                if rule.applies(process, request):
                    self.counts[f"happened: {rule.what}"] += 1
                    if rule.lands is None:
                        return refusal(rule.code, "InternalError")
                    return await withheld(request, rule.lands.wait())
            if request.method != "GET" and self._happens("late"):
                return await withheld(request, asyncio.sleep(self._streams["lands"].uniform(0.5, LATEST)))
            return None

        async def withheld(request: HttpRequest, until: Awaitable[object]) -> HttpResponse:
            landing = asyncio.create_task(land(request, until), name="late write")
            self._landing.add(landing)
            landing.add_done_callback(self._landing.discard)
            await asyncio.sleep(LATEST)
            raise TransportTimeout("no answer in time")

        async def land(request: HttpRequest, until: Awaitable[object]) -> None:
            await until
            self._world.arriving(process, request)
            with suppress(TransportError):
                answer = await network._inner.request(request)
                self.counts["happened: late, and landed"] += answer.status < 300

        def leaving(request: HttpRequest) -> None:
            for heard in self._world.leaving:
                heard(process, request)

        async def after(request: HttpRequest, answer: HttpResponse) -> None:
            if request.method != "GET" and self._happens("lost"):
                raise TransportError("connection reset", sent=True)

        network.before, network.after = before, after
        network.leaving = leaving
        network.through = lambda request, inner: _Silenced(self, process, network, inner, request)


class Rule:
    """What befalls the requests to which it applies: they are refused; or, if `lands` is given, they get no answer, and
    take effect once it is set.
    """

    def __init__(
        self,
        what: str,
        applies: Applies,
        *,
        code: int = 500,
        lands: asyncio.Event | None = None,
    ) -> None:
        self.what = what
        self.applies = applies
        self.code = code
        self.lands = lands


class _Silenced(StreamAround):
    """A watch that delivers nothing while its process must not hear anything."""

    def __init__(
        self,
        conditions: Conditions,
        process: Process,
        network: Network,
        inner: HttpStream,
        request: HttpRequest,
    ) -> None:
        super().__init__(Travelling(network, inner))
        self._conditions = conditions
        self._process = process
        self._request = request
        self._children = "/configmaps?" in request.target

    async def chunks(self) -> AsyncIterator[bytes]:
        async for chunk in self._inner.chunks():
            if silence := self._conditions.silent.get(self._process.name):
                self._conditions.counts["happened: silent"] += 1
                await silence.wait()
            for what, (applies, silence) in tuple(self._conditions.quiet.items()):
                if applies(self._process, self._request):
                    self._conditions.counts[f"happened: {what}"] += 1
                    await silence.wait()
            if self._children and (late := self._conditions.children_late):
                self._conditions.counts["happened: children late"] += 1
                await late.wait()
            yield chunk


class Injection:
    """One fault at work: what it may touch, and where it draws from. `stretch`: the factor by which it lasts longer
    than it draws. `number`: of the fault in its script.
    """

    def __init__(
        self,
        workload: Workload,
        conditions: Conditions,
        rng: random.Random,
        stretch: float = 1.0,
        number: int = 0,
    ) -> None:
        self.workload = workload
        self.world = workload.world
        self.admin = workload.admin
        self.conditions = conditions
        self.rng = rng
        self.effects = 0
        self._stretch = stretch
        self._number = number

    @property
    def alone(self) -> bool:
        """Whether nothing else goes wrong in this run."""
        return len(self.conditions.kinds) == 1

    async def lasts(self, low: float, high: float) -> None:
        """Returns after a while, at the latest when all faults are over."""
        with suppress(TimeoutError):
            async with asyncio.timeout(self.rng.uniform(low, high) * self._stretch):
                await self.conditions.over.wait()

    def one(self, prefix: str) -> Process | None:
        """Returns a live process whose name begins so, if there is one, and counts it as hit."""
        live = self.workload.live(prefix)
        if not live:
            return None
        self.effects += 1
        process = self.rng.choice(live)
        self.workload.recorder.hit(self._number, process.name)
        return process

    def retire(self, name: str) -> None:
        """Stops the shard for good. It may have been replaced by one with another name, which stays."""
        if name in self.workload.names:
            self.workload.names.remove(name)
        for process in self.workload.live(f"{name}~"):
            assert process.manager is not None
            process.manager.stop()

    def object(self) -> str:
        """Returns the name of an object."""
        return f"t{self.rng.randrange(self.workload.count)}"

    @asynccontextmanager
    async def happening(self, *what: str) -> AsyncIterator[None]:
        """Counts as effects how often this happened to requests during the block."""
        before = sum(self.conditions.counts[f"happened: {each}"] for each in what)
        yield
        self.effects += sum(self.conditions.counts[f"happened: {each}"] for each in what) - before

    @asynccontextmanager
    async def ruled(self, rule: Rule) -> AsyncIterator[None]:
        """The rule applies during the block."""
        self.conditions.rules.append(rule)
        try:
            yield
        finally:
            self.conditions.rules.remove(rule)

    @asynccontextmanager
    async def hidden(self, what: str) -> AsyncIterator[None]:
        """Sharders cannot list Leases during the block, and hear nothing of them."""
        async with self.quiet(what, _lists_leases), self.ruled(Rule(what, _lists_leases, code=503)):
            yield

    @asynccontextmanager
    async def quiet(self, what: str, applies: Applies) -> AsyncIterator[None]:
        """These watches deliver nothing during the block, and what they missed after it."""
        silence = asyncio.Event()
        self.conditions.quiet[what] = applies, silence
        try:
            yield
        finally:
            silence.set()
            if self.conditions.quiet.get(what) == (applies, silence):
                del self.conditions.quiet[what]

    async def until(self, condition: Callable[[], bool], within: float) -> bool:
        """Waits until the condition holds, at most so many seconds, or until all faults are over. Returns whether it
        does.
        """
        deadline = self.world.loop.time() + within
        while not condition():
            if self.conditions.over.is_set() or self.world.loop.time() >= deadline:
                return False
            await asyncio.sleep(0.1)
        return True

    def holder(self, name: str) -> str | None:
        """The holder of a shard's Lease; None if there is no Lease."""
        lease = self.world.objects("coordination.k8s.io", "leases").get(Key("ops", name))
        return None if lease is None else lease["spec"].get("holderIdentity") or ""


Fault = Callable[[Injection], Coroutine[Any, Any, None]]


KINDS: dict[str, Fault] = {}


AIMED: set[str] = set()
"""Kinds that are inflicted only when they are asked for. They judge what comes of them, if nothing else goes wrong."""


def fault(function: Fault) -> Fault:
    KINDS[function.__name__] = function
    return function


def aimed(function: Fault) -> Fault:
    AIMED.add(function.__name__)
    return fault(function)


def _lists_leases(process: Process, request: HttpRequest) -> bool:
    """Whether a sharder reads, or watches, the Leases of shards."""
    path = request.target.partition("?")[0]
    return request.method == "GET" and path.endswith("/leases") and is_sharders(process, request)
