"""Faults, by name. Each is a coroutine that inflicts one fault and returns when it is over, at the latest when all
faults are (`Conditions.over`).

A fault draws its victim and its duration from a stream of its own, so a run stays the same up to the point at which a
fault is left out. It counts its effects: how many processes, requests or objects it really hit.
"""

from __future__ import annotations

import asyncio
import json
import random
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Coroutine
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from typing import Any

import msgspec

from kubeshard.client.client import Client
from kubeshard.core.builtin import ConfigMap, Lease, LeaseSpec
from kubeshard.core.errors import AlreadyExists, ApiError
from kubeshard.core.objects import Key, ObjectMeta
from kubeshard.core.patches import MergePatch
from kubeshard.core.selectors import LabelSelector
from kubeshard.core.times import micro_time, second_time
from kubeshard.runtime.pod import Pod
from kubeshard.runtime.transport import (
    HttpRequest,
    HttpResponse,
    HttpStream,
    TransportError,
    TransportTimeout,
)
from kubeshard.sharder import pod_reports
from kubeshard.sharding.api import GROUP, ControllerRing
from kubeshard.sharding.names import CLEAN_UP_FINALIZER, RING_LABEL, drain_label, shard_label
from kubeshard.simulation.cluster import MAIN, SimulatedCluster, Thing
from kubeshard.simulation.oracles import is_sharders
from kubeshard.simulation.processes import Network, Process, StreamAround, Travelling, name_of, refusal
from kubeshard.simulation.script import stream
from kubeshard.simulation.workload import Workload

Applies = Callable[[Process, HttpRequest], bool]

LATEST = 40.0
"""The maximum number of seconds by which a write is delayed."""
REPORTED_WITHIN = 8.0
"""Seconds from the death of a shard whose container has ended, as the kubelet says, until its Lease is taken."""


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


def _moves(process: Process, request: HttpRequest) -> bool:
    """Whether a sharder writes an object."""
    path = request.target.partition("?")[0]
    return (
        request.method == "PATCH"
        and ("/things/" in path or "/configmaps/" in path)
        and is_sharders(process, request)
    )


def _lists_leases(process: Process, request: HttpRequest) -> bool:
    """Whether a sharder reads, or watches, the Leases of shards."""
    path = request.target.partition("?")[0]
    return request.method == "GET" and path.endswith("/leases") and is_sharders(process, request)


def _second_watch(process: Process, request: HttpRequest) -> bool:
    """Whether the second controller of a shard watches."""
    return (
        "PartialObjectMetadata" in request.headers.get("Accept", "")
        and "/things?" in request.target
        and not is_sharders(process, request)
    )


def _renews(process: Process, request: HttpRequest) -> bool:
    """Whether a shard writes its Lease."""
    path = request.target.partition("?")[0]
    own = path.endswith((f"/leases/{name_of(process.name)}", "/namespaces/ops/leases"))
    return own and request.method != "GET" and not is_sharders(process, request)


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


@fault
async def kill(on: Injection) -> None:
    if process := on.one("s"):
        process.kill()


@fault
async def replace(on: Injection) -> None:
    """A shard dies, and one with another name takes its place."""
    if process := on.one("s"):
        name = name_of(process.name)
        process.kill()
        if name in on.workload.names:
            on.workload.names[on.workload.names.index(name)] = f"s{int(name[1:]) + 10}"


@fault
async def restart(on: Injection) -> None:
    """A shard dies and is restarted at once."""
    if process := on.one("s"):
        process.kill()
        on.workload.start(name_of(process.name))


@fault
async def twin(on: Injection) -> None:
    """A second process starts under the name of a running one."""
    if process := on.one("s"):
        on.workload.start(name_of(process.name))


@fault
async def terminate(on: Injection) -> None:
    if process := on.one("s"):
        assert process.manager is not None
        process.manager.stop()


@fault
async def scale(on: Injection) -> None:
    """The number of shards is increased by one, and decreased the next time."""
    if "s9" in on.workload.names:
        on.retire("s9")
    else:
        on.workload.names.append("s9")
    on.effects += 1


