"""Measures a single instance of the webhosting operator beside the Go reference's: the cost of a new website (four
children and a status), and the cost of a restart when no website needs a change.

    python benchmarks/websites.py [--websites 2000] [--rounds 5] [--go-operator PATH]
    python benchmarks/websites.py --websites 9000 --shards 3

Each measurement has its own control plane, without controller-manager: Deployments never become ready, so each website
is reconciled for its creation, its children and its status, and then no more. The operator has synced and is idle when
the first website is created. "restart" counts the CPU from the start of the process until it has been idle for a while.

With `--shards`, it is kubeshard's singleton beside so many shards by ranges, and by labels with a sharder. Each is
started again when it has created all children, and when it is idle, every tenth website gets another theme. CPU is that
of all processes of the set-up, for either; the peak RSS is that of the largest instance since its second start, and
that of the sharder.
"""

from __future__ import annotations

import argparse
import asyncio
import time
from collections.abc import Collection

from fleet import PROJECT, Bench, Program, Results, add_go_option, bench, cost_of, programs, progress, until

from kubeshard import ALL
from kubeshard.client import Changed
from kubeshard.core import MergePatch
from kubeshard_apiserver.testing.child import Child
from kubeshard_lab.examples.webhosting import manifests
from kubeshard_lab.examples.webhosting.api import RING, Website

OTHER_THEME = "other"
IDLE_SECONDS = 2.0
IDLE_CPU = 0.021
"""Seconds of CPU within IDLE_SECONDS up to which a process counts as idle."""


async def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--websites", type=int, default=2000)
    parser.add_argument("--workers", type=int, default=15)
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--shards", type=int, metavar="COUNT")
    add_go_option(parser, "--go-operator", "KUBESHARD_GO_OPERATOR")
    given = parser.parse_args()
    if given.shards:
        units = {"restart": "s", "changes": "s", "peak RSS": "MiB", "of the sharder": "MiB"}
        with Results(units) as results:
            for what in ("singleton", "ranges", "labels"):
                progress(what)
                async with bench(feature_gates=["ShardedListAndWatch=true"]) as cluster:
                    await restarted(cluster, what, given.websites, given.shards, given.workers, results)
        return
    with Results({"wall": "s", "CPU": "s", "CPU per website": "ms", "peak RSS": "MiB"}) as results:
        for number in range(given.rounds):
            for program in programs(given.go_operator, number):
                progress(f"round {number + 1}: {program.name}")
                async with bench() as cluster:
                    await measure(cluster, program, given.websites, given.workers, results)


async def measure(cluster: Bench, program: Program, websites: int, workers: int, results: Results) -> None:
    operator = cluster.start_operator(program, workers)
    await idle(operator)
    before, since, started = cost_of(operator), await cluster.position(Website), time.monotonic()
    creating = asyncio.create_task(cluster.create_websites(websites))
    wall = await statuses(cluster, websites, since) - started
    await creating
    await idle(operator)
    after = cost_of(operator)
    cpu = after.cpu - before.cpu
    results.add(
        "new websites",
        program,
        **{"wall": wall, "CPU": cpu, "CPU per website": cpu / websites * 1000, "peak RSS": after.peak_mib},
    )
    operator.stop()
    operator = cluster.start_operator(program, workers)
    await idle(operator)
    cost = cost_of(operator)
    results.add(
        "restart",
        program,
        **{
            "CPU": cost.cpu,
            "CPU per website": cost.cpu / websites * 1000,
            "peak RSS": cost.peak_mib,
        },
    )
    operator.kill()


async def restarted(
    cluster: Bench, what: str, websites: int, shards: int, workers: int, results: Results
) -> None:
    """The singleton, or shards by labels or ranges: creates the websites, starts again, and changes some of them."""
    await cluster.client.apply_manifest(manifests.theme(OTHER_THEME, "gray", "Times"))
    program, service = Program("kubeshard"), list[Child]()
    if what == "labels":
        await cluster.client.apply_manifest(manifests.controller_ring(RING))
        service.append(cluster.start_sharder(program))

    def start() -> list[Child]:
        if what == "singleton":
            return [cluster.start_operator(program, workers)]
        mode = "shard" if service else "both"
        return [cluster.start_instance(f"shard-{number}", mode, what) for number in range(shards)]

    def used() -> float:
        return sum(cost_of(child).cpu for child in (*instances, *service))

    instances = start()
    await at_rest(instances, service)
    await cluster.create_websites(websites)
    await at_rest(instances, service)
    for child in instances:
        child.kill()
    before = sum(cost_of(child).cpu for child in service)
    instances = start()
    await at_rest(instances, service)
    restart = used()
    for number in range(0, websites, 10):
        patch = MergePatch({"spec": {"theme": OTHER_THEME}})
        await cluster.client.patch(Website, f"site-{number:05}", PROJECT, patch)
    await at_rest(instances, service)
    figures = {
        "restart": restart - before,
        "changes": used() - restart,
        "peak RSS": max(cost_of(child).peak_mib for child in instances),
        **{f"of the {child.name}": cost_of(child).peak_mib for child in service},
    }
    results.add(what, program, **figures)
    for child in (*instances, *service):
        child.kill()


async def at_rest(instances: Collection[Child], service: Collection[Child]) -> None:
    """Waits until all instances have begun to work, and all programs are idle."""
    await until(lambda: all("Starting workers" in each.log.read_text() for each in instances), "work", 300)
    for child in (*instances, *service):
        await idle(child)


async def statuses(cluster: Bench, websites: int, since: str) -> float:
    """Waits until the given number of websites have a phase; returns the time of the last one."""
    async with cluster.client.watch(Website, ALL, resource_version=since) as events:
        async for event in events:
            if isinstance(event, Changed) and event.type == "MODIFIED" and event.object.status.phase:
                websites -= 1
                if not websites:
                    return time.monotonic()
    raise RuntimeError(f"{websites} websites got no status before the watch ended")


async def idle(child: Child) -> None:
    """Waits until the process has started and is idle."""
    used = -1.0
    while True:
        if not child.running:
            raise RuntimeError(f"{child.name} ended:\n{child.tail()}")
        now = cost_of(child).cpu
        if 0.0 < now <= used + IDLE_CPU:
            return
        used = now
        await asyncio.sleep(IDLE_SECONDS)


if __name__ == "__main__":
    asyncio.run(main())
