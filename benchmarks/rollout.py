"""What a rolling update moves, and for how long an object has no owner, where no processor is the limit.

    python benchmarks/rollout.py [--objects 400] [--latency 0.01] [--pause 15] [--delivery labels | ranges]

Two sharders, three shards, and an API server run on virtual time: only latencies and limits of requests take time. All
three shards are replaced, one after the other: another one is started, and the old one is stopped that long after the
other one holds its Lease. Printed are

* the moves, by labels beside the sum of those that the ring demands at each change of its members;
* without an owner: from the order to stop until the object has another owner; an object that is drained names its
  new owner in the same write, so it is never without one;
* the drain: from the request to hand it over until the new owner is named;
* the queue of the new owner: until its first reconcile of the object.
"""

from __future__ import annotations

import argparse
import asyncio
import logging
from collections import defaultdict
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

from fleet import hand_over

from kubeshard.controller.context import Context
from kubeshard.controller.reconciler import Result
from kubeshard.core.kinds import GroupResource
from kubeshard.core.objects import Key
from kubeshard.shard.settings import Ranges
from kubeshard.sharding.hash_ring import HashRing
from kubeshard.sharding.names import drain_label, shard_label
from kubeshard_apiserver.verbs.shard_selectors import SHARDED_LIST_AND_WATCH
from kubeshard_lab.simulation.cluster import SimulatedCluster, Thing, Touch, simulate
from kubeshard_lab.simulation.deliveries import THINGS

WORKERS = 15


class Moves:
    """Follows whose the objects are, and when their shards begin to work on them."""

    def __init__(self, world: SimulatedCluster) -> None:
        self.stopped: dict[str, float] = {}
        self.count = 0
        self.times: dict[str, list[float]] = defaultdict(list)
        self._world = world
        self._label, self._drain = shard_label(world.ring), drain_label(world.ring)
        self._owners = dict(world.owners())
        self._drained: dict[str, float] = {}
        self._awaited: dict[str, tuple[str, float]] = {}
        world.server.store.subscribe(self._changed)

    def began(self, shard: str, name: str) -> None:
        owner, since = self._awaited.get(name, ("", 0.0))
        if owner == shard:
            del self._awaited[name]
            self.times["queue of the new owner"].append(self._now - since)

    @property
    def _now(self) -> float:
        return self._world.loop.time()

    def _changed(self, resource: GroupResource) -> None:
        for which, event in self._world.delivery.changes(self._world.server.store, resource):
            if which == THINGS and event.new is not None:
                self._note(event.new)

    def _note(self, obj: Any) -> None:
        name, labels = obj["metadata"]["name"], obj["metadata"].get("labels") or {}
        owner, former = labels.get(self._label, ""), self._owners.get(name, "")
        if self._drain in labels:
            self._drained.setdefault(name, self._now)
        if owner == former:
            return
        self._owners[name] = owner
        self.count += 1
        self._awaited[name] = owner, self._now
        if (asked := self._drained.pop(name, None)) is not None:
            self.times["drain"].append(self._now - asked)
        elif former in self.stopped:
            self.times["without an owner"].append(self._now - self.stopped[former])


class Seen(Touch):
    def __init__(self, shard: str, moves: list[Moves]) -> None:
        super().__init__()
        self._shard = shard
        self._moves = moves

    async def reconcile(self, ctx: Context, obj: Thing) -> Result | None:
        for moves in self._moves:
            moves.began(self._shard, obj.metadata.name)
        return await super().reconcile(ctx, obj)


async def rolled(objects: int, latency: float, pause: float, ranges: Ranges | None) -> None:
    gates = (SHARDED_LIST_AND_WATCH,)
    async with SimulatedCluster(3, latency=(latency, latency), feature_gates=gates, ranges=ranges) as world:
        following: list[Moves] = []
        await world.install()
        await world.make_ring()
        for name in ("sharder-1", "sharder-2"):
            world.sharder(name)
        members = [f"operator-{number}" for number in range(1, 4)]
        processes = {name: world.shard(name, Seen(name, following), workers=WORKERS) for name in members}
        await asyncio.sleep(20)
        await world.make_things(objects, v=0)
        await asyncio.sleep(30)
        moves = Moves(world)
        following.append(moves)
        rings = [tuple(members)]
        for number, old in enumerate(list(members), start=len(members) + 1):
            new = f"operator-{number}"
            processes[new] = world.shard(new, Seen(new, following), workers=WORKERS)
            members.append(new)
            rings.append(tuple(members))
            while Key("ops", new) not in world.objects("coordination.k8s.io", "leases"):  # noqa: ASYNC110 - virtual
                await asyncio.sleep(0.05)
            await asyncio.sleep(pause)
            moves.stopped[old] = world.loop.time()
            members.remove(old)
            rings.append(tuple(members))
            await processes[old].stop()
        await asyncio.sleep(60)
        print(f"{objects} objects, {2 * latency:g} s for a request, {WORKERS} workers")
        print(f"moves: {moves.count}")
        if ranges is None:
            print(f"the ring demands, change by change: {demanded(rings, world.owners())}")
        for what, times in sorted(moves.times.items()):
            print(f"{what}: {spread(times)}")
            hand_over(what, "labels" if ranges is None else "ranges", most=max(times))


def demanded(rings: Sequence[tuple[str, ...]], names: dict[str, str]) -> int:
    """How many objects have another owner after each change of the members, in total."""
    owners = [
        [ring.owner(f"sim.example/Thing/team/{name}") for name in names] for ring in map(HashRing, rings)
    ]
    return sum(
        before != after
        for earlier, later in pairwise(owners)
        for before, after in zip(earlier, later, strict=True)
    )


def spread(times: list[float]) -> str:
    ordered = sorted(times)
    return (
        f"{len(ordered)} times, median {ordered[len(ordered) // 2] * 1000:.0f} ms, "
        f"at most {ordered[-1] * 1000:.0f} ms"
    )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--objects", type=int, default=400)
    parser.add_argument("--latency", type=float, default=0.01, help="seconds, one way")
    parser.add_argument("--pause", type=float, default=15.0, help="in seconds")
    parser.add_argument("--delivery", choices=("labels", "ranges"), default="labels")
    options = parser.parse_args()
    logging.disable(logging.CRITICAL)
    ranges = Ranges() if options.delivery == "ranges" else None
    simulate(lambda: rolled(options.objects, options.latency, options.pause, ranges))


if __name__ == "__main__":
    main()