async def _halted(on: Injection, process: Process | None, halt: Callable[[Process], None]) -> None:
    if process:
        halt(process)
        await on.lasts(0.1, 60)
        process.resume()


@fault
async def pause(on: Injection) -> None:
    await _halted(on, on.one("s"), Process.pause)


@fault
async def sharder_pause(on: Injection) -> None:
    await _halted(on, on.one("x"), Process.pause)


@fault
async def block(on: Injection) -> None:
    """The main loop of a shard is blocked; the thread that renews its Lease goes on."""
    await _halted(on, on.one("s"), Process.block)


async def _cut(on: Injection, process: Process | None) -> None:
    if process:
        process.cut_off()
        await on.lasts(3, 50)
        process.cut_off(down=False)


@fault
async def cut(on: Injection) -> None:
    await _cut(on, on.one("s"))


@fault
async def sharder_cut(on: Injection) -> None:
    await _cut(on, on.one("x"))


@fault
async def sharder_kill(on: Injection) -> None:
    if process := on.one("x"):
        process.kill()


async def _befalls(on: Injection, chance: float, *what: str) -> None:
    """For a while this happens to requests."""
    on.conditions.chances.update(dict.fromkeys(what, chance))
    async with on.happening(*what):
        await on.lasts(5, 40)
    on.conditions.chances.update(dict.fromkeys(what, 0.0))


@fault
async def throttled(on: Injection) -> None:
    await _befalls(on, 0.5, "429")


@fault
async def failing(on: Injection) -> None:
    await _befalls(on, 0.2, "500", "503")


@fault
async def lost(on: Injection) -> None:
    """Writes take effect, but their responses are lost."""
    await _befalls(on, 0.3, "lost")


@fault
async def late(on: Injection) -> None:
    """Writes get no response, and take effect later."""
    await _befalls(on, 0.2, "late")


@fault
async def watches_cut(on: Injection) -> None:
    for process in on.workload.live(""):
        for network in process.networks:
            network.abort()
        on.effects += 1


@fault
async def watches_silent(on: Injection) -> None:
    live = on.workload.live(on.rng.choice("ssx"))
    if process := on.rng.choice(live) if live else None:
        silence = on.conditions.silent[process.name] = asyncio.Event()
        async with on.happening("silent"):
            await on.lasts(3, 80)
        silence.set()
        on.conditions.silent.pop(process.name, None)


@fault
async def children_late(on: Injection) -> None:
    """The watches of children deliver nothing for a while."""
    conditions, late = on.conditions, asyncio.Event()
    conditions.children_late = late
    async with on.happening("children late"):
        await on.lasts(3, 80)
    late.set()
    if conditions.children_late is late:
        conditions.children_late = None


@fault
async def compaction(on: Injection) -> None:
    on.world.server.store.compact()
    on.effects += 1


@fault
async def restore(on: Injection) -> None:
    """etcd is restored to an earlier state."""
    store, back = on.world.server.store, on.world.backup()
    revision = store.revision
    await on.lasts(5, 60)
    on.effects += store.revision - revision
    on.workload.oracles.restored()
    back()
    on.workload.recorder.restored()


@fault
async def webhook(on: Injection) -> None:
    """The API server cannot reach the webhook."""
    caller = on.world.caller
    caller.reachable, before = False, caller.refused
    await on.lasts(1, 40)
    caller.reachable = True
    on.effects += caller.refused - before


@fault
async def lease(on: Injection) -> None:
    """A user deletes a shard's Lease."""
    if process := on.one("s"):
        target = f"/apis/coordination.k8s.io/v1/namespaces/ops/leases/{name_of(process.name)}"
        with suppress(ApiError):
            await on.admin.raw("DELETE", target)


