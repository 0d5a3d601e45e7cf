"""What a controller hears of in another cluster than that of the objects that it reconciles (`Watch.clusters`).

Guaranteed: an outpost waits for its cluster alone. While that does not answer, nothing of it triggers; the controller
works on, and hears of everything when the cluster is there. `drain` has nothing to wait for: an outpost writes nothing.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import ExitStack
from typing import Any

from kubeshard.cache.informer import Informer
from kubeshard.controller.cluster import Cluster
from kubeshard.controller.runner import ControllerRunner
from kubeshard.controller.watched import mapped
from kubeshard.tenure.tenure import Gate


class Outpost:
    """The watches of one controller in one cluster. Declares what it hears of when made; hears while `run` runs.
    Raises ConfigurationError.
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
        """Until cancelled."""
        with ExitStack() as stack:
            async with asyncio.TaskGroup() as tasks:
                for watch, informer in zip(self._watches, self.informers, strict=True):
                    trigger = self.runner.trigger(watch, mapped(watch, self.runner.reader), informer)
                    tasks.create_task(trigger.run(), name=f"{self.name} trigger")
                    stack.enter_context(informer.add_handler(trigger.handle))

    async def drain(self) -> None:
        """Nothing of it is ever under way."""

    def under_way(self) -> Sequence[str]:
        return ()

    def discard(self) -> None:
        """Before `run`: gives up the informers."""
        for informer in self.informers:
            self._cache._let_go(informer)

    async def close(self) -> None:
        """After the end: gives up the informers."""
        for informer in self.informers:
            await self._cache._release(informer)
