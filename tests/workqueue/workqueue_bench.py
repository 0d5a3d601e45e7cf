"""Shared by the tests of the queue."""

from __future__ import annotations

from kubeshard.testing.virtual_time import VirtualClock
from kubeshard.testing.virtual_world import SeededRng
from kubeshard.workqueue import ItemExponential, WorkQueue


def new_queue(**options: object) -> WorkQueue[str]:
    options.setdefault("limiter", ItemExponential(rng=SeededRng(1)))
    return WorkQueue("test", clock=VirtualClock(), **options)  # type: ignore[arg-type]


async def take(queue: WorkQueue[str]) -> str:
    async with queue.get() as key:
        return key