@fault
async def phantom(on: Injection) -> None:
    """A user creates a Lease of a shard that does not exist, and deletes it after a while."""
    name = f"ghost{on.rng.randrange(3)}"
    spec = LeaseSpec(
        holder_identity=name, lease_duration_seconds=15, renew_time=micro_time(on.world.clock.wall())
    )
    labels = {RING_LABEL: on.world.ring}
    with suppress(ApiError):
        await on.admin.create(
            Lease(metadata=ObjectMeta(name=name, namespace="ops", labels=labels), spec=spec)
        )
        on.effects += 1
    await on.lasts(1, 60)
    with suppress(ApiError):
        await on.admin.delete(Lease, name, "ops")


@fault
async def label(on: Injection) -> None:
    """A user writes the name of another shard, live or not, into the shard label, or takes it away."""
    key = shard_label(on.world.ring)
    value = on.rng.choice([*sorted(on.workload.living("s")), "nobody", None])
    with suppress(ApiError):
        await on.admin.patch(Thing, on.object(), "team", MergePatch({"metadata": {"labels": {key: value}}}))
        on.effects += 1


@fault
async def skew(on: Injection) -> None:
    for process in on.rng.sample(on.workload.live(""), min(2, len(on.workload.live("")))):
        process.clock.skew = on.rng.uniform(-7200, 7200)
        on.effects += 1


@fault
async def put_without_labels(on: Injection) -> None:
    """A user replaces objects by versions without labels: up to three that are being drained, or else any one."""
    await on.until(lambda: bool(on.world.draining()), 15)
    for name in sorted(on.world.draining())[:3] or [on.object()]:
        path = f"/apis/sim.example/v1/namespaces/team/things/{name}"
        before, calls = on.world.owners().get(name, ""), on.world.caller.answered
        with suppress(ApiError):
            thing = json.loads((await on.admin.raw("GET", path)).body)
            thing["metadata"]["labels"] = {"app": "x"}
            await on.admin.raw("PUT", path, json.dumps(thing).encode())
            on.effects += 1
            on.workload.oracles.replaced(name, before, seen=on.world.caller.answered > calls)


@fault
async def drain(on: Injection) -> None:
    """A user sets the drain label."""
    patch = MergePatch({"metadata": {"labels": {drain_label(on.world.ring): "true"}}})
    with suppress(ApiError):
        await on.admin.patch(Thing, on.object(), "team", patch)
        on.effects += 1


@fault
async def recreate(on: Injection) -> None:
    """A user deletes objects with their children, and re-creates some of them."""
    for _ in range(3):
        name = on.object()
        with suppress(ApiError):
            await on.admin.delete(ConfigMap, f"c-{name}", "team")
            on.effects += 1
        if on.rng.random() < 0.5:
            with suppress(ApiError):
                await on.admin.delete(Thing, name, "team")
                await asyncio.sleep(on.rng.choice((0.0, 2.0)))
                await on.admin.create(Thing(metadata=ObjectMeta(name=name, namespace="team"), spec={"v": 0}))


async def _ring(admin: Client, name: str, **spec: object) -> bool:
    """Changes the ring; returns whether that worked."""
    with suppress(ApiError):
        ring = await admin.get(ControllerRing, name)
        await admin.replace(msgspec.structs.replace(ring, spec=msgspec.structs.replace(ring.spec, **spec)))
        return True
    return False


@fault
async def ring_without_children(on: Injection) -> None:
    """The controlled resources are removed from the ring, and added again."""
    alone = msgspec.structs.replace(MAIN, controlled_resources=())
    on.effects += await _ring(on.admin, on.world.ring, resources=(alone,))
    await on.lasts(1, 30)
    await _ring(on.admin, on.world.ring, resources=(MAIN,))


@fault
async def ring_without_namespace(on: Injection) -> None:
    """The ring's selector no longer selects the namespace, for a while."""
    nowhere = LabelSelector(match_labels={"nobody": "has"})
    on.effects += await _ring(on.admin, on.world.ring, namespace_selector=nowhere)
    await on.lasts(1, 30)
    await _ring(on.admin, on.world.ring, namespace_selector=None)


