"""Dry runs that find out whether the webhook is called."""

from __future__ import annotations

import asyncio
from typing import Any, cast

from small_ring import SmallRing

from kubeshard.core.kinds import Kind, TypeMeta
from kubeshard.core.objects import ObjectMeta, PartialObject
from kubeshard.sharder.moves import Job
from kubeshard.sharder.webhook_probe import LATER, SOON, WebhookProbe
from kubeshard.sharding.planner import plan
from kubeshard_lab.virtual_time import VirtualClock, virtual_time

SECRET = Kind("", "v1", "Secret", "secrets")


class Server:
    """Does not call the webhook."""

    def __init__(self) -> None:
        self.dry_runs = 0

    async def patch(self, form: object, name: str, namespace: str, patch: object, *, dry_run: bool) -> Any:
        assert dry_run
        self.dry_runs += 1
        return PartialObject(metadata=ObjectMeta(name=name, namespace=namespace))


def job(small: SmallRing, name: str) -> Job:
    sync, meta = small.sync("secrets"), ObjectMeta(name=name, namespace="default")
    decision = plan(small.view, sync.entry, TypeMeta("v1", "Secret"), meta)
    return Job(sync.of, sync.entry, SECRET, meta, decision)


@virtual_time
async def test_a_ring_has_one_series_of_dry_runs_however_many_objects_are_assigned_late_at_once() -> None:
    small, server = SmallRing("a", clock=VirtualClock()), Server()
    probe = WebhookProbe(cast(Any, server))
    async with asyncio.TaskGroup() as tasks:
        sync = small.sync("secrets", tasks=tasks)
        for number in range(100):
            probe.late(job(small, f"x-{number}"))
        await asyncio.sleep(2 * SOON + LATER + 1)
        assert server.dry_runs == 3
        sync.close()


@virtual_time
async def test_a_series_that_ended_before_it_began_does_not_keep_the_next_one_away() -> None:
    small, server = SmallRing("a", clock=VirtualClock()), Server()
    probe = WebhookProbe(cast(Any, server))
    async with asyncio.TaskGroup() as tasks:
        sync = small.sync("secrets", tasks=tasks)
        probe.late(job(small, "x"))
        sync.close()
        await asyncio.sleep(1)
        sync = small.sync("secrets", tasks=tasks)
        probe.late(job(small, "y"))
        await asyncio.sleep(SOON + 1)
        assert server.dry_runs == 1
        sync.close()
