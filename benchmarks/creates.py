"""What sharding costs those who create objects: the sharder's webhook, beside the Go reference's, and ranges.

    python benchmarks/creates.py [--objects 400] [--rounds 5] [--clients 8] [--go-sharder PATH]

For each program, in one control plane: a ring with one shard, and two namespaces, of which the ring selects one.
Clients create Websites as fast as they are answered, in turn in the one (the API server calls the webhook for each) and
in the other (it calls none). By ranges, there is no webhook, and a ring has all namespaces: in turn, its shard is there
and is not. API server, etcd, sharder, shard and clients share the machine, so what counts is the ratio.
"""

from __future__ import annotations

import argparse
import asyncio
import statistics
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, nullcontext

from assignment import FIRST, GATE, RANGES, Fleet
from fleet import PROJECT, THEME, Bench, Program, Results, add_go_option, bench, programs, progress

from kubeshard import ALL
from kubeshard.client import Client
from kubeshard.core import Namespace, ObjectMeta, metadata_only
from kubeshard.sharding.names import shard_label
from kubeshard_lab.examples.webhosting.api import SKIP_WORKLOAD_LABEL, Website, WebsiteSpec

PLAIN = "plain"
"""The namespace that no ring selects."""


async def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--objects", type=int, default=400, help="in each namespace and round")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--clients", type=int, default=8)
    add_go_option(parser, "--go-sharder", "KUBESHARD_GO_SHARDER")
    given = parser.parse_args()
    units = {"rate": "/s", "relative rate": "", "p50": "ms", "p99": "ms", "relative p99": ""}
    with Results(units) as results:
        async with bench((f"{GATE}=true",)) as cluster:
            await cluster.client.create(Namespace(metadata=ObjectMeta(name=PLAIN)))
            for program in (*programs(given.go_sharder, 1), Program(RANGES)):
                progress(program.name)
                await measure(cluster, program, given.objects, given.rounds, given.clients, results)


async def measure(
    cluster: Bench, program: Program, objects: int, rounds: int, clients: int, results: Results
) -> None:
    fleet = Fleet(cluster, program, number=0, in_manager=False)
    async with fleet.prepared():
        if fleet.delivery != RANGES:
            fleet.start(FIRST)
            await fleet.held(FIRST)
            await _assigned(cluster, fleet.ring, program)
        for number in range(rounds):
            name, taken = f"{program.name}-{number}", dict[str, Times]()
            for namespace in (PLAIN, PROJECT) if number % 2 else (PROJECT, PLAIN):
                async with _shard_of(fleet, namespace) if fleet.delivery == RANGES else nullcontext():
                    taken[namespace] = Times(await created(cluster.client, namespace, name, objects, clients))
            plain, sharded = taken[PLAIN], taken[PROJECT]
            results.add("not sharded", program, rate=plain.rate, p50=plain.p50, p99=plain.p99)
            figures = {"rate": sharded.rate, "p50": sharded.p50, "p99": sharded.p99}
            relative = {"relative rate": sharded.rate / plain.rate, "relative p99": sharded.p99 / plain.p99}
            results.add("sharded", program, **figures, **relative)


@asynccontextmanager
async def _shard_of(fleet: Fleet, namespace: str) -> AsyncIterator[None]:
    """With a shard that has seen all there is, or without any."""
    if namespace == PLAIN:
        yield
        return
    shard = fleet.start(FIRST)
    await fleet.held(FIRST)
    await fleet.seen(shard, len(await fleet.client.list_all(metadata_only(Website), ALL)))
    try:
        yield
    finally:
        await asyncio.to_thread(shard.stop)


class Times:
    """Of one round: the wall time, and how long each request took, in seconds."""

    def __init__(self, taken: tuple[float, list[float]]) -> None:
        wall, each = taken
        self.rate = len(each) / wall
        percentiles = statistics.quantiles(each, n=100)
        self.p50, self.p99 = 1000 * percentiles[49], 1000 * percentiles[98]


async def created(
    client: Client, namespace: str, prefix: str, count: int, clients: int
) -> tuple[float, list[float]]:
    numbers, taken = iter(range(count)), list[float]()

    async def create(numbers: Iterator[int]) -> None:
        for number in numbers:
            started = time.perf_counter()
            await client.create(_website(namespace, f"{prefix}-{number:05}"))
            taken.append(time.perf_counter() - started)

    started = time.perf_counter()
    async with asyncio.TaskGroup() as group:
        for _ in range(clients):
            group.create_task(create(numbers))
    return time.perf_counter() - started, taken


async def _assigned(cluster: Bench, ring: str, program: Program) -> None:
    """Waits until the webhook sets the shard label."""
    label = shard_label(ring)
    async with asyncio.timeout(60):
        for number in range(10**6):
            site = await cluster.client.create(_website(PROJECT, f"first-{program.name}-{number}"))
            if site.metadata.label(label) == FIRST:
                return
            await asyncio.sleep(0.1)


def _website(namespace: str, name: str) -> Website:
    labels = {SKIP_WORKLOAD_LABEL: "true"}
    return Website(
        metadata=ObjectMeta(name=name, namespace=namespace, labels=labels), spec=WebsiteSpec(theme=THEME)
    )


if __name__ == "__main__":
    asyncio.run(main())
