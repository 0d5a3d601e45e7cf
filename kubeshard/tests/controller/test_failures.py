"""Failed reconciles: when they are tried again, when they are given up, and what is said about them."""

from __future__ import annotations

import asyncio
import logging
from datetime import timedelta
from typing import Any

import pytest
from controller_bench import Bench, Site, child, json_answer, site

from kubeshard import errors
from kubeshard.controller import Context, Controller, Result
from kubeshard.controller.hot_loops import TOLERATED
from kubeshard.controller.outcomes import Ending
from kubeshard.core import ConfigMap, Key, MergePatch
from kubeshard.runtime.transport import HttpRequest, HttpResponse
from kubeshard_lab.virtual_time import settle, virtual_time

A = Key("ns", "a")


class Acting:
    """A reconciler that records when it runs, and then raises or returns what it is told; the last one is repeated."""

    def __init__(self, *acts: Any) -> None:
        self.acts = list(acts)
        self.times: list[float] = []

    async def __call__(self, ctx: Context, obj: Any) -> Result | None:
        self.times.append(asyncio.get_running_loop().time())
        act = self.acts.pop(0) if len(self.acts) > 1 else self.acts[0]
        if isinstance(act, BaseException):
            raise act
        return act


def said(caplog: pytest.LogCaptureFixture) -> list[tuple[str, bool]]:
    return [
        (str(record.__dict__["fields"].get("error")), record.exc_info is not None)
        for record in caplog.records
        if record.levelno == logging.ERROR
    ]


@virtual_time
async def test_a_retry_comes_when_the_reconciler_said_and_counts_as_failed() -> None:
    acting = Acting(errors.Retry("not yet", after=7), errors.Retry("not yet"), errors.Retry(after=3), None)
    async with Bench(acting).running(site("a")) as bench:
        await asyncio.sleep(100)
    assert acting.times == [0, 7, 8, 11]
    assert bench.recorded.labels == ["error", "error", "error", "success"]


@virtual_time
async def test_of_several_retries_the_earliest_counts_and_a_worse_error_before_them() -> None:
    both = ExceptionGroup("both", [errors.Retry(after=9), errors.Retry(after=4)])
    worse = ExceptionGroup("worse", [errors.Retry(after=9), ValueError("bug")])
    acting = Acting(both, worse, None)
    async with Bench(acting).running(site("a")):
        await asyncio.sleep(100)
    assert acting.times == [0, 4, 5]


def test_a_retry_needs_time() -> None:
    for after in (0, -1.0):
        with pytest.raises(ValueError, match="seconds, more than 0"):
            errors.Retry(after=after)


@virtual_time
async def test_an_exception_shows_its_stack_once_and_is_one_line_from_then_on(
    caplog: pytest.LogCaptureFixture,
) -> None:
    def broken(text: str) -> Exception:
        try:
            raise KeyError(text)
        except KeyError as error:
            return error

    acting = Acting(broken("1"), broken("2"), RuntimeError("other"), broken("3"), None)
    async with Bench(acting).running(site("a")) as bench:
        await asyncio.sleep(100)
        endings = [outcome.ending for outcome in bench.recorded.outcomes if outcome]
    assert endings == [*[Ending.FAILED] * 4, Ending.SUCCESS], "not one of them is a crash"
    assert [(error.split("'")[1] if "'" in error else error, trace) for error, trace in said(caplog)] == [
        ("1", True),
        ("2", False),
        ("other", True),
        ("3", False),
    ]


@virtual_time
async def test_an_expected_error_shows_no_stack(caplog: pytest.LogCaptureFixture) -> None:
    acting = Acting(errors.Retry("not yet", after=1), ConnectionError("down"), errors.Terminal("never"))
    async with Bench(acting).running(site("a")):
        await asyncio.sleep(100)
    assert [trace for _, trace in said(caplog)] == [False, False, False]


@virtual_time
async def test_an_object_is_given_up_after_so_many_failures_until_it_changes() -> None:
    acting = Acting(ValueError("no"))
    async with Bench(acting, give_up_after=3).running(site("a")) as bench:
        await asyncio.sleep(1000)
        assert acting.times == [0, 1, 3]
        assert bench.recorded.labels == ["error"] * 3
        assert bench.recorded.events == [("Warning", "GaveUp")]
        await bench.put(site("a", 2, generation=1))  # a trigger: one more run, not three
        await asyncio.sleep(1000)
        assert len(acting.times) == 4
        assert len(bench.recorded.events) == 2
        await bench.put(site("a", 3, generation=2))  # its spec changed: as new
        await asyncio.sleep(1000)
        assert len(acting.times) == 7
        acting.acts = [ValueError("no"), ValueError("no"), None, ValueError("no")]
        await bench.put(site("a", 4, generation=3))
        await asyncio.sleep(1000)
        assert len(acting.times) == 10, "it succeeded the third time"
        await bench.put(site("a", 5, generation=3))
        await asyncio.sleep(1000)
        assert len(acting.times) == 13, "and then it counts anew"


