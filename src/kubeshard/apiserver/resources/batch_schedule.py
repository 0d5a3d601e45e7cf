"""Schedules of CronJobs and their time zones, with the words of the server's parser.

Five fields - minute, hour, day of the month, month, day of the week - or a name as `@daily` or `@every 1h30m`.
Source: github.com/robfig/cron/v3, which kube-apiserver uses; IANA's time zones as this machine has them.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from kubeshard.apiserver.status import FieldError, invalid_value

_MONTHS = ["jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"]
_DAYS = ["sun", "mon", "tue", "wed", "thu", "fri", "sat"]
_DESCRIPTORS = ("@yearly", "@annually", "@monthly", "@weekly", "@daily", "@midnight", "@hourly")
_EVERY = "@every "
_DURATION = re.compile(r"[-+]?(?:0|(?:(?:\d+\.?\d*|\.\d+)(?:ns|us|\u00b5s|\u03bcs|ms|s|m|h))+)")
_ZONE_PART = re.compile(r"[A-Za-z.\-_0-9+]{1,14}")


@dataclass(frozen=True)
class _Bounds:
    least: int
    most: int
    names: dict[str, int] = field(default_factory=dict)


_FIELDS = (
    _Bounds(0, 59),
    _Bounds(0, 23),
    _Bounds(1, 31),
    _Bounds(1, 12, {name: number for number, name in enumerate(_MONTHS, 1)}),
    _Bounds(0, 6, {name: number for number, name in enumerate(_DAYS)}),
)


def schedule_errors(path: str, schedule: str, zone: str | None, *, allows_zone: bool) -> list[FieldError]:
    """`allows_zone`: the schedule had a zone in it before this was forbidden."""
    problems = []
    try:
        _parse(schedule)
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
    return errors if zone == "Local" or _is_zone(zone) else [*errors, unknown]


def _parse(schedule: str) -> None:
    """Raises ValueError for what is no schedule."""
    if schedule.startswith(("TZ=", "CRON_TZ=")):
        zone, _, schedule = schedule.partition(" ")
        zone = zone.partition("=")[2]
        if not _is_zone(zone):
            raise ValueError(f"provided bad location {zone}: unknown time zone {zone}")
        schedule = schedule.strip()
    if schedule.startswith(_EVERY):
        duration = schedule.removeprefix(_EVERY)
        if not _DURATION.fullmatch(duration):
            raise ValueError(f'failed to parse duration {schedule}: time: invalid duration "{duration}"')
        return
    if schedule.startswith("@"):
        if schedule not in _DESCRIPTORS:
            raise ValueError(f"unrecognized descriptor: {schedule}")
        return
    fields = schedule.split()
    if len(fields) != len(_FIELDS):
        raise ValueError(f"expected exactly 5 fields, found {len(fields)}: [{' '.join(fields)}]")
    for text, bounds in zip(fields, _FIELDS, strict=True):
        for expression in filter(None, text.split(",")):
            _check_range(expression, bounds)


def _check_range(expression: str, bounds: _Bounds) -> None:
    spread, *steps = expression.split("/")
    low, *highs = spread.split("-")
    if low in ("*", "?"):
        start, end = bounds.least, bounds.most
    else:
        start = end = _number(low, bounds)
        if len(highs) == 1:
            end = _number(highs[0], bounds)
        elif highs:
            raise ValueError(f"too many hyphens: {expression}")
    step = 1
    if len(steps) == 1:
        step = _number(steps[0], None)
        end = end if highs else bounds.most
    elif steps:
        raise ValueError(f"too many slashes: {expression}")
    if start < bounds.least:
        raise ValueError(f"beginning of range ({start}) below minimum ({bounds.least}): {expression}")
    if end > bounds.most:
        raise ValueError(f"end of range ({end}) above maximum ({bounds.most}): {expression}")
    if start > end:
        raise ValueError(f"beginning of range ({start}) beyond end of range ({end}): {expression}")
    if step == 0:
        raise ValueError(f"step of range should be a positive number: {expression}")


def _number(text: str, bounds: _Bounds | None) -> int:
    if bounds is not None and text.lower() in bounds.names:
        return bounds.names[text.lower()]
    if not re.fullmatch(r"[+-]?[0-9]+", text):
        problem = f'strconv.Atoi: parsing "{text}": invalid syntax'
        raise ValueError(f"failed to parse int from {text}: {problem}")
    if int(text) < 0:
        raise ValueError(f"negative number ({int(text)}) not allowed: {text}")
    return int(text)


def _is_zone(name: str) -> bool:
    try:
        ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        return False
    return True
