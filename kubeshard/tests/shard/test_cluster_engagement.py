"""In which clusters a shard works, by the terms of their buckets."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from types import SimpleNamespace
from typing import Any

import pytest

from kubeshard.core.errors import ConfigurationError
from kubeshard.shard.cluster_engagement import FORGOTTEN, LONGEST, PATIENCE, ClusterEngagement
from kubeshard.shard.range_ownership import RangeOwnership, State
from kubeshard.sharding.assignment import Assignment, Place
from kubeshard.sharding.buckets import Buckets
from kubeshard.sharding.names import CLUSTERS_ANNOTATION, UNREACHABLE_ANNOTATION
from kubeshard_lab.virtual_time import virtual_loop, virtual_time

BUCKETS = Buckets(64, "cluster")


class Clusters:
    """A manager's. `broken` cannot be engaged, `busy` take so many seconds to be released."""

    def __init__(self, *names: str) -> None:
        self.names = {*names}
        self.engaged: set[str] = set()
        self.history: list[str] = []
        self.tries: list[float] = []
        self.broken: set[str] = set()
        self.busy: dict[str, float] = {}
        self.down: set[str] = set()
        self.looks: list[float] = []
        self.changed: Callable[[], None]

    def listen(self, changed: Callable[[], None]) -> None:
        self.changed = changed

    def engage(self, name: str) -> None:
        if name in self.broken:
            self.tries.append(virtual_loop().time())
            raise ConfigurationError("no such context")
        assert name not in self.engaged
        self.engaged.add(name)
        self.history.append(f"+{name}")

    def silent_in(self, name: str) -> float:
        """A minute, as after a bookmark of half a minute ago."""
        assert name in self.engaged
        self.looks.append(virtual_loop().time())
        return 0.0 if name in self.down else 60.0

    async def release(self, name: str) -> None:
        await asyncio.sleep(self.busy.get(name, 0.0))
        self.engaged.discard(name)
        self.history.append(f"-{name}")


class Shard:
    """A shard `a`."""

    def __init__(self, clusters: Clusters, tasks: asyncio.TaskGroup) -> None:
        self.said: dict[str, str] = {}
        self.ownership = RangeOwnership("a", BUCKETS)
        held: Any = SimpleNamespace(says=self.said.__setitem__)
        self._engagement = ClusterEngagement("r", clusters, self.ownership, held)
        self._tasks = tasks

    def hears(self, epoch: int, *clusters: str) -> Assignment:
        """The assignment gives it the buckets of these clusters, which no read has confirmed."""
        ours = {BUCKETS.of_key(name) for name in clusters}
        places = {bucket: Place("a" if bucket in ours else "b", "", epoch) for bucket in range(64)}
        assignment = Assignment.of(BUCKETS, places)
        self.ownership.seen(assignment)
        return assignment

    async def sees(self, epoch: int, *clusters: str) -> None:
        """... and a read does."""
        assignment = self.hears(epoch, *clusters)
        self.ownership.confirm(self.ownership.unconfirmed, assignment)
        await self._engagement.take_over(self.ownership.terms, self._tasks)
        await asyncio.sleep(0.1)

    @property
    def unreachable(self) -> set[str]:
        return {*BUCKETS.clusters(self.said.get(UNREACHABLE_ANNOTATION, ""))[0]}

    def state(self, cluster: str) -> State:
        return self.ownership.state(BUCKETS.of_key(cluster))


@asynccontextmanager
async def shard_of(clusters: Clusters) -> AsyncIterator[Shard]:
    """Until the block ends, with its tasks, as a driver does."""
    tasks = asyncio.TaskGroup()

    async def driver() -> None:
        async with tasks:
            begun.set_result(Shard(clusters, tasks))
            await asyncio.get_running_loop().create_future()

    begun: asyncio.Future[Shard] = asyncio.get_running_loop().create_future()
    task = asyncio.create_task(driver())
    try:
        yield await begun
    finally:
        task.cancel()
        await asyncio.wait([task])


@virtual_time
async def test_it_works_in_what_it_owns_and_nowhere_else() -> None:
    clusters = Clusters("eu", "us", "asia")
    async with shard_of(clusters) as shard:
        assert shard.said == {CLUSTERS_ANNOTATION: "asia,eu,us"}
        await shard.sees(1, "eu", "us")
        assert clusters.engaged == {"eu", "us"}
        assert shard.state("eu") is State.OWNED
        await shard.sees(2, "us", "asia")
        assert clusters.engaged == {"us", "asia"}
        assert clusters.history.count("+us") == 1


@virtual_time
async def test_a_cluster_that_no_read_has_confirmed_is_not_engaged() -> None:
    """It may be another shard's meanwhile, and come back: what was listed before that may be too old."""
    clusters = Clusters("eu", "us")
    async with shard_of(clusters) as shard:
        await shard.sees(1, "eu")
        shard.hears(2, "eu", "us")
        clusters.changed()
        await asyncio.sleep(0.1)
        assert clusters.engaged == {"eu"}
        await shard.sees(3, "eu", "us")
        assert (clusters.engaged, shard.state("us")) == ({"eu", "us"}, State.OWNED)