@virtual_time
async def test_an_object_is_given_up_some_time_after_its_first_failure() -> None:
    acting = Acting(ValueError("no"))
    async with Bench(acting, give_up_after=timedelta(seconds=10)).running(site("a")) as bench:
        await asyncio.sleep(1000)
        assert acting.times == [0, 1, 3, 7, 15]
        assert bench.recorded.events == [("Warning", "GaveUp")]


@virtual_time
async def test_stale_reads_do_not_count_as_failures() -> None:
    acting = Acting(errors.Conflict("stale"))
    async with Bench(acting, give_up_after=2).running(site("a")) as bench:
        await asyncio.sleep(100)
        assert len(acting.times) > 5
        assert bench.recorded.events == []


@pytest.mark.parametrize(
    ("given", "error"), [(0, ValueError), (timedelta(0), ValueError), (1.5, TypeError), (True, TypeError)]
)
def test_what_cannot_be_a_limit_is_refused(given: Any, error: type[Exception]) -> None:
    with pytest.raises(error, match="give_up_after"):
        Controller(name="site", reconciler=Acting(None), primary=Site, give_up_after=given)


class Writing:
    """Writes its own object in every run until `stop` runs have been, and sees the change at once."""

    def __init__(self, stop: int, kind: type[Any] = Site) -> None:
        self.stop = stop
        self.kind = kind
        self.version = 1
        self.times: list[float] = []
        self.bench: Bench

    def answer(self, request: HttpRequest) -> HttpResponse:
        return json_answer(site("a", self.version))

    async def __call__(self, ctx: Context, obj: Site) -> None:
        self.times.append(asyncio.get_running_loop().time())
        if len(self.times) < self.stop:
            self.version += 1
            await ctx.client.patch(Site, "a", "ns", MergePatch({"metadata": {"labels": {"n": "1"}}}))
            asyncio.get_running_loop().call_later(0.1, self.seen)

    def seen(self) -> None:
        self.putting = asyncio.ensure_future(self.bench.put(site("a", self.version)))


@virtual_time
async def test_an_object_that_triggers_itself_is_noticed_and_slowed(caplog: pytest.LogCaptureFixture) -> None:
    writing = Writing(stop=TOLERATED + 8)
    writing.bench = bench = Bench(writing, answer=writing.answer)
    async with bench.running(site("a")):
        await asyncio.sleep(1000)
    assert len(writing.times) == TOLERATED + 8
    pauses = [later - earlier for earlier, later in zip(writing.times, writing.times[1:], strict=False)]
    assert max(pauses[:TOLERATED]) < 0.2
    assert [round(pause) for pause in pauses[TOLERATED:]] == [1, 2, 4, 8, 16, 30, 30]
    (line,) = [record for record in caplog.records if record.levelno == logging.WARNING]
    assert line.msg.startswith("The object triggers itself: each run changes what triggers the next one")
    assert line.fields["because"] == "Site changed"  # type: ignore[attr-defined]
    assert line.fields["object"] == A  # type: ignore[attr-defined]


@virtual_time
async def test_an_object_that_comes_to_rest_is_not_slowed_any_more() -> None:
    writing = Writing(stop=TOLERATED + 3)
    writing.bench = bench = Bench(writing, answer=writing.answer)
    async with bench.running(site("a")):
        await asyncio.sleep(1000)
        done = len(writing.times)
        await bench.put(site("a", 1000))
        await settle()
        assert len(writing.times) == done + 1


@virtual_time
async def test_what_others_change_is_no_loop(caplog: pytest.LogCaptureFixture) -> None:
    """Each run writes, and is triggered by the change of an object that it did not write."""
    times: list[float] = []

    async def reconcile(ctx: Context, obj: Site) -> None:
        times.append(asyncio.get_running_loop().time())
        await ctx.client.patch(ConfigMap, "x", "ns", MergePatch({"data": {"n": str(len(times))}}))

    bench = Bench(reconcile, answer=lambda _: json_answer(child("x")))
    async with bench.running(site("a")):
        for version in range(2, 60):
            await asyncio.sleep(0.1)
            await bench.put(site("a", version))
    assert len(times) == 59
    assert not [record for record in caplog.records if record.levelno == logging.WARNING]
