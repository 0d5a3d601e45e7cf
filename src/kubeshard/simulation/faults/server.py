"""Faults of the API server, of etcd, and of the webhooks that it calls."""

from __future__ import annotations

from kubeshard.simulation.faults.injection import Injection, fault


@fault
async def compaction(on: Injection) -> None:
    on.world.server.store.compact()
    on.effects += 1


@fault
async def restore(on: Injection) -> None:
    """etcd is restored to an earlier state."""
    store, back = on.world.server.store, on.world.backup()
    revision = store.revision
    await on.lasts(5, 60)
    on.effects += store.revision - revision
    on.workload.oracles.restored()
    back()
    on.workload.recorder.restored()


@fault
async def webhook(on: Injection) -> None:
    """The API server cannot reach the webhook."""
    caller = on.world.caller
    caller.reachable, before = False, caller.refused
    await on.lasts(1, 40)
    caller.reachable = True
    on.effects += caller.refused - before
