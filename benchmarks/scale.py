"""What happens past one machine, with the production classes on virtual time. Run: python benchmarks/scale.py PART

| part | what |
|---|---|
| instances | the experiment *scale-out* of docs/project/performance.md with --instances of the example operator, \
one worker each: what becomes ready per second, and the requests and events of all processes |
| changes | how long it takes until all objects are where they belong when --instances shards are one more, and when \
one of them has died, with --objects objects for each shard, each of which controls another one. By ranges, their new \
shard has to have reconciled them, too, and all are stored before anybody is there; --without-children: they control \
nothing, and to reconcile one is to count it |
| ring | how evenly hash rings of --shards give out objects, and what it costs to make one; beside it, the largest \
share by ranges, when the shards have come one after the other |
| scan | a sharder's full scan of --objects that are where they should be: CPU seconds and memory, really measured. \
The pages are generated; the time that this takes is subtracted |

With --delivery ranges, the first two parts have instances that share by ranges, on an API server that selects them.

The costs of the simulation: --latency of each answer of the API server, and how many writes it answers per second
(--rate), or three times as many reads; what a process does for each request that it sends (--request-cpu) and for each
event that it reads (--event-cpu).
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import json
import logging
import math
import resource
import time
from collections import Counter
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any, NamedTuple
from unittest.mock import patch
from urllib.parse import parse_qs

from fleet import hand_over

from kubeshard import Context, Manager, Reconciler, Result, Sharding
from kubeshard.core import ConfigMap
from kubeshard.core.builtin import Lease, LeaseSpec
from kubeshard.core.kinds import GroupResource
from kubeshard.core.objects import Key, ObjectMeta
from kubeshard.core.selectors import LabelSelector
from kubeshard.core.times import micro_time
from kubeshard.runtime.transport import HttpRequest, HttpResponse
from kubeshard.shard import DeclaredRing
from kubeshard.shard.settings import Ranges
from kubeshard.sharder.config import SharderConfig
from kubeshard.sharder.scanner import Scanner
from kubeshard.sharder.tasks import DrivenResource
from kubeshard.sharding.api import RingResource
from kubeshard.sharding.hash_ring import HashRing, main_key
from kubeshard.sharding.names import RING_LABEL, bucket_label, shard_label
from kubeshard.sharding.schedule import ScanResult, ScanScope
from kubeshard.sharding.shares import divide
from kubeshard_apiserver.verbs.shard_selectors import SHARDED_LIST_AND_WATCH
from kubeshard_lab.examples.webhosting.api import NAMESPACE, PROJECT_LABEL, READY, RING
from kubeshard_lab.examples.webhosting.controller import website_controller
from kubeshard_lab.experiment.plan import LoadPlan
from kubeshard_lab.experiment.scenarios import SCENARIOS, scaled
from kubeshard_lab.experiment.websites import Websites
from kubeshard_lab.simulation.cluster import MAIN, SimulatedCluster, Thing, Touch
from kubeshard_lab.simulation.costs import Charged, Costs, SlowFront, costly_cluster
from kubeshard_lab.simulation.deliveries import CHILDREN, THINGS, Ranged
from kubeshard_lab.simulation.processes import Network, Process
from kubeshard_lab.virtual_time import run_virtual
from kubeshard_lab.virtual_world import SeededRng

WEBSITES = GroupResource("webhosting.timebertt.dev", "websites")
PER_INSTANCE = 0.4
"""The scale of the scenario for each instance without --load: four websites are created per second, as in
docs/project/performance.md.
"""
RING_READY = 8.0
LABELS, RANGES = "labels", "ranges"
GATES = (SHARDED_LIST_AND_WATCH,)


class Load(NamedTuple):
    """`ready`: when each change became ready, in seconds since the load began."""

    asked: list[float]
    ready: list[float]

    def rates(self, begin: float, end: float) -> tuple[float, float]:
        within = [sum(begin <= at < end for at in each) / (end - begin) for each in self]
        return within[0], within[1]


class Fleet:
    """A sharder and operators of the example program, with one worker each."""

    def __init__(self, world: SimulatedCluster, charged: Charged, by_ranges: bool) -> None:
        self.world = world
        self.charged = charged
        self._by_ranges = by_ranges

    def instance(self, name: str) -> Process:
        process = Process(self.world, name)
        declared = DeclaredRing(RING, namespace_selector=LabelSelector(match_labels={PROJECT_LABEL: "true"}))
        member = Sharding(declared, name, NAMESPACE)
        if self._by_ranges:
            member = Sharding(RING, name, NAMESPACE, mode="both", delivery="ranges")
        controllers = [website_controller(workers=1)]
        return process.start(
            Manager(controllers, client=process.client(), sharding=member, status_pages=None)
        )

    def owners(self) -> Counter[str]:
        return Counter(self.world.owners(WEBSITES.group, WEBSITES.resource, namespace="").values())


@asynccontextmanager
async def fleet(
    costs: Costs, instances: int, websites: Websites, plan: LoadPlan, by_ranges: bool
) -> AsyncIterator[Fleet]:
    async with costly_cluster(costs, RING, feature_gates=GATES) as (world, charged):
        async with world.admin() as client:
            for manifest in (*websites.installation(ring=True), *websites.foundation(plan)):
                await client.apply(manifest)
        of = Fleet(world, charged, by_ranges)
        if not by_ranges:
            world.sharder("x0")
        for number in range(instances):
            of.instance(f"s{number}")
        await asyncio.sleep(RING_READY)
        yield of


async def loaded(of: Fleet, websites: Websites, plan: LoadPlan) -> Load:
    """Sends the requests of the plan when they are due."""
    began, load, store = of.world.loop.time(), Load([], []), of.world.server.store

    def stored(resource: GroupResource) -> None:
        if resource != WEBSITES:
            return
        event = store.history(resource).after(store.revision - 1)[-1].event
        if event.new is not None and _ready(event.new) and not (event.old and _ready(event.old)):
            load.ready.append(of.world.loop.time() - began)

    store.subscribe(stored)
    async with of.world.admin() as client, asyncio.TaskGroup() as sending:
        for due in plan:
            await asyncio.sleep(max(0.0, began + due.after - of.world.loop.time()))
            load.asked.append(due.after)
            sending.create_task(websites.send(client, due), name="send")
    return load


def _ready(website: Any) -> bool:
    status, meta = website.get("status") or {}, website["metadata"]
    return bool(status.get("phase") == READY and status.get("observedGeneration") == meta["generation"])


def instances(costs: Costs, count: int, seconds: float, load_scale: float, by_ranges: bool) -> None:
    """Prints one row of the table of scale-out."""

    async def scene() -> None:
        scenario = scaled(SCENARIOS["scale-out"], PER_INSTANCE * load_scale * count, seconds)
        websites = Websites("scale", "scale-out")
        plan = LoadPlan(scenario, SeededRng(1))
        async with fleet(costs, count, websites, plan, by_ranges) as of:
            sent, read = of.charged.requests.total(), of.charged.events.total()
            load = await loaded(of, websites, plan)
            asked, ready = load.rates(seconds * 0.75, seconds)
            requests = (of.charged.requests.total() - sent) / seconds
            events = (of.charged.events.total() - read) / seconds
            busiest = max(of.charged.busy.values(), default=0.0) / seconds
            print(
                f"| {count} | {asked:.1f}/s | {ready:.1f}/s | {requests:.0f}/s | {events:.0f}/s "
                f"| {busiest:.0%} | {time.process_time():.0f} s |",
                flush=True,
            )
            hand_over(f"{count} instances", _delivery(by_ranges), ready=ready)

    run_virtual(scene(), limit=86_400)


def _delivery(by_ranges: bool) -> str:
    return RANGES if by_ranges else LABELS


class Count(Reconciler[Thing]):
    """Writes nothing."""

    def __init__(self) -> None:
        self.runs = 0

    async def reconcile(self, ctx: Context, obj: Thing) -> Result | None:
        self.runs += 1
        return None


def changes(costs: Costs, count: int, each: int, by_ranges: bool, with_children: bool) -> None:
    """Prints one row of the table of joins and deaths."""

    async def scene() -> None:
        began, ranges = time.process_time(), Ranges() if by_ranges else None
        async with SimulatedCluster(latency=(0.0, 0.0), feature_gates=GATES, ranges=ranges) as world:
            world.fronts = {"sim": SlowFront(world.front, costs)}
            charged = Charged(world, costs)
            await world.install()
            await world.make_ring(
                resources=[MAIN if with_children else RingResource(group=MAIN.group, resource=MAIN.resource)]
            )
            owned = await _stored(world, each * count, with_children) if by_ranges else Counter()
            world.sharder("x0")
            shards, work = [f"s{number}" for number in range(count)], Touch() if with_children else Count()
            owns = [ConfigMap] if with_children else []
            for shard in shards:
                world.shard(shard, work, owns=owns)
            await world.until(lambda: _holders(world) >= {*shards}, within=120)
            await asyncio.sleep(RING_READY)
            if not by_ranges:
                await asyncio.gather(
                    *(world.make_things(1, prefix=f"t{n}-", v=1) for n in range(each * count))
                )
            await world.until(lambda: work.runs >= each * count and _settled(world, shards), within=120)
            await asyncio.sleep(30)
            before = charged.requests.total(), charged.events.total()
            await asyncio.sleep(20)
            rest = [
                (now - then) / 20
                for now, then in zip((charged.requests.total(), charged.events.total()), before, strict=True)
            ]
            row = [f"{rest[0]:.0f}/s", f"{rest[1]:.0f}/s"]
            for change, now in (("join", [*shards, "more"]), ("death", [*shards[1:], "more"])):
                owners, sent, started = _owners(world), charged.requests.total(), world.loop.time()
                runs = work.runs
                if "more" in owners.values():
                    world.processes[shards[0]].kill()
                else:
                    world.shard("more", work, owns=owns)
                await world.until(lambda now=now: _settled(world, now), within=300)  # type: ignore[misc]
                elsewhere = [what for what, owner in _owners(world).items() if owners[what] != owner]
                moved = sum(owned[bucket] for bucket in elsewhere) if by_ranges else len(elsewhere)
                if by_ranges:
                    await world.until(lambda due=runs + moved: work.runs >= due, within=300)  # type: ignore[misc]
                seconds = world.loop.time() - started
                extra = charged.requests.total() - sent - rest[0] * seconds
                row += [f"{seconds:.1f} s", str(moved), f"{extra:.0f}"]
                hand_over(change, _delivery(by_ranges), seconds=seconds)
                await asyncio.sleep(20)
            cells = " | ".join(row)
            print(f"| {count} | {each * count} | {cells} | {time.process_time() - began:.0f} s |", flush=True)

    run_virtual(scene(), limit=86_400)


async def _stored(world: SimulatedCluster, count: int, with_children: bool) -> Counter[Any]:
    """Stores Things, and what they control as they would have made it. Returns how many are in each bucket."""
    store, rng, buckets, owned = world.server.store, SeededRng(1), Ranges().divided, Counter[Any]()
    await world.make_things(1, v=1)
    ((first, thing),) = world.objects("sim.example", "things").items()
    refers = {"apiVersion": thing["apiVersion"], "kind": thing["kind"], "controller": True}
    for number in range(count):
        name, uid = f"t{number:07}", rng.token()
        named = {"name": name, "uid": uid}
        bucket = buckets.of_key(uid)
        owned[bucket] += 1
        copy = {**thing, "metadata": {**thing["metadata"], **named}}
        store.put(THINGS, Key(first.namespace, name), copy)
        if with_children:
            metadata = {
                "name": f"c-{name}",
                "namespace": first.namespace,
                "uid": rng.token(),
                "labels": {bucket_label(world.ring): str(bucket)},
                "ownerReferences": [{**refers, **named, "blockOwnerDeletion": True}],
            }
            child = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": {"v": "1"}}
            store.put(CHILDREN, Key(first.namespace, f"c-{name}"), child)
    store.remove(THINGS, first)
    gc.collect()
    gc.freeze()  # so many objects would be looked at again and again
    return owned


def _owners(world: SimulatedCluster) -> Mapping[Any, str]:
    """Who has each bucket, or each object."""
    if assignment := world.delivery.stored if isinstance(world.delivery, Ranged) else None:
        return {bucket: place.owner for bucket, place in enumerate(assignment.places)}
    return world.owners()


def _holders(world: SimulatedCluster) -> set[str]:
    leases = world.objects("coordination.k8s.io", "leases")
    return {key.name for key, lease in leases.items() if lease["spec"].get("holderIdentity") == key.name}


def _settled(world: SimulatedCluster, shards: list[str]) -> bool:
    """Whether each object, and what it controls, is with the shard that it should be with, of these."""
    if world.ranges:  # objects are where their buckets are
        return not (world.delivery.drained or any(world.delivery.misplaced({}, shards)))
    owners, children = world.owners(), world.owners("", "configmaps")
    return (
        not world.draining()
        and not any(world.delivery.misplaced(owners, shards))
        and all(children.get(f"c-{name}") == owner for name, owner in owners.items())
    )


class Pages:
    """Answers the sharder's lists of Things with as many objects as wanted, as metadata, all on the right shard. They
    are generated page by page; `generating` is how many CPU seconds that took.
    """

    def __init__(self, objects: int, shards: list[str], label: str) -> None:
        self._objects = objects
        self._ring = HashRing(shards)
        self._label = label
        self.began = math.inf
        """The process's CPU time when the first page was asked for."""
        self.generating = 0.0
        self.served = 0
        self.moved = 0
        """How many patches there were: none, because nothing has to move."""

    def serve(self, _: Process, network: Network) -> None:
        async def before(request: HttpRequest) -> HttpResponse | None:
            self.moved += request.method == "PATCH" and "/things/" in request.target
            path, _, query = request.target.partition("?")
            asked = {name: values[0] for name, values in parse_qs(query).items()}
            if request.method != "GET" or not path.endswith("/things") or "watch" in asked:
                return None
            began = time.process_time()
            self.began = min(self.began, began)
            misplaced = "labelSelector" in asked
            first = int(asked.get("continue", 0))
            last = first if misplaced else min(first + int(asked["limit"]), self._objects)
            meta = {
                "resourceVersion": "1000",
                "continue": str(last) if last < self._objects and not misplaced else "",
            }
            self.served += last - first
            items = b",".join(self._item(number) for number in range(first, last))
            head = json.dumps(
                {"kind": "PartialObjectMetadataList", "apiVersion": "meta.k8s.io/v1", "metadata": meta}
            )
            body = head[:-1].encode() + b',"items":[' + items + b"]}"
            self.generating += time.process_time() - began
            return HttpResponse(200, {"content-type": "application/json"}, body)

        network.before = before

    def _item(self, number: int) -> bytes:
        name = f"thing-{number:07}"
        shard = self._ring.owner(main_key("sim.example/v1", "Thing", ObjectMeta(name=name, namespace="team")))
        return (_ITEM % (name, number, number, self._label, shard, self._label)).encode()


