"""What happens in the demo, step by step, and how long it took until every object was owned again."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import NamedTuple

from kubeshard.cli.demo.cluster import Websites
from kubeshard.cli.demo.fleet import Fleet
from kubeshard.cli.demo.observer import Observer
from kubeshard.cli.demo.picture import Picture
from kubeshard.client import Client
from kubeshard.core import Lease, NotFound
from kubeshard.core.errors import KubeshardError
from kubeshard.runtime.clock import SYSTEM_CLOCK, Clock
from kubeshard.sharding.names import SYSTEM_NAMESPACE

SHARDERS = ("sharder-1", "sharder-2")
SHARDS = ("shard-1", "shard-2", "shard-3")
JOINING = "shard-4"
_LEADER_LEASE = "sharder"
_FOLLOWERS_PER_WEBSITE = 4
_CHECK_EVERY = 0.5


class Step(NamedTuple):
    """A finished step. `seconds`: from the act until every object was owned by the live shard the ring gives
    it.
    """

    title: str
    seconds: float
    moves: int
    drains: int


class NotSettled(KubeshardError):
    """A step did not come to its end in time."""


class Scenario:
    """`tell` is called with what is being done; `patience` is what a step may take, in seconds."""

    def __init__(
        self,
        client: Client,
        fleet: Fleet,
        observer: Observer,
        *,
        websites: int,
        patience: float,
        tell: Callable[[str], None],
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        self._client = client
        self._fleet = fleet
        self._observer = observer
        self._count = websites
        self._websites = Websites(client)
        self._patience = patience
        self._tell = tell
        self._clock = clock

    async def steps(self) -> AsyncIterator[Step]:
        """Runs them. Raises NotSettled, ProcessEnded."""
        yield await self._step("three shards join an empty ring", self._start)
        yield await self._step(f"{self._count} Websites are created", self._create)
        yield await self._step(f"{JOINING} joins, objects drain to it", self._scale_up)
        yield await self._step("shard-1 is killed (SIGKILL)", self._kill)
        yield await self._step("shard-2 stops in order (SIGTERM)", self._stop)
        yield await self._step("the leading sharder is killed, shard-2 returns", self._fail_over)

    async def _start(self) -> None:
        for name in SHARDERS:
            self._fleet.start_sharder(name)
        for name in SHARDS:
            self._fleet.start_shard(name)
        await self._until(lambda view: live(view) >= set(SHARDS))

    async def _create(self) -> None:
        await self._websites.create(self._count)
        await self._until(lambda view: view.total >= self._count * (1 + _FOLLOWERS_PER_WEBSITE))

    async def _scale_up(self) -> None:
        self._fleet.start_shard(JOINING)
        await self._until(lambda view: JOINING in live(view))

    async def _kill(self) -> None:
        self._fleet.kill("shard-1")
        await self._until(lambda view: "shard-1" not in live(view))

    async def _stop(self) -> None:
        self._fleet.request_stop("shard-2", signal.SIGTERM)
        await self._until(lambda view: "shard-2" not in live(view))

    async def _fail_over(self) -> None:
        old = await self._leader()
        leading = next((name for name in SHARDERS if old.startswith(f"{name}_")), SHARDERS[0])
        self._fleet.kill(leading)
        self._fleet.start_shard("shard-2")
        while await self._leader() in ("", old):
            await asyncio.sleep(_CHECK_EVERY)
        await self._until(lambda view: "shard-2" in live(view))

    async def _leader(self) -> str:
        try:
            lease = await self._client.get(Lease, _LEADER_LEASE, SYSTEM_NAMESPACE)
        except NotFound:
            return ""
        return lease.spec.holder_identity or ""

    async def _step(self, title: str, act: Callable[[], Awaitable[None]]) -> Step:
        self._tell(title)
        moves, drains = self._observer.moves, self._observer.drains
        began = self._clock.monotonic()
        try:
            async with asyncio.timeout(self._patience):
                await act()
                await self._until(lambda view: view.settled)
        except TimeoutError:
            view = self._observer.picture()
            raise NotSettled(
                f"not settled {self._patience:.0f} s after: {title} ({view.unassigned} objects unassigned, "
                f"{view.stranded} on dead shards, {view.misplaced} misplaced, {view.draining} draining)"
            ) from None
        seconds = self._clock.monotonic() - began
        return Step(title, seconds, self._observer.moves - moves, self._observer.drains - drains)

    async def _until(self, condition: Callable[[Picture], bool]) -> None:
        """Waits for the picture, and for as long as no process ends that should not."""
        while True:
            self._fleet.check()
            try:
                await self._observer.until(condition, _CHECK_EVERY)
            except TimeoutError:
                continue
            return


def live(view: Picture) -> set[str]:
    return {row.shard for row in view.rows if row.live}
