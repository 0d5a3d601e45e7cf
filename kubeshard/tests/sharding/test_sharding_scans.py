"""When the objects of a resource are scanned."""

from __future__ import annotations

from itertools import pairwise

import pytest

from kubeshard.sharding.schedule import (
    FOLLOW_MAIN,
    PUT_OFF,
    DueScan,
    ScanPriority,
    ScanResult,
    ScanScope,
    Schedule,
)

NOTHING, FAILED = ScanResult(), ScanResult(failed=True)
URGENT, NORMAL = ScanPriority.URGENT, ScanPriority.NORMAL


def started(available: tuple[str, ...] = ("a", "b"), *, sync_period: float = 300.0) -> Schedule:
    """A schedule whose first scan ever began at 0 and ended at 1."""
    schedule = Schedule(sync_period)
    schedule.members(available, 0.0)
    work = schedule.due(NORMAL, 0.0)
    assert work == DueScan(ScanScope.ALL, "start")
    schedule.done(NORMAL, work, NOTHING, 0.0, 1.0)
    return schedule


def begun(schedule: Schedule, priority: ScanPriority, now: float) -> DueScan:
    work = schedule.due(priority, now)
    assert work is not None
    return work


def run_until(
    schedule: Schedule, priority: ScanPriority, end: float, now: float, outcome: ScanResult = NOTHING
) -> list[tuple[float, ScanScope]]:
    """Returns the scans up to `end`, if each takes no time."""
    scans = []
    while True:
        if (work := schedule.due(priority, now)) is not None:
            scans.append((round(now, 3), work.scope))
            schedule.done(priority, work, outcome, now, now)
            continue
        now += max(schedule.wait(priority, now), 1e-6)
        if now > end:
            return scans


def test_after_the_start_all_objects_are_scanned_every_sync_period() -> None:
    assert run_until(started(), NORMAL, 700.0, 1.0) == [(300.0, ScanScope.ALL), (600.0, ScanScope.ALL)]
    assert run_until(started(), URGENT, 700.0, 1.0) == []


def test_a_gained_shard_means_all_objects_now_and_settle_scans_of_which_the_first_reads_little() -> None:
    schedule = started()
    schedule.members(("a", "b", "c"), 10.0)
    assert run_until(schedule, NORMAL, 100.0, 10.0) == [
        (10.0, ScanScope.ALL),
        (20.0, ScanScope.ALL),
        (40.0, ScanScope.ALL),
    ]
    schedule = started()
    schedule.members(("a", "b", "c"), 10.0)
    assert run_until(schedule, URGENT, 100.0, 10.0) == [(13.0, ScanScope.MISPLACED)]


def test_a_lost_shard_means_only_the_objects_without_an_available_one() -> None:
    """B3 in docs/defects.md."""
    schedule = started()
    schedule.members(("a",), 10.0)
    assert [at for at, _ in run_until(schedule, URGENT, 100.0, 10.0)] == [10.0, 13.0, 20.0, 40.0]
    assert schedule.due(NORMAL, 100.0) is None


def test_a_replaced_shard_is_one_lost_and_one_gained() -> None:
    schedule = started()
    schedule.members(("a", "c"), 10.0)
    assert schedule.due(URGENT, 10.0) == DueScan(ScanScope.MISPLACED, "membership")
    assert schedule.due(NORMAL, 10.0) == DueScan(ScanScope.ALL, "membership")


def test_unchanged_members_are_no_reason() -> None:
    schedule = started()
    schedule.members(("a", "b"), 10.0)
    assert [schedule.due(priority, 10.0) for priority in ScanPriority] == [None, None]


def test_a_shard_that_is_lost_during_a_scan_of_all_is_urgent_at_once() -> None:
    schedule = started()
    schedule.request(ScanScope.ALL, 10.0, 10.0)
    begun(schedule, NORMAL, 10.0)
    schedule.members(("a",), 11.0)
    assert schedule.due(URGENT, 11.0) is not None


def test_triggers_during_a_scan_collapse_into_one_afterwards() -> None:
    """B7 in docs/defects.md."""
    schedule = started()
    schedule.members(("a",), 10.0)
    work = begun(schedule, URGENT, 10.0)
    schedule.members((), 11.0)
    schedule.members(("a",), 12.0)
    schedule.done(URGENT, work, NOTHING, 10.0, 12.5)
    assert schedule.due(URGENT, 12.5) == DueScan(ScanScope.MISPLACED, "membership")
    assert schedule.due(NORMAL, 12.5) == DueScan(ScanScope.ALL, "membership")


def test_a_request_during_a_scan_is_not_answered_by_it() -> None:
    schedule = started()
    schedule.request(ScanScope.MISPLACED, 10.0, 10.0)
    work = begun(schedule, URGENT, 10.0)
    schedule.request(ScanScope.MISPLACED, 10.5, 10.5)
    schedule.done(URGENT, work, NOTHING, 10.0, 11.0)
    assert schedule.due(URGENT, 11.0) is not None


def test_a_request_for_later_puts_off_no_earlier_scan_however_often_it_comes() -> None:
    """It did: an object that changed every second, of a shard that was not known to be dead, put off the urgent scans
    for the objects of all others.
    """
    schedule, scans, now = started(), list[float](), 10.0
    schedule.members(("a",), now)  # it has to wait for others before it begins
    while now < 60.0:
        schedule.request(ScanScope.MISPLACED, now + 5.0, now)
        now += 1.0
        scans += [at for at, _ in run_until(schedule, URGENT, now, now)]
    assert scans[:2] == [11.0, 13.0]
    assert all(later - earlier <= PUT_OFF for earlier, later in pairwise(scans))


