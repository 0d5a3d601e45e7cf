"""Scenes of what API servers answer: kinds, clusters, namespaces and watches."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from neighbourhood import (
    FARS,
    NEW,
    OTHERS,
    PEERS,
    PLAINS,
    QUIETS,
    TENANT,
    THINGS,
    Answer,
    Neighbourhood,
    Other,
    Slow,
    about,
    garbage,
    raising,
    refused,
)
from table import Misbehaviour, Scene, Unit, cell, nothing

from kubeshard.core import Namespace, ObjectMeta
from kubeshard.runtime.transport import HttpRequest, HttpResponse
from kubeshard_lab.simulation.cluster import Thing, definition

E, N, S, F, M, L, X, C, B = Misbehaviour


def requests(answer: Answer | None, *parts: str) -> Scene:
    @asynccontextmanager
    async def scene(at: Neighbourhood) -> AsyncIterator[None]:
        async with at.requests(about(*parts), answer):
            yield

    return scene


# -- a kind

BESIDE_A_KIND = (THINGS, QUIETS, PLAINS, NEW)
KIND = "/others"

cell(
    Unit.KIND,
    E,
    "every request is answered 500, as while its conversion webhook is down",
    BESIDE_A_KIND,
    lasts=240,
    said=(("condition", "ResourcesResolved False ResourcesUnresolved"),),
    back=(OTHERS, 75),
)(requests(refused(), KIND))
cell(
    Unit.KIND,
    N,
    "requests get no answer, watches deliver nothing",
    BESIDE_A_KIND,
    said=(("metric", "kubeshard_controller_waiting"),),
    lasts=240,
    back=(OTHERS, 120),
)(requests(None, KIND))
cell(Unit.KIND, S, "every answer takes 20 s", BESIDE_A_KIND, lasts=120, back=(OTHERS, 60))(
    requests(Slow(20), KIND)
)
cell(Unit.KIND, L, "lists are a web page", BESIDE_A_KIND, lasts=240, back=(OTHERS, 75))(
    requests(garbage(), KIND)
)
cell(
    Unit.KIND,
    X,
    "reading and writing it raises ValueError in every process, a bug",
    BESIDE_A_KIND,
    lasts=240,
    said=(("log", "Reading a kind crashed"),),
    back=(OTHERS, 75),
)(requests(raising(), KIND))


@cell(
    Unit.KIND, F, "its objects change a hundred times per second", BESIDE_A_KIND, lasts=8, back=(OTHERS, 10)
)
@asynccontextmanager
async def a_kind_changes_all_the_time(at: Neighbourhood) -> AsyncIterator[None]:
    async def flood() -> None:
        for number in range(1_000_000):
            await at.change(OTHERS, f"o{number % 4 + 1}", noise=number)
            at.reached.add("flood")
            await asyncio.sleep(0.01)

    async with at.meanwhile(flood()):
        yield


@cell(Unit.KIND, M, "two hundred kinds are installed at once", (*BESIDE_A_KIND, OTHERS), lasts=8)
@asynccontextmanager
async def many_kinds(at: Neighbourhood) -> AsyncIterator[None]:
    async with at.world.admin() as client:
        for number in range(200):
            await client.apply(definition(f"kind{number}s", f"Kind{number}"))
    at.reached.add("installed")
    yield


@cell(
    Unit.KIND,
    B,
    "its definition is deleted, with all objects, and installed again",
    BESIDE_A_KIND,
    lasts=120,
    said=(("condition", "ResourcesResolved False ResourcesUnresolved"),),
    back=(OTHERS, 60),
)
@asynccontextmanager
async def a_kind_goes_and_returns(at: Neighbourhood) -> AsyncIterator[None]:
    async with at.world.admin() as client:
        path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/others.sim.example"
        await client.raw("DELETE", path)
        at.reached.add("deleted")
        yield
        await client.apply(definition("others", "Other"))
        for number in range(1, 5):
            await client.create(Other(metadata=ObjectMeta(name=f"o{number}", namespace="team")))


nothing(Unit.KIND, "A kind is no task.", C)

# -- a cluster

BESIDE_A_CLUSTER = (PLAINS, PEERS, THINGS)


def far(answer: Answer | None) -> Scene:
    @asynccontextmanager
    async def scene(at: Neighbourhood) -> AsyncIterator[None]:
        async with at.requests(about(), answer, cluster="far"):
            yield

    return scene


cell(Unit.CLUSTER, E, "every request is answered 500", BESIDE_A_CLUSTER, lasts=240, back=(FARS, 75))(
    far(refused())
)
cell(Unit.CLUSTER, N, "its network is cut", BESIDE_A_CLUSTER, lasts=240, back=(FARS, 120))(far(None))
cell(Unit.CLUSTER, S, "every answer takes 20 s", BESIDE_A_CLUSTER, lasts=120, back=(FARS, 60))(far(Slow(20)))
cell(Unit.CLUSTER, L, "a proxy answers with web pages", BESIDE_A_CLUSTER, lasts=120, back=(FARS, 75))(
    far(garbage())
)


@cell(
    Unit.CLUSTER,
    F,
    "its objects change a hundred times per second",
    BESIDE_A_CLUSTER,
    lasts=8,
    back=(FARS, 10),
)
@asynccontextmanager
async def a_cluster_changes_all_the_time(at: Neighbourhood) -> AsyncIterator[None]:
    async def flood() -> None:
        for number in range(1_000_000):
            await at.change(FARS, f"f{number % 2 + 1}", noise=number)
            at.reached.add("flood")
            await asyncio.sleep(0.01)

    async with at.meanwhile(flood()):
        yield


@cell(
    Unit.CLUSTER, B, "its network is cut for 50 s, three times", BESIDE_A_CLUSTER, lasts=200, back=(FARS, 60)
)
@asynccontextmanager
async def a_cluster_comes_and_goes(at: Neighbourhood) -> AsyncIterator[None]:
    async def cuts() -> None:
        for _ in range(3):
            async with at.requests(about(), cluster="far"):
                at.reached.add("cut")
                await asyncio.sleep(50)
            await asyncio.sleep(10)

    async with at.meanwhile(cuts()):
        yield


nothing(
    Unit.CLUSTER,
    "A manager's clusters each have a client, caches, queues and workers of their own, so many are as one: "
    "`manager/test_clusters_that_fail.py` breaks them at random.",
    M,
)
nothing(Unit.CLUSTER, "A cluster runs no code of this process, and is no task.", X, C)

# -- a namespace

FINALIZED = (
    b'{"apiVersion":"v1","kind":"Namespace","metadata":{"name":"%s"},"spec":{"finalizers":[]}}'
    % TENANT.encode()
)

BESIDE_A_NAMESPACE = (THINGS, OTHERS, QUIETS, PLAINS, NEW)


def in_tenant(answer: Answer | None) -> Scene:
    @asynccontextmanager
    async def scene(at: Neighbourhood) -> AsyncIterator[None]:
        async def changes() -> None:
            for number in range(1_000_000):
                await at.change(THINGS, f"x{number % 3}", TENANT, v=number)  # which its shard has to write
                await asyncio.sleep(2)

        for number in range(3):
            await at.add(THINGS, f"x{number}", TENANT)
        await at.goes_on(THINGS, 30)
        for number in range(3):
            at.forget(THINGS, f"x{number}", TENANT)
        async with at.requests(about(f"/namespaces/{TENANT}/"), answer), at.meanwhile(changes()):
            yield

    return scene


cell(
    Unit.NAMESPACE,
    E,
    "every request in it is answered 403",
    BESIDE_A_NAMESPACE,
    lasts=60,
    said=(("log", "Reconcile failed"),),
)(in_tenant(refused(403, "Forbidden")))
cell(Unit.NAMESPACE, N, "requests in it get no answer", BESIDE_A_NAMESPACE, lasts=120, within=8)(
    in_tenant(None)
)
cell(Unit.NAMESPACE, S, "requests in it take 3 s", BESIDE_A_NAMESPACE, lasts=60, within=8)(in_tenant(Slow(3)))


@cell(Unit.NAMESPACE, F, "two hundred objects in it change all the time", BESIDE_A_NAMESPACE, lasts=8)
@asynccontextmanager
async def a_namespace_floods(at: Neighbourhood) -> AsyncIterator[None]:
    async def flood() -> None:
        for number in range(200):
            await at.create(Thing, f"x{number}", TENANT)
        for number in range(1_000_000):
            await at.change(THINGS, f"x{number % 200}", TENANT, noise=number)
            at.reached.add("flood")
            await asyncio.sleep(0.01)

    async with at.meanwhile(flood()):
        yield


@cell(Unit.NAMESPACE, M, "five hundred are created at once", BESIDE_A_NAMESPACE, lasts=8)
@asynccontextmanager
async def many_namespaces(at: Neighbourhood) -> AsyncIterator[None]:
    for number in range(500):
        await at.create(Namespace, f"n{number}")
    at.reached.add("created")
    yield


@cell(Unit.NAMESPACE, B, "it is deleted with its objects, and created again", BESIDE_A_NAMESPACE, lasts=40)
@asynccontextmanager
async def a_namespace_returns(at: Neighbourhood) -> AsyncIterator[None]:
    async def again() -> None:
        for number in range(1000):
            await at.create(Thing, f"x{number}", TENANT)
            await asyncio.sleep(5)
            async with at.world.admin() as client:
                await client.delete(Thing, f"x{number}", TENANT)
                await client.raw("DELETE", f"/api/v1/namespaces/{TENANT}")
                await client.raw("PUT", f"/api/v1/namespaces/{TENANT}/finalize", FINALIZED)
            await asyncio.sleep(1)
            await at.create(Namespace, TENANT)
            at.reached.add("again")

    async with at.meanwhile(again()):
        yield


nothing(
    Unit.NAMESPACE,
    "All that it states is its labels; those decide which rings select it, and that is its owner's choice.",
    L,
)
nothing(Unit.NAMESPACE, "A namespace runs no code, and is no task.", X, C)

# -- a watch

BESIDE_A_WATCH = (THINGS, QUIETS, PLAINS, NEW)
WATCH = ("/others?", "watch=")

cell(
    Unit.WATCH, E, "it is refused with 500, while lists succeed", BESIDE_A_WATCH, lasts=150, back=(OTHERS, 75)
)(requests(refused(), *WATCH))
cell(Unit.WATCH, N, "it stays open and delivers nothing", BESIDE_A_WATCH, lasts=150, back=(OTHERS, 90))(
    requests(None, *WATCH)
)
cell(Unit.WATCH, S, "it takes 20 s to open", BESIDE_A_WATCH, lasts=100, back=(OTHERS, 60))(
    requests(Slow(20), *WATCH)
)
cell(Unit.WATCH, B, "it ends as soon as it is open", BESIDE_A_WATCH, lasts=100, back=(OTHERS, 60))(
    requests(garbage(b"", "application/json"), *WATCH)
)
cell(Unit.WATCH, L, "its lines are no events", BESIDE_A_WATCH, lasts=100, back=(OTHERS, 60))(
    requests(
        garbage(
            b'{"type":"BOOKMARK","object":{"metadata":{"resourceVersion":"no number"}}}\n[1]\n{"type":7}\n',
            "application/json",
        ),
        *WATCH,
    )
)


@cell(Unit.WATCH, X, "its connection breaks with every event", BESIDE_A_WATCH, lasts=60, back=(OTHERS, 60))
@asynccontextmanager
async def a_watch_breaks(at: Neighbourhood) -> AsyncIterator[None]:
    concerns = about(*WATCH)

    async def passes(request: HttpRequest) -> HttpResponse | None:
        return None

    async def changes() -> None:
        for number in range(1_000_000):
            await at.change(OTHERS, f"o{number % 4 + 1}", noise=number)
            await asyncio.sleep(1)

    async with at.requests(concerns, passes), at.meanwhile(changes()):
        yield


nothing(
    Unit.WATCH, "A watch that floods is the flood of the kind, the object or the namespace that it shows.", F
)
nothing(
    Unit.WATCH,
    "Watches of one kind and scope are one, whoever asks; the sharder's are counted in docs/sizing.md.",
    M,
)
nothing(Unit.WATCH, "The task that reads it is ours, and is awaited when its informer ends.", C)
