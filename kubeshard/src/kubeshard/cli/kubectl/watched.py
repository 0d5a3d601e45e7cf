"""Rings that a command watches, with what has happened to them since it began."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from kubeshard.cli.kubectl.asking import first_of, rings_to_watch

if TYPE_CHECKING:
    from kubeshard.client.client import Client
    from kubeshard.inspection.ring import SeenRing
    from kubeshard.inspection.stats import RingSnapshot

REMEMBERED_EVERY = 1.0
"""Seconds between two pictures that are compared for the history."""


class Watched:
    def __init__(self, client: Client, ring: SeenRing) -> None:
        from kubeshard.inspection.history import History
        from kubeshard.inspection.live import RingWatcher

        self.watcher = RingWatcher(client, ring)
        self.history = History()
        self.wall = client.world.clock.wall

    def snapshot(self) -> RingSnapshot:
        return self.watcher.snapshot()

    async def run(self) -> None:
        await first_of(following=self.watcher.run(), remembering=self._remember())

    async def _remember(self) -> None:
        while True:
            self.history.see(self.snapshot(), self.wall())
            await asyncio.sleep(REMEMBERED_EVERY)


async def watched_rings(client: Client, name: str | None) -> dict[str, Watched]:
    """The ring of that name, or all, by name. Raises Unanswerable."""
    return {each.name: Watched(client, each) for each in await rings_to_watch(client, name)}
