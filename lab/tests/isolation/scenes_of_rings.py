"""Scenes of what is sharded: rings, their resources, shards, tenants and objects."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import msgspec
from neighbourhood import (
    NAMESPACE,
    NEW,
    OTHER_RESOURCE,
    OTHERS,
    PEERS,
    PLAINS,
    POISON,
    QUIET_RESOURCE,
    QUIETS,
    TENANT,
    THINGS,
    Answer,
    Bad,
    Neighbourhood,
    Other,
    Slow,
    about,
    garbage,
    refused,
)
from table import Misbehaviour, Scene, Unit, cell, nothing

from kubeshard.controller import Context
from kubeshard.core import Lease, Namespace, ObjectMeta
from kubeshard.core.patches import MergePatch
from kubeshard.core.selectors import LabelSelector, LabelSelectorRequirement
from kubeshard.runtime.transport import HttpRequest
from kubeshard.sharding.api import ControllerRing, RingResource
from kubeshard.sharding.names import RING_LABEL, shard_label
from kubeshard_lab.simulation.cluster import MAIN, Thing, definition
from kubeshard_lab.simulation.processes import Process

E, N, S, F, M, L, X, C, B = Misbehaviour


def during(work: Callable[[Neighbourhood], Awaitable[None]]) -> Scene:
    """A scene in which this goes on."""

    @asynccontextmanager
    async def scene(at: Neighbourhood) -> AsyncIterator[None]:
        async with at.meanwhile(work(at)):
            yield

    return scene


# -- a ring

BESIDE_A_RING = (THINGS, OTHERS, NEW, PLAINS)


@cell(
    Unit.RING,
    E,
    "its namespace selector is invalid",
    BESIDE_A_RING,
    said=(("condition", "SelectorValid False InvalidSelector"),),
    back=(QUIETS, 30),
)
@asynccontextmanager
async def an_invalid_ring(at: Neighbourhood) -> AsyncIterator[None]:
    good = LabelSelector(match_labels={"kubernetes.io/metadata.name": NAMESPACE})
    bad = LabelSelector(match_expressions=(LabelSelectorRequirement(key="a", operator="Nonsense"),))
    await at.patch_ring("q", {"spec": {"namespaceSelector": msgspec.to_builtins(bad)}})
    at.reached.add("ring")
    yield
    await at.patch_ring(
        "q", {"spec": {"namespaceSelector": msgspec.to_builtins(good) | {"matchExpressions": None}}}
    )


@cell(Unit.RING, N, "it has no shard any more", BESIDE_A_RING, lasts=120, back=(QUIETS, 30))
@asynccontextmanager
async def a_ring_without_shards(at: Neighbourhood) -> AsyncIterator[None]:
    at.kill("q0")
    yield
    at.quiet_shard("q0~2")


@cell(Unit.RING, S, "every write of its objects takes 20 s", BESIDE_A_RING)
@asynccontextmanager
async def a_slow_ring(at: Neighbourhood) -> AsyncIterator[None]:
    at.kill("q0")
    async with at.requests(about("/quiets/", of="x"), Slow(20)):
        at.quiet_shard("q0~2", name="q1")
        yield


@cell(Unit.RING, F, "it is edited ten times per second", BESIDE_A_RING, lasts=8, back=(QUIETS, 10))
@during
async def an_edited_ring(at: Neighbourhood) -> None:
    for number in range(1_000_000):
        await at.patch_ring("q", {"spec": {"namespaceSelector": {"matchLabels": {"a": str(number)}}}})
        await asyncio.sleep(0.1)
        await at.patch_ring("q", {"spec": {"namespaceSelector": {"matchLabels": {"a": None}}}})
        at.reached.add("edited")


@cell(Unit.RING, M, "twenty rings of the same kind are created at once", (*BESIDE_A_RING, QUIETS), lasts=8)
@asynccontextmanager
async def many_rings(at: Neighbourhood) -> AsyncIterator[None]:
    selector = LabelSelector(match_labels={"kubernetes.io/metadata.name": NAMESPACE})
    for number in range(20):
        await at.world.make_ring(f"many{number}", [MAIN], selector)
        await at.lease(f"m{number}", f"many{number}")
    at.reached.add("rings")
    yield


@cell(
    Unit.RING,
    L,
    "it claims kinds that do not exist, and those of other rings",
    BESIDE_A_RING,
    said=(("condition", "ResourcesResolved False ResourcesUnresolved"),),
    back=(QUIETS, 30),
)
@asynccontextmanager
async def a_lying_ring(at: Neighbourhood) -> AsyncIterator[None]:
    lies = [
        QUIET_RESOURCE,
        RingResource(group="no.example", resource="nothings"),
        RingResource(group="", resource="nodes/proxy"),
    ]
    await at.patch_ring("q", {"spec": {"resources": msgspec.to_builtins(lies)}})
    at.reached.add("lies")
    yield
    await at.patch_ring("q", {"spec": {"resources": msgspec.to_builtins([QUIET_RESOURCE])}})


@cell(
    Unit.RING,
    X,
    "a scan of its objects raises ValueError",
    BESIDE_A_RING,
    said=(("log", "crashed"),),
    back=(QUIETS, 60),
)
@asynccontextmanager
async def a_ring_that_crashes(at: Neighbourhood) -> AsyncIterator[None]:
    at.kill("q0")
    async with at.crashing("/quiets", of="x"):
        at.quiet_shard("q0~2", name="q1")
        yield


@cell(
    Unit.RING,
    B,
    "it is deleted and created again, again and again",
    BESIDE_A_RING,
    lasts=30,
    back=(QUIETS, 30),
)
@asynccontextmanager
async def a_ring_returns(at: Neighbourhood) -> AsyncIterator[None]:
    async def again() -> None:
        for _ in range(1000):
            async with at.world.admin() as client:
                await client.delete(ControllerRing, "q")
                await asyncio.sleep(1)
                await at.make_quiet_ring()
                at.reached.add("again")
                await asyncio.sleep(2)

    async with at.meanwhile(again()):
        yield
    if not any(key.name == "q" for key in at.world.objects("sharding.timebertt.dev", "controllerrings")):
        await at.make_quiet_ring()


nothing(
    Unit.RING, "A ring is what the sharder knows of it; the tasks that work for it are its resources'.", C
)

# -- a resource of a ring: only the sharder has trouble with it

BESIDE_A_RESOURCE = (THINGS, QUIETS, PLAINS, NEW)


def of_sharder(answer: Answer | None) -> Scene:
    @asynccontextmanager
    async def scene(at: Neighbourhood) -> AsyncIterator[None]:
        async with at.requests(about("/others", of="x"), answer):
            yield

    return scene


RESOLVED = (("condition", "ResourcesResolved False ResourcesUnresolved"),)
cell(
    Unit.RESOURCE,
    E,
    "the sharder's requests are answered 500",
    (*BESIDE_A_RESOURCE, OTHERS),
    lasts=60,
    said=RESOLVED,
)(of_sharder(refused()))
cell(Unit.RESOURCE, N, "the sharder's requests get no answer", (*BESIDE_A_RESOURCE, OTHERS), lasts=150)(
    of_sharder(None)
)
cell(Unit.RESOURCE, S, "the sharder's requests take 20 s", (*BESIDE_A_RESOURCE, OTHERS), lasts=60)(
    of_sharder(Slow(20))
)
cell(
    Unit.RESOURCE,
    L,
    "the sharder's lists are web pages",
    (*BESIDE_A_RESOURCE, OTHERS),
    lasts=150,
    said=RESOLVED,
)(of_sharder(garbage()))


@cell(
    Unit.RESOURCE,
    F,
    "three hundred objects appear that the webhook has not seen",
    BESIDE_A_RESOURCE,
    within=8,
    lasts=10,
)
@asynccontextmanager
async def many_unassigned(at: Neighbourhood) -> AsyncIterator[None]:
    at.world.caller.reachable = False
    for number in range(300):
        await at.create(Other, f"y{number}", NAMESPACE)
    at.world.caller.reachable = True
    at.reached.add("created")
    yield


@cell(Unit.RESOURCE, M, "the ring gets thirty more", (*BESIDE_A_RESOURCE, OTHERS), lasts=8)
@asynccontextmanager
async def many_resources(at: Neighbourhood) -> AsyncIterator[None]:
    async with at.world.admin() as client:
        for number in range(30):
            await client.apply(definition(f"kind{number}s", f"Kind{number}"))
    more = [RingResource(group="sim.example", resource=f"kind{number}s") for number in range(30)]
    await at.patch_ring("r", {"spec": {"resources": msgspec.to_builtins([MAIN, OTHER_RESOURCE, *more])}})
    at.reached.add("resources")
    yield
    await at.patch_ring("r", {"spec": {"resources": msgspec.to_builtins([MAIN, OTHER_RESOURCE])}})


@cell(Unit.RESOURCE, X, "reading it raises ValueError in the sharder", (*BESIDE_A_RESOURCE, OTHERS), lasts=60)
@asynccontextmanager
async def a_resource_that_crashes(at: Neighbourhood) -> AsyncIterator[None]:
    async with at.crashing("/others", of="x"):
        at.kill("s0")
        await at.goes_on(THINGS, 45)
        at.shard("s0", "s0~2")
        await at.goes_on(OTHERS, 90)
        yield


@cell(Unit.RESOURCE, B, "the ring loses it and gets it back", BESIDE_A_RESOURCE, lasts=40, back=(OTHERS, 20))
@asynccontextmanager
async def a_resource_returns(at: Neighbourhood) -> AsyncIterator[None]:
    async def again() -> None:
        for _ in range(1000):
            await at.patch_ring("r", {"spec": {"resources": msgspec.to_builtins([MAIN])}})
            await asyncio.sleep(3)
            await at.patch_ring("r", {"spec": {"resources": msgspec.to_builtins([MAIN, OTHER_RESOURCE])}})
            at.reached.add("again")
            await asyncio.sleep(3)

    async with at.meanwhile(again()):
        yield
    await at.patch_ring("r", {"spec": {"resources": msgspec.to_builtins([MAIN, OTHER_RESOURCE])}})


nothing(
    Unit.RESOURCE,
    "The tasks that work for it are the sharder's own, and end with the resource or the leadership.",
    C,
)

# -- a shard: the others of its ring take its objects over; what it has is back within the time of a take-over

BESIDE_A_SHARD = (QUIETS, PLAINS)
TAKE_OVER = 45.0
"""Seconds until another shard reconciles the objects of one that stopped working: its Lease of 15 s expires, is
taken after 15 s more, and its objects are moved.
"""


def of_s1(answer: Answer | None) -> Scene:
    @asynccontextmanager
    async def scene(at: Neighbourhood) -> AsyncIterator[None]:
        at.expected_deaths.add("s1")
        async with at.requests(about(of="s1"), answer):
            await at.goes_on(THINGS, TAKE_OVER)
            yield

    return scene


cell(
    Unit.SHARD,
    E,
    "all its requests are answered 500",
    (*BESIDE_A_SHARD, THINGS),
    lasts=60,
    said=(("log", "Shard is dead"),),
)(of_s1(refused()))
cell(
    Unit.SHARD, N, "its network is cut", (*BESIDE_A_SHARD, THINGS), lasts=60, said=(("log", "Shard is dead"),)
)(of_s1(None))
cell(Unit.SHARD, L, "a proxy answers it with web pages", (*BESIDE_A_SHARD, THINGS), lasts=60)(
    of_s1(garbage())
)


@cell(Unit.SHARD, S, "all its requests take 1.5 s", (*BESIDE_A_SHARD, OTHERS), within=20, lasts=60)
@asynccontextmanager
async def a_slow_shard(at: Neighbourhood) -> AsyncIterator[None]:
    async with at.requests(about(of="s1"), Slow(1.5)):
        yield


@cell(
    Unit.SHARD,
    F,
    "it starts and stops every few seconds",
    (*BESIDE_A_SHARD, NEW),
    within=20,
    lasts=60,
    back=(THINGS, 10),
)
@during
async def a_flapping_shard(at: Neighbourhood) -> None:
    for number in range(1_000_000):
        process = at.shard("flap", f"flap~{number}")
        at.expected_deaths.add(process.name)
        await asyncio.sleep(4)
        await process.stop()
        at.reached.add("flap")
        await asyncio.sleep(2)


@cell(
    Unit.SHARD,
    M,
    "three join at once, and twenty Leases of no ring appear",
    (*BESIDE_A_SHARD, THINGS),
    within=60,
    lasts=40,
)
@asynccontextmanager
async def many_shards(at: Neighbourhood) -> AsyncIterator[None]:
    for number in range(20):
        await at.lease(f"q{number + 1}", "nobody")
    for number in range(3):
        at.shard(f"s{number + 10}")
    at.reached.add("leases")
    yield


@cell(Unit.SHARD, X, "it crashes", (*BESIDE_A_SHARD, THINGS), lasts=60, said=(("log", "Shard is dead"),))
@asynccontextmanager
async def a_shard_crashes(at: Neighbourhood) -> AsyncIterator[None]:
    at.kill("s1")
    await at.goes_on(THINGS, TAKE_OVER)
    yield


@cell(
    Unit.SHARD,
    C,
    "it is told to stop, and a reconcile of it never ends",
    (*BESIDE_A_SHARD, NEW),
    within=80,
    lasts=8,
)
@asynccontextmanager
async def a_shard_does_not_stop(at: Neighbourhood) -> AsyncIterator[None]:
    over = False

    async def ignores(ctx: Context, obj: Any) -> None:
        while obj.metadata.name == "t1" and not over:
            try:
                await asyncio.sleep(5)
            except asyncio.CancelledError:
                at.reached.add("ignored")

    with at.act("reconcile", ignores):
        await at.change(THINGS, "t1", noise=1)
        await asyncio.sleep(1)
        owner = at.world.processes[at.owner("t1")]
        at.expected_deaths.add(owner.name)
        assert owner.manager is not None
        owner.manager.stop()
        try:
            yield
            assert "ignored" in at.reached
        finally:
            over = True
        await at.goes_on(THINGS, 90)


@cell(
    Unit.SHARD,
    B,
    "it dies and returns under its name, again and again",
    BESIDE_A_SHARD,
    lasts=60,
    back=(THINGS, TAKE_OVER),
)
@during
async def a_shard_returns(at: Neighbourhood) -> None:
    process = "s1"
    for number in range(1000):
        at.kill(process)
        await asyncio.sleep(1)
        process = f"s1~{number}"
        at.shard("s1", process)
        await asyncio.sleep(12)


# -- a tenant: may create objects and Leases in its own namespace

BESIDE_A_TENANT = (THINGS, OTHERS, QUIETS, PLAINS, NEW)


@cell(Unit.TENANT, F, "it creates and deletes objects all the time", BESIDE_A_TENANT, lasts=8)
@during
async def a_tenant_floods(at: Neighbourhood) -> None:
    async with at.world.admin() as client:
        for number in range(1_000_000):
            await at.create(Thing, f"x{number}", TENANT)
            if number >= 50:
                await client.delete(Thing, f"x{number - 50}", TENANT)
            at.reached.add("flood")
            await asyncio.sleep(0.02)


@cell(
    Unit.TENANT,
    M,
    "a hundred tenants create objects at once, and one of them six hundred Leases with the label of a ring, some of "
    "240 kB",
    BESIDE_A_TENANT,
    said=(("log", "too many Leases"),),
    lasts=8,
)
@asynccontextmanager
async def many_tenants(at: Neighbourhood) -> AsyncIterator[None]:
    for number in range(100):
        await at.create(Namespace, f"tenant{number}")
        await at.create(Thing, "x", f"tenant{number}")
    async with at.world.admin() as client:
        for number in range(600):  # `sharder/test_lease_bounds.py` shows what is kept of them
            meta = ObjectMeta(
                name=f"fat{number}",
                namespace="tenant0",
                labels={RING_LABEL: "r" if number % 2 and number < 20 else "nobody"},
                annotations={"a": "x" * (240_000 if number < 20 else 10)},
            )
            await client.create(Lease(metadata=meta))
    at.reached.add("tenants")
    yield


@cell(
    Unit.TENANT,
    L,
    "it writes shard labels of other shards into its objects, and drain labels",
    BESIDE_A_TENANT,
    lasts=30,
)
@during
async def a_tenant_labels(at: Neighbourhood) -> None:
    await at.create(Thing, "x", TENANT)
    async with at.world.admin() as client:
        while True:
            for value in ("s0", "s1", "nobody", None):
                patch = MergePatch({"metadata": {"labels": {shard_label("r"): value}}})
                await client.patch(Thing, "x", TENANT, patch)
                at.reached.add("label")
                await asyncio.sleep(0.5)


@cell(
    Unit.TENANT,
    B,
    "it creates and deletes Leases with the label of a ring",
    (QUIETS, PLAINS),
    lasts=60,
    back=(THINGS, 240),
)
@during
async def a_tenant_makes_shards(at: Neighbourhood) -> None:
    async with at.world.admin() as client:
        for number in range(1_000_000):
            await at.lease(f"phantom{number % 3}", "r", namespace=TENANT, seconds=86_400)
            at.reached.add("phantom")
            await asyncio.sleep(5)
            await client.delete(Lease, f"phantom{number % 3}", TENANT)


nothing(
    Unit.TENANT,
    "A tenant sends requests and answers none. What it may not do the API server refuses, to it alone.",
    E,
    N,
    S,
)
nothing(Unit.TENANT, "A tenant runs no code in our processes, and is no task.", X, C)

# -- an object

BESIDE_AN_OBJECT = (PEERS, PLAINS)


def of_object(answer: Answer | None, name: str = "x0") -> Scene:
    """A Thing that keeps changing, whose every write is answered so."""

    @asynccontextmanager
    async def scene(at: Neighbourhood) -> AsyncIterator[None]:
        def concerns(process: Process, request: HttpRequest) -> bool:
            return request.method != "GET" and request.target.partition("?")[0].endswith(
                (f"/{name}", f"/c-{name}")
            )

        async def changes() -> None:
            for number in range(1_000_000):
                await at.change(THINGS, name, noise=number, v=number)
                await asyncio.sleep(2)

        await at.create(Thing, name, NAMESPACE)
        async with at.requests(concerns, answer), at.meanwhile(changes()):
            yield

    return scene


OF_THE_RING = (THINGS, OTHERS, NEW)
cell(
    Unit.OBJECT,
    E,
    "every write of it is refused with 422",
    OF_THE_RING,
    lasts=60,
    said=(("log", "Reconcile failed"),),
)(of_object(refused(422, "Invalid")))
cell(Unit.OBJECT, N, "writes of it get no answer", OF_THE_RING, lasts=120)(of_object(None))
cell(Unit.OBJECT, S, "writes of it take 10 s", OF_THE_RING, lasts=60)(of_object(Slow(10)))


@cell(Unit.OBJECT, F, "it changes a hundred times per second", (*BESIDE_AN_OBJECT, THINGS), lasts=8)
@during
async def an_object_floods(at: Neighbourhood) -> None:
    await at.create(Bad, POISON, NAMESPACE)
    for number in range(1_000_000):
        await at.change(PEERS, POISON, noise=number)
        at.reached.add("flood")
        await asyncio.sleep(0.01)


@cell(
    Unit.OBJECT,
    M,
    "a thousand wait to be reconciled for the first time",
    (*BESIDE_AN_OBJECT, THINGS),
    lasts=10,
)
@asynccontextmanager
async def many_objects(at: Neighbourhood) -> AsyncIterator[None]:
    async def takes_time(ctx: Context, obj: Any) -> None:
        if obj.metadata.name.startswith("m"):
            await asyncio.sleep(0.05)

    with at.act("reconcile", takes_time):
        for number in range(1000):
            await at.create(Bad, f"m{number}", TENANT)
        at.reached.add("created")
        yield


@cell(
    Unit.OBJECT,
    L,
    "its spec does not fit the class",
    BESIDE_AN_OBJECT,
    said=(("metric", "kubeshard_informer_undecodable_objects"),),
)
@asynccontextmanager
async def an_object_lies(at: Neighbourhood) -> AsyncIterator[None]:
    async with at.world.admin() as client:
        odd = {
            "apiVersion": "sim.example/v1",
            "kind": "Bad",
            "metadata": {"name": "odd", "namespace": NAMESPACE},
            "spec": [1],
        }
        await client.apply(odd)
    at.reached.add("odd")
    yield


@cell(
    Unit.OBJECT,
    X,
    "its reconcile raises ZeroDivisionError",
    BESIDE_AN_OBJECT,
    said=(("log", "Reconcile failed"),),
)
@asynccontextmanager
async def an_object_raises(at: Neighbourhood) -> AsyncIterator[None]:
    async def raises(ctx: Context, obj: Any) -> None:
        if obj.metadata.name == POISON:
            at.reached.add("raised")
            raise ZeroDivisionError

    with at.act("reconcile", raises):
        await at.create(Bad, POISON, NAMESPACE)
        yield


@cell(
    Unit.OBJECT,
    C,
    "its reconcile never ends, whatever is done to it",
    (THINGS, OTHERS, NEW, QUIETS),
    lasts=120,
    said=(("event", "ReconcileHangs"), ("metric", "kubeshard_controller_overdue_reconciles")),
)
@asynccontextmanager
async def an_object_ignores_cancellation(at: Neighbourhood) -> AsyncIterator[None]:
    over = False

    async def ignores(ctx: Context, obj: Any) -> None:
        while obj.metadata.name == "poison" and not over:
            at.reached.add("stuck")
            try:
                await asyncio.sleep(5)
            except asyncio.CancelledError:
                at.reached.add("ignored")

    with at.act("reconcile", ignores):
        await at.create(Thing, "poison", NAMESPACE)
        try:
            yield
            assert "ignored" in at.reached
        finally:
            over = True


@cell(
    Unit.OBJECT, B, "it is deleted and created again, again and again", (*BESIDE_AN_OBJECT, THINGS), lasts=8
)
@during
async def an_object_returns(at: Neighbourhood) -> None:
    async with at.world.admin() as client:
        for number in range(1_000_000):
            await client.create(
                Bad(metadata=ObjectMeta(name=POISON, namespace=NAMESPACE), spec={"v": number})
            )
            await asyncio.sleep(0.3)
            assert at.seen[PEERS, NAMESPACE, POISON] == number
            at.reached.add("again")
            await client.delete(Bad, POISON, NAMESPACE)