_ITEM = (
    '{"metadata":{"name":"%s","namespace":"team","uid":"00000000-0000-4000-8000-%012d","resourceVersion":"%d",'
    '"generation":1,"creationTimestamp":"2026-01-01T00:00:00Z","labels":{"app":"thing","%s":"%s"},'
    '"managedFields":[{"manager":"sharder","operation":"Update","apiVersion":"sim.example/v1",'
    '"time":"2026-01-01T00:00:00Z","fieldsType":"FieldsV1","fieldsV1":{"f:metadata":{"f:labels":{"f:%s":{}}}}}]}}'
)


def scan(objects: int, shards: int) -> None:
    """Prints one row of the table of scans."""
    done = asyncio.Event()
    scanning = Scanner.scan

    async def timed(self: Scanner, sync: DrivenResource, scope: ScanScope) -> ScanResult:
        result = await scanning(self, sync, scope)
        if scope is ScanScope.ALL:
            done.set()
        return result

    async def scene() -> None:
        names = [f"shard-{number:04}" for number in range(shards)]
        async with SimulatedCluster(latency=(0.0, 0.0)) as world:
            pages = Pages(objects, names, shard_label(world.ring))
            world.connected = pages.serve
            await world.install()
            await world.make_ring(resources=[RingResource(group="sim.example", resource="things")])
            async with world.admin() as client:
                for name in names:
                    await client.create(_lease(name, world))
            idle = _memory()
            world.sharder("x0", SharderConfig())
            await done.wait()
            seconds, grown = time.process_time() - pages.began - pages.generating, _memory() - idle
            print(
                f"| {objects} | {pages.served} | {shards} | {seconds:.2f} s | {seconds / pages.served * 1e6:.1f} us "
                f"| {grown:.0f} MiB | {pages.moved} |",
                flush=True,
            )

    with patch.object(Scanner, "scan", timed):
        run_virtual(scene(), limit=86_400)


