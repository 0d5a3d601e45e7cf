"""What a ring costs by websites, shards and changes: CPU and memory of the sharder, one shard, kube-apiserver and etcd.

    python benchmarks/sizing.py [--websites 1000 4000] [--shards 2 5] [--rates 10 50] [--seconds 8]

Starts a control plane without controllers and fills it with Websites that have no workload. Each is five objects, which
the ring assigns: the Website, a ConfigMap, a Service, an Ingress and a Deployment of zero replicas. For each number of
Websites and shards it waits until the ring has settled and then changes the theme of Websites at each rate. Each change
makes a shard reconcile: it writes a ConfigMap and a status. CPU is measured within the window only, in thousandths of a
core; memory is resident memory at the end of the window. All processes share the machine with this program, which makes
the changes.
"""

from __future__ import annotations

import argparse
import asyncio
import time
from collections.abc import Iterable
from pathlib import Path

from fleet import PROJECT, THEME, Bench, Program, Results, bench, cost_of, progress

from kubeshard import ALL, Client
from kubeshard.core import MergePatch, Selector, metadata_only
from kubeshard.sharding.api import ControllerRing
from kubeshard.sharding.names import drain_label, shard_label
from kubeshard_apiserver.testing.child import Child
from kubeshard_lab.examples.webhosting import manifests
from kubeshard_lab.examples.webhosting.api import RING, Website

OTHER_THEME = "lame"
SERVERS = ("kube-apiserver", "etcd")
SETTLED = 600.0
_other: set[int] = set()
"""The Websites that currently have the second theme."""


async def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--websites", type=int, nargs="+", default=[1000, 4000])
    parser.add_argument("--shards", type=int, nargs="+", default=[2, 5])
    parser.add_argument("--rates", type=int, nargs="+", default=[10, 50])
    parser.add_argument("--seconds", type=float, default=8.0)
    given = parser.parse_args()
    units = {"websites": "", "shards": "", "changes/s": "", "CPU": "m", "memory": "MiB"}
    with Results(units) as results:
        async with bench() as cluster:
            await cluster.client.apply_manifest(manifests.theme(OTHER_THEME, "darkgray", "Times"))
            await cluster.client.apply_manifest(manifests.controller_ring(RING))
            progress("nothing runs")
            await measure(cluster, {}, 0, 0, 0, given.seconds, results)
            sharder, shards, objects = cluster.start_sharder(Program("kubeshard")), list[Child](), 0
            for wanted in sorted(given.websites):
                await create(cluster, range(objects, wanted))
                objects = wanted
                for instances in sorted(given.shards):
                    for shard in shards[instances:]:
                        shard.stop(grace=20)  # its own grace is 15 s
                    del shards[instances:]
                    while len(shards) < instances:
                        shards.append(cluster.start_instance(f"shard-{wanted}-{len(shards)}", "shard"))
                    await settled(cluster.client, instances)
                    for rate in (0, *given.rates):
                        progress(f"{objects} websites, {instances} shards, {rate} changes/s")
                        measured = {"sharder": sharder, "shard": shards[0]}
                        await measure(cluster, measured, objects, instances, rate, given.seconds, results)


async def create(cluster: Bench, numbers: Iterable[int]) -> None:
    """Keeps 16 creates in flight."""
    left = iter(numbers)

    async def some() -> None:
        for number in left:
            await cluster.create_website(number)

    async with asyncio.TaskGroup() as tasks:
        for _ in range(16):
            tasks.create_task(some())


async def settled(client: Client, shards: int) -> None:
    """Waits until that many shards are available and every Website is assigned, not being drained, and reconciled."""
    label, deadline = shard_label(RING), time.monotonic() + SETTLED
    while time.monotonic() < deadline:
        ring = await client.get(ControllerRing, RING)
        if ring.status and ring.status.available_shards == shards:
            unassigned = await client.list_all(
                metadata_only(Website), ALL, label_selector=Selector.absent(label)
            )
            draining = await client.list_all(
                metadata_only(Website),
                ALL,
                label_selector=Selector.exists(drain_label(RING)),
            )
            if not unassigned and not draining:
                websites = await client.list_all(Website, ALL)
                if all(website.status.observed_generation for website in websites):
                    await asyncio.sleep(5)  # the events of the last writes still arrive
                    return
        await asyncio.sleep(1)
    raise RuntimeError(f"the ring has not settled within {SETTLED:g} s")


async def measure(
    cluster: Bench,
    programs: dict[str, Child],
    objects: int,
    shards: int,
    rate: int,
    seconds: float,
    results: Results,
) -> None:
    servers = {child.name: child for child in cluster.kube.children if child.name in SERVERS}
    processes = {**programs, **servers}
    before = {name: cost_of(child).cpu for name, child in processes.items()}
    began = time.monotonic()
    await change(cluster.client, objects, rate, seconds)
    took = time.monotonic() - began
    for name, child in processes.items():
        cpu = (cost_of(child).cpu - before[name]) / took * 1000
        what = f"{objects} websites, {shards} shards, {rate}/s: {name}"
        row = {
            "websites": objects,
            "shards": shards,
            "changes/s": rate,
            "CPU": cpu,
            "memory": resident(child.pid),
        }
        results.add(what, Program("kubeshard"), **row)


async def change(client: Client, objects: int, rate: int, seconds: float) -> None:
    """Sends `rate` changes per second at even intervals; none waits for an earlier one to finish."""
    began = time.monotonic()
    async with asyncio.TaskGroup() as tasks:
        for number in range(int(rate * seconds)):
            await asyncio.sleep(max(0.0, began + number / rate - time.monotonic()))
            _other.symmetric_difference_update({number % objects})
            theme = OTHER_THEME if number % objects in _other else THEME
            patch = MergePatch({"spec": {"theme": theme}})
            tasks.create_task(client.patch(Website, f"site-{number % objects:05}", PROJECT, patch))
    await asyncio.sleep(max(0.0, began + seconds - time.monotonic()))


def resident(pid: int) -> float:
    """Returns the resident memory in MiB."""
    status = Path("/proc", str(pid), "status").read_text().splitlines()
    return int(next(line for line in status if line.startswith("VmRSS")).split()[1]) / 1024


if __name__ == "__main__":
    asyncio.run(main())