@fault
async def ring_anew(on: Injection) -> None:
    """The ring is deleted and re-created."""
    with suppress(ApiError):
        await on.admin.delete(ControllerRing, on.world.ring)
        on.effects += 1
    await on.lasts(0.1, 30)
    with suppress(ApiError):
        await on.world.make_ring()


@fault
async def ring_cleaned(on: Injection) -> None:
    """The ring gets the finalizer, is deleted, and re-created as soon as it is gone. If that takes too long, the
    finalizer is removed by hand.
    """

    def finalizers(*keys: str) -> MergePatch:
        return MergePatch({"metadata": {"finalizers": list(keys)}})

    with suppress(ApiError):
        await on.admin.patch(ControllerRing, on.world.ring, "", finalizers(CLEAN_UP_FINALIZER))
        await on.admin.delete(ControllerRing, on.world.ring)
        on.effects += 1
    await on.until(lambda: Key("", on.world.ring) not in on.world.objects(GROUP, "controllerrings"), 40)
    with suppress(ApiError):
        await on.admin.patch(ControllerRing, on.world.ring, "", finalizers())
    with suppress(ApiError):
        await on.world.make_ring()


async def _failover(on: Injection, *, hidden: bool, lands: bool) -> None:
    """A shard dies, and is not back before a sharder has taken its Lease and tried to move its objects; these moves
    fail until the shard is back. `hidden`: from then on the sharder no longer learns of Leases. `lands`: the first move
    of each object takes effect once the shard is back.

    One at a time: if more shards died, the sharder would suspect something else than their death, and wait.
    """
    if any(rule.what == "move refused" for rule in on.conditions.rules):
        return
    process = on.one("s")
    if process is None:
        return
    name, back, tried = name_of(process.name), asyncio.Event(), set[str]()

    def first(process: Process, request: HttpRequest) -> bool:
        if not lands or not _moves(process, request) or on.holder(name) == name:
            return False
        path, before = request.target.partition("?")[0], len(tried)
        tried.add(path)
        return len(tried) > before

    def refused(process: Process, request: HttpRequest) -> bool:
        if back.is_set() or not _moves(process, request):
            return False
        tried.add(request.target.partition("?")[0])
        return True

    def absent(process: Process, request: HttpRequest) -> bool:
        return name_of(process.name) == name and request.target.partition("?")[0].endswith(f"/leases/{name}")

    async with on.ruled(Rule("withheld", first, lands=back)), on.ruled(Rule("move refused", refused)):
        async with on.ruled(Rule("Lease refused", absent)):
            process.kill()
            if not await on.until(lambda: on.holder(name) not in (name, None), 60):
                return
            tried.clear()
            await on.until(lambda: any("/things/" in path for path in tried), 20)
        async with AsyncExitStack() as stack:
            if hidden:
                await stack.enter_async_context(on.hidden("Leases hidden"))
            if await on.until(lambda: on.holder(name) == name, 90):
                await on.lasts(1, 8)  # it works
            back.set()
            await on.lasts(10, 15)


@fault
async def failover_blind(on: Injection) -> None:
    """A shard is back, but the sharder that considered it dead does not learn that before it can move its objects."""
    await _failover(on, hidden=True, lands=False)


@fault
async def failover_late(on: Injection) -> None:
    """A shard is back, and then the moves that a sharder sent while it was dead take effect."""
    await _failover(on, hidden=False, lands=True)


@fault
async def lease_deleted_late(on: Injection) -> None:
    """A shard is removed; its Lease becomes garbage; and the sharder's deletion of it takes effect when the shard is
    back.
    """
    name, back = "s8", asyncio.Event()

    def deletes(process: Process, request: HttpRequest) -> bool:
        gone = request.method == "DELETE" and request.target.partition("?")[0].endswith(f"/leases/{name}")
        return gone and is_sharders(process, request)

    if any(rule.what == "deletion withheld" for rule in on.conditions.rules):
        return
    async with on.happening("deletion withheld"), on.ruled(Rule("deletion withheld", deletes, lands=back)):
        on.workload.names.append(name)
        await on.until(lambda: on.holder(name) == name, 60)
        on.retire(name)
        before = on.conditions.counts["happened: deletion withheld"]
        if await on.until(lambda: on.conditions.counts["happened: deletion withheld"] > before, 120):
            on.workload.names.append(name)
            await on.until(lambda: on.holder(name) == name, 60)
            back.set()
            await on.lasts(5, 10)
            on.retire(name)
        back.set()


