"""Measures what a change of members costs: by labels, with the Go reference's sharder and with ours, and by ranges.

    python benchmarks/assignment.py [--objects 10000] [--rounds 3] [--delivery labels ranges] [--go-sharder PATH]
        [--in-manager] [--without-gate]

In each round, for each program, in one control plane: the first instance of an operator starts ("assign", until it has
reconciled all objects); a second one starts ("join", until it has reconciled its share, and nothing else is to be
handed over); the first one is stopped ("leave", until the second one has reconciled all objects). Times begin when the
instance holds its Lease, and with the signal. The instances are kubeshard's, and do nothing but count. By labels, the
sharder is a service, unless `--in-manager` is given; by ranges, the instance that is elected is (`mode="both"`).

`writes` are all requests that changed something, except those to Leases and events. `sharder` is the CPU time of the
service, CPU that of all programs that are there in the end, with their start.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import re
import signal
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

from fleet import PROJECT, Bench, Program, Results, add_go_option, bench, cost_of, progress

from kubeshard import ALL, Context, Controller, Manager, Reconciler, Result, Selector, Sharding, Watch, run
from kubeshard.core import ConfigMap, Lease, NotFound, metadata_only
from kubeshard.core.partial_kinds import MutatingWebhookConfiguration
from kubeshard.sharding.api import ControllerRing
from kubeshard.sharding.assignment import Assignment
from kubeshard.sharding.hash_ring import HashRing
from kubeshard.sharding.names import assignment_name, drain_label, shard_label, webhook_config_name
from kubeshard_apiserver.testing.child import Child
from kubeshard_lab.examples.webhosting.api import GROUP, PROJECT_LABEL, Website

GATE = "ShardedListAndWatch"
LABELS, RANGES, UNSHARDED = "labels", "ranges", "unsharded"
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


def instance(ring: str, name: str, delivery: str, mode: str) -> None:
    sites = Controller(name="sites", reconciler=Seen(), primary=Watch(Website, sharded=True), workers=15)
    sharding = None
    if delivery != UNSHARDED:
        sharding = Sharding(ring, name, PROJECT, mode=mode, delivery=delivery)  # type: ignore[arg-type] # one of them
    run(Manager([sites], sharding=sharding))


class Fleet:
    """The programs of one ring."""

    def __init__(self, cluster: Bench, program: Program, number: int, in_manager: bool) -> None:
        self.cluster = cluster
        self.client = cluster.client
        self.program = program
        self.delivery = program.name if program.name in (RANGES, UNSHARDED) else LABELS
        self.served = self.delivery == LABELS and not (in_manager and program.go is None)
        """Whether the sharder is a service."""
        self.ring = f"bench-{program.name}-{number}"
        self.running: list[Child] = []
        self.sharder: Child | None = None

    async def measure(self, objects: int, results: Results) -> None:
        self._since = await self.cluster.position(Website)
        self._names = [site.metadata async for site in self.client.list(metadata_only(Website), ALL)]
        async with self._step("assign", results) as figures:
            first = self.start(FIRST)
            began = await self.held(FIRST)
            figures |= {"objects": objects, "wall": await self.seen(first, objects) - began}
        async with self._step("join", results) as figures:
            second = self.start(SECOND)
            began = await self.held(SECOND)
            settled, share = await self._joined()
            ended = max(settled, await self.seen(second, share))
            figures |= {"objects": share, "wall": ended - began}
        async with self._step("leave", results) as figures:
            began = time.monotonic()
            first.signal(signal.SIGTERM)
            figures |= {"objects": objects - share, "wall": await self.seen(second, objects) - began}

    @asynccontextmanager
    async def _step(self, what: str, results: Results) -> AsyncIterator[dict[str, float]]:
        await asyncio.sleep(2)
        before, writes, figures = self._cpu(), await self._writes(), dict[str, float]()
        yield figures
        after = self._cpu()
        figures |= {
            "CPU": sum(used - before.get(name, 0.0) for name, used in after.items()),
            "writes": await self._writes() - writes,
        }
        if self.sharder is not None:
            cost = cost_of(self.sharder)
            figures |= {"sharder": cost.cpu - before["sharder"], "peak RSS": cost.peak_mib}
        results.add(what, self.program, **figures)

    def _cpu(self) -> dict[str, float]:
        return {child.name: cost_of(child).cpu for child in self.running if child.running}

    @asynccontextmanager
    async def prepared(self) -> AsyncIterator[None]:
        """With the ring's ControllerRing and its sharder, if it has them. Nothing is left."""
        try:
            if self.served:
                await self._serve()
            yield
        finally:
            for child in self.running:
                child.stop()
            if self.served:
                await self.client.delete(ControllerRing, self.ring)
                with suppress(NotFound):  # there is no garbage collector here
                    await self.client.delete(MutatingWebhookConfiguration, webhook_config_name(self.ring))
            await self.client.delete_collection(Lease, PROJECT)

    async def _serve(self) -> None:
        await self.client.apply_manifest(
            {
                "apiVersion": "sharding.timebertt.dev/v1alpha1",
                "kind": "ControllerRing",
                "metadata": {"name": self.ring},
                "spec": {
                    "resources": [{"group": GROUP, "resource": "websites"}],
                    "namespaceSelector": {"matchLabels": {PROJECT_LABEL: "true"}},
                },
            }
        )
        self.sharder = self.cluster.start_sharder(self.program)
        self.running.append(self.sharder)
        async with asyncio.timeout(60):
            while True:
                if not self.sharder.running:
                    raise RuntimeError(f"the sharder ended:\n{self.sharder.tail()}")
                with suppress(NotFound):
                    await self.client.get(MutatingWebhookConfiguration, webhook_config_name(self.ring))
                    return
                await asyncio.sleep(0.1)

    def start(self, name: str) -> Child:
        command = [sys.executable, __file__, "--instance", self.ring, name, self.delivery]
        command.append("shard" if self.served else "both")
        environment = {**os.environ, "KUBECONFIG": str(self.cluster.kube.kubeconfig)}
        environment.pop("PYTHONDONTWRITEBYTECODE", None)
        child = Child(name, command, self.cluster.kube.folder / f"{self.ring}-{name}.log", environment)
        self.running.append(child)
        return child

    async def seen(self, child: Child, objects: int) -> float:
        """Returns when the instance had seen that many objects."""
        async with asyncio.timeout(LONGEST):
            while True:
                for count, moment in _REPORT.findall(child.log.read_text()):
                    if int(count) >= objects:
                        return float(moment)
                if not child.running:
                    raise RuntimeError(f"{child.name} ended:\n{child.tail()}")
                await asyncio.sleep(EVERY)

    async def held(self, name: str) -> float:
        """Returns when the instance had its Lease."""
        async with asyncio.timeout(LONGEST):
            while True:
                with suppress(NotFound):
                    if (await self.client.get(Lease, name, PROJECT)).spec.holder_identity == name:
                        return time.monotonic()
                await asyncio.sleep(EVERY)

    async def _joined(self) -> tuple[float, int]:
        """Returns when everything had been handed to the second instance, and how many objects it has."""
        if self.delivery == LABELS:
            ring = HashRing([FIRST, SECOND])
            share = sum(ring.owner(f"{GROUP}/Website/{m.namespace}/{m.name}") == SECOND for m in self._names)
            mine = Selector.equals(shard_label(self.ring), SECOND) & Selector.absent(drain_label(self.ring))
            return await self.cluster.appear(mine, share, self._since), share
        async with asyncio.timeout(LONGEST):
            while True:
                data = (await self.client.get(ConfigMap, assignment_name(self.ring), PROJECT)).data
                assignment = Assignment.parse(data)
                buckets = assignment.owned_by(SECOND)
                if buckets and not any(place.target for place in assignment.places):
                    of = assignment.buckets.of
                    return time.monotonic(), sum(of(metadata) in buckets for metadata in self._names)
                await asyncio.sleep(EVERY)

    async def _writes(self) -> float:
        """How many requests have changed something so far."""
        text = (await self.client.raw("GET", "/metrics", accept="text/plain")).body.decode()
        return sum(
            float(count)
            for labels, count in _WRITES.findall(text)
            if not any(each in labels for each in _UNCOUNTED)
        )


