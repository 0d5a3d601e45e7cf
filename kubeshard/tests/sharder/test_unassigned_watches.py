"""The watch on unassigned objects is reopened, whatever ended it, and rings share it."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from types import SimpleNamespace
from typing import Any

import pytest
from small_ring import SmallRing, ring_machine

from kubeshard.cache import Updated
from kubeshard.client.watching import Changed
from kubeshard.core.errors import ApiError, Forbidden, Gone, NotFound, Throttled, Timeout, Unavailable
from kubeshard.core.kinds import GroupResource, Kind
from kubeshard.core.objects import ObjectMeta, PartialObject
from kubeshard.core.selectors import LabelSelector, Selector
from kubeshard.sharder.rings import Rings
from kubeshard.sharder.tasks import DrivenResource, carried_out
from kubeshard.sharder.unassigned import APART, MACHINES_A_TURN, UnassignedWatches
from kubeshard.sharding.api import RingResource
from kubeshard.sharding.names import shard_label
from kubeshard.sharding.object_job import Job, MoveResult, Step
from kubeshard.sharding.planner import RingView
from kubeshard.sharding.schedule import ScanPriority, ScanScope
from kubeshard_lab.virtual_time import VirtualClock, virtual_time
from kubeshard_lab.virtual_world import virtual_world


def unassigned_watches(client: Any, kinds: Any, permissions: Any, rings: Rings) -> UnassignedWatches:
    return UnassignedWatches(client, kinds, permissions, rings, clock=VirtualClock())


class Nothing:
    """An empty list."""

    resource_version = "7"
    undecodable = ()

    async def __aiter__(self) -> AsyncIterator[Any]:
        return
        yield


class Failing:
    """A watch that fails as it opens, or later."""

    def __init__(self, error: ApiError, *, opens: bool) -> None:
        self._error = error
        self._opens = opens

    async def __aenter__(self) -> Failing:
        if not self._opens:
            raise self._error
        return self

    async def __aexit__(self, *_: object) -> None: ...

    async def __aiter__(self) -> AsyncIterator[Any]:
        await asyncio.sleep(90.0)
        raise self._error
        yield


@pytest.mark.parametrize("opens", [True, False])
@pytest.mark.parametrize("error", [Timeout, Unavailable, Gone, Forbidden, NotFound, Throttled])
@virtual_time
async def test_a_watch_that_fails_is_opened_again_and_asks_for_a_scan(
    error: type[ApiError], opens: bool
) -> None:
    opened: list[str] = []

    def watch(*_: object, resource_version: str, **__: object) -> Failing:
        opened.append(resource_version)
        return Failing(error("as servers do"), opens=opens)

    async def kind(_: GroupResource) -> Kind:
        return Kind("", "v1", "Secret", "secrets")

    async def refused(*_: object) -> None: ...

    async def version(*_: object, **__: object) -> str:
        return "7"

    client: Any = SimpleNamespace(
        world=virtual_world(), list=lambda *_, **__: Nothing(), current_version=version, watch=watch
    )
    client.with_retry = lambda _: client
    kinds: Any = SimpleNamespace(kind=kind, forget=lambda _: None)
    permissions: Any = SimpleNamespace(refused=refused, granted=lambda *_: None)
    small = SmallRing("a", clock=VirtualClock())
    sync = small.sync("secrets")
    sync.began[ScanPriority.NORMAL] = 0.0  # the scan of the start is past what the watch may miss
    watches = unassigned_watches(client, kinds, permissions, small.rings)
    missed: list[ScanScope] = []
    sync.request = lambda scope, now: missed.append(scope)  # type: ignore[method-assign]
    running = asyncio.create_task(watches.keep_watching(sync))
    await asyncio.sleep(600.0)
    assert not running.done()
    assert len(opened) > 2
    assert set(opened) == {"7"}
    goes_on = issubclass(error, Unavailable | Throttled) or (error is Timeout and not opens)
    # A watch that goes on where it was has missed nothing.
    assert len(missed) in (range(1, len(opened) + 1) if goes_on else [len(opened)])
    assert set(missed) == {ScanScope.MISPLACED}
    running.cancel()


@pytest.mark.parametrize("fresh", [True, False])
@virtual_time
async def test_an_object_is_left_to_a_scan_which_reads_the_leases_if_they_may_have_changed(
    fresh: bool,
) -> None:
    small = SmallRing("a", clock=VirtualClock())
    small.is_fresh = fresh
    sync, scans = small.sync("secrets"), list[ScanScope]()
    sync.began[ScanPriority.NORMAL] = 0.0  # no scan of all is due
    sync.request = lambda scope, now: scans.append(scope)  # type: ignore[method-assign]
    meta = ObjectMeta(name="token", namespace="default", uid="uid", resource_version="1")
    sync.seen(Kind("", "v1", "Secret", "secrets"), meta, changed=True)
    (what, job), *_ = sync.due()
    assert isinstance(job, Job)
    steps = list[Step]()

    async def do(step: Step) -> ObjectMeta:
        steps.append(step)
        return ObjectMeta(labels={small.view.shard_label: "a"})

    assert await carried_out(sync.steps(what, job), do) is (MoveResult.MOVED if fresh else MoveResult.WAITING)
    assert len(steps) == fresh
    assert scans == ([] if fresh else [ScanScope.MISPLACED])


class Many:
    """Rings with the resource `secrets`, each of which selects the namespace that has its name, or every one; and what
    they watch.
    """

    def __init__(self, count: int, *, everywhere: bool = False) -> None:
        clock = VirtualClock()

        def selector(name: str) -> LabelSelector:
            return LabelSelector() if everywhere else LabelSelector(match_labels={"for": name})

        self.small = SmallRing("a", clock=clock, name="ring-0", selector=selector("ring-0"))
        for number in range(1, count):
            name = f"ring-{number}"
            self.small.add(name, RingResource(resource="secrets"), selector=selector(name))
        self.small.namespaces = {f"ring-{number}": {"for": f"ring-{number}"} for number in range(count)}
        self.events: list[asyncio.Queue[Any]] = []
        """Those of each open watch."""
        self.selectors: list[str] = []
        self.lists: list[str] = []
        self.moved: list[tuple[str, str]] = []
        """Rings and objects."""
        self.hang: set[str] = set()
        """Rings whose moves hang."""
        self.syncs: list[DrivenResource] = []
        for ring in self.small.rings:
            sync = DrivenResource(ring_machine(ring), ring.resources.entry(SECRETS), 300.0)
            sync.began[ScanPriority.NORMAL] = 0.0
            self.syncs.append(sync)

        async def kind(_: GroupResource) -> Kind:
            return Kind("", "v1", "Secret", "secrets")

        def lists(*_: object, label_selector: Selector | None = None, **__: object) -> Nothing:
            self.lists.append(str(label_selector or ""))
            return Nothing()

        async def version(*_: object, **__: object) -> str:
            return "7"

        client: Any = SimpleNamespace(
            world=virtual_world(), list=lists, current_version=version, watch=self._watch
        )
        client.with_retry = lambda _: client
        kinds: Any = SimpleNamespace(kind=kind)
        permissions: Any = SimpleNamespace(granted=lambda *_: None)
        self.watches = unassigned_watches(client, kinds, permissions, self.small.rings)

    async def watched(self, sync: DrivenResource) -> None:
        """Its watch, and whoever does what that finds."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self.watches.keep_watching(sync))
            while True:
                for what, job in sync.due():
                    if isinstance(job, Job):
                        group.create_task(carried_out(sync.steps(what, job), self._do))
                await sync.attended()

    @asynccontextmanager
    async def _watch(
        self, *_: object, label_selector: Selector | None, **__: object
    ) -> AsyncIterator[AsyncIterator[Any]]:
        queue: asyncio.Queue[Any] = asyncio.Queue()
        self.events.append(queue)
        self.selectors.append(str(label_selector or ""))

        async def events() -> AsyncIterator[Any]:
            while True:
                yield await queue.get()

        try:
            yield events()
        finally:
            del self.selectors[self.events.index(queue)]
            self.events.remove(queue)

    async def _do(self, step: Step) -> object:
        """Nobody does the writes."""
        ring = step.job.ring.name
        if ring in self.hang:
            await asyncio.sleep(3600.0)
        self.moved.append((ring, step.job.meta.name))
        return ObjectMeta(labels={step.job.view.shard_label: step.job.decision.target})

    def appears(self, namespace: str, name: str, **labels: str) -> None:
        meta = ObjectMeta(name=name, namespace=namespace, resource_version="8", labels=labels)
        for queue in self.events:
            queue.put_nowait(Changed("ADDED", PartialObject(metadata=meta)))


