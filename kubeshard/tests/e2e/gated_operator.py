"""A sharded operator whose reconciles last as long as a test wants: started as a process, one per shard.

It records its actions in Entries, so that the API server shows them in order with everything else.
"""

from __future__ import annotations

import argparse
import asyncio

from e2e_kinds import Chore, Entry, EntrySpec, Realm

from kubeshard import when
from kubeshard.client import load_config
from kubeshard.controller import Context, Controller, Reconciler, Watch
from kubeshard.core import KubeObject, ObjectMeta
from kubeshard.core.selectors import LabelSelector
from kubeshard.manager import Manager, run
from kubeshard.runtime import logs
from kubeshard.shard import DeclaredRing, LeaseTerms, Sharding, scaled
from kubeshard.shard.sharding import MODES

NAME_LABEL = "kubernetes.io/metadata.name"
KINDS: dict[str, type[Chore] | type[Realm]] = {"chores": Chore, "realms": Realm}


class Gated(Reconciler[KubeObject]):
    def __init__(self, kind: type[Chore] | type[Realm], shard: str, journal: str) -> None:
        self._kind = kind
        self._shard = shard
        self._journal = journal

    async def reconcile(self, ctx: Context, obj: KubeObject, /) -> None:
        await self._note(ctx, "began")
        while (await ctx.client.get(self._kind, ctx.key.name, ctx.key.namespace)).spec.hold:  # noqa: ASYNC110
            await asyncio.sleep(0.05)
        await self._note(ctx, "ended")

    async def _note(self, ctx: Context, what: str) -> None:
        name = f"{ctx.key.name}-{ctx.reconcile_id}-{what}"
        spec = EntrySpec(work=ctx.key.name, shard=self._shard, what=what)
        await ctx.client.create(Entry(metadata=ObjectMeta(name=name, namespace=self._journal), spec=spec))


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--ring", required=True)
    parser.add_argument("--shard", required=True)
    parser.add_argument("--namespace", required=True, help="of the Lease and the journal")
    parser.add_argument("--lease-seconds", type=float, required=True)
    parser.add_argument("--grace", type=float, default=15.0)
    parser.add_argument("--mode", default="shard", choices=MODES)
    parser.add_argument("--kinds", nargs="*", default=list(KINDS), choices=KINDS)
    options = parser.parse_args()
    logs.setup("info", "text")
    controllers = [
        Controller(
            name=name,
            reconciler=Gated(KINDS[name], options.shard, options.namespace),
            primary=Watch(KINDS[name], when=when.generation_changed, sharded=True),
            workers=8,
        )
        for name in options.kinds
    ]
    run(
        Manager(
            controllers,
            client=asyncio.run(load_config()),
            sharding=Sharding(
                DeclaredRing(
                    options.ring,
                    namespace_selector=LabelSelector(match_labels={NAME_LABEL: options.namespace}),
                ),
                options.shard,
                options.namespace,
                mode=options.mode,
                lease=LeaseTerms(scaled(options.lease_seconds)),
            ),
            status_pages=None,
            graceful_timeout=options.grace,
        )
    )


if __name__ == "__main__":
    main()
