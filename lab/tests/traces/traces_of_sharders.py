"""What may happen to sharders, to what they see, and to what they are about to do."""

from __future__ import annotations

import asyncio

from trace_scene import DRAIN, Scene, a_thing
from trace_table import trace

from kubeshard.runtime.transport import HttpRequest, HttpResponse
from kubeshard.sharding.names import SHARDER_IDENTITY
from kubeshard_lab.simulation.processes import refusal


@trace(
    "10",
    "The sharder tries again to take an object of a dead shard, and has not heard that the shard is back",
    reference="it takes the object while the shard works on it",
    kubeshard="the object stays",
    measure="a proof of death: the Lease is read before anything is taken",
    oracle="overlap",
    slow=True,
)
async def stale_leases(scene: Scene) -> None:
    thing = a_thing(("a", "ab"))
    await scene.begin("a", "b", things=[thing])
    refused = True

    async def refuse(request: HttpRequest) -> HttpResponse | None:
        is_move = request.method == "PATCH" and "/things/" in request.target
        return refusal(500, "InternalError") if refused and is_move else None

    scene.before("x0", refuse)
    scene.world.processes["a"].kill()
    await scene.world.until(lambda: scene.holder("a") == SHARDER_IDENTITY, within=60)
    await asyncio.sleep(1)
    scene.silence("x0", "/leases")
    scene.takes = {"thing": 60.0}
    scene.shard("a", "a~2")
    await scene.ready("a")
    await asyncio.sleep(1)
    refused = False
    await asyncio.sleep(60)


@trace(
    "11",
    "A shard dies, and the replica that answers the webhook has not heard of it",
    reference="it gives the object back to the dead shard, until the next full scan, five minutes later",
    kubeshard="the object is on a living shard within seconds",
    measure="a move is one patch that names the target",
    oracle="not owned",
    slow=True,
)
async def stale_webhook(scene: Scene) -> None:
    thing = a_thing(("a", "ab"))
    await scene.begin("a", "b", things=[thing], sharders=("x0", "x1"))
    hear = scene.silence("x1", "/leases")
    scene.world.processes["a"].kill()
    await scene.world.until(lambda: scene.holder("a") == SHARDER_IDENTITY, within=60)
    await asyncio.sleep(2)
    hear()
    await scene.must("not owned", lambda: scene.owner(thing) == "b", within=30)


@trace(
    "12a",
    "The webhook misses a new object, and the API server's cache from which the sharder lists does not have it yet",
    reference="it has no shard until the next full scan, five minutes later",
    kubeshard="it has one within seconds",
    measure="a watch on what has no shard; lists never name version 0",
    oracle="not owned",
)
async def stale_list(scene: Scene) -> None:
    await scene.begin("a")
    end = scene.lag("x0")
    scene.world.caller.reachable = False
    await scene.create("t")
    scene.shard("b")
    await scene.ready("b")
    await asyncio.sleep(1)
    scene.world.caller.reachable = True
    end()
    await scene.must("not owned", lambda: scene.owner("t"), within=30)


@trace(
    "12b",
    "A shard is restarted, and lists from an API server whose cache is from before its objects moved",
    reference="it works on objects that others have by now, and its writes land",
    kubeshard="it begins when the server can show its objects as they are",
    measure="lists never name version 0",
    oracle="stale write",
    slow=True,
)
async def stale_restart(scene: Scene) -> None:
    thing = a_thing(("a", "a"), ("b", "ab"))
    await scene.begin("a", things=[thing])
    await scene.change(thing)
    end = scene.lag("a~2")
    scene.shard("b")
    await scene.world.until(lambda: scene.owner(thing) == "b", within=20)
    await scene.change(thing)
    await asyncio.sleep(5)
    scene.world.processes["a"].kill()
    scene.shard("a", "a~2")
    await asyncio.sleep(10)
    end()
    await asyncio.sleep(30)


@trace(
    "13",
    "An object of a dead shard is changed between the list and the patch that moves it",
    reference="the whole ring is looked at again after five seconds, or more",
    kubeshard="the object is read again and moved at once",
    measure="what is refused is tried again alone",
    oracle="not owned",
)
async def conflict(scene: Scene) -> None:
    thing = a_thing(("a", "ab"))
    await scene.begin("a", "b", things=[thing])
    raced: list[HttpRequest] = []

    async def race(request: HttpRequest) -> HttpResponse | None:
        if request.method == "PATCH" and f"/things/{thing}" in request.target and not raced:
            raced.append(request)
            await scene.label(thing, {DRAIN: "true"})

    scene.before("x0", race)
    scene.world.processes["a"].kill()
    await scene.world.until(lambda: raced, within=60)
    await scene.must("not owned", lambda: scene.world.all_owned("b"), within=4)