async def measure(given: argparse.Namespace) -> None:
    units = {"objects": "", "wall": "s", "CPU": "s", "sharder": "s", "writes": "", "peak RSS": "MiB"}
    programs = [Program(each) for each in given.delivery]
    if given.go_sharder:
        programs.append(Program("go", given.go_sharder))
    with Results(units) as results:
        async with bench(() if given.without_gate else (f"{GATE}=true",)) as cluster:
            progress(f"creating {given.objects} objects")
            await cluster.create_websites(given.objects)
            for number in range(given.rounds):
                for program in programs if number % 2 else programs[::-1]:
                    progress(f"round {number + 1}: {program.name}")
                    fleet = Fleet(cluster, program, number, given.in_manager)
                    async with fleet.prepared():
                        await fleet.measure(given.objects, results)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--objects", type=int, default=10_000)
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--delivery", nargs="+", choices=(LABELS, RANGES), default=(LABELS, RANGES))
    parser.add_argument(
        "--in-manager", action="store_true", help="our sharder is inside the instances, also by labels"
    )
    parser.add_argument("--without-gate", action="store_true", help="an API server that ignores the selector")
    add_go_option(parser, "--go-sharder", "KUBESHARD_GO_SHARDER")
    parser.add_argument("--instance", nargs=4, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.instance:
        instance(*given.instance)
    else:
        asyncio.run(measure(given))


if __name__ == "__main__":
    main()