def test_a_request_for_much_later_puts_off_no_scan_after_the_loss_of_a_shard() -> None:
    schedule = started()
    schedule.members(("a",), 10.0)
    schedule.request(ScanScope.MISPLACED, 42.0, 12.0)
    assert [at for at, _ in run_until(schedule, URGENT, 60.0, 12.0)] == [12.0, 13.0, 20.0, 42.0]


def test_a_request_for_later_leaves_one_that_the_running_scan_does_not_answer() -> None:
    schedule = started()
    schedule.request(ScanScope.MISPLACED, 10.0, 10.0)
    work = begun(schedule, URGENT, 10.0)
    schedule.members(("a",), 10.5)
    schedule.request(ScanScope.MISPLACED, 40.0, 10.6)
    schedule.done(URGENT, work, NOTHING, 10.0, 11.0)
    assert schedule.due(URGENT, 11.0) is not None


@pytest.mark.parametrize("outcome", [NOTHING, FAILED])
def test_a_scan_of_all_answers_its_own_priority_and_no_urgent_request(outcome: ScanResult) -> None:
    """It leaves objects without a live shard to an urgent scan that is about to begin. An earlier rule let it answer
    that request too if it succeeded, and nobody scanned these objects before the next sync period.
    """
    schedule = started()
    for scope in ScanScope:
        schedule.request(scope, 10.0, 10.0)
    schedule.done(NORMAL, begun(schedule, NORMAL, 10.0), outcome, 10.0, 11.0)
    assert schedule.due(URGENT, 11.0) == DueScan(ScanScope.MISPLACED, "membership")
    assert schedule.due(NORMAL, 11.0) is None
    assert schedule.failing(NORMAL) is outcome.failed


def test_while_something_waits_it_is_scanned_ever_less_often() -> None:
    schedule = started()
    schedule.request(ScanScope.ALL, 10.0, 10.0)
    scans = run_until(schedule, NORMAL, 110.0, 10.0, ScanResult(waiting=1))
    assert [at for at, _ in scans] == [10.0, 11.0, 13.0, 17.0, 25.0, 41.0, 71.0, 101.0]
    assert {scope for _, scope in scans[1:]} == {ScanScope.CONTROLLED}


def test_drains_of_a_main_resource_alone_are_followed_later() -> None:
    """The watch on unassigned objects sees the objects that were released."""
    schedule = Schedule(300.0, FOLLOW_MAIN)
    schedule.done(NORMAL, begun(schedule, NORMAL, 0.0), NOTHING, 0.0, 1.0)
    schedule.follow(10.0)
    scans = run_until(schedule, NORMAL, 110.0, 10.0, ScanResult(waiting=1))
    assert [at for at, _ in scans] == [18.0, 26.0, 36.0, 46.0, 56.0, 66.0, 76.0, 86.0, 96.0, 106.0]


@pytest.mark.regression
def test_a_drain_that_is_asked_for_during_a_scan_of_drains_is_looked_after_too() -> None:
    schedule = started()
    schedule.follow(10.0)
    work = begun(schedule, NORMAL, 11.0)
    for number in range(100):
        schedule.follow(11.5 + number)
    assert len(schedule._requests) == 2
    schedule.done(NORMAL, work, NOTHING, 11.0, 110.7)
    assert run_until(schedule, NORMAL, 200.0, 110.7) == [(111.5, ScanScope.CONTROLLED)]


def test_when_nothing_waits_any_more_following_ends() -> None:
    schedule = started()
    schedule.request(ScanScope.ALL, 10.0, 10.0)
    schedule.done(NORMAL, begun(schedule, NORMAL, 10.0), ScanResult(waiting=3), 10.0, 10.0)
    assert run_until(schedule, NORMAL, 200.0, 10.0) == [(11.0, ScanScope.CONTROLLED)]


def test_drains_are_looked_after_a_moment_later_however_many_there_are() -> None:
    schedule = started()
    for number in range(100):
        schedule.follow(10.0 + number / 1000)
    assert run_until(schedule, NORMAL, 200.0, 10.0) == [(11.0, ScanScope.CONTROLLED)]


@pytest.mark.regression
@pytest.mark.parametrize(
    ("sync_period", "times"),
    [
        (300.0, [10.0, 15.0, *range(25, 140, 10)]),
        (7.0, [10.0, 15.0, *range(22, 140, 7)]),
    ],
)
@pytest.mark.parametrize("priority", ScanPriority)
def test_what_failed_is_retried_ever_less_often_but_every_ten_seconds(
    priority: ScanPriority, sync_period: float, times: list[float]
) -> None:
    """A19 in docs/defects.md."""
    schedule = started(sync_period=sync_period)
    schedule.request(ScanScope.MISPLACED if priority is URGENT else ScanScope.ALL, 10.0, 10.0)
    assert [at for at, _ in run_until(schedule, priority, 140.0, 10.0, FAILED)] == times


@pytest.mark.parametrize("priority", ScanPriority)
def test_a_retry_that_works_is_the_last(priority: ScanPriority) -> None:
    schedule = started()
    schedule.request(ScanScope.MISPLACED if priority is URGENT else ScanScope.ALL, 10.0, 10.0)
    run_until(schedule, priority, 140.0, 10.0, FAILED)
    assert [at for at, _ in run_until(schedule, priority, 300.0, 140.0)] == [145.0]


def test_a_lost_shard_does_not_wait_for_the_retry_of_what_failed() -> None:
    schedule = started()
    schedule.request(ScanScope.MISPLACED, 10.0, 10.0)
    for _ in range(5):
        now = 10.0 + schedule.wait(URGENT, 10.0)
        schedule.done(URGENT, begun(schedule, URGENT, now), FAILED, now, now)
    schedule.members(("a",), now + 1.0)
    assert schedule.due(URGENT, now + 1.0) == DueScan(ScanScope.MISPLACED, "membership")
