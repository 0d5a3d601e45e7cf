"""Repeated refusals are logged once, and again every ten minutes."""

from __future__ import annotations

from kubeshard.core import Forbidden, Invalid
from kubeshard.core.kinds import GroupResource
from kubeshard.sharder.refusals import EVERY, UNTIL_EXPLAINED, Refusals
from kubeshard.sharder.reports import RingReport
from kubeshard.testing.virtual_time import VirtualClock, virtual_time

THINGS, MAPS = GroupResource("sim.example", "things"), GroupResource("", "configmaps")


class Time(VirtualClock):
    now = 0.0

    def monotonic(self) -> float:
        return self.now


@virtual_time
async def test_a_failure_is_told_at_once_and_then_every_ten_minutes_with_a_count() -> None:
    clock = Time()
    refusals = Refusals(RingReport(), clock)
    error = Invalid("no")
    assert refusals.line(THINGS, "patch", error) == 0
    assert refusals.line(MAPS, "patch", error) == 0
    assert [refusals.line(THINGS, "patch", error) for _ in range(5)] == [None] * 5
    clock.now = EVERY
    assert refusals.line(THINGS, "patch", error) == 5
    assert refusals.line(THINGS, "patch", error) is None


@virtual_time
async def test_what_is_forbidden_is_told_after_a_minute_unless_the_report_names_the_right() -> None:
    clock, report = Time(), RingReport()
    refusals = Refusals(report, clock)
    error = Forbidden("no")
    assert refusals.line(THINGS, "patch", error) is None
    assert refusals.line(MAPS, "patch", error) is None
    report.permitted(MAPS, "patch", False)
    clock.now = UNTIL_EXPLAINED
    assert refusals.line(THINGS, "patch", error) == 1
    assert refusals.line(MAPS, "patch", error) is None
