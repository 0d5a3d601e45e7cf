"""The steps of the demo, and how long each took until every object was owned again."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from typing import NamedTuple

from kubeshard.client.client import Client
from kubeshard.core.errors import KubeshardError
from kubeshard.inspection.stats import RingSnapshot
from kubeshard_lab.demo.cluster import websites
from kubeshard_lab.demo.observer import Observer
from kubeshard_lab.demo.processes import RingProcesses
from kubeshard_lab.examples.webhosting.generator import create_all

SHARDERS = ("sharder-1", "sharder-2")
SHARDS = ("shard-1", "shard-2", "shard-3")
JOINING = "shard-4"
_FOLLOWERS_PER_WEBSITE = 4
_CHECK_EVERY = 0.5


class Step(NamedTuple):
    """`seconds`: until every object was owned by the live shard that the hash ring assigns it to."""

    title: str
    seconds: float
    moves: int
    drains: int


class NotSettled(KubeshardError):
    """A step did not finish in time."""


class Scenario:
    """`patience` is how many seconds a step may take."""

    mode = "shard"

    def __init__(
        self, client: Client, processes: RingProcesses, observer: Observer, *, count: int, patience: float
    ) -> None:
        self._client = client
        self._fleet = processes
        self._observer = observer
        self._count = count
        self._patience = patience
        self._clock = client.world.clock
        self._acts = self._all_acts()

    def _all_acts(self) -> Sequence[tuple[str, Callable[[], Awaitable[None]]]]:
        return (
            ("two sharders and three shards start", self._start),
            (f"{self._count} Websites are created", self._create),
            (f"{JOINING} joins: objects drain to it", self._scale_up),
            ("shard-1 is killed (SIGKILL)", self._kill),
            ("shard-2 stops gracefully (SIGTERM)", self._stop),
            ("the leading sharder is killed, shard-2 returns", self._fail_over),
        )

    @property
    def titles(self) -> Sequence[str]:
        return [title for title, _ in self._acts]

    async def steps(self) -> AsyncIterator[Step]:
        for title, act in self._acts:
            before = self._observer.snapshot()
            began = self._clock.monotonic()
            await self._settled(title, act)
            seconds = self._clock.monotonic() - began
            after = self._observer.snapshot()
            yield Step(title, seconds, after.moves - before.moves, after.drains - before.drains)

    async def _start(self) -> None:
        for name in SHARDERS:
            self._fleet.start_sharder(name)
        await self._start_shards()

    async def _start_shards(self) -> None:
        for name in SHARDS:
            self._fleet.start_shard(name, mode=self.mode)
        await self._until(lambda view: ready(view) >= set(SHARDS))

    async def _create(self) -> None:
        await create_all(self._client, websites(self._count))
        await self._until(lambda view: view.total >= self._count * (1 + _FOLLOWERS_PER_WEBSITE))

    async def _scale_up(self) -> None:
        self._fleet.start_shard(JOINING, mode=self.mode)
        await self._until(lambda view: JOINING in ready(view))

    async def _kill(self) -> None:
        self._fleet.kill("shard-1")
        await self._until(lambda view: "shard-1" not in live(view))

    async def _stop(self) -> None:
        self._fleet.request_stop("shard-2", signal.SIGTERM)
        await self._until(lambda view: "shard-2" not in live(view))

    async def _fail_over(self) -> None:
        await self._until(lambda _: self._observer.leader in SHARDERS)
        old = self._observer.leader
        (new,) = set(SHARDERS) - {old}
        self._fleet.kill(old)
        self._fleet.start_shard("shard-2")
        await self._until(lambda view: self._observer.leader == new and "shard-2" in ready(view))

    async def _settled(self, title: str, act: Callable[[], Awaitable[None]]) -> None:
        try:
            async with asyncio.timeout(self._patience):
                await act()
                await self._until(lambda view: view.settled)
        except TimeoutError:
            view = self._observer.snapshot()
            raise NotSettled(
                f"not settled {self._patience:.0f} s after: {title} ({view.unassigned} objects unassigned, "
                f"{view.stranded} on dead shards, {view.misplaced} misplaced, {view.draining} draining)"
            ) from None

    async def _until(self, condition: Callable[[RingSnapshot], bool]) -> None:
        """Waits until the condition holds. Raises ProcessEnded if a process dies meanwhile."""
        while True:
            self._fleet.check()
            try:
                await self._observer.until(condition, _CHECK_EVERY)
            except TimeoutError:
                continue
            return


class InManager(Scenario):
    """The scenario without separate sharders: the elected shard is the sharder."""

    mode = "both"

    def _all_acts(self) -> Sequence[tuple[str, Callable[[], Awaitable[None]]]]:
        return (
            ("three shards start, one is elected", self._start_shards),
            (f"{self._count} Websites are created", self._create),
            (f"{JOINING} joins: objects drain to it", self._scale_up),
            ("one that does not lead is killed (SIGKILL)", self._kill),
            ("the leading shard stops gracefully (SIGTERM)", self._stop),
            ("the next leading shard is killed", self._fail_over),
        )

    async def _kill(self) -> None:
        leader = await self._leader()
        name = next(name for name in self._fleet.names if name != leader)
        self._fleet.kill(name)
        await self._until(lambda view: name not in live(view))

    async def _stop(self) -> None:
        leader = await self._leader()
        self._fleet.request_stop(leader, signal.SIGTERM)
        await self._succeeded(leader)

    async def _fail_over(self) -> None:
        leader = await self._leader()
        self._fleet.kill(leader)
        await self._succeeded(leader)

    async def _succeeded(self, leader: str) -> None:
        await self._until(
            lambda view: leader not in live(view) and self._observer.leader in self._fleet.names
        )

    async def _leader(self) -> str:
        await self._until(lambda _: self._observer.leader in self._fleet.names)
        return self._observer.leader


def live(view: RingSnapshot) -> set[str]:
    return {row.shard for row in view.rows if row.live}


def ready(view: RingSnapshot) -> set[str]:
    """The shards that the leading sharder has marked as ready."""
    return {row.shard for row in view.rows if row.live and row.state == "ready"}
