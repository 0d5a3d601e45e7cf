"""How long work on many objects with an index occupies the event loop.

    python benchmarks/turns.py [--objects 50000]

It runs the production cache over a transport in memory: a full list into an empty store, a full list that changes
every object, and an index that is added to existing objects. "longest turn" is the longest time that other tasks of
the loop had to wait, in wall time, so nothing else should run on the machine.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import time
from collections.abc import Awaitable, Callable
from functools import partial

from informer import Turns, Wire
from store import Deployment, deployment

from kubeshard.cache import Cache
from kubeshard.cache.snapshot import Snapshot
from kubeshard.client import Client, ClusterConfig
from kubeshard.core.encoding import decode
from kubeshard.core.objects import form_of
from kubeshard.listwatch.state_machine import Listed


def read(objects: int, version: int) -> Snapshot[Deployment]:
    form = form_of(Deployment)
    return Snapshot([decode(form, deployment(number, version)) for number in range(objects)])


async def measure(what: str, work: Callable[[], Awaitable[None]]) -> None:
    gc.collect()
    gc.freeze()
    turns = Turns()
    measuring = asyncio.create_task(turns.run())
    await asyncio.sleep(0.05)
    turns.longest, began = 0.0, time.perf_counter()
    await work()
    whole = time.perf_counter() - began
    await asyncio.sleep(0.02)
    measuring.cancel()
    print(f"{what}: longest turn {turns.longest * 1e3:.0f} ms of {whole * 1e3:.0f} ms")


async def main(objects: int) -> None:
    transport = Wire([], [], streaming=True)
    cache = Cache(Client(ClusterConfig(server="https://example.com"), transport=transport))
    informer = cache.declare(Deployment)
    cache.add_index(Deployment, "app", lambda each: [each.metadata.label("app")])

    async def add_index() -> None:
        cache.add_index(Deployment, "name", lambda each: [each.metadata.name])
        await informer.indexed()

    async with cache.running():
        await cache.synced()
        for version, what in (
            (1, "a full read into an empty store"),
            (2, "a full read that changes every object"),
        ):
            listed, objects_of = Listed(str(version + 8)), read(objects, version)
            await measure(what, partial(informer.listed, listed, objects_of, ""))
        await measure("an index added", add_index)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--objects", type=int, default=50_000)
    asyncio.run(main(parser.parse_args().objects))
