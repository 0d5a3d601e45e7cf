"""What faults are made of: what the networks of all processes do to requests, and one fault at work."""

from __future__ import annotations

import asyncio
import math
import random
from collections import Counter
from collections.abc import (
    AsyncIterator,
    Awaitable,
    Callable,
    Collection,
    Iterable,
    Iterator,
    Mapping,
    Sequence,
)
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from dataclasses import dataclass
from functools import partial, wraps
from typing import Any, Literal, TypeVar

from kubeshard.core.errors import ApiError
from kubeshard.core.objects import Form, Key
from kubeshard.core.patches import MergePatch
from kubeshard.runtime.transport import (
    HttpRequest,
    HttpResponse,
    HttpStream,
    TransportError,
    TransportTimeout,
)
from kubeshard.sharding.api import ControllerRing
from kubeshard_lab.simulation.cluster import SimulatedCluster, Thing
from kubeshard_lab.simulation.history import Hit
from kubeshard_lab.simulation.processes import (
    Network,
    Process,
    StreamAround,
    Travelling,
    is_sharders,
    refusal,
)
from kubeshard_lab.simulation.properties import UNDER_WAY
from kubeshard_lab.simulation.script import Delivery, stream
from kubeshard_lab.simulation.workload import Workload

T = TypeVar("T")

Applies = Callable[[Process, HttpRequest], bool]
Edit = Callable[[Process, HttpRequest, bytes], Iterator[bytes]]
"""What a reader gets for a chunk (of a watch: complete lines). May raise TransportError."""

_REASONS = {403: "Forbidden", 500: "InternalError", 503: "ServiceUnavailable"}


class Conditions:
    """Each misfortune's probability, drawn from its own stream."""

    def __init__(self, world: SimulatedCluster, seed: int) -> None:
        self.over = asyncio.Event()
        self.kinds: Collection[str] = ()
        self.busy: set[str] = set()
        """Faults under way that are inflicted one at a time."""
        self.counts = Counter[str]()
        self.chances = dict.fromkeys(
            ("429", "500", "503", "late", "lost", "write 429", "write 500", "list reset"), 0.0
        )
        self.rules: list[Rule] = []
        self.quiet: list[tuple[str, Applies, asyncio.Event]] = []
        """What happens to which watches, which deliver nothing until the event is set."""
        self.edits: dict[str, Edit] = {}
        """What happens to the chunks of lists and watches."""
        self.ending: dict[str, Applies] = {}
        """Watches that end as soon as they are open, by what happens to them."""
        self.unreachable: set[str] = set()
        """The clusters that no process reaches."""
        self.dropped: dict[str, float] = {}
        """Until when the streams of each process were opened that are dead, though nobody has said so."""
        self._world = world
        self._streams = {what: stream(seed, what) for what in (*self.chances, "lands")}
        self._landing: set[asyncio.Task[None]] = set()
        world.connected = self._connected

    @property
    def now(self) -> float:
        return self._world.loop.time()

    def _happens(self, what: str) -> bool:
        chance = self.chances[what]
        if not chance or self._streams[what].random() >= chance:
            return False
        self.counts[f"happened: {what}"] += 1
        return True

    def _connected(self, process: Process, network: Network) -> None:
        network.down = network.server.removeprefix("http://") in self.unreachable

        async def before(request: HttpRequest) -> HttpResponse | None:
            if self._happens("429"):
                answer = refusal(429, "TooManyRequests")
                wait = str(self._streams["429"].randint(1, 8))
                return HttpResponse(429, {**answer.headers, "retry-after": wait}, answer.body)
            for code in 500, 503:
                if self._happens(str(code)):
                    return refusal(code, _REASONS[code])
            for rule in self.rules:
                if network.server.endswith(rule.cluster) and rule.applies(process, request):
                    self.counts[f"happened: {rule.what}"] += 1
                    if rule.lands is not None:
                        return await withheld(request, rule.lands.wait())
                    await delayed(request, rule.delay)
                    if rule.refuses_connections:
                        raise TransportError("connection refused", sent=False)
                    return refusal(rule.code, _REASONS[rule.code]) if rule.code else None
            if request.method != "GET" and self._happens("write 429"):
                return refusal(429, "TooManyRequests")
            if request.method != "GET" and self._happens("write 500"):
                if self._streams["write 500"].random() < 0.5:
                    await land(request, asyncio.sleep(0))
                return refusal(500, "InternalError")
            if request.method != "GET" and self._happens("late"):
                return await withheld(request, asyncio.sleep(self._streams["lands"].uniform(0.5, UNDER_WAY)))
            return None

        async def delayed(request: HttpRequest, seconds: float) -> None:
            """Nothing hangs any more when all faults are over."""
            limit = math.inf if request.timeout is None else request.timeout
            with suppress(TimeoutError):
                async with asyncio.timeout(min(seconds, limit)):
                    await self.over.wait()
                return
            if seconds > limit:
                raise TransportTimeout("no answer in time")

        async def withheld(request: HttpRequest, until: Awaitable[object]) -> HttpResponse:
            landing = asyncio.create_task(land(request, until), name="late write")
            self._landing.add(landing)
            landing.add_done_callback(self._landing.discard)
            await asyncio.sleep(UNDER_WAY)
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
            if lists(process, request) and self._happens("list reset"):
                raise TransportError("connection reset", sent=True)

        network.before, network.after = before, after
        network.leaving = leaving
        network.through = lambda request, inner: _Silenced(self, process, network, inner, request)


