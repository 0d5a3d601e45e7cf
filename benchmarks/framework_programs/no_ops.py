"""A controller whose reconciles have nothing to do, over a transport in memory. Run: no_ops.py OBJECTS ROUNDS

Each round triggers every object once. Prints the CPU seconds of each round as JSON. Uses only kubeshard's public
interface, so that older versions can be measured with it.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from informer import Wire
from store import Deployment, deployment

from kubeshard import ALL, Context, Controller, Manager, run
from kubeshard.client import Client, ClusterConfig
from kubeshard.controller import ChannelSource
from kubeshard.manager import Runnable


def main() -> None:
    objects, rounds = int(sys.argv[1]), int(sys.argv[2])
    source, done = ChannelSource(), asyncio.Event()
    left = objects

    async def reconcile(ctx: Context, obj: Deployment) -> None:
        nonlocal left
        left -= 1
        if not left:
            done.set()

    async def drive() -> None:
        nonlocal left
        await done.wait()  # the initial list has been reconciled
        keys = [obj.key for obj in manager.cache.list(Deployment, ALL)]
        spent = []
        for _ in range(rounds):
            left = objects
            done.clear()
            before = time.process_time()
            for key in keys:
                source.trigger(key, "again")
            await done.wait()
            spent.append(time.process_time() - before)
        print(json.dumps(spent))
        manager.stop()

    wire = Wire([deployment(number) for number in range(objects)], [], streaming=True)
    controller = Controller(name="no-ops", reconciler=reconcile, primary=Deployment, sources=[source])
    manager = Manager(
        [controller],
        client=Client(ClusterConfig(server="https://example.com"), transport=wire),
        runnables=[Runnable("drive", drive)],
        status_pages=None,
    )
    run(manager)


if __name__ == "__main__":
    main()
