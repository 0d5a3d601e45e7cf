"""What a ring costs by objects, shards and changes: CPU and memory of the sharder, of one shard and of kube-apiserver.

    python benchmarks/sizing.py [--objects 1000 5000] [--shards 2 5] [--rates 10 50] [--seconds 8]

One control plane without controllers. Its Websites, which have no workload, only grow in number; for each number of
them and of shards the ring settles, and then so many of their themes are changed per second. Each change is a
reconcile with a ConfigMap and a status. CPU is of the window only, in thousandths of a core; memory is what is
resident at its end. etcd and this program, which makes the changes, share the machine.
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
from kubeshard.examples.webhosting import manifests
from kubeshard.examples.webhosting.api import RING, Website
from kubeshard.sharding import ControllerRing, drain_label, shard_label
from kubeshard.testing import Child

OTHER_THEME = "lame"
SETTLED = 240.0
_other: set[int] = set()
"""The Websites that have the other theme now."""


async def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--objects", type=int, nargs="+", default=[1000, 5000])
    parser.add_argument("--shards", type=int, nargs="+", default=[2, 5])
    parser.add_argument("--rates", type=int, nargs="+", default=[10, 50])
    parser.add_argument("--seconds", type=float, default=8.0)
    given = parser.parse_args()
    units = {"objects": "", "shards": "", "changes/s": "", "CPU": "m", "memory": "MiB"}
    with Results(units) as results:
        async with bench() as cluster:
            await cluster.client.apply_manifest(manifests.theme(OTHER_THEME, "darkgray", "Times"))
            await cluster.client.apply_manifest(manifests.controller_ring(RING))
            sharder, shards, objects = cluster.start_sharder(Program("kubeshard")), list[Child](), 0
            for wanted in sorted(given.objects):
                await create(cluster, range(objects, wanted))
                objects = wanted
                for instances in sorted(given.shards):
                    for shard in shards[instances:]:
                        shard.stop()
                    del shards[instances:]
                    while len(shards) < instances:
                        shards.append(cluster.start_instance(f"shard-{wanted}-{len(shards)}", "shard"))
                    await settled(cluster.client, instances)
                    for rate in (0, *given.rates):
                        progress(f"{objects} objects, {instances} shards, {rate} changes/s")
                        measured = {"sharder": sharder, "shard": shards[0]}
                        await measure(cluster, measured, objects, instances, rate, given.seconds, results)


async def create(cluster: Bench, numbers: Iterable[int]) -> None:
    """By 16 at a time."""
    left = iter(numbers)

    async def some() -> None:
        for number in left:
            await cluster.create_website(number)

    async with asyncio.TaskGroup() as tasks:
        for _ in range(16):
            tasks.create_task(some())


async def settled(client: Client, shards: int) -> None:
    """Every object has one of so many shards, and is not being drained."""
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
                await asyncio.sleep(3)  # what is still being reconciled
                return
        await asyncio.sleep(0.5)
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
    (server,) = (child for child in cluster.kube.children if child.name == "kube-apiserver")
    processes = {**programs, "kube-apiserver": server}
    before = {name: cost_of(child).cpu for name, child in processes.items()}
    began = time.monotonic()
    await change(cluster.client, objects, rate, seconds)
    took = time.monotonic() - began
    for name, child in processes.items():
        cpu = (cost_of(child).cpu - before[name]) / took * 1000
        what = f"{objects} objects, {shards} shards, {rate}/s: {name}"
        row = {
            "objects": objects,
            "shards": shards,
            "changes/s": rate,
            "CPU": cpu,
            "memory": resident(child.pid),
        }
        results.add(what, Program("kubeshard"), **row)


async def change(client: Client, objects: int, rate: int, seconds: float) -> None:
    """So many changes per second, at even distances; later ones do not wait for slow ones."""
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
    """MiB."""
    status = Path("/proc", str(pid), "status").read_text().splitlines()
    return int(next(line for line in status if line.startswith("VmRSS")).split()[1]) / 1024


if __name__ == "__main__":
    asyncio.run(main())
