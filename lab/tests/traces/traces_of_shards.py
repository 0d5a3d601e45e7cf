"""What may happen to a shard's process, its Lease and its clock."""

from __future__ import annotations

import asyncio

from trace_scene import Scene, Side, a_thing
from trace_table import trace

from kubeshard.controller.run import YOUNG
from kubeshard.runtime.transport import HttpRequest, HttpResponse
from kubeshard.shard.settings import LeaseTerms
from kubeshard.shard.shard_lease import Takeover
from kubeshard.sharding.names import SHARDER_IDENTITY
from kubeshard_lab.simulation.processes import refusal
from kubeshard_lab.simulation.properties import UNDER_WAY

FOREVER = 100_000.0


@trace(
    "01",
    "A shard's process is stopped while it works on an object, for longer than others wait, and resumed",
    reference="it goes on where it stopped, and its write lands on another shard's object",
    kubeshard="it is dead before anybody takes its objects",
    measure="the kernel's watchdog",
    oracle="stale write",
)
async def paused(scene: Scene) -> None:
    thing = a_thing(("a", "ab"))
    await scene.begin("a", "b", things=[thing])
    scene.takes = {"thing": 5.0}
    await scene.change(thing)
    await asyncio.sleep(1)
    scene.world.processes["a"].pause()
    await scene.world.until(lambda: scene.owner(thing) == "b", within=60)
    scene.world.processes["a"].resume()
    await asyncio.sleep(15)


@trace(
    "02",
    "A renewal takes nine seconds, and those after it get no answer",
    reference="the shard counts from the answer, tries ten seconds more, releases for another ten, and works meanwhile",
    kubeshard="the deadline counts from the start of the last renewal that succeeded",
    measure="the deadline of the Lease; an attempt has 2.5 s",
    oracle="overlap",
    slow=True,
)
async def slow_renewals(scene: Scene) -> None:
    thing = a_thing(("a", "ab"))
    await scene.begin("a", "b", things=[thing])
    scene.takes = {"thing": 6.0}
    began: list[float] = []

    async def slowly(request: HttpRequest) -> HttpResponse | None:
        if "/leases/" in request.target:
            began.append(scene.world.loop.time())
            await asyncio.sleep(9 if len(began) == 1 else FOREVER)
        return None

    scene.before("a", slowly)
    await scene.world.until(lambda: began, within=10)
    await asyncio.sleep(27)
    await scene.change(thing)
    await asyncio.sleep(15)


@trace(
    "03",
    "A write is sent into a partition, its process is killed, and the kernel delivers it when others have taken over",
    reference="it lands",
    kubeshard="the API server refuses it",
    measure="the fence: every write names the shard that the object must have",
    oracle="stale write",
)
async def late_write(scene: Scene) -> None:
    thing = a_thing(("a", "ab"))
    await scene.begin("a", "b", things=[thing])
    held: list[HttpRequest] = []

    async def partition(request: HttpRequest) -> HttpResponse | None:
        if request.method == "PATCH" and "/things/" in request.target:
            held.append(request)
            await asyncio.sleep(FOREVER)
        return None

    scene.before("a", partition)
    await scene.change(thing)
    await scene.world.until(lambda: held, within=10)
    scene.world.processes["a"].kill()
    await scene.world.until(lambda: scene.owner(thing) == "b", within=60)
    await scene.change(thing)
    await asyncio.sleep(5)
    await scene.deliver("a", held[0])


@trace(
    "04",
    "Somebody deletes the Lease of a shard that lives",
    reference="its objects move at once, without a drain, while it works on them",
    kubeshard="its objects stay; it creates the Lease again",
    measure="a tombstone in place of a deleted Lease",
    oracle="overlap",
)
async def lease_deleted(scene: Scene) -> None:
    thing = a_thing(("a", "ab"))
    await scene.begin("a", "b", things=[thing])
    scene.takes = {"thing": 10.0}
    await scene.change(thing)
    await asyncio.sleep(2)
    await scene.delete_lease("a")
    await asyncio.sleep(20)


