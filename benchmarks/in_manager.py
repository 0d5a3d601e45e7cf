"""What it costs the leading instance of the webhosting operator to be its ring's sharder.

    python benchmarks/in_manager.py [--sizes 1000,4000] [--new 600] [--rounds 1]

Each size has its own control plane, three instances with `--sharding both`, and that number of settled websites (each
with four children). Then it measures:

    at rest   CPU of the leader and of the others while nothing happens
    new       CPU while `--new` websites are created at a steady pace, until all have a status. The hash ring decides
              how many of them each instance has, so the figure is each instance's CPU per website, times a third of
              them; "extra" is how much more the leader used than the others for the same number
    changed   the same while the theme of that many websites changes, which a sharder does not notice
    apart     the same with the sharder in a separate process (`--sharding sharder`, and `shard` for the other three):
              its CPU is the extra, and nothing else
    first     CPU of that process from its start to the end of its first full scan. There is such a scan every five
    scan      minutes too, and when a shard joins

"extra" should not depend on the number of websites; a scan does, because it reads all of them.
"""

from __future__ import annotations

import argparse
import asyncio
import statistics
from collections import Counter
from collections.abc import Container, Coroutine, Mapping
from typing import Any

from fleet import PROJECT, Bench, Program, Results, bench, cost_of, progress, until

from kubeshard import ALL
from kubeshard.client import Bookmark, Changed
from kubeshard.core import Lease, MergePatch, NotFound, metadata_only
from kubeshard.sharding.names import shard_label
from kubeshard_apiserver.testing.child import Child
from kubeshard_lab.examples.webhosting import manifests
from kubeshard_lab.examples.webhosting.api import RING, Website

NAMES = ("one", "two", "three")
NAMESPACE = "sharding-system"
OTHER_THEME = "other"
REST = 30.0
PACE = 20.0
"""New websites per second."""


async def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument(
        "--sizes", type=lambda text: [int(size) for size in text.split(",")], default=[1000, 4000]
    )
    parser.add_argument("--new", type=int, default=600)
    parser.add_argument("--rounds", type=int, default=1)
    given = parser.parse_args()
    units = {
        "leader": "s",
        "others": "s",
        "leader / others": "",
        "extra": "s",
        "extra each": "ms",
        "RSS": "MiB",
    }
    with Results(units) as results:
        for number in range(given.rounds):
            for size in given.sizes:
                progress(f"round {number + 1}: {size} websites, the sharder inside")
                async with bench() as cluster:
                    await inside(cluster, size, given.new, results)
                progress(f"round {number + 1}: {size} websites, the sharder apart")
                async with bench() as cluster:
                    await apart(cluster, size, given.new, results)


async def inside(cluster: Bench, size: int, new: int, results: Results) -> None:
    program = Program(f"{size} websites")
    instances = {name: cluster.start_instance(name, "both") for name in NAMES}
    await filled(cluster, size, instances)
    leader = await leading(cluster)
    before = cpu(instances)
    await asyncio.sleep(REST)
    rest = difference(cpu(instances), before)
    others = statistics.mean(used for name, used in rest.items() if name != leader)
    results.add(
        f"at rest, {REST:.0f} s", program, leader=rest[leader], others=others, extra=rest[leader] - others
    )
    assert await measured(
        cluster, instances, leader, f"{new} new", program, results, create(cluster, size, new)
    )
    await cluster.client.apply(manifests.theme(OTHER_THEME, "black", "Times"))
    assert await measured(
        cluster, instances, leader, f"{new} changed", program, results, change(cluster, new)
    )
    stop(instances)


async def measured(
    cluster: Bench,
    instances: Mapping[str, Child],
    leader: str,
    what: str,
    program: Program,
    results: Results,
    load: Coroutine[Any, Any, set[str]],
) -> bool:
    """Measures each instance's CPU for a load, which returns its websites, and whether the leader stayed the leader."""
    before = cpu(instances)
    names = await load
    used = difference(cpu(instances), before)
    got = await owned(cluster, names)
    others = [name for name in NAMES if name != leader]
    each = sum(used[name] for name in others) / sum(got[name] for name in others)
    extra = used[leader] - each * got[leader]
    results.add(
        what,
        program,
        **{
            "leader": used[leader] / got[leader] * len(names) / len(NAMES),
            "others": each * len(names) / len(NAMES),
            "leader / others": used[leader] / got[leader] / each,
            "extra": extra,
            "extra each": extra / len(names) * 1000,
        },
    )
    return await leading(cluster) == leader


