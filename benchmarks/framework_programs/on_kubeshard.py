"""An operator on kubeshard, and its cache alone. Run: on_kubeshard.py no-ops|events|handlers|statuses|sync

What it does for each Gauge is what `on_kopf.py` and `controller_runtime/main.go` do.
"""

from __future__ import annotations

import asyncio
import signal
import sys

from gauge import Gauge, GaugeStatus

from kubeshard import ALL, Client, Context, Controller, Manager, ObjectMeta, Watch, run, when
from kubeshard.cache import Cache, Delta


async def no_op(ctx: Context, gauge: Gauge) -> None:
    pass


async def status(ctx: Context, gauge: Gauge) -> None:
    if gauge.status is not None and gauge.status.seen == gauge.spec.value:
        return
    metadata = ObjectMeta(name=gauge.metadata.name, namespace=gauge.metadata.namespace)
    wanted = Gauge(metadata=metadata, status=GaugeStatus(seen=gauge.spec.value))
    await ctx.client.apply(wanted, subresource="status", base=gauge, force=True)


async def handler(delta: Delta[Gauge]) -> None:
    pass


async def handlers() -> None:
    async with await Client.connect() as client:
        cache = Cache(client)
        cache.declare(Gauge).add_handler(handler)
        async with cache.running():
            await asyncio.Event().wait()


async def sync() -> None:
    """Reads everything when it gets SIGUSR1."""
    go = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGUSR1, go.set)
    async with await Client.connect() as client:
        cache = Cache(client)
        cache.declare(Gauge)
        print("ready", flush=True)
        await go.wait()
        async with cache.running():
            await cache.synced()
            print(f"synced {len(cache.list(Gauge, ALL))}", flush=True)
            await asyncio.Event().wait()


def main() -> None:
    match sys.argv[1]:
        case "no-ops" | "events":
            controller = Controller(name="gauges", reconciler=no_op, primary=Gauge)
        case "statuses":
            watch = Watch(Gauge, when=when.generation_changed)
            controller = Controller(name="gauges", reconciler=status, primary=watch, workers=15)
        case "handlers" | "sync" as what:
            from kubeshard.runtime.loop import loop_factory

            with asyncio.Runner(loop_factory=loop_factory()) as runner:
                runner.run(handlers() if what == "handlers" else sync())
            return
    run(Manager([controller], status_pages=None))


if __name__ == "__main__":
    main()