@trace(
    "14",
    "A process has two controllers of a kind, and one of them is at work when an object is drained",
    reference="the other one acknowledges the drain",
    kubeshard="the drain is acknowledged when both are done",
    measure="the process counts who works on an object",
    oracle="overlap",
)
async def two_controllers(scene: Scene) -> None:
    thing = a_thing(("a", "a"), ("b", "ab"))
    await scene.world.install()
    await scene.world.make_ring()
    await scene.sharder("x0")
    scene.shard("a", controllers=("thing", "second"))
    await scene.ready("a")
    await scene.create(thing)
    await asyncio.sleep(5)
    scene.takes = {"second": 30.0}
    await scene.change(thing)
    scene.shard("b")
    await scene.ready("b")
    await asyncio.sleep(15)


@trace(
    "15",
    "The main loop of a shard hangs, while a thread of its own renews the Lease",
    reference="drains are never acknowledged: its objects are nobody's for as long as it hangs",
    kubeshard="its Lease is not renewed any more, and its objects move",
    measure="the Lease is renewed only while the main loop responds",
    oracle="not owned",
)
async def hangs(scene: Scene) -> None:
    thing = a_thing(("a", "a"), ("b", "ab"))
    await scene.begin("a", things=[thing])
    scene.world.processes["a"].block()
    scene.shard("b")
    await scene.ready("b")
    await scene.must("not owned", lambda: scene.owner(thing) == "b", within=60)


@trace(
    "17",
    "A sharder is stopped in the middle of taking objects from a shard that has left, and resumed when it is back",
    reference="it sends what it had decided, and takes an object on which the shard works",
    kubeshard="the object stays",
    measure="ring, leadership and the proof of death are checked before each patch",
    oracle="overlap",
    slow=True,
)
async def former_leader(scene: Scene) -> None:
    thing = a_thing(("a", "ab"))
    await scene.begin("a", "b", things=[thing], sharders=("x0", "x1"))
    scene.answers("x0")
    x0 = scene.world.processes["x0"]

    def leaving(request: HttpRequest) -> None:
        if request.method == "PATCH" and f"/things/{thing}" in request.target and not x0.stopped:
            scene.silence("x0", "/leases")
            x0.pause()

    scene.leaving("x0", leaving)
    await scene.stop("a")
    await scene.world.until(lambda: x0.stopped, within=60)
    scene.takes = {"thing": 40.0}
    scene.shard("a", "a~2")
    await scene.ready("a")
    await asyncio.sleep(25)
    x0.resume()
    await asyncio.sleep(20)


@trace(
    "16",
    "Most shards cannot renew their Leases for 45 s: the API server refuses these writes",
    reference="the shards that can get all objects, and give them back when the others return",
    kubeshard="no object moves",
    measure="a circuit breaker: if most of a ring fails at once, nobody is given up for a while",
    oracle="moved",
    slow=True,
)
async def brownout(scene: Scene) -> None:
    things = {name: a_thing((name, "abcd")) for name in "abc"}
    await scene.begin(*"abcd", things=things.values())
    refusing, before = True, scene.result.counts["changes of owners"]

    async def refuse(request: HttpRequest) -> HttpResponse | None:
        is_write = request.method != "GET" and "/leases" in request.target
        return refusal(503, "ServiceUnavailable") if refusing and is_write else None

    for name in "abc":
        scene.before(name, refuse)
        scene.before(f"{name}~2", refuse)
    began = scene.world.loop.time()
    await scene.world.until(lambda: all(scene.world.processes[name].dead for name in "abc"), within=40)
    for name in "abc":
        scene.shard(name, f"{name}~2")
    await asyncio.sleep(began + 45 - scene.world.loop.time())
    refusing = False
    await scene.ready(*"abc", within=120)
    await asyncio.sleep(10)
    if moves := scene.result.counts["changes of owners"] - before:
        scene.broken("moved", f"{moves} moves of {len(things)} objects")
