"""A shard in its own process, for `test_shard_kube`: reconciles Widgets, each of which takes a second.

Arguments: kubeconfig, ring, shard name, namespace, seconds of the lease.
"""

from __future__ import annotations

import asyncio
import sys

from kubeshard.client import load_config
from kubeshard.controller import Context, Controller, Reconciler
from kubeshard.core import KubeObject
from kubeshard.core.patches import MergePatch
from kubeshard.manager import Manager, run
from kubeshard.shard import DeclaredRing, LeaseTerms, Sharding, scaled
from kubeshard.sharding.api import RingResource


class Widget(KubeObject, group="shardtest.example.com", version="v1"):
    pass


class Slow(Reconciler[Widget]):
    async def reconcile(self, ctx: Context, obj: Widget, /) -> None:
        if obj.metadata.annotation("done"):
            return
        print("begun", flush=True)
        await asyncio.sleep(1.0)
        patch = MergePatch({"metadata": {"annotations": {"done": "true"}}})
        await ctx.client.patch(Widget, obj.metadata.name, obj.metadata.namespace, patch, base=obj)


def main() -> None:
    kubeconfig, ring, name, namespace, seconds = sys.argv[1:]
    run(
        Manager(
            [Controller(name="slow", reconciler=Slow(), primary=Widget)],
            client=asyncio.run(load_config(kubeconfig)),
            sharding=Sharding(
                DeclaredRing(ring, [RingResource(group=Widget.KIND.group, resource="widgets")]),
                name,
                namespace,
                lease=LeaseTerms(scaled(float(seconds))),
            ),
            status_pages=None,
        )
    )


if __name__ == "__main__":
    main()
