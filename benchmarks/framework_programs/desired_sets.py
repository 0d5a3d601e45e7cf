"""A controller whose objects have desired sets of five objects that need no change, on an API server in memory. Run:
desired_sets.py OBJECTS ROUNDS

In each round every object is reconciled three times: by a reconciler that does nothing, by one that makes the five
objects, and by one that makes and applies them. Prints the CPU seconds of each, in all rounds, as JSON. Fails if a
round sent a request.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time

from gauge import NAMESPACE, Gauge, gauge

from kubeshard import ALL, Context, Controller, KubeObject, Manager, ObjectMeta, run
from kubeshard.controller import ChannelSource
from kubeshard.core import Secret
from kubeshard.crd import definition
from kubeshard.manager import Runnable
from kubeshard_apiserver.testing import MemoryApi
from kubeshard_lab.examples.webhosting import children
from kubeshard_lab.examples.webhosting.api import Theme, ThemeSpec, Website, WebsiteSpec
from kubeshard_lab.examples.webhosting.config import IngressConfig
from kubeshard_lab.examples.webhosting.workload import Deployment, Ingress, ServerFiles, Service

HOW = ("bare", "made", "applied")
THEME = Theme(metadata=ObjectMeta(name="t"), spec=ThemeSpec(color="red", font_family="Arial"))
KINDS = (ServerFiles, Service, Ingress, Deployment, Secret)


def wish(owner: Gauge) -> tuple[KubeObject, ...]:
    metadata = ObjectMeta(name=owner.metadata.name, namespace=NAMESPACE, uid=owner.metadata.uid)
    site = Website(metadata=metadata, spec=WebsiteSpec(theme="t"))
    files = children.config_map(site, THEME)
    return (
        files,
        children.service(site),
        children.ingress(site, IngressConfig(), None),
        children.deployment(site, files, None),
        Secret(metadata=ObjectMeta(name=owner.metadata.name, namespace=NAMESPACE), data={"a": "aGk="}),
    )


def main() -> None:
    objects, rounds = int(sys.argv[1]), int(sys.argv[2])
    source, done = ChannelSource(), asyncio.Event()
    how, left, requests = "applied", objects, 0

    async def reconcile(ctx: Context, obj: Gauge) -> None:
        nonlocal left
        if how == "made":
            wish(obj)
        elif how == "applied":
            await ctx.apply(*wish(obj))
        left -= 1
        if left == 0:
            done.set()

    async def once(keys: list[object]) -> float:
        nonlocal left
        left = objects
        done.clear()
        before = time.process_time()
        for key in keys:
            source.trigger(key, "again")
        await done.wait()
        return time.process_time() - before

    async def drive() -> None:
        nonlocal how, requests
        await done.wait()
        keys = [obj.key for obj in manager.cache.list(Gauge, ALL)]
        requests = 1
        while requests:  # until all events of the initial writes were reconciled
            requests = 0
            await once(keys)
            await asyncio.sleep(0.5)
        spent: dict[str, list[float]] = {name: [] for name in HOW}
        for _ in range(rounds):
            for how in HOW:
                spent[how].append(await once(keys))
        assert requests == 0, f"{requests} requests for sets that are as wished"
        print(json.dumps(spent))
        manager.stop()

    def count(method: str, *_: object) -> None:
        nonlocal requests
        requests += method != "GET"

    api = MemoryApi()

    async def prepare() -> None:
        await api.install(definition(Gauge))
        async with api.client() as client:
            for number in range(objects):
                await client.create(gauge(number))

    asyncio.run(prepare())
    client = api.client()
    client.observers.append(count)
    controller = Controller(name="sets", reconciler=reconcile, primary=Gauge, applies=KINDS, sources=[source])
    manager = Manager(
        [controller],
        client=client,
        runnables=[Runnable("drive", drive)],
        status_pages=None,
    )
    run(manager)


if __name__ == "__main__":
    main()