async def apart(cluster: Bench, size: int, new: int, results: Results) -> None:
    program = Program(f"{size} websites")
    instances = {name: cluster.start_instance(name, "shard") for name in NAMES}
    instances["sharder"] = cluster.start_instance("sharder", "sharder")
    await filled(cluster, size, instances)
    before = cost_of(instances["sharder"]).cpu
    await create(cluster, size, new)
    used = cost_of(instances["sharder"])
    figures = {
        "extra": used.cpu - before,
        "extra each": (used.cpu - before) / new * 1000,
        "RSS": used.peak_mib,
    }
    results.add(f"{new} new, apart", program, **figures)
    instances.pop("sharder").stop()
    instances["sharder"] = again = cluster.start_instance("sharder-again", "sharder")
    await until(lambda: again.tail(1000).count("scope=all") >= 5, "a scan of all objects")
    results.add("start and first scan", program, extra=cost_of(again).cpu, RSS=cost_of(again).peak_mib)
    stop(instances)


async def filled(cluster: Bench, size: int, instances: Mapping[str, Child]) -> None:
    """Creates that many websites, and waits until they are settled and the work after the start is over."""
    await until(
        lambda: all("Starting workers" in each.tail(1000) for each in instances.values()), "all at work"
    )
    since = await cluster.position(Website)
    creating = asyncio.create_task(cluster.create_websites(size))
    await statuses(cluster, size, since)
    await creating
    await asyncio.sleep(35.0)  # the last scan after the last shard joined


async def change(cluster: Bench, count: int) -> set[str]:
    """Changes the theme of that many websites at a steady pace, and waits until no work is left."""
    since = await cluster.position(Website)
    patch = MergePatch({"spec": {"theme": OTHER_THEME}})
    begin = asyncio.get_running_loop().time()
    for number in range(count):
        await cluster.client.patch(Website, f"site-{number:05}", PROJECT, patch)
        await asyncio.sleep(begin + (number + 1) / PACE - asyncio.get_running_loop().time())
    await statuses(cluster, count, since)
    await asyncio.sleep(3.0)
    return {f"site-{number:05}" for number in range(count)}


async def create(cluster: Bench, first: int, count: int) -> set[str]:
    """Creates websites at a steady pace, and waits until all have a status and no work is left."""
    since = await cluster.position(Website)
    waiting = asyncio.create_task(statuses(cluster, count, since))
    begin = asyncio.get_running_loop().time()
    for number in range(count):
        await cluster.create_website(first + number)
        await asyncio.sleep(begin + (number + 1) / PACE - asyncio.get_running_loop().time())
    await waiting
    await asyncio.sleep(3.0)
    return {f"site-{first + number:05}" for number in range(count)}


async def statuses(cluster: Bench, count: int, since: str) -> None:
    """Waits until that many websites have a status."""
    known: set[str] = set()
    while len(known) < count:  # the API server ends a watch whose reader falls behind
        async with cluster.client.watch(Website, ALL, resource_version=since) as events:
            async for event in events:
                if isinstance(event, Bookmark):
                    since = event.resource_version
                    continue
                assert isinstance(event, Changed), event
                since = event.object.metadata.resource_version
                if event.object.status.phase:
                    known.add(event.object.metadata.name)
                if len(known) >= count:
                    return


async def owned(cluster: Bench, names: Container[str]) -> Counter[str]:
    """Returns how many of the websites each instance has."""
    metas = [website.metadata for website in await cluster.client.list_all(metadata_only(Website), ALL)]
    return Counter(meta.label(shard_label(RING)) for meta in metas if meta.name in names)


async def leading(cluster: Bench) -> str:
    """Returns the instance that is the sharder."""
    try:
        lease = await cluster.client.get(Lease, f"sharder-{RING}", NAMESPACE)
    except NotFound:
        return ""
    return (lease.spec.holder_identity or "").rpartition("_")[0]


def cpu(instances: Mapping[str, Child]) -> dict[str, float]:
    return {name: cost_of(child).cpu for name, child in instances.items()}


def difference(after: Mapping[str, float], before: Mapping[str, float]) -> dict[str, float]:
    return {name: after[name] - before[name] for name in after}


def stop(instances: Mapping[str, Child]) -> None:
    for child in instances.values():
        child.kill()


if __name__ == "__main__":
    asyncio.run(main())