BUCKETS = Ranges().buckets
SETS = 20
"""Sets of names of which the mean is taken."""


def ring(shards: int) -> None:
    """Prints one row of the table of rings. Shares are exact: lengths of arcs."""
    rng, largest, seconds = SeededRng(1), 0.0, 0.0
    for _ in range(SETS):
        names = [f"operator-{rng.token()[:8]}" for _ in range(shards)]
        began = time.process_time()
        made = HashRing(names)
        seconds += time.process_time() - began
        shares: Counter[str] = Counter()
        tokens = made.tokens()
        before = tokens[-1][0] - 2**64
        for token, owner in tokens:
            shares[owner] += token - before
            before = token
        largest += max(shares.values()) / 2**64 / SETS
    by_ranges = shards * _largest_by_ranges(shards)
    for delivery, share in ((LABELS, shards * largest), (RANGES, by_ranges)):
        hand_over(f"{shards} shards", delivery, largest=share)
    print(
        f"| {shards} | {largest:.2%} | {1 / largest:.1f} | {seconds / SETS * 1000:.1f} ms "
        f"| {by_ranges:.3f} |",
        flush=True,
    )


def _largest_by_ranges(shards: int) -> float:
    """The part of all buckets that the largest share is, after the shards have joined one after the other."""
    owners = [""] * BUCKETS
    for present in range(1, shards + 1):
        owners = divide(owners, {f"operator-{number}": 1 for number in range(present)})
    return max(Counter(owners).values()) / BUCKETS


