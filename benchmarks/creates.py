"""What sharding costs those who create objects, and the API server: by labels, with the Go reference's sharder and with
ours, and by ranges.

    python benchmarks/creates.py [--pairs 10] [--objects 800] [--clients 8] [--go-sharder PATH]

A pair is two rounds, in turn the one first or the other, in one control plane: with an operator of one instance that
is not sharded, and with the same operator as the only shard of a ring. In each round, clients create Websites as fast
as they are answered, and the instance receives them. API server, etcd, sharder, instance and clients share the machine,
so what counts is the ratio of a pair; the last rows have the median of these ratios, and their spread.

CPU, requests and bytes are those of kube-apiserver until the instance has seen the last Website, for each of them: CPU
seconds of its process; requests that it served or sent to webhooks besides the creates; what its process read and
wrote, also from and to etcd.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import re
import statistics
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

from assignment import FIRST, GATE, RANGES, UNSHARDED, Fleet
from fleet import PROJECT, THEME, Bench, Program, Results, add_go_option, bench, cost_of, programs, progress

from kubeshard.core import ObjectMeta
from kubeshard_lab.examples.webhosting.api import SKIP_WORKLOAD_LABEL, Website, WebsiteSpec

_REQUESTS = re.compile(
    r'^apiserver_(?:request_total\{(?!.*,resource="")|admission_webhook_request_total\{).*\} (\S+)$', re.M
)
_NUMBERS = itertools.count()


async def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--pairs", type=int, default=10)
    parser.add_argument("--objects", type=int, default=800, help="in each round")
    parser.add_argument("--clients", type=int, default=8)
    add_go_option(parser, "--go-sharder", "KUBESHARD_GO_SHARDER")
    given = parser.parse_args()
    units = {"rate": "/s", "p50": "ms", "p99": "ms", "CPU": "ms", "requests": "", "bytes": "KiB"}
    unsharded = Program(UNSHARDED)
    with Results(units) as results:
        async with bench((f"{GATE}=true",)) as cluster:
            await costs(cluster, unsharded, given.objects, given.clients)  # what is slow only once
            for number in range(given.pairs):
                for program in (*programs(given.go_sharder, number), Program(RANGES)):
                    progress(f"pair {number + 1}: {program.name}")
                    pair = [unsharded, program] if number % 2 else [program, unsharded]
                    taken = {each: await costs(cluster, each, given.objects, given.clients) for each in pair}
                    without, sharded = taken[unsharded], taken[program]
                    results.add("not sharded", program, **without)
                    results.add("sharded", program, **sharded)
                    ratios = {what: sharded[what] / without[what] for what in units if what != "requests"}
                    results.add("sharded / not", program, **ratios)


async def costs(cluster: Bench, program: Program, objects: int, clients: int) -> Mapping[str, float]:
    """Of one round."""
    fleet = Fleet(cluster, program, next(_NUMBERS), in_manager=False)
    async with fleet.prepared():
        await cluster.client.create(_website(f"first-{fleet.ring}"))
        instance = fleet.start(FIRST)
        await fleet.seen(instance, 1)
        await asyncio.sleep(1)  # what a start is followed by
        requests, spent = await _requests(cluster), _spent(cluster)
        wall, each = await _created(cluster, fleet.ring, objects, clients)
        await fleet.seen(instance, 1 + objects)
        spent = {what: (used - spent[what]) / objects for what, used in _spent(cluster).items()}
        spent["requests"] = (await _requests(cluster) - requests) / objects - 1
        for child in fleet.running:
            child.kill()
        await cluster.client.delete_collection(Website, PROJECT)
    percentiles = statistics.quantiles(each, n=100)
    return {"rate": objects / wall, "p50": 1000 * percentiles[49], "p99": 1000 * percentiles[98], **spent}


async def _created(cluster: Bench, prefix: str, count: int, clients: int) -> tuple[float, list[float]]:
    """Returns how long all creates took, and each of them, in seconds."""
    numbers, taken = iter(range(count)), list[float]()

    async def create(numbers: Iterator[int]) -> None:
        for number in numbers:
            started = time.perf_counter()
            await cluster.client.create(_website(f"{prefix}-{number:05}"))
            taken.append(time.perf_counter() - started)

    started = time.perf_counter()
    async with asyncio.TaskGroup() as group:
        for _ in range(clients):
            group.create_task(create(numbers))
    return time.perf_counter() - started, taken


async def _requests(cluster: Bench) -> float:
    """How many kube-apiserver has served or sent to webhooks so far."""
    text = (await cluster.client.raw("GET", "/metrics", accept="text/plain")).body.decode()
    return sum(map(float, _REQUESTS.findall(text)))


def _spent(cluster: Bench) -> dict[str, float]:
    """By kube-apiserver so far."""
    server = next(child for child in cluster.kube.children if child.name == "kube-apiserver")
    moved = re.findall(r"^[rw]char: (\d+)$", Path("/proc", str(server.pid), "io").read_text(), re.M)
    return {"CPU": 1000 * cost_of(server).cpu, "bytes": sum(map(int, moved)) / 1024}


def _website(name: str) -> Website:
    metadata = ObjectMeta(name=name, namespace=PROJECT, labels={SKIP_WORKLOAD_LABEL: "true"})
    return Website(metadata=metadata, spec=WebsiteSpec(theme=THEME))


if __name__ == "__main__":
    asyncio.run(main())
