"""Holding a right to work, and what happens when it ends."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import TypeVar

from kubeshard.core.errors import KubeshardError, NotOurs
from kubeshard.core.kinds import Kind
from kubeshard.manager.membership import Right
from kubeshard.tenure.tenure import Tenure

T = TypeVar("T", bound=Right)

LOSS_GRACE = 3.0
"""Seconds until a process that lost its right must have ended. Others may act a little later."""


class RightLost(KubeshardError):
    """The right to work ended: leadership or the shard's Lease was lost. The process has to end."""


@asynccontextmanager
async def holding(
    held: AbstractAsyncContextManager[T], what: str, ending: Callable[[float | None], None]
) -> AsyncIterator[T]:
    """The block with a right. When the right is lost the block is cancelled at once, and RightLost raised (in an
    exception group). `ending` is called then with the seconds that are left.
    """
    async with held as tenure, asyncio.TaskGroup() as tasks:
        watcher = tasks.create_task(_raise_when_lost(tenure, what, ending), name=f"{what} watcher")
        yield tenure
        watcher.cancel()


async def _raise_when_lost(tenure: Right, what: str, ending: Callable[[float | None], None]) -> None:
    reason = await tenure.lost()
    ending(LOSS_GRACE)
    raise RightLost(f"lost {what}: {reason}")


class LeaderFence:
    """Lets no write begin when this process does not lead, also in the moment before the work is cancelled. Covers no
    kind: no object carries a leader's name, so a late write is not refused by the server.
    """

    label_key = ""
    shard = ""

    def __init__(self) -> None:
        self.leadership: Tenure | None = None

    def covers(self, kind: Kind) -> bool:
        return False

    def check(self) -> None:
        if self.leadership is None:
            raise NotOurs("this instance is not the leader")
        self.leadership.check()
