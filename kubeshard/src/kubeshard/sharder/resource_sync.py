"""What drives the resources of a ring: the tasks of each, and what wakes them. `sharding.ring_machine` has the rules.

A crash costs only the task that it is in, which starts again (`supervised`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from kubeshard.runtime.loop import set_within
from kubeshard.runtime.notices import Notices
from kubeshard.sharder.tasks import LOGGED_EVERY, supervised, tell_crash
from kubeshard.sharding.ring_machine import ResourceMachine, RingMachine
from kubeshard.sharding.ring_resources import RingEntry

SHORTEST_WAIT = 0.01


class ResourceSync(ResourceMachine):
    """One resource of a ring, while this process leads. Its tasks run in `group`."""

    def __init__(
        self,
        of: RingMachine[ResourceSync],
        entry: RingEntry,
        sync_period: float,
        group: asyncio.TaskGroup | None = None,
    ) -> None:
        self._group = group
        self._tasks: dict[asyncio.Task[None], None] = {}
        self._changed = asyncio.Event()
        self._attention = asyncio.Event()
        self._crashes = Notices(of.ring.clock, every=LOGGED_EVERY)
        super().__init__(of, entry, sync_period)

    def start(self, work: Callable[[], Awaitable[None]], what: str) -> None:
        """Starts a task that ends with the sync. A crash costs only this work, which starts again (`supervised`)."""
        if not self.open or self._group is None:
            return
        ring, resource = self.ring, self.entry.resource
        going = supervised(
            work,
            what,
            crashed=lambda: ring.metrics.add("crashes", resource, what),
            clock=ring.clock,
            ring=ring.name,
            resource=resource,
        )
        task = self._group.create_task(going, name=f"{what} of {self}")
        self._tasks[task] = None
        task.add_done_callback(lambda task: self._tasks.pop(task, None))

    def crashed(self, what: str, error: Exception) -> None:
        """Tells of a crash that costs no other work."""
        self.ring.metrics.add("crashes", self.entry.resource, what)
        if (before := self._crashes.held_back(what, type(error).__name__)) is not None:
            fields = {"ring": self.ring.name, "resource": self.entry.resource}
            tell_crash(error, what, crashes_before=before, **fields)
        self.missed()

    def close(self) -> None:
        super().close()
        for task in tuple(self._tasks):
            task.cancel()

    def notify(self) -> None:
        """Wakes tasks that wait for this sync."""
        self._changed.set()
        self._changed = asyncio.Event()

    async def changed(self, within: float | None = None) -> None:
        """Waits for `notify`, so many seconds at most."""
        await set_within(self._changed, within)

    def attend(self) -> None:
        self._attention.set()

    async def attended(self) -> None:
        """Waits until something is `due`."""
        self._attention.clear()
        wait = self.wake_at - self.ring.clock.monotonic()
        await set_within(self._attention, max(wait, SHORTEST_WAIT))
