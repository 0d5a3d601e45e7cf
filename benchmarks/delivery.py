"""Measures what a change of its members costs an operator whose objects are shared out by labels, or by hash ranges.

    python benchmarks/delivery.py [--objects 10000] [--rounds 3] [--without-gate]

For each delivery, in one control plane with the feature gate ShardedListAndWatch: an instance of an operator that is
its own sharder (`mode="both"`) works on all objects; a second one starts ("join", until it has reconciled its share and
nothing else is to be handed over); the first one is stopped ("leave", until the second one has reconciled all objects).
The time of a join begins when the second instance holds its Lease, that of a leave with the signal.

`writes` are all requests that changed something, except those to Leases and events. CPU is that of both instances; for
a join it includes the start of the second one.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import re
import signal
import sys
import time

from fleet import PROJECT, Bench, Program, Results, bench, cost_of, progress

from kubeshard import ALL, Context, Controller, Manager, Reconciler, Result, Selector, Sharding, Watch, run
from kubeshard.core import ConfigMap, Lease, NotFound, metadata_only
from kubeshard.sharding.assignment import Assignment
from kubeshard.sharding.hash_ring import HashRing
from kubeshard.sharding.names import assignment_name, drain_label, shard_label
from kubeshard_apiserver.testing.child import Child
from kubeshard_lab.examples.webhosting.api import GROUP, Website

GATE = "ShardedListAndWatch"
DELIVERIES = ("labels", "ranges")
FIRST, SECOND = "one", "two"
EVERY = 0.02
LONGEST = 300.0
_REPORT = re.compile(r"^seen (\d+) (\S+)$", re.M)
_WRITES = re.compile(r'^apiserver_request_total\{(.*verb="(?:POST|PUT|PATCH|APPLY|DELETE)".*)\} (\S+)$', re.M)
_UNCOUNTED = ('resource="leases"', 'resource="events"', 'dry_run="All"')


class Seen(Reconciler[Website]):
    """Reports how many objects it has seen, and when it saw the last one."""

    def __init__(self) -> None:
        self._uids: set[str] = set()
        self._reporting: asyncio.Task[None] | None = None

    async def reconcile(self, ctx: Context, obj: Website) -> Result | None:
        self._uids.add(obj.metadata.uid)
        self._last = time.monotonic()
        self._reporting = self._reporting or asyncio.create_task(self._report())
        return None

    async def _report(self) -> None:
        told = 0
        while True:
            if told != len(self._uids):
                told = len(self._uids)
                print(f"seen {told} {self._last}", flush=True)
            await asyncio.sleep(EVERY)


def instance(ring: str, name: str, delivery: str) -> None:
    sites = Controller(name="sites", reconciler=Seen(), primary=Watch(Website, sharded=True), workers=15)
    sharding = Sharding(ring, name, PROJECT, mode="both", delivery=delivery)  # type: ignore[arg-type] # one of them
    run(Manager([sites], sharding=sharding))


class Fleet:
    """Both instances of one ring."""

    def __init__(self, cluster: Bench, delivery: str, number: int) -> None:
        self.cluster = cluster
        self.client = cluster.client
        self.delivery = delivery
        self.ring = f"{delivery}-{number}"

    async def measure(self, objects: int, results: Results) -> None:
        program = Program(self.delivery)
        self._since = await self.cluster.position(Website)
        self._names = [site.metadata async for site in self.client.list(metadata_only(Website), ALL)]
        first = self._start(FIRST)
        await self._seen(first, objects)
        await asyncio.sleep(2)
        before, writes = cost_of(first).cpu, await self._writes()
        second = self._start(SECOND)
        began = await self._held(SECOND)
        settled, share = await self._joined()
        ended = max(settled, await self._seen(second, share))
        cpu = cost_of(first).cpu - before + cost_of(second).cpu
        results.add(
            "join",
            program,
            objects=share,
            wall=ended - began,
            CPU=cpu,
            writes=await self._writes() - writes,
            **{"peak RSS": cost_of(second).peak_mib},
        )
        await asyncio.sleep(2)
        before, writes, began = cost_of(second).cpu, await self._writes(), time.monotonic()
        first.signal(signal.SIGTERM)
        ended = await self._seen(second, objects)
        results.add(
            "leave",
            program,
            objects=objects - share,
            wall=ended - began,
            CPU=cost_of(second).cpu - before,
            writes=await self._writes() - writes,
            **{"peak RSS": cost_of(second).peak_mib},
        )
        first.stop()
        second.stop()
        for lease in await self.client.list_all(Lease, PROJECT):
            await self.client.delete(Lease, lease.metadata.name, PROJECT)

    def _start(self, name: str) -> Child:
        command = [sys.executable, __file__, "--instance", self.ring, name, self.delivery]
        environment = {**os.environ, "KUBECONFIG": str(self.cluster.kube.kubeconfig)}
        environment.pop("PYTHONDONTWRITEBYTECODE", None)
        return Child(name, command, self.cluster.kube.folder / f"{self.ring}-{name}.log", environment)

    async def _seen(self, child: Child, objects: int) -> float:
        """Returns when the instance had seen that many objects."""
        async with asyncio.timeout(LONGEST):
            while True:
                for count, moment in _REPORT.findall(child.log.read_text()):
                    if int(count) >= objects:
                        return float(moment)
                if not child.running:
                    raise RuntimeError(f"{child.name} ended:\n{child.tail()}")
                await asyncio.sleep(EVERY)

    async def _held(self, name: str) -> float:
        async with asyncio.timeout(LONGEST):
            while True:
                try:
                    if (await self.client.get(Lease, name, PROJECT)).spec.holder_identity == name:
                        return time.monotonic()
                except NotFound:
                    pass
                await asyncio.sleep(EVERY)

    async def _joined(self) -> tuple[float, int]:
        """Returns when everything had been handed to the second instance, and how many objects it has."""
        if self.delivery == "labels":
            ring = HashRing([FIRST, SECOND])
            share = sum(ring.owner(f"{GROUP}/Website/{m.namespace}/{m.name}") == SECOND for m in self._names)
            mine = Selector.equals(shard_label(self.ring), SECOND) & Selector.absent(drain_label(self.ring))
            return await self.cluster.appear(mine, share, self._since), share
        async with asyncio.timeout(LONGEST):
            while True:
                data = (await self.client.get(ConfigMap, assignment_name(self.ring), PROJECT)).data
                assignment = Assignment.parse(data)
                mine = assignment.owned_by(SECOND)
                if mine and not assignment.drains_of(FIRST):
                    of = assignment.buckets.of
                    return time.monotonic(), sum(of(metadata) in mine for metadata in self._names)
                await asyncio.sleep(EVERY)

    async def _writes(self) -> float:
        """How many requests have changed something so far."""
        text = (await self.client.raw("GET", "/metrics", accept="text/plain")).body.decode()
        return sum(
            float(count)
            for labels, count in _WRITES.findall(text)
            if not any(each in labels for each in _UNCOUNTED)
        )


async def measure(objects: int, rounds: int, gates: tuple[str, ...]) -> None:
    units = {"objects": "", "wall": "s", "CPU": "s", "writes": "", "peak RSS": "MiB"}
    with Results(units) as results:
        async with bench(gates) as cluster:
            progress(f"creating {objects} objects")
            await cluster.create_websites(objects)
            for number in range(rounds):
                for delivery in DELIVERIES if number % 2 else DELIVERIES[::-1]:
                    progress(f"round {number + 1}: {delivery}")
                    await Fleet(cluster, delivery, number).measure(objects, results)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--objects", type=int, default=10_000)
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--without-gate", action="store_true", help="an API server that ignores the selector")
    parser.add_argument("--instance", nargs=3, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.instance:
        instance(*given.instance)
    else:
        gates = () if given.without_gate else (f"{GATE}=true",)
        asyncio.run(measure(given.objects, given.rounds, gates))


if __name__ == "__main__":
    main()