@dataclass(eq=False)
class Rule:
    """What befalls the requests to which it applies: they are refused after `delay` seconds, or only delayed if `code`
    is 0; or, if `lands` is given, they get no answer, and take effect once it is set.
    """

    what: str
    applies: Applies
    code: int = 500
    lands: asyncio.Event | None = None
    delay: float = 0.0
    refuses_connections: bool = False
    cluster: str = ""
    """Only what is sent there; "": to all clusters."""


class _Silenced(StreamAround):
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
        self._opened = conditions.now

    async def chunks(self) -> AsyncIterator[bytes]:
        conditions, heard = self._conditions, self._opened
        for what, applies in tuple(conditions.ending.items()):
            if applies(self._process, self._request):
                conditions.counts[f"happened: {what}"] += 1
                return
        async for chunk in self._inner.chunks():
            for what, applies, silence in tuple(conditions.quiet):
                if applies(self._process, self._request):
                    conditions.counts[f"happened: {what}"] += 1
                    await silence.wait()
            if self._opened <= conditions.dropped.get(self._process.name, -1.0):
                conditions.counts["happened: half-open"] += 1
                patience = self._request.idle_timeout or math.inf
                await asyncio.sleep(max(0.0, heard + patience - conditions.now))
                raise TransportTimeout("no byte for too long")
            heard = conditions.now
            for piece in self._edited(chunk, tuple(conditions.edits.values())):
                yield piece

    def _edited(self, chunk: bytes, edits: Sequence[Edit]) -> Iterator[bytes]:
        if not edits:
            yield chunk
            return
        for piece in edits[0](self._process, self._request, chunk):
            yield from self._edited(piece, edits[1:])


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
        self.admin_of = workload.admin_of
        self.conditions = conditions
        self.rng = rng
        self.effects = 0
        self._stretch = stretch
        self._number = number

    @property
    def alone(self) -> bool:
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
        self.workload.recorder.add(Hit, self._number, process.name)
        return process

    def retire(self, name: str) -> None:
        """Stops the shard for good. It may have been replaced by one with another name, which stays."""
        if name in self.workload.names:
            self.workload.names.remove(name)
        for process in self.workload.live(f"{name}~"):
            process.terminate()

    def object(self) -> str:
        return f"t{self.rng.randrange(self.workload.count)}"

    async def patch(self, name: str, change: Any, target: type[Thing] | Form[Any] = Thing) -> None:
        """Patches a Thing, as a user does; it counts as an effect if the API server lets it."""
        with suppress(ApiError):
            await self.admin_of(name).patch(target, name, self.world.home_of(name), MergePatch(change))
            self.effects += 1

    async def annotate(self, annotations: Mapping[str, str | None]) -> None:
        """The ring."""
        change = MergePatch({"metadata": {"annotations": annotations}})
        await self.admin.patch(ControllerRing, self.world.ring, "", change)

    def other_value(self) -> dict[str, int]:
        """A specification that no Thing has."""
        return {"v": self.rng.randrange(10**6, 10**9)}

    @asynccontextmanager
    async def happening(self, *what: str) -> AsyncIterator[None]:
        """Counts as effects how often this happened to requests during the block."""
        before = sum(self.conditions.counts[f"happened: {each}"] for each in what)
        yield
        self.effects += sum(self.conditions.counts[f"happened: {each}"] for each in what) - before

    @asynccontextmanager
    async def ruled(self, rule: Rule) -> AsyncIterator[None]:
        self.conditions.rules.append(rule)
        try:
            yield
        finally:
            self.conditions.rules.remove(rule)

    @asynccontextmanager
    async def edited(self, what: str, edit: Edit) -> AsyncIterator[None]:
        """The chunks of lists and watches are edited during the block."""
        self.conditions.edits[what] = edit
        try:
            yield
        finally:
            if self.conditions.edits.get(what) is edit:
                del self.conditions.edits[what]

    def cut_streams(self, processes: Iterable[Process], cluster: str = "") -> None:
        """Their lists and watches end with an error, in one cluster or all; what they open next is not affected."""
        for process in processes:
            for network in process.networks:
                if network.server.endswith(cluster):
                    network.abort()

    def compact(self) -> None:
        """etcd forgets its history: no watch can go on from an earlier version."""
        for store in self.world.stores:
            store.compact()

    def a_cluster(self, *more: str) -> str:
        """One with Things, or one of `more` if there are several."""
        places = self.world.places
        return self.rng.choice((*places, *more)) if len(places) > 1 else places[0]

    def happens(self, what: str) -> None:
        """Counts that something befell a request."""
        self.conditions.counts[f"happened: {what}"] += 1

    @asynccontextmanager
    async def hidden(self, what: str) -> AsyncIterator[None]:
        """Sharders cannot list Leases during the block, and hear nothing of them."""
        async with self.quiet(what, _lists_leases), self.ruled(Rule(what, _lists_leases, code=503)):
            yield

    @asynccontextmanager
    async def quiet(self, what: str, applies: Applies) -> AsyncIterator[None]:
        """These watches deliver nothing during the block, and what they missed after it."""
        silence = asyncio.Event()
        self.conditions.quiet.append(here := (what, applies, silence))
        try:
            yield
        finally:
            silence.set()
            self.conditions.quiet.remove(here)

    def silent(self, process: Process) -> AbstractAsyncContextManager[None]:
        """The watches of the process deliver nothing during the block."""
        return self.quiet("silent", lambda of, _: of is process)

    async def until(self, condition: Callable[[], bool], within: float, *, outlasting: bool = False) -> bool:
        """At most so many seconds, or until all faults are over, unless `outlasting` them. Whether it holds."""
        deadline = self.world.loop.time() + within
        while not condition():
            over = self.conditions.over.is_set() and not outlasting
            if over or self.world.loop.time() >= deadline:
                return False
            await asyncio.sleep(0.1)
        return True

    def holder(self, name: str) -> str | None:
        lease = self.world.objects("coordination.k8s.io", "leases").get(Key("ops", name))
        return None if lease is None else lease["spec"].get("holderIdentity") or ""


