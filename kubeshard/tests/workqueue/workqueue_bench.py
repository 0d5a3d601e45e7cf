"""Shared by the tests of the queue."""

from __future__ import annotations

from kubeshard.workqueue import ItemExponential, WorkQueue
from kubeshard_lab.virtual_time import VirtualClock
from kubeshard_lab.virtual_world import SeededRng


def new_queue(**options: object) -> WorkQueue[str]:
    options.setdefault("limiter", ItemExponential(rng=SeededRng(1)))
    return WorkQueue("test", clock=VirtualClock(), **options)  # type: ignore[arg-type]


async def take(queue: WorkQueue[str]) -> str:
    async with queue.get() as key:
        return key