@trace(
    "05",
    "The sharder deletes an old Lease that its shard has just taken again",
    reference="the deletion has no precondition: a living shard loses its Lease, and its objects",
    kubeshard="the deletion is refused",
    measure="deletions carry uid and resourceVersion",
    oracle="overlap",
    slow=True,
)
async def lease_collected(scene: Scene) -> None:
    thing = a_thing(("a", "ab"))
    await scene.begin("a", "b")
    deleting, taken = asyncio.Event(), asyncio.Event()

    async def slowly(request: HttpRequest) -> HttpResponse | None:
        if request.method == "DELETE" and request.target.partition("?")[0].endswith("/leases/a"):
            deleting.set()
            await taken.wait()
        return None

    scene.before("x0", slowly)
    await scene.stop("a")
    await scene.world.until(deleting.is_set, within=120)
    scene.shard("a", "a~2")
    await scene.ready("a")
    scene.takes = {"thing": 20.0}
    await scene.create(thing)
    await asyncio.sleep(1)
    taken.set()
    await asyncio.sleep(10)


@trace(
    "06a",
    "A shard's clock is 40 s slow",
    reference="its Lease is taken although it renews it, and its objects move while it works on them",
    kubeshard="nothing happens",
    measure="Leases are judged by the changes that the sharder sees",
    oracle="overlap",
)
async def slow_clock(scene: Scene) -> None:
    thing = a_thing(("a", "ab"))
    await scene.begin("a", "b", things=[thing])
    scene.takes = {"thing": 10.0}
    await scene.change(thing)
    await asyncio.sleep(1)
    scene.world.processes["a"].clock.skew = -40.0
    await asyncio.sleep(20)


@trace(
    "06b",
    "A shard whose clock is two hours fast dies",
    reference="its objects wait for two hours",
    kubeshard="they move after 30 s",
    measure="Leases are judged by the changes that the sharder sees",
    oracle="not owned",
    slow=True,
)
async def fast_clock(scene: Scene) -> None:
    thing = a_thing(("a", "ab"))
    await scene.begin("a", "b", things=[thing])
    scene.world.processes["a"].clock.skew = 7200.0
    await asyncio.sleep(5)
    scene.world.processes["a"].kill()
    await scene.must("not owned", lambda: scene.owner(thing) == "b", within=60)


@trace(
    "07",
    "A second process starts under the name of a shard that lives",
    reference="both renew the Lease, and both work on its objects",
    kubeshard="the second one waits until the first one has ended",
    measure="the Lease names the process",
    oracle="overlap",
)
async def twins(scene: Scene) -> None:
    thing = a_thing(("a", "ab"))
    await scene.begin("a", "b", things=[thing])
    scene.shard("a", "a~2")
    await asyncio.sleep(10)
    scene.takes = {"thing": 3.0}
    await scene.change(thing)
    await asyncio.sleep(10)


@trace(
    "08",
    "A shard crashes, and is back under its name while the sharder still takes its objects away",
    reference="it waits for 30 s, although nobody else wants the name",
    kubeshard="it is back within seconds (with `takeover=AT_ONCE`; by default, if a kubeshard sharder took its Lease), "
    "and a move under way is refused",
    measure="a returning shard first writes to all its objects",
    oracle="not back",
)
async def back_at_once(scene: Scene) -> None:
    thing = a_thing(("a", "ab"))
    await scene.begin("a", "b", things=[thing])
    throttled: list[HttpRequest] = []

    async def throttle(request: HttpRequest) -> HttpResponse | None:
        if request.method == "PATCH" and "/things/" in request.target and not throttled:
            throttled.append(request)
            answer = refusal(429, "TooManyRequests")
            return HttpResponse(429, {**answer.headers, "retry-after": "8"}, answer.body)
        return None

    scene.before("x0", throttle)
    scene.world.processes["a"].kill()
    await scene.world.until(lambda: throttled, within=60)
    options = {"lease": LeaseTerms(takeover=Takeover.AT_ONCE)} if scene.side is Side.KUBESHARD else {}
    scene.takes = {"thing": 20.0}
    scene.shard("a", "a~2", **options)
    await scene.must("not back", lambda: scene.holder("a") == "a", within=5)
    await asyncio.sleep(20)


