"""The cost of `kubectl shard top` with a large ring: memory and CPU time of its process.

python kubeshard/tests/kubectl/top_bench.py --objects 100000 --changes 200

The API server is the embedded one, in its own process. The figures are for the process of the command: resident memory
before, after everything was read and after ten seconds of changes; CPU seconds for reading, and per second after it.
"""

from __future__ import annotations

import argparse
import asyncio
import multiprocessing
import os
import resource
import time
from collections.abc import Iterator
from multiprocessing.connection import Connection
from pathlib import Path

from ring_cluster import RING, RingCluster, owner_of

from kubeshard.client import Client
from kubeshard.core import MergePatch, ObjectMeta, Secret
from kubeshard.inspection.cluster import read_cluster
from kubeshard.inspection.live import RingWatcher
from kubeshard.inspection.ring import see
from kubeshard.sharding.names import shard_label
from kubeshard_apiserver.testing import EmbeddedApi

SHARDS = tuple(f"shard-{number}" for number in range(5))
WORKERS = 20
SECONDS = 10


def serve(pipe: Connection, objects: int, changes: int) -> None:
    """Fills a server, reports its address, and changes objects on request."""
    api = EmbeddedApi(controllers=False, pods=False)
    api.call(lambda client: fill(client, objects))
    pipe.send(str(api.kubeconfig))
    pipe.recv()
    api.call(lambda client: change(client, objects, changes))
    pipe.send("done")
    pipe.recv()
    api.stop()


async def fill(client: Client, objects: int) -> None:
    cluster = RingCluster(client)
    await cluster.install()
    for name in SHARDS:
        await cluster.shard(name, told="ready")
    numbers = iter(range(objects))
    async with asyncio.TaskGroup() as group:
        for _ in range(WORKERS):
            group.create_task(create(client, numbers))


async def create(client: Client, numbers: Iterator[int]) -> None:
    for number in numbers:
        name = f"s{number}"
        labels = {shard_label(RING): owner_of(name, *SHARDS), "app": "of-the-usual-size", "team": "one"}
        await client.create(Secret(metadata=ObjectMeta(name=name, namespace="team", labels=labels)))


async def change(client: Client, objects: int, changes: int) -> None:
    """Sends changes as evenly as the server allows."""
    began = time.monotonic()
    for number in range(changes * SECONDS):
        await asyncio.sleep(max(0.0, began + number / changes - time.monotonic()))
        patch = MergePatch({"metadata": {"annotations": {"changed": str(number)}}})
        await client.patch(Secret, f"s{number * 7919 % objects}", "team", patch)


async def look(kubeconfig: str, pipe: Connection) -> None:
    async with await Client.connect(kubeconfig) as client:
        watcher = RingWatcher(client, await see(client, await read_cluster(client), RING))
        before, cpu, began = resident(), time.process_time(), time.monotonic()
        running = asyncio.create_task(watcher.run())
        await watcher.live.read()
        read_cpu, read_wall, after = time.process_time() - cpu, time.monotonic() - began, resident()
        pipe.send("go")
        cpu, began = time.process_time(), time.monotonic()
        while not pipe.poll():
            view = watcher.snapshot()
            await asyncio.sleep(0.25)
        pipe.recv()
        each = (time.process_time() - cpu) / (time.monotonic() - began)
        print(f"objects {view.total}, settled {view.settled}")
        print(
            f"resident: {before:.0f} MiB before, {after:.0f} MiB after reading, {resident():.0f} MiB after the changes"
        )
        print(f"most while reading: {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024:.0f} MiB")
        print(f"per object: {(after - before) * 1024 * 1024 / view.total:.0f} bytes")
        print(f"reading: {read_cpu:.1f} s of CPU, {read_wall:.1f} s")
        print(f"afterwards: {100 * each:.1f} % of a CPU")
        running.cancel()
        await asyncio.wait([running])


def resident() -> float:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGESIZE") / 1024 / 1024


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--objects", type=int, default=100_000)
    parser.add_argument("--changes", type=int, default=200, help="a second")
    options = parser.parse_args()
    here, there = multiprocessing.Pipe()
    spawn = multiprocessing.get_context("spawn")
    server = spawn.Process(target=serve, args=(there, options.objects, options.changes))
    server.start()
    asyncio.run(look(here.recv(), here))
    here.send("end")
    server.join()


if __name__ == "__main__":
    main()