SECRETS = GroupResource("", "secrets")


@virtual_time
async def test_up_to_a_few_rings_each_watch_only_what_is_unassigned() -> None:
    many = Many(APART)
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(many.watched(sync)) for sync in many.syncs]
        await asyncio.sleep(1.0)
        assert many.selectors == [f"{shard_label(ring.name)}!=a" for ring in many.small.rings]
        for task in tasks:
            task.cancel()


@virtual_time
async def test_the_watch_of_a_ring_follows_its_shards_as_far_as_a_selector_can_name_them() -> None:
    many = Many(1)
    (sync,) = many.syncs
    label = shard_label(sync.ring.name)
    async with asyncio.TaskGroup() as group:
        task = group.create_task(many.watched(sync))
        many_names = tuple(f"operator-{number}" for number in range(1000))
        for shards, selector in (
            (("a", "b"), f"{label} notin (a,b)"),
            ((), f"!{label}"),
            (many_names, f"!{label}"),
            (("c",), f"{label}!=c"),
        ):
            many.small.shards = shards
            sync.notify()
            await asyncio.sleep(1.0)
            assert many.selectors == [selector]
        for shards in (("a",), ("b",), ("c",)):
            many.small.shards = shards
            sync.notify()
            await asyncio.sleep(0)
        await asyncio.sleep(1.0)
        assert many.selectors == [f"{label}!=c"]
        many.appears("ring-0", "new")
        many.appears("ring-0", "lost", **{label: "nobody"})
        many.appears("ring-0", "placed", **{label: "c"})
        await asyncio.sleep(1.0)
        ring = sync.ring.name
        assert many.moved == [(ring, "new"), (ring, "lost"), (ring, "lost")], "the last one after a proof"
        task.cancel()


