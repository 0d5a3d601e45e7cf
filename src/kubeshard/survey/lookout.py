"""A live view of a ring that continues when the ring is edited.

RBAC: the rights that `cluster`, `ring` and `live` need, and watch on controllerrings.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Any, NoReturn

from kubeshard.client.client import Client
from kubeshard.core.errors import ApiError
from kubeshard.core.objects import form_of
from kubeshard.core.selectors import Selector
from kubeshard.sharding.api import ControllerRing
from kubeshard.sharding.names import NAMESPACE_NAME_LABEL
from kubeshard.survey.cluster import default_selector, read_cluster
from kubeshard.survey.following import follow
from kubeshard.survey.live import LiveRing
from kubeshard.survey.picture import Picture
from kubeshard.survey.ring import SeenRing, see

LOOK_AGAIN = 60.0
"""Seconds between checks for resources that were not served."""
PAUSE = 2.0
"""Seconds after which a request to a cluster that does not answer is repeated."""


def live_ring(client: Client, ring: SeenRing) -> LiveRing:
    """A live view that starts from this state of the ring."""
    spec, clock = ring.resource.spec, client.world.clock
    given = default_selector(ring.webhook) if spec.namespace_selector is None else spec.namespace_selector
    selector = Selector.from_label_selector(given)
    if selector and ring.left_out:
        selector &= Selector.not_in(NAMESPACE_NAME_LABEL, ring.left_out)
    ahead = ring.cluster.now - clock.wall()
    live = LiveRing(
        client,
        ring.view,
        ring.entries,
        selector=selector,
        wall=lambda: clock.wall() + ahead,
    )
    live.tally.unread.update({str(resource): why for resource, why in ring.unresolved.items()})
    return live


class Lookout:
    """The live rings of one name. `live` is the current one; each starts with new counts."""

    def __init__(self, client: Client, ring: SeenRing) -> None:
        self._client = client
        self._ring = ring
        self.live = live_ring(client, ring)

    @property
    def name(self) -> str:
        return self._ring.name

    def picture(self) -> Picture:
        return self.live.picture()

    async def read(self) -> None:
        """Returns once everything of the current ring has been read, or the picture says why not."""
        live = None
        while live is not self.live:
            live = self.live
            await live.read()

    async def run(self) -> NoReturn:
        """Runs until cancelled. Raises Unanswerable once the ring is gone."""
        while True:
            await self._look()
            self._ring = await self._seen_again()
            before, self.live = self.live, live_ring(self._client, self._ring)
            before.replaced()

    async def _look(self) -> None:
        """Follows one version of the ring until it is edited."""
        edits = _Edits(self._ring.resource)
        tasks: list[asyncio.Task[Any]] = [
            asyncio.create_task(self.live.run(), name=f"follows {self.name}"),
            asyncio.create_task(
                follow(self._client, form_of(ControllerRing), edits), name=f"edits of {self.name}"
            ),
            asyncio.create_task(edits.edited.wait(), name=f"edit of {self.name}"),
        ]
        if self._ring.unresolved:
            tasks.append(asyncio.create_task(self._served(), name=f"looks for resources of {self.name}"))
        try:
            done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                task.result()
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(
                *tasks, return_exceptions=True
            )  # and nobody asks for the errors of the others

    async def _served(self) -> None:
        """Waits until other resources are served. If smaller changes restarted the reading, a large ring would never be
        read completely.
        """
        unserved = self._ring.unresolved.keys()
        while unserved == self._ring.unresolved.keys():
            await asyncio.sleep(LOOK_AGAIN)
            unserved = (await self._seen_again()).unresolved.keys()

    async def _seen_again(self) -> SeenRing:
        while True:
            with suppress(ApiError):
                return await see(self._client, await read_cluster(self._client), self.name)
            await asyncio.sleep(PAUSE)


class _Edits:
    """Notices when a ring is edited."""

    def __init__(self, ring: ControllerRing) -> None:
        self._ring = ring
        self._there = False
        self.edited = asyncio.Event()

    def begin(self) -> None:
        self._there = False

    def put(self, ring: ControllerRing, /) -> None:
        if ring.name != self._ring.name:
            return
        self._there = True
        before, now = self._ring, ring
        if (before.metadata.uid, before.spec) != (now.metadata.uid, now.spec):
            self.edited.set()

    def drop(self, ring: ControllerRing, /) -> None:
        if ring.name == self._ring.name:
            self.edited.set()

    def end(self) -> None:
        if not self._there:
            self.edited.set()

    def failed(self, error: ApiError | None) -> None: ...