@fault
async def second_silent(on: Injection) -> None:
    """The watches of the second controller of all shards deliver nothing for a while."""
    async with on.happening("second silent"), on.quiet("second silent", _second_watch):
        await on.lasts(10, 60)


@fault
async def leases_unreadable(on: Injection) -> None:
    """Sharders cannot list or watch the Leases of shards."""
    async with on.happening("Leases unreadable"), on.hidden("Leases unreadable"):
        await on.lasts(10, 60)


@aimed
async def lease_of_paused(on: Injection) -> None:
    """A user deletes the Lease of a shard that is paused for a while, and may work on after it."""
    if process := on.one("s"):
        process.pause()
        with suppress(ApiError):
            await on.admin.delete(Lease, name_of(process.name), "ops")
        await on.lasts(8, 14)
        process.resume()


@aimed
async def renewals_refused(on: Injection) -> None:
    """No shard can renew its Lease for longer than others wait, but not for as long as they wait if all seem dead. No
    object may change hands. One at a time, a minute apart.
    """
    if "renewals_refused" in on.conditions.busy:
        return
    on.conditions.busy.add("renewals_refused")
    counts, names = on.workload.result.counts, on.workload.living("s")

    def held() -> bool:
        return all(on.holder(name) == name for name in names)

    await on.until(held, 60)
    moves = counts["changes of owners"]
    async with on.happening("renewal refused"), on.ruled(Rule("renewal refused", _renews)):
        await on.lasts(40, 55)
    await on.until(held, 60)
    if on.alone and (moved := counts["changes of owners"] - moves):
        on.workload.oracles.broken("moved", f"{moved} objects, because shards could not renew their Leases")
    await on.lasts(60, 60)
    on.conditions.busy.discard("renewals_refused")


@aimed
async def container_ended(on: Injection) -> None:
    """A shard that runs in a pod dies, and the kubelet reports it. Its Lease has to be taken soon. One at a time."""
    if "container_ended" in on.conditions.busy:
        return
    on.conditions.busy.add("container_ended")
    name, path = "s7", "/api/v1/namespaces/ops/pods"
    manifest = {"metadata": {"name": name}, "spec": {"containers": [{"name": "op", "image": "op"}]}}
    created = json.loads((await on.admin.raw("POST", path, json.dumps(manifest).encode())).body)
    on.workload.start(name, Pod(name, created["metadata"]["uid"]))
    if await on.until(lambda: on.holder(name) == name, 60):
        await on.lasts(15, 30)
        for process in on.workload.live(f"{name}~"):
            process.kill()
            on.effects += 1
        died, finished = on.world.loop.time(), second_time(on.world.clock.wall())
        await asyncio.sleep(1)
        state = {"terminated": {"exitCode": 137, "finishedAt": finished}}
        status = {"containerStatuses": [{"name": "op", "image": "op", "state": state}]}
        report = MergePatch({"status": status})
        await on.admin.patch(pod_reports.Pod, name, "ops", report, subresource="status")
        await on.until(lambda: on.holder(name) != name, 60)
        took = on.world.loop.time() - died
        if on.alone and took > REPORTED_WITHIN:
            what = f"{name} was given up {took:.0f} s after its container had ended"
            on.workload.oracles.broken("late take-over", what)
    await on.admin.delete(pod_reports.Pod, name, "ops")
    on.conditions.busy.discard("container_ended")


async def ring_as_it_was(world: SimulatedCluster, admin: Client) -> None:
    """The ring is put back to its proper state, whatever a restore did to it."""
    with suppress(AlreadyExists):
        await world.make_ring()
    await _ring(admin, world.ring, resources=(MAIN,), namespace_selector=None)
