"""Operators that run beside a test: the manager of a program, in a thread, on the API server of the tests.

Guaranteed: when `running_operator` has begun, the controllers work, and the API server calls the webhooks, whose
failure policies hold; when it has ended, the manager has stopped, and what it registered is as before: webhook
configurations, and the conversion of definitions. An error that ended the manager is raised at the end.
"""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress

from kubeshard.client.config import ClusterConfig
from kubeshard.core.errors import Unprepared
from kubeshard.manager.manager import Manager
from kubeshard.runtime.background import in_background
from kubeshard.runtime.watchdog import NoWatchdog
from kubeshard.runtime.world import REAL_WORLD


@contextmanager
def running_operator(manager: Manager, config: ClusterConfig, within: float) -> Iterator[None]:
    """Runs a manager that was created without a client. Raises Unprepared if it is not ready in time, and what ends it
    before.
    """
    manager.configure_for_test(config, dataclasses.replace(REAL_WORLD, watchdog=NoWatchdog))
    with in_background(lambda: _running(manager, within), "operator"):
        yield


@asynccontextmanager
async def _running(manager: Manager, within: float) -> AsyncIterator[None]:
    running = asyncio.create_task(manager.run(), name="operator")
    try:
        await _ready(manager, running, within)
        yield
    finally:
        if not running.done():
            manager.stop()
        await running


async def _ready(manager: Manager, running: asyncio.Task[None], within: float) -> None:
    ready = asyncio.create_task(manager.until_working(within), name="waiting until the manager works")
    await asyncio.wait([running, ready], return_when=asyncio.FIRST_COMPLETED)
    if running.done():
        ready.cancel()
        with suppress(asyncio.CancelledError):
            await ready
        await running
        raise Unprepared("the manager has ended before it was ready")
    await ready
