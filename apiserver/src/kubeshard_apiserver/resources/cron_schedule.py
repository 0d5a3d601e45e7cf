"""CronJob schedules: parsing, with the messages of the server's parser, and the next scheduled time.

A schedule has five fields - minute, hour, day of the month, month, day of the week - or is a name such as `@daily` or
`@every 1h30m`. A time is due when the clock of its zone shows it: never on a day on which that hour is skipped, and
twice on a day on which it is repeated. Source: github.com/robfig/cron/v3, which Kubernetes uses; k8s.io/kubernetes
`pkg/apis/batch/validation`; the IANA time zones installed on this machine.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta, tzinfo
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from kubeshard_apiserver.status import FieldError, invalid_value

_MONTHS = ["jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"]
_DAYS = ["sun", "mon", "tue", "wed", "thu", "fri", "sat"]
_DESCRIPTORS = {
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
    "@monthly": "0 0 1 * *",
    "@weekly": "0 0 * * 0",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@hourly": "0 * * * *",
}
_EVERY = "@every "
_DURATION = re.compile(r"[-+]?(?:0|(?:(?:\d+\.?\d*|\.\d+)(?:ns|us|\u00b5s|\u03bcs|ms|s|m|h))+)")
_DURATION_PART = re.compile(r"(\d+\.?\d*|\.\d+)(ns|us|\u00b5s|\u03bcs|ms|s|m|h)")
_SECONDS: Mapping[str, float] = {"ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3600.0}
_YEARS = 5
"""How many years ahead to search."""
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


@dataclass(frozen=True)
class _Field:
    values: frozenset[int]
    is_any: bool
    """Whether the field is a star. If one of the two day fields is a star, only the other one restricts the days."""


@dataclass(frozen=True)
class Schedule:
    """A parsed schedule. `every` is an interval in seconds that replaces the fields. `zone` is the schedule's own."""

    fields: tuple[_Field, ...] = ()
    every: float = 0.0
    zone: tzinfo | None = None

    def next(self, after: float, zone: tzinfo = UTC) -> float | None:
        """Return the first time after `after`, in seconds since the epoch, or None if there is none."""
        if self.every:
            return after // 1 + self.every
        minutes, hours, _, months, _ = (each.values for each in self.fields)
        moment = (after // 60 + 1) * 60
        zone = self.zone or zone
        last = datetime.fromtimestamp(moment, zone).year + _YEARS
        while (local := datetime.fromtimestamp(moment, zone)).year <= last:
            if local.month not in months:
                first = date(local.year + local.month // 12, local.month % 12 + 1, 1)
                moment = _start(first, zone)
            elif not self._has_day(local):
                moment = _start(local.date() + timedelta(days=1), zone)
            elif local.hour not in hours:
                moment += 3600 - 60 * local.minute
            elif local.minute not in minutes:
                moment += 60
            else:
                return moment
        return None

    def _has_day(self, local: datetime) -> bool:
        month_days, week_days = self.fields[2], self.fields[4]
        both = (local.day in month_days.values, local.isoweekday() % 7 in week_days.values)
        return all(both) if month_days.is_any or week_days.is_any else any(both)


def parse_schedule(schedule: str) -> Schedule:
    """Parse a schedule. Raises ValueError if it is malformed."""
    zone: tzinfo | None = None
    if schedule.startswith(("TZ=", "CRON_TZ=")):
        name, _, schedule = schedule.partition(" ")
        name = name.partition("=")[2]
        zone = zone_named(name)
        if zone is None:
            raise ValueError(f"provided bad location {name}: unknown time zone {name}")
        schedule = schedule.strip()
    if schedule.startswith(_EVERY):
        return Schedule(every=_interval(schedule), zone=zone)
    if schedule.startswith("@"):
        if schedule not in _DESCRIPTORS:
            raise ValueError(f"unrecognized descriptor: {schedule}")
        schedule = _DESCRIPTORS[schedule]
    fields = schedule.split()
    if len(fields) != len(_FIELDS):
        raise ValueError(f"expected exactly 5 fields, found {len(fields)}: [{' '.join(fields)}]")
    return Schedule(
        tuple(_field(text, bounds) for text, bounds in zip(fields, _FIELDS, strict=True)), zone=zone
    )


def zone_named(name: str) -> ZoneInfo | None:
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        return None


def _start(day: date, zone: tzinfo) -> float:
    return datetime(day.year, day.month, day.day, tzinfo=zone).timestamp()


def _interval(schedule: str) -> float:
    """Parse an interval. It is rounded to whole seconds and at least one."""
    duration = schedule.removeprefix(_EVERY)
    if not _DURATION.fullmatch(duration):
        raise ValueError(f'failed to parse duration {schedule}: time: invalid duration "{duration}"')
    parts = _DURATION_PART.findall(duration)
    seconds = sum(float(number) * _SECONDS.get(unit, 0.0) for number, unit in parts)
    return max(1.0, seconds // 1) if not duration.startswith("-") else 1.0


def _field(text: str, bounds: _Bounds) -> _Field:
    values: set[int] = set()
    is_any = False
    for expression in filter(None, text.split(",")):
        numbers, star = _range(expression, bounds)
        values.update(numbers)
        is_any |= star
    return _Field(frozenset(values), is_any)


def _range(expression: str, bounds: _Bounds) -> tuple[range, bool]:
    spread, *steps = expression.split("/")
    low, *highs = spread.split("-")
    is_any = low in ("*", "?")
    if is_any:
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
    return range(start, end + 1, step), is_any and step == 1


def _number(text: str, bounds: _Bounds | None) -> int:
    if bounds is not None and text.lower() in bounds.names:
        return bounds.names[text.lower()]
    if not re.fullmatch(r"[+-]?[0-9]+", text):
        problem = f'strconv.Atoi: parsing "{text}": invalid syntax'
        raise ValueError(f"failed to parse int from {text}: {problem}")
    if int(text) < 0:
        raise ValueError(f"negative number ({int(text)}) not allowed: {text}")
    return int(text)


def schedule_errors(path: str, schedule: str, zone: str | None, *, allows_zone: bool) -> list[FieldError]:
    """Validate a schedule. `allows_zone`: it contained a zone before this was forbidden."""
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
