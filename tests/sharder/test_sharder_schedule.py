"""When a ring's objects are looked at (protocol 4.2, B3; reliability F10)."""

from __future__ import annotations

import pytest

from kubeshard.core.kinds import GroupResource
from kubeshard.sharder.schedule import Outcome, Pass, Reach, Schedule

NOTHING = Outcome()
PODS = GroupResource("", "pods")


def started(available: tuple[str, ...] = ("a", "b")) -> Schedule:
    """A schedule whose first complete pass began at 0 and ended at 1."""
    schedule = Schedule(sync_period=300.0)
    schedule.members(available, 0.0)
    work = schedule.due(0.0)
    assert work == Pass(Reach.ALL, reason="start")
    schedule.done(work, Outcome(), 0.0, 1.0)
    return schedule


def run_until(
    schedule: Schedule, end: float, now: float, outcome: Outcome = NOTHING
) -> list[tuple[float, Reach]]:
    """The passes that are done up to `end`, when each takes no time."""
    passes = []
    while True:
        if (work := schedule.due(now)) is not None:
            passes.append((round(now, 3), work.reach))
            schedule.done(work, outcome, now, now)
            continue
        now += max(schedule.wait(now), 1e-6)
        if now > end:
            return passes


def test_after_the_start_all_objects_are_looked_at_every_sync_period() -> None:
    assert run_until(started(), 700.0, 1.0) == [(300.0, Reach.ALL), (600.0, Reach.ALL)]


def test_a_gained_shard_means_all_objects_now_and_three_settle_passes() -> None:
    schedule = started()
    schedule.members(("a", "b", "c"), 10.0)
    assert run_until(schedule, 100.0, 10.0) == [
        (10.0, Reach.ALL),
        (13.0, Reach.ALL),
        (20.0, Reach.ALL),
        (40.0, Reach.ALL),
    ]


def test_a_lost_shard_means_only_the_objects_without_an_available_one() -> None:
    """protocol 14-B3"""
    schedule = started()
    schedule.members(("a",), 10.0)
    assert {reach for _, reach in run_until(schedule, 100.0, 10.0)} == {Reach.MISPLACED}


def test_a_replaced_shard_counts_as_gained() -> None:
    schedule = started()
    schedule.members(("a", "c"), 10.0)
    assert schedule.due(10.0) == Pass(Reach.ALL, reason="membership")


def test_unchanged_members_are_no_reason() -> None:
    schedule = started()
    schedule.members(("a", "b"), 10.0)
    assert schedule.due(10.0) is None


def test_triggers_during_a_pass_collapse_into_one_afterwards() -> None:
    """protocol 14-B7"""
    schedule = started()
    schedule.members(("a",), 10.0)
    work = schedule.due(10.0)
    assert work is not None
    schedule.members((), 11.0)
    schedule.members(("a",), 12.0)
    schedule.done(work, Outcome(), 10.0, 12.5)
    assert schedule.due(12.5) == Pass(Reach.ALL, reason="membership")


def test_a_request_during_a_pass_is_not_answered_by_it() -> None:
    schedule = started()
    schedule.request(Reach.MISPLACED, 10.0)
    work = schedule.due(10.0)
    assert work == Pass(Reach.MISPLACED, reason="membership")
    schedule.request(Reach.MISPLACED, 10.5)
    schedule.done(work, Outcome(), 10.0, 11.0)
    assert schedule.due(11.0) is not None


def test_a_complete_pass_answers_smaller_requests() -> None:
    schedule = started()
    schedule.request(Reach.MISPLACED, 10.0)
    schedule.request(Reach.ALL, 10.0)
    assert run_until(schedule, 100.0, 10.0) == [(10.0, Reach.ALL)]


def test_while_something_waits_controlled_objects_are_looked_at_ever_less_often() -> None:
    schedule = started()
    schedule.request(Reach.ALL, 10.0)
    passes = run_until(schedule, 110.0, 10.0, Outcome(waiting=1))
    assert [at for at, _ in passes] == [10.0, 11.0, 13.0, 17.0, 25.0, 41.0, 71.0, 101.0]
    assert {reach for _, reach in passes[1:]} == {Reach.CONTROLLED}


def test_when_nothing_waits_any_more_following_ends() -> None:
    schedule = started()
    schedule.request(Reach.ALL, 10.0)
    work = schedule.due(10.0)
    assert work is not None
    schedule.done(work, Outcome(waiting=3), 10.0, 10.0)
    assert run_until(schedule, 200.0, 10.0) == [(11.0, Reach.CONTROLLED)]


def test_only_the_resource_that_failed_is_retried_ever_less_often() -> None:
    """protocol 14-A19"""
    schedule = started()
    schedule.request(Reach.ALL, 10.0)
    work = schedule.due(10.0)
    assert work is not None
    schedule.done(work, Outcome(failed=frozenset({PODS})), 10.0, 10.0)
    times = []
    now = 10.0
    for _ in range(4):
        now += schedule.wait(now)
        work = schedule.due(now)
        assert work is not None
        assert work.resources == frozenset({PODS})
        times.append(now)
        schedule.done(work, Outcome(failed=frozenset({PODS})), now, now)
    assert times == [15.0, 25.0, 45.0, 85.0]
    now += schedule.wait(now)
    work = schedule.due(now)
    assert work is not None
    schedule.done(work, Outcome(), now, now)
    assert schedule.wait(now) == pytest.approx(310.0 - now)
