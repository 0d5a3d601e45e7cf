"""A controller's watches in another cluster than that of the objects that it reconciles (`Watch.clusters`).

Guaranteed: only these watches wait for their cluster. While it does not answer, its objects trigger nothing and
the controller keeps working; once it answers, the controller sees all of them. `drain` does not wait for anything,
because watches do not write.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import ExitStack
from typing import Any

from kubeshard.cache.informer import Informer
from kubeshard.controller.cluster import Cluster
from kubeshard.controller.runner import ControllerRunner
from kubeshard.controller.triggers import mapped
from kubeshard.leases.held_lease import Gate


class RemoteWatches:
    """The watches of one controller in one cluster. It declares its watches on creation, and follows them while `run`
    runs. Raises ConfigurationError.
    """

    def __init__(self, runner: ControllerRunner, cluster: Cluster) -> None:
        self.runner = runner
        self.cluster = cluster.name
        self.name = f"{runner.name} in {cluster.name or 'the home cluster'}"
        self._cache = cluster.cache
        self._watches = [
            watch for watch in runner.controller.crossing_watches if cluster.name in (watch.clusters or ())
        ]
        self.informers: list[Informer[Any]] = []
        try:
            for watch in self._watches:
                self.informers.append(cluster.hold_watched(watch))
        except BaseException:
            self.discard()
            raise

    async def run(self, gates: Sequence[Gate] = ()) -> None:
        """Follows the watches until cancelled."""
        with ExitStack() as stack:
            async with asyncio.TaskGroup() as tasks:
                for watch, informer in zip(self._watches, self.informers, strict=True):
                    trigger = self.runner.trigger(watch, mapped(watch, self.runner.reader), informer)
                    tasks.create_task(trigger.run(), name=f"{self.name} trigger")
                    stack.enter_context(informer.add_handler(trigger.handle))

    async def drain(self) -> None:
        """Returns at once: watches never have anything in flight."""

    def under_way(self) -> Sequence[str]:
        return ()

    def discard(self) -> None:
        """Releases the informers. For use before `run`."""
        for informer in self.informers:
            self._cache._let_go(informer)

    async def close(self) -> None:
        """Releases the informers. For use after the end of `run`."""
        for informer in self.informers:
            await self._cache._release(informer)
