"""How a controller uses its queue: which key goes first, what resets a backoff, and why a reconcile ran."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from typing import Any

import pytest
from controller_bench import Bench, Site, Theme, child, site

from kubeshard import when
from kubeshard.controller import ChannelSource, Context, Controller, Result, Watch
from kubeshard.core import ConfigMap, Key, ObjectMeta, Unavailable
from kubeshard.workqueue import LOW, Debounce, RoundRobin
from kubeshard_lab.virtual_time import settle, virtual_time

A = Key("ns", "a")


class Seen:
    """A reconciler that records each run, takes some time, and then does what it is told."""

    def __init__(self, *acts: Any, seconds: float = 0) -> None:
        self.acts = list(acts)
        self.seconds = seconds
        self.runs: list[tuple[float, Key]] = []
        self.why: list[Any] = []

    async def __call__(self, ctx: Context, obj: Any) -> Any:
        self.runs.append((ctx.clock.monotonic(), ctx.key))
        self.why.append(ctx.why)
        if self.seconds:
            await asyncio.sleep(self.seconds)
        act = self.acts.pop(0) if len(self.acts) > 1 else self.acts[0] if self.acts else None
        if isinstance(act, BaseException):
            raise act
        return act

    @property
    def keys(self) -> list[Key]:
        return [key for _, key in self.runs]

    @property
    def names(self) -> list[str]:
        return [key.name for key in self.keys]

    @property
    def times(self) -> list[float]:
        return [time for time, _ in self.runs]


# -- order


@virtual_time
async def test_a_fresh_change_goes_before_the_objects_that_were_there_at_the_start() -> None:
    seen = Seen(seconds=1)
    async with Bench(seen).running(*(site(f"old-{number}") for number in range(5))) as bench:
        await bench.put(site("fresh"))
        await bench.put(site("old-4", 2))
        await asyncio.sleep(10)
    assert seen.names == ["old-0", "fresh", "old-4", "old-1", "old-2", "old-3"]


@virtual_time
async def test_a_fresh_change_goes_before_a_resync() -> None:
    seen = Seen(seconds=1)
    watch = Watch(Site, resync=100)
    objects = [site(f"old-{number}") for number in range(3)]
    async with Bench(seen, primary=watch, workers=1).running(*objects) as bench:
        while len(seen.runs) < 4:  # noqa: ASYNC110 - virtual time
            await asyncio.sleep(0.01)
        await asyncio.sleep(0.9)  # the first key of the resync is running, and the next is waiting
        await bench.put(site("fresh"))
        await asyncio.sleep(5)
    assert seen.names[3:6] == ["old-0", "fresh", "old-1"]
    assert [cause.reason.what for cause in seen.why[5]] == ["resynced"]


@virtual_time
async def test_a_retry_keeps_the_priority_of_the_run_that_failed() -> None:
    """Failing objects of an initial list do not delay other changes in their second round either."""
    seen = Seen(*[Unavailable("down")] * 3, None, seconds=0.6)
    objects = [site(f"old-{number}") for number in range(3)]
    async with Bench(seen).running(*objects) as bench:
        while len(bench.runner.queue) < 1 or len(seen.runs) < 4:  # noqa: ASYNC110 - virtual time
            await asyncio.sleep(0.01)
        await bench.put(site("fresh"))
        await asyncio.sleep(10)
    assert seen.names.index("fresh") == 4
    assert len(seen.names) == 7


@virtual_time
async def test_namespaces_take_turns() -> None:
    seen = Seen(seconds=1)
    many = [site(f"many-{number}", namespace="big") for number in range(20)]
    few = [site(f"few-{number}", namespace="small") for number in range(3)]
    async with Bench(seen).running(*many, *few):
        await asyncio.sleep(30)
    assert [seen.names.index(obj.metadata.name) for obj in few] == [1, 3, 5]
    assert len(seen.names) == 23


@virtual_time
async def test_the_controllers_order_is_the_one_that_is_used() -> None:
    class LastFirst(deque[Key]):
        def popleft(self) -> Key:
            return self.pop()

    seen = Seen(seconds=1)
    async with Bench(seen, order=LastFirst).running(site("a"), site("b"), site("c")):
        await asyncio.sleep(10)
    assert seen.names == ["c", "b", "a"]


@virtual_time
async def test_a_source_may_say_that_others_go_first() -> None:
    class Source:
        async def run(self, enqueue: Any) -> None:
            enqueue(Key("ns", "sweep"), "sweep", priority=LOW)
            enqueue(Key("ns", "urgent"), "urgent", priority=10)
            enqueue(Key("ns", "usual"), "usual")

    seen = Seen()
    bench = Bench(
        seen, primary=Watch(Site, when=when.never), sources=[Source()], gone=lambda ctx, key: seen(ctx, None)
    )
    async with bench.running():
        await settle()
    assert seen.names == ["urgent", "usual", "sweep"]


@pytest.mark.parametrize("order", [RoundRobin(), deque(), None])
def test_an_order_that_is_not_made_anew_is_refused(order: Any) -> None:
    with pytest.raises(TypeError, match="order"):
        Controller(name="c", reconciler=Seen(), primary=Site, order=order)


def test_a_debounce_that_is_a_number_is_refused() -> None:
    with pytest.raises(TypeError, match="Debounce"):
        Controller(name="c", reconciler=Seen(), primary=Site, debounce=1.0)  # type: ignore[arg-type]


# -- bursts


@virtual_time
async def test_a_burst_of_triggers_makes_one_run() -> None:
    seen = Seen()
    async with Bench(seen, debounce=Debounce(2, 10)).running(site("a")) as bench:
        await asyncio.sleep(5)
        for version in range(2, 5):
            await bench.put(site("a", version))
            await asyncio.sleep(1)
        await asyncio.sleep(60)
    assert seen.times == [2, 9]


@virtual_time
async def test_a_requeue_after_is_not_debounced() -> None:
    seen = Seen(Result(requeue_after=1.0), None)
    async with Bench(seen, debounce=Debounce(2, 10)).running(site("a")):
        await asyncio.sleep(60)
    assert seen.times == [2, 3]


# -- backoff


@virtual_time
async def test_a_spec_change_is_tried_at_once_and_starts_the_backoff_anew() -> None:
    seen = Seen(Unavailable("down"))
    async with Bench(seen).running(site("a")) as bench:
        await asyncio.sleep(100)
        assert seen.times == [0, 1, 3, 7, 15, 31, 63]
        await bench.put(site("a", 2))
        await asyncio.sleep(20)
    assert seen.times[7:] == [100, 101, 103, 107, 115]


@virtual_time
async def test_a_new_object_of_an_old_name_starts_its_backoff_anew() -> None:
    """Even if the work for the deleted object had failed all along."""
    seen = Seen(Unavailable("down"))
    async with Bench(seen, gone=lambda ctx, key: seen(ctx, None)).running(site("a")) as bench:
        await bench.remove(site("a", 2))
        await asyncio.sleep(100)
        assert seen.times == [0, 0, 1, 3, 7, 15, 31, 63]
        await bench.put(site("a", 3))
        await asyncio.sleep(10)
    assert seen.times[8:] == [100, 101, 103, 107]


@virtual_time
async def test_a_status_or_label_change_does_not_inflate_the_backoff() -> None:
    """Each of these changes is tried at once; the retries come when they would have come without them."""
    seen = Seen(Unavailable("down"))
    async with Bench(seen).running(site("a")) as bench:
        await asyncio.sleep(8)
        assert seen.times == [0, 1, 3, 7]
        for version in range(2, 6):
            await bench.put(site("a", version, generation=1, labels={"version": str(version)}))
            await asyncio.sleep(1)
        await asyncio.sleep(20)
    assert seen.times == [0, 1, 3, 7, 8, 9, 10, 11, 15, 31]


@virtual_time
async def test_a_change_of_another_object_does_not_start_the_backoff_anew() -> None:
    seen = Seen(Unavailable("down"))
    async with Bench(seen, owns=[ConfigMap]).running(site("a")) as bench:
        await asyncio.sleep(8)
        await bench.put(child("a", "a", generation=1))  # an object of the same name
        await bench.put(child("a", "a", version=2, generation=2))
        await asyncio.sleep(20)
    assert seen.times == [0, 1, 3, 7, 8, 8, 15]


# -- reasons


@virtual_time
async def test_a_reconcile_knows_what_triggered_it_which_object_and_since_when() -> None:
    seen, source = Seen(seconds=5), ChannelSource()
    to_a = Watch(Theme, to=lambda cache, theme: [A])
    async with Bench(seen, watches=[to_a], owns=[ConfigMap], sources=[source]).running(site("a")) as bench:
        await asyncio.sleep(1)
        await bench.put(site("a", 2))
        await asyncio.sleep(1)
        await bench.put(child("c", "a"))
        await bench.put(Theme(metadata=ObjectMeta(name="dark", uid="t", resource_version="5")))
        await asyncio.sleep(1)
        source.trigger(A, "lease expired")
        await bench.remove(child("c", "a", version=2))
        await bench.put(site("a", 3))
        await asyncio.sleep(10)
    listed, changed = seen.why
    assert [(*cause.reason[:3], cause.since) for cause in listed] == [("listed", "Site", None, 0)]
    assert [(*cause.reason[:3], cause.since) for cause in changed] == [
        ("changed", "Site", None, 1),
        ("added", "ConfigMap", Key("ns", "c"), 2),
        ("added", "Theme", Key("", "dark"), 2),
        ("source", "", None, 3),
        ("left the cache", "ConfigMap", Key("ns", "c"), 3),
    ]
    assert [str(cause) for cause in changed][2:] == [
        "Theme dark added",
        "lease expired",
        "ConfigMap ns/c left the cache",
    ]


@virtual_time
async def test_the_line_of_a_run_in_the_log_says_why_it_ran_and_how_long_that_waited(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with caplog.at_level(logging.DEBUG, logger="kubeshard.controller.site"):
        async with Bench(Seen(seconds=2)).running(site("a"), site("b")):
            await asyncio.sleep(5)
    lines = [record for record in caplog.records if record.msg == "Reconciled"]
    assert [(line.fields["reasons"], line.fields["waited"]) for line in lines] == [  # type: ignore[attr-defined]
        (("Site listed",), 0),
        (("Site listed",), 2),
    ]


@virtual_time
async def test_retries_and_requeues_say_so() -> None:
    seen = Seen(Unavailable("down"), Result(requeue_after=5.0), None)
    async with Bench(seen).running(site("a")) as bench:
        await asyncio.sleep(10)
    assert [str(cause) for why in seen.why for cause in why] == ["Site listed", "retry", "requeue_after"]
    assert bench.runner.queue.caused() == {
        ("listed", "Site"): 1,
        ("retry", ""): 1,
        ("requeue_after", ""): 1,
    }
