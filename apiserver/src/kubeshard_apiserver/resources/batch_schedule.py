"""What the fields `schedule` and `timeZone` of a CronJob may say. Source: `pkg/apis/batch/validation`."""

from __future__ import annotations

import re

from kubeshard_apiserver.resources.cron_schedule import parse_schedule, zone_named
from kubeshard_apiserver.status import FieldError, invalid_value

_ZONE_PART = re.compile(r"[A-Za-z.\-_0-9+]{1,14}")


def schedule_errors(path: str, schedule: str, zone: str | None, *, allows_zone: bool) -> list[FieldError]:
    """`allows_zone`: the schedule had a zone in it before this was forbidden."""
    problems = []
    try:
        parse_schedule(schedule)
    except ValueError as error:
        problems.append(str(error))
    if "TZ" in schedule and not allows_zone:
        problems.append("cannot use TZ or CRON_TZ in schedule, use timeZone field instead")
    elif "TZ" in schedule and zone is not None:
        problems.append("cannot use both timeZone field and TZ or CRON_TZ in schedule")
    return [invalid_value(path, schedule, problem) for problem in problems]


def time_zone_errors(path: str, zone: str) -> list[FieldError]:
    if not zone:
        return [invalid_value(path, zone, "timeZone must be nil or non-empty string")]
    unknown = invalid_value(path, zone, f"unknown time zone {zone}")
    for part in zone.split("/"):
        if part in (".", "..") or part.startswith("-") or not _ZONE_PART.fullmatch(part):
            return [unknown]
    errors = []
    if zone.lower() == "local":
        problem = "timeZone must be an explicit time zone as defined in https://www.iana.org/time-zones"
        errors.append(invalid_value(path, zone, problem))
    return errors if zone == "Local" or zone_named(zone) else [*errors, unknown]
