"""Who waits, and when it is looked at again: without an event loop."""

from __future__ import annotations

import math
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kubeshard.core.objects import Key, ObjectMeta
from kubeshard.sharding import waiting
from kubeshard.sharding.schedule import ScanScope
from kubeshard.sharding.waiting import (
    AT_ONCE,
    LATER,
    LONGEST_RETRY_AFTER,
    MORE_AFTER,
    SOON,
    TOGETHER,
    Jobs,
    RefusedWrites,
    WebhookSeries,
    may_be_wanted,
)
from kubeshard.workqueue.limits import ItemExponential, MaxOf, OverallRate
from kubeshard_lab.virtual_world import SeededRng


def key(number: int) -> Key:
    return Key("default", f"x-{number}")


def retries(*limits: OverallRate) -> RefusedWrites[int, ScanScope]:
    own = ItemExponential(1.0, 10.0, jitter=0.0, rng=SeededRng(1))
    return RefusedWrites(MaxOf(own, *limits))


def test_what_is_refused_again_and_again_is_due_after_1_2_4_8_and_then_every_10_seconds() -> None:
    tried, now, waits = retries(), 0.0, list[float]()
    tried.failed(key(1), 1, now)
    for _ in range(6):
        waits.append(tried.wake_at - now)
        now = tried.wake_at
        assert tried.take(now - 0.01) == []
        assert tried.take(now) == [1]
        tried.failed(key(1), 1, now)
        tried.tried(key(1), now, done=False)
    assert waits == [1.0, 2.0, 4.0, 8.0, 10.0, 10.0]


def test_a_server_that_says_when_to_come_back_is_heeded_for_a_minute() -> None:
    tried = retries()
    tried.failed(key(1), 1, 0.0, retry_after=45.0)
    tried.failed(key(2), 2, 0.0, retry_after=1e6)
    assert tried.take(44.0) == []
    assert tried.take(45.0) == [1]
    assert tried.take(LONGEST_RETRY_AFTER) == [2]


def test_what_is_done_is_forgotten_and_begins_anew() -> None:
    tried = retries()
    tried.failed(key(1), 1, 0.0)
    tried.failed(key(1), 1, 0.0)
    assert tried.take(5.0) == [1]
    tried.tried(key(1), 5.0, done=True)
    assert (len(tried), tried.wake_at) == (0, math.inf)
    tried.failed(key(1), 1, 6.0)
    assert tried.wake_at == 7.0


def test_a_few_are_tried_at_a_time_and_a_crash_of_whoever_tries_them_loses_none() -> None:
    tried = retries()
    for number in range(2 * AT_ONCE):
        tried.failed(key(number), number, 0.0)
    first = tried.take(1.0)
    assert (len(first), tried.wake_at) == (AT_ONCE, math.inf)
    tried.tried(key(first[0]), 1.0, done=True)
    assert len(tried.take(1.0)) == 1
    tried.resume(1.0)
    left = list[int]()
    for now in (3.0, 3.0):
        left += (taken := tried.take(now))
        for number in taken:
            tried.tried(key(number), now, done=True)
    assert sorted([first[0], *left]) == list(range(2 * AT_ONCE))


def test_when_one_succeeds_all_are_due_and_what_was_not_remembered_is_scanned(monkeypatch: Any) -> None:
    monkeypatch.setattr(waiting, "REMEMBERED", 2)
    tried = retries()
    assert [tried.failed(key(number), number, 0.0) for number in range(3)] == [True, True, False]
    assert tried.more(ScanScope.MISPLACED, 0.0, cheap=True) == [(ScanScope.MISPLACED, MORE_AFTER)]
    assert (
        tried.more(ScanScope.MISPLACED, 1.0, cheap=True) == tried.more(ScanScope.ALL, 1.0, cheap=False) == []
    ), "not twice, and not in vain"
    assert tried.take(1.0) == [0, 1]
    tried.failed(key(1), 1, 1.0)
    tried.tried(key(1), 1.0, done=False)
    tried.tried(key(0), 1.0, done=True)
    assert tried.succeeded(1.0) == [(ScanScope.MISPLACED, 1.0), (ScanScope.ALL, 1.0)]
    assert tried.take(1.0) == [1]
    tried.failed(key(1), 1, 1.0)
    tried.tried(key(1), 1.0, done=False)
    tried.more(ScanScope.ALL, 1.0, cheap=False)
    assert tried.succeeded(2.0) == [(ScanScope.ALL, 1.0 + TOGETHER)], "soon again, not at once"
    assert tried.take(2.0) == []


def test_retries_that_fail_are_a_hundred_per_second_at_most_over_all_resources() -> None:
    now = 0.0
    clock: Any = SimpleNamespace(monotonic=lambda: now)
    limit, tries = OverallRate(100.0, burst=100, clock=clock), list[float]()
    both = [retries(limit), retries(limit)]
    for of in both:
        for number in range(1000):
            of.failed(key(number), number, now)
    while now < 50.0:
        now = min(of.wake_at for of in both)
        for of in both:
            for number in of.take(now):
                tries.append(now)
                of.failed(key(number), number, now)
                of.tried(key(number), now, done=False)
    assert 20.0 * 90.0 < sum(30.0 <= at < 50.0 for at in tries) <= 20.0 * 110.0