Fault = Callable[[Injection], Awaitable[None]]
KINDS: dict[str, Fault] = {}
ONLY_BY: dict[str, Collection[Delivery]] = {}
"""Kinds that there are only if objects are delivered so."""
RANGES: Collection[Delivery] = ("uid", "namespace", "cluster")
AIMED: set[str] = set()
"""Kinds that are inflicted only when they are asked for. They judge what comes of them, if nothing else goes wrong."""
TARGETS: dict[str, Literal["any", "several", "service"]] = {}
"""Authors' operators that a kind may hit; the others are about rings."""


def fault(function: Fault) -> Fault:
    KINDS[function.__name__] = function
    return function


def _noted(where: dict[str, T], value: T, function: Fault) -> Fault:
    where[function.__name__] = value
    return fault(function)


def fault_by(*deliveries: Delivery) -> Callable[[Fault], Fault]:
    return partial(_noted, ONLY_BY, deliveries)


def apply_to(delivery: Delivery) -> set[str]:
    """The kinds that can be inflicted on a ring with this delivery."""
    return {kind for kind in KINDS if delivery in ONLY_BY.get(kind, (delivery,))}


def fault_of(target: Literal["any", "several", "service"]) -> Callable[[Fault], Fault]:
    return partial(_noted, TARGETS, target)


def aimed(function: Fault) -> Fault:
    AIMED.add(function.__name__)
    return fault(function)


def one_at_a_time(function: Fault) -> Fault:
    """Of a kind that is under way, another one does nothing."""

    @wraps(function)
    async def alone(on: Injection) -> None:
        if (kind := function.__name__) not in on.conditions.busy:
            on.conditions.busy.add(kind)
            await function(on)
            on.conditions.busy.discard(kind)

    return alone


def lists(process: Process, request: HttpRequest) -> bool:
    return request.method == "GET" and "limit=" in request.target and "watch=" not in request.target


def _lists_leases(process: Process, request: HttpRequest) -> bool:
    """Whether a sharder reads, or watches, the Leases of shards."""
    path = request.target.partition("?")[0]
    return request.method == "GET" and path.endswith("/leases") and is_sharders(process, request)


def summary(kind: str) -> str:
    """Returns what happens, in a line."""
    return " ".join((KINDS[kind].__doc__ or "").split())