@trace(
    "09",
    "Two shards have the same name in two namespaces, and one of them has released its Lease",
    reference="which of the Leases counts is random: objects of the living one may move without a drain",
    kubeshard="a shard lives if any Lease of its name is held",
    measure="all Leases of a name count; a condition of the ring tells",
    oracle="overlap",
    slow=True,
)
async def same_name(scene: Scene) -> None:
    thing = a_thing(("a", "a"), ("b", "ab"))
    await scene.begin("a", things=[thing])
    await scene.put_lease("a", "", namespace="team")
    scene.takes = {"thing": 30.0}
    await scene.change(thing)
    scene.shard("b")
    await scene.ready("b")
    await scene.edit_ring(times=8)


@trace(
    "27",
    "A shard is told to stop while a reconcile hangs, and the answer to its last request is slow",
    reference="it releases its Lease although it still works, and its objects move",
    kubeshard="the Lease is not released",
    measure="a Lease is released only when all work has ended",
    oracle="overlap",
    slow=True,
)
async def hung_stop(scene: Scene) -> None:
    thing = a_thing(("a", "ab"))
    await scene.begin("a", "b", things=[thing])
    scene.takes = {"thing": 60.0}
    await scene.change(thing)
    await asyncio.sleep(1)

    async def slowly(request: HttpRequest) -> None:
        if request.method == "PUT" and b'"holderIdentity":""' in (request.body or b"").replace(b" ", b""):
            await asyncio.sleep(8)

    scene.after("a", slowly)
    await scene.stop("a")
    await asyncio.sleep(5)


@trace(
    "28",
    "An administrator writes the sharder's name into the Lease of a shard that lives",
    reference="its objects move at once, and it works on for ten seconds",
    kubeshard="it stops at once, while the sharder still proves its death",
    measure="a watch of the own Lease",
    oracle="overlap",
    slow=True,
)
async def seized(scene: Scene) -> None:
    thing = a_thing(("a", "ab"))
    await scene.begin("a", "b", things=[thing])
    scene.takes = {"thing": 8.0}
    await scene.change(thing)
    await asyncio.sleep(1)
    await scene.put_lease("a", SHARDER_IDENTITY)
    await asyncio.sleep(20)


@trace(
    "29",
    "An object comes back to a shard whose watch of the children is behind",
    reference="the shard creates a child that the shard in between has created",
    kubeshard="it sees all children",
    measure="the first reconcile after an assignment reads from the API server",
    oracle="missed child",
)
async def there_and_back(scene: Scene) -> None:
    thing = a_thing(("a", "a"), ("b", "ab"))
    scene.children = "none"
    await scene.begin("a", things=[thing])
    await asyncio.sleep(YOUNG + UNDER_WAY)  # until then, a shard may guess that it has no children
    scene.silence("a", "/configmaps")
    scene.shard("b")
    await scene.world.until(lambda: scene.owner(thing) == "b", within=20)
    scene.children = "named"
    await scene.change(thing)
    await asyncio.sleep(2)
    await scene.stop("b")
    await scene.world.until(lambda: scene.owner(thing) == "a", within=20)
    await asyncio.sleep(5)


@trace(
    "30",
    "A load balancer forgets the connections of a shard's watches",
    reference="over HTTP/1.1 it does not see for minutes that objects are drained",
    kubeshard="it notices the silence, and opens its watches again",
    measure="a watch without a byte for too long is opened anew",
    oracle="not owned",
    slow=True,
)
async def half_open(scene: Scene) -> None:
    thing = a_thing(("a", "a"), ("b", "ab"))
    await scene.begin("a", things=[thing])
    scene.silence("a", only_open=True)
    scene.shard("b")
    await scene.must("not owned", lambda: scene.owner(thing) == "b", within=150)
