"""When a schedule is due. The expected times are those of robfig/cron, the library that Kubernetes uses."""

from __future__ import annotations

from datetime import datetime
from zoneinfo import ZoneInfo

import pytest

from kubeshard_apiserver.resources.cron_schedule import parse_schedule


def due(schedule: str, after: str, zone: str = "UTC", count: int = 3) -> list[str]:
    """Returns the next times, in the schedule's zone. A time that occurs twice on that day is shown with its offset."""
    place = ZoneInfo(zone)
    moment: float | None = datetime.fromisoformat(after).replace(tzinfo=place).timestamp()
    found = []
    for _ in range(count):
        assert moment is not None
        moment = parse_schedule(schedule).next(moment, place)
        if moment is None:
            break
        found.append(datetime.fromtimestamp(moment, place).isoformat(sep=" ", timespec="minutes"))
    return found


@pytest.mark.parametrize(
    ("schedule", "times"),
    [
        ("* * * * *", ["2026-01-01 00:01", "2026-01-01 00:02"]),
        ("*/20 * * * *", ["2026-01-01 00:20", "2026-01-01 00:40"]),
        ("5/25 3 * * *", ["2026-01-01 03:05", "2026-01-01 03:30"]),
        ("0 9-17/4 * * mon-fri", ["2026-01-01 09:00", "2026-01-01 13:00"]),
        ("0 0 31 * *", ["2026-01-31 00:00", "2026-03-31 00:00"]),
        ("0 0 29 feb ?", ["2028-02-29 00:00", "2032-02-29 00:00"]),
        ("0 0 31 2 *", []),
        # Either day field can match, unless one of them is a star. A star with a step does not count as one.
        ("0 0 13 * fri", ["2026-01-02 00:00", "2026-01-09 00:00"]),
        ("0 0 */2 * fri", ["2026-01-02 00:00", "2026-01-03 00:00"]),
        ("0 0 * * sun,6", ["2026-01-03 00:00", "2026-01-04 00:00"]),
        ("@monthly", ["2026-02-01 00:00", "2026-03-01 00:00"]),
        ("@weekly", ["2026-01-04 00:00", "2026-01-11 00:00"]),
        ("@every 1h30m", ["2026-01-01 01:30", "2026-01-01 03:00"]),
    ],
)
def test_times_after_new_year(schedule: str, times: list[str]) -> None:
    assert due(schedule, "2026-01-01 00:00", count=2) == [f"{time}+00:00" for time in times]


def test_an_hour_that_a_day_leaves_out_is_not_due_on_that_day() -> None:
    assert due("30 2 * * *", "2026-03-28 12:00", "Europe/Berlin", 1) == ["2026-03-30 02:30+02:00"]


def test_an_hour_that_a_day_has_twice_is_due_twice() -> None:
    assert due("30 2 * * *", "2026-10-24 12:00", "Europe/Berlin") == [
        "2026-10-25 02:30+02:00",
        "2026-10-25 02:30+01:00",
        "2026-10-26 02:30+01:00",
    ]


def test_a_day_without_midnight_begins_an_hour_later() -> None:
    assert due("0 0 * * *", "2018-11-02 12:00", "America/Sao_Paulo", 2) == [
        "2018-11-03 00:00-03:00",
        "2018-11-05 00:00-02:00",
    ]


def test_a_zone_in_the_schedule_is_the_one_that_counts() -> None:
    assert due("CRON_TZ=Asia/Tokyo 0 9 * * *", "2026-01-01 12:00", count=1) == ["2026-01-02 00:00+00:00"]
