"""Which runs happen in a ring that is sharded by ranges, and when nothing acts for a bucket any more."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from kubeshard.client.version_fence import VersionFence
from kubeshard.controller import Result
from kubeshard.controller.in_flight import Activities, InFlight
from kubeshard.core import KubeObject, NotOurs, ObjectMeta
from kubeshard.core.kinds import GroupKind
from kubeshard.core.objects import form_of
from kubeshard.shard.range_ownership import RangeOwnership, State
from kubeshard.shard.range_runs import POSTPONED, BucketRuns
from kubeshard.sharding.assignment import Assignment, Place
from kubeshard.sharding.buckets import Buckets, By
from kubeshard_lab.virtual_time import virtual_time


class Site(KubeObject, group="example.com", version="v1"):
    pass


PART = GroupKind("example.com", "Part")
SITE = Site(metadata=ObjectMeta(name="a", namespace="n", uid="u"))


class Shard:
    """A shard `a` of a ring with one bucket, and one controller."""

    def __init__(self, *steps: str, by: By = "uid") -> None:
        self.buckets = Buckets(1, by)
        self.ownership = RangeOwnership("a", self.buckets)
        self.in_flight = InFlight()
        self.runs = BucketRuns(self.ownership)
        self.began: list[KubeObject | None] = []
        self.going_on = asyncio.Event()
        self.check: Any = None
        self.working_on = ""
        self._run = self.bound(self._inner)
        for step in steps:
            self.take(step)

    def bound(self, inner: Any) -> Any:
        fence = VersionFence(lambda kind: True, lambda kind, meta: True, lambda: None)
        return self.runs.bound(self._bucket_of, fence, inner)

    def reads(self, *kinds: GroupKind) -> None:
        fence = VersionFence(lambda kind: True, lambda kind, meta: True, lambda: None)
        self._run = self.runs.bound(self._bucket_of, fence, self._inner, frozenset(kinds))

    def _bucket_of(self, run: Any, obj: KubeObject | None) -> int | None:
        return 0 if obj is not None or self.buckets.by != "uid" else None

    def take(self, step: str) -> None:
        if step == "listed":
            self.ownership.listed(self.ownership.terms)
        elif step == "idle":
            self.ownership.idle({0})
        else:
            assignment = Assignment.of(self.buckets, {0: Place.parse(step)})
            self.ownership.seen(assignment)
            self.ownership.confirm(self.ownership.unconfirmed, assignment)

    async def run(self, obj: KubeObject | None = SITE) -> Result | None:
        form, key = form_of(Site), (obj or SITE).key
        activities = Activities(self.in_flight, "site", form.kind.group_kind, key)
        client = SimpleNamespace(fenced=lambda fence: fence)
        run: Any = SimpleNamespace(form=form, key=key, activities=activities, client=client)
        self.activities = activities
        with activities:
            return await self._run(run, obj)

    async def _inner(self, run: Any, obj: KubeObject | None) -> Result | None:
        self.began.append(obj)
        self.check = getattr(run.client, "check", None)
        self.working_on = getattr(run.client, "working_on", "")
        await self.going_on.wait()
        return Result(requeue_after=7)


OURS = ("a@1", "listed")


@pytest.mark.parametrize(
    ("steps", "state", "expected"),
    [
        (("b@1",), State.FOREIGN, None),
        (("a@1",), State.ACQUIRING, Result(requeue_after=POSTPONED)),
        (OURS, State.OWNED, Result(requeue_after=7)),
        ((*OURS, "a to b@2"), State.DRAINING, None),
        ((*OURS, "a to b@2", "idle"), State.LEAVING, None),
    ],
)
@virtual_time
async def test_an_object_is_run_only_while_its_bucket_is_owned_whatever_the_cache_has(
    steps: tuple[str, ...], state: State, expected: Result | None
) -> None:
    shard = Shard(*steps)
    shard.going_on.set()
    assert shard.ownership.state(0) is state
    assert await shard.run() == expected
    assert bool(shard.began) is (state is State.OWNED)
    assert shard.working_on == ("0" if shard.began else "")
    assert not shard.runs.busy(0)


@pytest.mark.parametrize("obj", [SITE, None])
@virtual_time
async def test_a_run_waits_for_the_kinds_that_its_controller_reads_and_for_its_own_if_the_object_is_gone(
    obj: KubeObject | None,
) -> None:
    shard = Shard("a@1", by="namespace")
    shard.going_on.set()
    shard.reads(PART)
    listed = [PART, SITE.KIND.group_kind]
    for kind in listed[: 1 if obj else 2]:
        assert await shard.run(obj) == Result(requeue_after=POSTPONED)
        shard.ownership.listed(shard.ownership.terms, frozenset({kind}))
    assert await shard.run(obj) == Result(requeue_after=7)
    shard.activities.sending(1.0)(True)  # as a task that it left behind


@virtual_time
async def test_what_is_gone_is_passed_on() -> None:
    shard = Shard("b@1")
    shard.going_on.set()
    assert await shard.run(None) == Result(requeue_after=7)
    assert shard.began == [None]


@virtual_time
async def test_a_run_for_what_is_gone_holds_up_the_bucket_that_its_namespace_gives() -> None:
    shard = Shard(*OURS, by="namespace")
    running = asyncio.create_task(shard.run(None))
    await asyncio.sleep(1)
    assert shard.began == [None]
    shard.take("a to b@2")
    assert shard.runs.busy(0)
    shard.check()
    shard.runs.cancel({0})
    assert await running is None
    assert not shard.runs.busy(0)
    shard.take("idle")
    with pytest.raises(NotOurs, match="has been handed over"):
        shard.check()


@pytest.mark.parametrize(
    ("steps", "began"),
    [(("a@1",), False), ((*OURS, "a to b@2"), False), ((*OURS, "a to b@2", "idle"), False), (("b@1",), True)],
)
@virtual_time
async def test_what_is_gone_in_a_namespace_waits_until_it_is_known_whose_its_bucket_is(
    steps: tuple[str, ...], began: bool
) -> None:
    shard = Shard(*steps, by="namespace")
    shard.going_on.set()
    result = await shard.run(None)
    assert shard.began == ([None] if began else [])
    assert result == Result(requeue_after=7 if began else POSTPONED)


@virtual_time
async def test_a_bucket_is_idle_when_its_runs_have_ended_and_they_may_write_until_then() -> None:
    shard = Shard(*OURS)
    running = asyncio.create_task(shard.run())
    await asyncio.sleep(1)
    shard.take("a to b@2")
    waiting = asyncio.create_task(shard.runs.idle(0))
    await asyncio.sleep(1)
    assert shard.runs.busy(0)
    assert not waiting.done()
    shard.check()
    shard.going_on.set()
    await waiting
    assert running.done()
    shard.take("idle")
    with pytest.raises(NotOurs, match="has been handed over"):
        shard.check()


@virtual_time
async def test_a_task_that_a_run_left_behind_writes_no_more_once_the_bucket_is_drained() -> None:
    shard = Shard(*OURS)
    shard.going_on.set()
    await shard.run()
    shard.activities.sending(1.0)(True)
    shard.take("a to b@2")
    with pytest.raises(NotOurs, match="has been handed over"):
        shard.activities.sending(1.0)


@virtual_time
async def test_a_bucket_is_not_idle_while_a_write_of_an_earlier_run_is_under_way() -> None:
    shard = Shard(*OURS)
    shard.going_on.set()
    await shard.run()
    running = asyncio.create_task(shard.run())
    done = shard.activities.sending(9.0)
    await running
    assert shard.runs.busy(0)
    shard.take("a to b@2")
    waiting = asyncio.create_task(shard.runs.idle(0))
    done(False)
    await asyncio.sleep(8)
    assert not waiting.done()
    await asyncio.wait_for(waiting, 2)


@virtual_time
async def test_a_run_that_is_cancelled_ends_without_a_failure_and_its_own_timeout_is_one() -> None:
    shard = Shard(*OURS)
    running = asyncio.create_task(shard.run())
    await asyncio.sleep(1)
    shard.runs.cancel({0})
    assert await running is None

    async def late(run: Any, obj: KubeObject | None) -> None:
        raise TimeoutError("of its own")

    shard._run = shard.bound(late)
    with pytest.raises(TimeoutError, match="of its own"):
        await shard.run()


@virtual_time
async def test_runs_are_cancelled_although_one_of_them_is_already_ending() -> None:
    shard = Shard(*OURS)
    ended = list[str]()

    async def slow_to_end(run: Any, obj: KubeObject | None) -> None:
        try:
            await asyncio.sleep(1000)
        finally:
            await asyncio.sleep(10)
            ended.append("slow")

    ending = shard.bound(slow_to_end)
    shard._run = ending
    one = asyncio.create_task(shard.run())
    await asyncio.sleep(1)
    shard.runs.cancel({0})
    await asyncio.sleep(1)
    shard._run = shard.bound(shard._inner)
    other = asyncio.create_task(shard.run())
    await asyncio.sleep(1)
    shard.runs.cancel({0})
    assert await other is None
    assert ended == []
    assert await one is None


@virtual_time
async def test_an_object_that_waits_for_another_kind_is_tried_a_few_times_and_soon_after_that() -> None:
    shard, loop = Shard("a@1"), asyncio.get_running_loop()
    shard.going_on.set()
    loop.call_later(600, shard.take, "listed")
    began, tries = loop.time(), 0
    while not shard.began:
        result = await shard.run()
        assert result is not None
        tries += 1
        if not shard.began:
            await asyncio.sleep(result.requeue_after or 0)
    assert 600 <= loop.time() - began <= 750
    assert tries < 60


@virtual_time
async def test_an_object_of_a_bucket_that_comes_again_waits_for_its_lists_from_the_beginning() -> None:
    shard = Shard("a@1")
    await shard.run()
    await asyncio.sleep(600)
    shard.take("b@2")
    shard.take("a@3")
    assert await shard.run() == Result(requeue_after=POSTPONED)


@virtual_time
async def test_an_object_is_tried_again_within_a_minute_however_long_a_kind_could_not_be_listed() -> None:
    shard = Shard("a@1")
    await shard.run()
    await asyncio.sleep(3600)
    assert await shard.run() == Result(requeue_after=60)


@virtual_time
async def test_what_is_known_of_objects_that_are_gone_does_not_grow() -> None:
    """Daemons, threads and writes without an answer go on when a run has ended. Then no run shows that they have."""
    shard = Shard(*OURS)
    shard.going_on.set()
    for number in range(100):
        site = Site(metadata=ObjectMeta(name=f"site-{number}", namespace="n", uid="u"))
        await shard.run(site)
        daemon = shard.activities.working()
        await shard.run(site)
        daemon.end()
    assert len(shard.runs._acting[0]) <= 3
    assert not shard.runs.busy(0)


@virtual_time
async def test_into_a_cluster_that_is_drained_only_its_own_runs_write() -> None:
    shard = Shard(*OURS)
    writes = shard.runs.writes_in("eu", 0)

    async def inner(run: Any, obj: KubeObject | None) -> None:
        shard.take("a to b@2")
        writes.sending(1.0)(True)

    shard._run = shard.bound(inner)
    await shard.run()
    with pytest.raises(NotOurs, match="not for long this shard's"):
        writes.sending(1.0)