@virtual_time
async def test_a_thousand_rings_have_one_watch_on_a_resource_and_each_gets_its_objects() -> None:
    many = Many(1000)
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(many.watched(sync)) for sync in many.syncs]
        await asyncio.sleep(1.0)
        assert many.selectors == [""]
        many.appears("ring-7", "x")
        many.appears("ring-999", "y")
        many.appears("ring-3", "assigned", **{shard_label("ring-3"): "a"})
        await asyncio.sleep(1.0)
        assert many.moved == [("ring-7", "x"), ("ring-999", "y")]
        for task in tasks[1:]:
            task.cancel()
        many.appears("ring-0", "z")
        await asyncio.sleep(1.0)
        assert many.moved[2:] == [("ring-0", "z")], "the last ring still has the watch"
        tasks[0].cancel()
    assert many.selectors == []


@virtual_time
async def test_a_shared_watch_that_begins_again_reads_what_it_missed_once_for_all_rings() -> None:
    many = Many(50)
    asked: list[DrivenResource] = []
    for sync in many.syncs:
        sync.request = lambda scope, now, sync=sync: asked.append(sync)  # type: ignore[method-assign, misc]
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(many.watched(sync)) for sync in many.syncs]
        await asyncio.sleep(1.0)
        assert many.lists == [""]
        assert asked == []
        for task in tasks:
            task.cancel()


@virtual_time
async def test_moves_of_one_ring_that_hang_do_not_delay_the_shared_watch_of_others() -> None:
    many = Many(50)
    many.hang = {"ring-7"}
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(many.watched(sync)) for sync in many.syncs]
        await asyncio.sleep(1.0)
        for number in range(200):
            many.appears("ring-7", f"x-{number}")
        many.appears("ring-8", "y")
        await asyncio.sleep(0.1)
        assert many.moved == [("ring-8", "y")]
        for task in tasks:
            task.cancel()


@virtual_time
async def test_a_ring_on_which_decisions_crash_costs_the_other_rings_of_a_shared_watch_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    many, decide = Many(50), DrivenResource.seen

    def crashes(sync: DrivenResource, kind: Kind, meta: ObjectMeta, *, changed: bool) -> None:
        if sync is many.syncs[7]:
            raise ZeroDivisionError
        decide(sync, kind, meta, changed=changed)

    monkeypatch.setattr(DrivenResource, "seen", crashes)
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(many.watched(sync)) for sync in many.syncs]
        await asyncio.sleep(1.0)
        many.appears("ring-7", "x")
        many.appears("ring-8", "y")
        await asyncio.sleep(0.1)
        assert many.moved == [("ring-8", "y")]
        for task in tasks:
            task.cancel()


@virtual_time
async def test_an_object_that_concerns_a_thousand_rings_leaves_the_loop_to_other_tasks_in_between(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    many = Many(1000, everywhere=True)
    considered, most, total = 0, 0, 0
    done = asyncio.Event()

    def note(*_: object, **__: object) -> None:
        nonlocal considered, total
        considered, total = considered + 1, total + 1
        if total == 1000:
            done.set()

    async def others() -> None:
        nonlocal considered, most
        while True:
            most, considered = max(most, considered), 0
            await asyncio.sleep(0)

    monkeypatch.setattr(DrivenResource, "seen", note)
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(many.watched(sync)) for sync in many.syncs]
        await asyncio.sleep(1.0)
        other = asyncio.create_task(others())
        many.appears("ring-0", "x")
        await done.wait()
        for task in [other, *tasks]:
            task.cancel()
    assert 0 < most <= MACHINES_A_TURN


@virtual_time
async def test_what_is_known_of_the_rings_of_a_namespace_outlasts_a_status_and_other_namespaces() -> None:
    many = Many(50)
    asked = Counter[str]()
    selects = RingView.selects

    def note(view: RingView, namespace: str) -> bool:
        asked[namespace] += 1
        return selects(view, namespace)

    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(many.watched(sync)) for sync in many.syncs]
        await asyncio.sleep(1.0)
        with pytest.MonkeyPatch.context() as patched:
            patched.setattr(RingView, "selects", note)
            for _ in range(20):
                many.appears("ring-7", "x", **{shard_label("ring-7"): "a"})
                many.small.namespaces[f"more-{len(asked)}"] = {}
                many.small.rings.apply(Updated(many.small.resource, many.small.resource))
                await asyncio.sleep(0.1)
        for task in tasks:
            task.cancel()
    # One ring may select it: it is asked once, and twice for the decision about each change of the object.
    assert asked["ring-7"] <= 1 + 2 * 20