@virtual_time
async def test_what_came_back_before_it_was_left_is_left_and_begins_anew() -> None:
    clusters = Clusters("eu")
    clusters.busy["eu"] = 5.0
    async with shard_of(clusters) as shard:
        await shard.sees(1, "eu")
        await shard.sees(2)
        await shard.sees(3, "eu")
        assert (clusters.history, shard.state("eu")) == (["+eu"], State.ACQUIRING)
        await asyncio.sleep(6)
        assert (clusters.history, shard.state("eu")) == (["+eu", "-eu", "+eu"], State.OWNED)


@virtual_time
async def test_a_cluster_that_does_not_let_go_holds_up_no_other() -> None:
    clusters = Clusters("eu", "us")
    clusters.busy["eu"] = 100.0
    async with shard_of(clusters) as shard:
        await shard.sees(1, "eu")
        await shard.sees(2, "us")
        assert clusters.engaged == {"eu", "us"}
        assert shard.state("us") is State.OWNED


@virtual_time
async def test_a_cluster_that_cannot_be_engaged_holds_up_no_other_and_is_tried_again_ever_more_rarely(
    caplog: pytest.LogCaptureFixture,
) -> None:
    clusters = Clusters("eu", "us")
    clusters.broken.add("eu")
    async with shard_of(clusters) as shard:
        await shard.sees(1, "eu", "us")
        assert clusters.engaged == {"us"}
        await asyncio.sleep(600)
        pauses = [after - before for before, after in zip(clusters.tries, clusters.tries[1:], strict=False)]
        assert pauses[:3] == pytest.approx([1, 2, 4])
        assert max(pauses) == pytest.approx(LONGEST)
        clusters.broken.clear()
        await asyncio.sleep(LONGEST)
        assert clusters.engaged == {"eu", "us"}
    told = [each.message for each in caplog.records if each.levelname == "ERROR"]
    assert len(told) == len(clusters.tries)
    assert told[0].startswith("Cannot connect to a cluster that this shard owns; trying again")


@virtual_time
async def test_a_cluster_that_the_manager_gets_or_loses_is_engaged_or_left_by_who_owns_its_bucket() -> None:
    clusters = Clusters("eu")
    async with shard_of(clusters) as shard:
        await shard.sees(1, "eu", "us")
        for names, engaged in (
            ({"eu", "us"}, {"eu", "us"}),
            ({"us", "asia"}, {"us"}),
            ({"eu", "us"}, {"eu", "us"}),
        ):
            clusters.names = names
            clusters.changed()
            await asyncio.sleep(1)
            assert clusters.engaged == engaged
            assert shard.said[CLUSTERS_ANNOTATION] == ",".join(sorted(names))


@virtual_time
async def test_the_manager_gets_and_loses_clusters_also_when_the_shard_is_no_member_any_more() -> None:
    clusters = Clusters("eu")
    async with shard_of(clusters) as shard:
        await shard.sees(1, "eu")
    for names in set[str](), {"eu", "us"}:
        clusters.names = names
        clusters.changed()
        await asyncio.sleep(1)
    assert clusters.history == ["+eu"]


@virtual_time
async def test_a_cluster_that_is_silent_is_given_up_for_longer_each_time_and_not_once_it_is_heard() -> None:
    clusters = Clusters("eu", "us")
    clusters.down.add("eu")
    async with shard_of(clusters) as shard:
        epochs = itertools.count(1)
        await shard.sees(next(epochs), "eu", "us")
        await asyncio.sleep(PATIENCE - 10)
        assert not shard.unreachable
        for times in 1, 2, 4:
            await asyncio.sleep(30 if times == 1 else PATIENCE + 10)
            assert shard.unreachable == {"eu"}
            await shard.sees(next(epochs), "us")  # another one has it
            await asyncio.sleep(times * FORGOTTEN - 30)
            assert shard.unreachable == {"eu"}
            await asyncio.sleep(60)
            assert not shard.unreachable
            await shard.sees(next(epochs), "eu", "us")
        await asyncio.sleep(PATIENCE + 10)
        assert shard.unreachable == {"eu"}
        await asyncio.sleep(10 * FORGOTTEN)
        assert shard.unreachable == {"eu"}, "nobody else could have it"
        clusters.down.clear()
        await asyncio.sleep(10)
        assert not shard.unreachable


@virtual_time
async def test_clusters_that_answer_are_looked_at_when_they_may_have_become_silent() -> None:
    clusters = Clusters("eu", "us")
    async with shard_of(clusters) as shard:
        await shard.sees(1, "eu", "us")
        await asyncio.sleep(3600)
        assert len(set(clusters.looks)) <= 3600 / 60 + 2
        clusters.down.add("eu")
        await asyncio.sleep(60 + PATIENCE + 10)
        assert shard.unreachable == {"eu"}


@virtual_time
async def test_what_it_gets_at_once_is_engaged_in_the_order_of_the_names() -> None:
    """So a simulation is the same run under every hash seed."""
    names = [f"c{number}" for number in range(10)]
    clusters = Clusters(*names)
    async with shard_of(clusters) as shard:
        await shard.sees(1, *names)
        assert clusters.history == [f"+{name}" for name in names]
