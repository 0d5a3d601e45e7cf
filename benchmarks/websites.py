"""Measures a single instance of the webhosting operator beside the Go reference's: the cost of a new website (four
children and a status), and the cost of a restart when no website needs a change.

    python benchmarks/websites.py [--websites 2000] [--rounds 5] [--go-operator PATH]

Each measurement has its own control plane, without controller-manager: Deployments never become ready, so each website
is reconciled for its creation, its children and its status, and then no more. The operator has synced and is idle when
the first website is created. "restart" counts the CPU from the start of the process until it has been idle for a while.
"""

from __future__ import annotations

import argparse
import asyncio
import time

from fleet import Bench, Program, Results, add_go_option, bench, cost_of, programs, progress

from kubeshard import ALL
from kubeshard.client import Changed
from kubeshard_apiserver.testing.child import Child
from kubeshard_lab.examples.webhosting.api import Website

IDLE_SECONDS = 2.0
IDLE_CPU = 0.021
"""Seconds of CPU within IDLE_SECONDS up to which a process counts as idle."""


async def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--websites", type=int, default=2000)
    parser.add_argument("--workers", type=int, default=15)
    parser.add_argument("--rounds", type=int, default=1)
    add_go_option(parser, "--go-operator", "KUBESHARD_GO_OPERATOR")
    given = parser.parse_args()
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