@given(
    st.lists(
        st.tuples(st.integers(0, 9), st.sampled_from(["fail", "take", "done", "crash", "succeed"])),
        max_size=60,
    )
)
def test_whatever_happens_each_refused_write_is_under_way_or_due(steps: list[tuple[int, str]]) -> None:
    tried, now, under_way, known = retries(), 0.0, set[int](), set[int]()
    for number, what in steps:
        now += 0.7
        if what == "fail":
            known.add(number)
            tried.failed(key(number), number, now)
        elif what == "take":
            under_way |= set(tried.take(now))
        elif what == "succeed":
            tried.succeeded(now)
        elif number in under_way:
            under_way.discard(number)
            tried.tried(key(number), now, done=what == "done")
            known -= {number} if what == "done" else set()
        assert len(tried) == len(known)
        assert len(under_way) <= AT_ONCE
        if len(under_way) < AT_ONCE and known - under_way:
            assert tried.wake_at <= now + 10.0
    for number in tuple(under_way):
        tried.tried(key(number), now, done=True)
    left, now = known - under_way, now + 11.0
    while taken := tried.take(now):
        for number in taken:
            tried.tried(key(number), now, done=True)
        left -= set(taken)
    assert left == set()


def test_a_job_waits_no_longer_however_often_another_one_takes_its_place() -> None:
    jobs = Jobs[str](100, 100)
    jobs.put(key(1), "first", 1.0)
    jobs.put(key(2), "other", 1.5)
    jobs.put(key(1), "second", 1.9)
    assert (jobs.wake_at, jobs.take(0.99)) == (1.0, [])
    assert jobs.take(1.2) == ["second"]
    assert jobs.take(1.5) == ["other"]
    assert jobs.wake_at == math.inf


def test_nothing_is_done_about_an_object_that_has_a_shard_again() -> None:
    jobs = Jobs[str](100, 100)
    jobs.put(key(1), "job", 0.0)
    jobs.forget(key(1))
    assert (jobs.take(1.0), len(jobs)) == ([], 0)


def test_there_is_room_for_what_is_known_and_the_next_job_about_it_and_nothing_else() -> None:
    jobs = Jobs[str](100, 1)
    assert [jobs.put(key(number), "first", 0.0) for number in (1, 2, 1)] == [True, False, True]
    assert jobs.take(0.0) == ["first"]
    assert [jobs.put(key(number), "second", 0.0) for number in (2, 1)] == [True, True]


@pytest.mark.regression
def test_an_object_that_comes_again_and_again_takes_no_room_from_others() -> None:
    """Each time, another job about it was under way: with a server that is slow, all there was room for."""
    jobs = Jobs[str](2, 100)
    jobs.put(key(1), "first", 0.0)
    assert jobs.take(0.0) == ["first"]
    for again in ("second", "third"):
        jobs.put(key(1), again, 0.0)
        assert (jobs.take(1.0), jobs.wake_at) == ([], math.inf)
    jobs.put(key(2), "other", 0.0)
    assert jobs.take(1.0) == ["other"]
    jobs.ended(key(1))
    assert jobs.take(1.0) == ["third"]


@pytest.mark.regression
def test_what_has_come_again_since_it_was_taken_is_what_is_done_after_a_crash() -> None:
    jobs = Jobs[str](100, 100)
    jobs.put(key(1), "as it was", 0.0)
    assert jobs.take(0.0) == ["as it was"]
    jobs.put(key(1), "as it is", 0.0)
    jobs.resume(1.0)
    assert jobs.take(1.0) == ["as it is"]


@pytest.mark.regression
def test_what_comes_and_is_forgotten_while_there_is_no_room_takes_no_more_memory_each_time() -> None:
    jobs = Jobs[str](1, 10)
    for number in (1, 2):
        jobs.put(key(number), "slow", 0.0)
        jobs.take(0.0)
    for _ in range(1000):
        jobs.put(key(3), "job", 1.0)
        jobs.forget(key(3))
    assert (len(jobs), len(jobs._order) < 50) == (2, True)
    jobs.put(key(3), "job", 1.0)
    for number, due in ((1, "slow"), (2, "job")):
        jobs.ended(key(number))
        assert jobs.take(1.0) == [due]


def test_only_the_shard_of_an_object_that_is_not_new_may_want_it_back() -> None:
    created = ObjectMeta(name="x", namespace="default", creation_timestamp="1970-01-01T00:01:40Z")
    assert [may_be_wanted(created, wall) for wall in (102.0, 103.0)] == [False, True]
    assert not may_be_wanted(ObjectMeta(name="x"), 103.0)


def test_two_dry_runs_have_to_agree_and_further_ones_follow_until_the_webhook_is_called() -> None:
    series, now, asked = WebhookSeries[str](), 0.0, list[tuple[float, bool]]()
    for about in ("x", "y"):
        series.late(about, now)
    for called in (False, False, False, True):
        now = series.wake_at
        assert series.take(now) == "x"
        assert series.take(now) is None
        series.answered(now, called=called)
        asked.append((now, series.unreached))
    assert asked == [
        (SOON, False),
        (2 * SOON, True),
        (2 * SOON + LATER, True),
        (2 * SOON + 2 * LATER, False),
    ]
    assert series.wake_at == math.inf
    series.late("y", now)
    assert series.take(now + SOON) == "y"


def test_what_is_refused_while_it_waits_takes_no_more_room_each_time() -> None:
    tried = retries()
    for _ in range(1000):
        tried.failed(key(1), 1, 0.0)
    assert len(tried._order) == 1
    assert tried.take(1.0) == [1]
