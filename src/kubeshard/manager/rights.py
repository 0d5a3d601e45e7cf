"""Holding a right to work, and what happens when it ends."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import TypeVar

from kubeshard.core.errors import KubeshardError
from kubeshard.manager.membership import Right

T = TypeVar("T", bound=Right)

LOSS_GRACE = 3.0
"""Seconds within which a process that lost its right must end. Others may act a little later."""


class RightLost(KubeshardError):
    """The right to work ended: leadership or the shard's Lease was lost. The process must end."""


@asynccontextmanager
async def holding(
    held: AbstractAsyncContextManager[T], what: str, ending: Callable[[float | None], None]
) -> AsyncIterator[T]:
    """Runs the block with a right. When the right is lost the block is cancelled at once, `ending` is called with the
    seconds that are left, and RightLost is raised (in an exception group).
    """
    async with held as right, asyncio.TaskGroup() as tasks:
        watcher = tasks.create_task(_raise_when_lost(right, what, ending), name=f"{what} watcher")
        yield right
        watcher.cancel()


async def _raise_when_lost(right: Right, what: str, ending: Callable[[float | None], None]) -> None:
    reason = await right.lost()
    ending(LOSS_GRACE)
    raise RightLost(f"lost {what}: {reason}")