def _lease(name: str, world: SimulatedCluster) -> Lease:
    now = micro_time(world.clock.wall())
    spec = LeaseSpec(holder_identity=name, lease_duration_seconds=60, renew_time=now, acquire_time=now)
    return Lease(metadata=ObjectMeta(name=name, namespace="ops", labels={RING_LABEL: world.ring}), spec=spec)


def _memory() -> float:
    """The most that this process has had so far, in MiB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("part", choices=("instances", "changes", "ring", "scan"))
    parser.add_argument("--instances", type=int, nargs="+", default=[1, 3, 5])
    parser.add_argument("--objects", type=int, nargs="+", default=[10_000, 100_000])
    parser.add_argument("--shards", type=int, nargs="+", default=[10])
    parser.add_argument("--delivery", choices=(LABELS, RANGES), default=LABELS)
    parser.add_argument("--without-children", action="store_true", help="of objects in changes by ranges")
    parser.add_argument("--seconds", type=float, default=120.0)
    parser.add_argument("--load", type=float, default=1.0, help="factor of the experiment's load")
    parser.add_argument("--latency", type=float, default=0.01)
    parser.add_argument("--rate", type=float, default=float("inf"))
    parser.add_argument("--watch-delay", type=float, default=0.0)
    parser.add_argument("--request-cpu", type=float, default=0.0)
    parser.add_argument("--event-cpu", type=float, default=0.0)
    given = parser.parse_args()
    by_ranges = given.delivery == RANGES
    logging.disable(logging.CRITICAL)
    costs = Costs(
        latency=given.latency,
        rate=given.rate,
        watch_delay=given.watch_delay,
        request_cpu=given.request_cpu,
        event_cpu=given.event_cpu,
    )
    if given.part == "changes":
        for title in (
            "shards | objects | requests at rest | events",
            "join | moved | requests",
            "death | moved",
        ):
            print(f"| {title} ", end="")
        print("| requests | CPU of this program |\n|" + "---|" * 11)
        for count in given.instances:
            changes(costs, count, given.objects[0], by_ranges, not given.without_children)
        return
    if given.part == "scan":
        print(
            "| objects | read | shards | CPU | for each read | memory | patches |\n|---|---|---|---|---|---|---|"
        )
        for objects in given.objects:
            scan(objects, given.shards[0])
        return
    if given.part == "ring":
        print(
            "| shards | largest share | shards that work fully | making it | by ranges, of the even share |"
        )
        print("|---|---|---|---|---|")
        for shards in given.shards:
            ring(shards)
        return
    print("| instances | asked for | became ready | requests | events | busiest | CPU of this program |")
    print("|---|---|---|---|---|---|---|")
    for count in given.instances:
        instances(costs, count, given.seconds, given.load, by_ranges)


if __name__ == "__main__":
    main()
