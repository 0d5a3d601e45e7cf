"""Measures how the sharder assigns, drains and moves many objects when shards come and go, beside the Go reference.

    python benchmarks/assignment.py [--objects 10000] [--rounds 3] [--go-sharder PATH]

In each round, for each program, in one control plane: the sharder knows the ring and is idle; the first shard
appears ("assign": all objects get its label); a second one joins ("drain": its share gets the drain label); the
first shard is released ("move": all objects move to the second). Shards are Leases that this script renews, and
nothing acknowledges drains. Each round has its own ring, and so its own label keys, over the same objects.
"""

from __future__ import annotations

import argparse
import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

import msgspec
from fleet import PROJECT, Bench, Program, Results, add_go_option, bench, cost_of, programs, progress

from kubeshard.core import Conflict, Key, Lease, LeaseSpec, NotFound, ObjectMeta, Selector
from kubeshard.core.partial_kinds import MutatingWebhookConfiguration
from kubeshard.core.times import micro_time
from kubeshard.sharding.api import ControllerRing
from kubeshard.sharding.hash_ring import HashRing
from kubeshard.sharding.names import RING_LABEL, drain_label, shard_label, webhook_config_name
from kubeshard_apiserver.testing.child import Child
from kubeshard_lab.examples.webhosting.api import GROUP, PROJECT_LABEL, Website

FIRST, SECOND = "shard-a", "shard-b"
RENEW_EVERY = 2.0


async def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--objects", type=int, default=10_000)
    parser.add_argument("--rounds", type=int, default=1)
    add_go_option(parser, "--go-sharder", "KUBESHARD_GO_SHARDER")
    given = parser.parse_args()
    units = {"objects": "", "wall": "s", "CPU": "s", "peak RSS": "MiB"}
    with Results(units) as results:
        async with bench() as cluster:
            progress(f"creating {given.objects} objects")
            await cluster.create_websites(given.objects)
            for number in range(given.rounds):
                for program in programs(given.go_sharder, number):
                    progress(f"round {number + 1}: {program.name}")
                    async with new_ring(cluster, f"bench-{program.name}-{number}") as ring:
                        await measure(ring, program, given.objects, results)


class Ring:
    """A ring for the Websites of the project namespace, and the Leases of its shards."""

    def __init__(self, cluster: Bench, name: str) -> None:
        self.cluster = cluster
        self.client = cluster.client
        self.name = name
        self.shards: set[str] = set()

    async def join(self, shard: str) -> None:
        now = micro_time(time.time())
        spec = LeaseSpec(holder_identity=shard, lease_duration_seconds=15, acquire_time=now, renew_time=now)
        labels = {RING_LABEL: self.name}
        metadata = ObjectMeta(name=shard, namespace=PROJECT, labels=labels)
        await self.client.create(Lease(metadata=metadata, spec=spec))
        self.shards.add(shard)

    async def release(self, shard: str) -> None:
        self.shards.remove(shard)
        await self._write(shard, holder_identity="", lease_duration_seconds=1)

    async def renew(self) -> None:
        while True:
            await asyncio.sleep(RENEW_EVERY)
            for shard in sorted(self.shards):
                await self._write(shard)

    async def _write(self, shard: str, **spec: object) -> None:
        while True:
            lease = await self.client.get(Lease, shard, PROJECT)
            renewed = msgspec.structs.replace(lease.spec, renew_time=micro_time(time.time()), **spec)
            with suppress(Conflict):
                await self.client.replace(msgspec.structs.replace(lease, spec=renewed))
                return


@asynccontextmanager
async def new_ring(cluster: Bench, name: str) -> AsyncIterator[Ring]:
    ring = Ring(cluster, name)
    renewals = asyncio.create_task(ring.renew())
    await cluster.client.apply_manifest(
        {
            "apiVersion": "sharding.timebertt.dev/v1alpha1",
            "kind": "ControllerRing",
            "metadata": {"name": name},
            "spec": {
                "resources": [{"group": GROUP, "resource": "websites"}],
                "namespaceSelector": {"matchLabels": {PROJECT_LABEL: "true"}},
            },
        }
    )
    try:
        yield ring
    finally:
        renewals.cancel()
        await cluster.client.delete(ControllerRing, name)
        with suppress(NotFound):  # there is no garbage collector here
            await cluster.client.delete(MutatingWebhookConfiguration, webhook_config_name(name))
        await cluster.client.delete_collection(Lease, PROJECT)


async def measure(ring: Ring, program: Program, objects: int, results: Results) -> None:
    cluster = ring.cluster
    keys = [Key(PROJECT, f"site-{number:05}") for number in range(objects)]
    both = HashRing([FIRST, SECOND])
    leaving = sum(both.owner(f"{GROUP}/Website/{key.namespace}/{key.name}") == SECOND for key in keys)
    on = shard_label(ring.name)
    sharder = cluster.start_sharder(program)
    try:
        await ready(ring, sharder)
        steps = (
            ("assign", Selector.equals(on, FIRST), objects, ring.join(FIRST)),
            ("drain", Selector.exists(drain_label(ring.name)), leaving, ring.join(SECOND)),
            ("move", Selector.equals(on, SECOND), objects, ring.release(FIRST)),
        )
        for what, selector, count, change in steps:
            before, since, started = cost_of(sharder), await cluster.position(Website), time.monotonic()
            await change
            wall = await cluster.appear(selector, count, since) - started
            await quiet(sharder)
            after = cost_of(sharder)
            figures = {"wall": wall, "CPU": after.cpu - before.cpu, "peak RSS": after.peak_mib}
            results.add(what, program, objects=count, **figures)
    finally:
        sharder.kill()


async def ready(ring: Ring, sharder: Child) -> None:
    """Waits until the sharder has registered the ring's webhook and is idle again."""
    async with asyncio.timeout(60):
        while True:
            if not sharder.running:
                raise RuntimeError(f"{sharder.name} ended:\n{sharder.tail()}")
            with suppress(NotFound):
                await ring.client.get(ControllerRing, ring.name)
                await ring.client.get(MutatingWebhookConfiguration, webhook_config_name(ring.name))
                break
            await asyncio.sleep(0.1)
    await asyncio.sleep(3.0)


async def quiet(child: Child) -> None:
    """Waits until the sharder has finished all work that the change causes."""
    used = -1.0
    while (now := cost_of(child).cpu) > used + 0.05:
        if not child.running:
            raise RuntimeError(f"{child.name} ended:\n{child.tail()}")
        used = now
        await asyncio.sleep(1.0)


if __name__ == "__main__":
    asyncio.run(main())
