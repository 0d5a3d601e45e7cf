"""Measures reconciles per second of one and two processes of an operator, beside the Go reference's with two threads.

    python benchmarks/processes.py [--websites 1000] [--touches 5] [--rounds 5] [--go-operator PATH]

The webhosting operator has created all websites, with their children, and is idle. Then their theme is changed, in a
field that no website shows: every website is reconciled, for one write, and nothing else is written. So the operator is
measured, not the API server. Each measurement has its own control plane. kubeshard's processes are shards by labels,
and one of them is the sharder.

"reconciles" begins with the write of the theme, and ends when the operator is idle again, as the kernel's count of its
CPU time says, every few hundredths of a second.
"""

from __future__ import annotations

import argparse
import asyncio
import copy
import os
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from fleet import THEME, Bench, Program, Results, add_go_option, bench, cost_of, progress

from kubeshard import ALL, Manager, MergePatch, Settings, Sharding, run
from kubeshard.sharding.names import SYSTEM_NAMESPACE
from kubeshard_apiserver.testing.child import Child
from kubeshard_lab.examples.webhosting import manifests
from kubeshard_lab.examples.webhosting.api import Theme, Website
from kubeshard_lab.examples.webhosting.controller import website_controller

WORKERS = 15
EVERY = 0.05
QUIET, QUIET_CPU = 0.5, 0.03
"""A program is idle that uses at most so many seconds of CPU within so many."""
COUNTS = (1, 2)


def operator(processes: int) -> None:
    sharding = Sharding("websites", "bench", SYSTEM_NAMESPACE, mode="both")
    manager = Manager([website_controller(workers=WORKERS)], sharding=sharding, processes=processes)
    run(manager, settings=Settings(metrics_address="0", health_address="0", log_level="warning"))


async def main(given: argparse.Namespace) -> None:
    ours = {Program(f"kubeshard, {count} process{'es'[: 2 * count - 2]}"): count for count in COUNTS}
    programs = [*ours, *([Program("go", given.go_operator)] if given.go_operator else [])]
    with Results({"rate": "1/s", "CPU per reconcile": "ms", "peak RSS": "MiB"}) as results:
        for number in range(given.rounds):
            for program in (programs, programs[::-1])[number % 2]:
                progress(f"round {number + 1}: {program.name}")
                async with bench() as cluster:
                    await cluster.client.apply_manifest(theme_of_any_fields())
                    child = start(cluster, program, ours.get(program, 0))
                    try:
                        await measure(cluster, program, child, given, results)
                    finally:
                        child.kill()


def theme_of_any_fields() -> dict[str, Any]:
    definition: dict[str, Any] = copy.deepcopy(dict(next(iter(manifests.crds()))))
    schema = definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    schema["properties"]["spec"]["x-kubernetes-preserve-unknown-fields"] = True
    return definition


def start(cluster: Bench, program: Program, processes: int) -> Child:
    if program.go:
        os.environ["GOMAXPROCS"] = str(max(COUNTS))
        return cluster.start_operator(program, WORKERS)
    command = [sys.executable, __file__, "--operator", str(processes)]
    environment = {**os.environ, "KUBECONFIG": str(cluster.kube.kubeconfig)}
    return Child("operator", command, cluster.kube.folder / "operator.log", environment)


async def measure(
    cluster: Bench, program: Program, child: Child, given: argparse.Namespace, results: Results
) -> None:
    await cluster.create_websites(given.websites)
    while any(not each.status.phase for each in await cluster.client.list_all(Website, ALL)):  # noqa: ASYNC110
        await asyncio.sleep(1)
    await until_idle(child)
    for number in range(given.touches):
        began, before = time.monotonic(), used(child)
        await cluster.client.patch(Theme, THEME, None, MergePatch({"spec": {"touched": number}}))
        ended, after = await until_idle(child)
        results.add(
            "reconciles",
            program,
            **{
                "rate": given.websites / (ended - began),
                "CPU per reconcile": (after - before) / given.websites * 1000,
                "peak RSS": sum(cost_of(each).peak_mib for each in family(child)),
            },
        )


async def until_idle(child: Child) -> tuple[float, float]:
    """Returns when the program was last busy, and the CPU time that it had used by then."""
    busy, cpu = time.monotonic(), used(child)
    while True:
        await asyncio.sleep(EVERY)
        if not child.running:
            raise RuntimeError(f"{child.name} ended:\n{child.tail()}")
        now = used(child)
        if now > cpu + QUIET_CPU:
            busy, cpu = time.monotonic(), now
        elif time.monotonic() > busy + QUIET:
            return busy, now


def used(child: Child) -> float:
    return sum(cost_of(each).cpu for each in family(child))


class _Grandchild:
    def __init__(self, pid: int) -> None:
        self.pid = pid


def family(child: Child) -> Iterator[Child]:
    """The program, and the processes that it has started."""
    yield child
    for pid in Path(f"/proc/{child.pid}/task/{child.pid}/children").read_text().split():
        yield _Grandchild(int(pid))  # type: ignore[misc] # what `cost_of` needs


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--websites", type=int, default=1000)
    parser.add_argument("--touches", type=int, default=5)
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--operator", type=int, help=argparse.SUPPRESS)
    add_go_option(parser, "--go-operator", "KUBESHARD_GO_OPERATOR")
    given = parser.parse_args()
    if given.operator:
        operator(given.operator)
    else:
        asyncio.run(main(given))
