"""Times as Go reads and writes them, with the messages of its parser. Source: Go's `time.Parse`, RFC 3339."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta, timezone
from functools import lru_cache

SECONDS = "2006-01-02T15:04:05Z07:00"
MICROSECONDS = "2006-01-02T15:04:05.000000Z07:00"
_PARTS = (
    ("2006", r"\d{4}", "year", 0, 9999), ("-", "-", "", 0, 0), ("01", r"\d\d", "month", 1, 12), ("-", "-", "", 0, 0),
    ("02", r"\d\d", "day", 0, 99), ("T", "T", "", 0, 0), ("15", r"\d\d?", "hour", 0, 23), (":", ":", "", 0, 0),
    ("04", r"\d\d", "minute", 0, 59), (":", ":", "", 0, 0), ("05", r"\d\d", "second", 0, 59),
)  # fmt: skip
"""For each part: its name in the layout, its pattern, its name in messages and its range. Days are checked last,
against the calendar.
"""
_ZERO = "0001-01-01T00:00:00Z"


def canonical_time(text: str, layout: str = SECONDS) -> str | None:
    """Returns the time in UTC, with six fractional digits or none, depending on the layout; None for Go's zero time.
    Raises ValueError with Go's message.
    """
    return (_canonical if len(text) <= _LONGEST_KEPT else _canonical.__wrapped__)(text, layout)


_LONGEST_KEPT = 64


@lru_cache(4096)
def _canonical(text: str, layout: str) -> str | None:
    rest, numbers = text, []
    for part, pattern, name, least, most in _PARTS:
        found = re.match(pattern, rest, re.ASCII)
        if found is None:
            raise _unparsed(text, layout, rest, part)
        rest = rest[found.end() :]
        if name:
            numbers.append(int(found[0]))
            if not least <= numbers[-1] <= most:
                raise _out_of_range(text, name)
    fraction = re.match(r"\.\d{6}" if layout == MICROSECONDS else r"[.,]\d+|", rest, re.ASCII)
    if fraction is None:
        raise _unparsed(text, layout, rest, ".000000")
    rest = rest[fraction.end() :]
    zone = re.match(r"Z|[+-]\d\d:\d\d", rest, re.ASCII)
    if zone is None:
        raise _unparsed(text, layout, rest, "Z07:00")
    if rest[zone.end() :]:
        raise ValueError(f'parsing time "{text}": extra text: "{rest[zone.end() :]}"')
    try:
        moment = datetime(*numbers, tzinfo=_zone(zone[0])).astimezone(UTC)  # type: ignore[arg-type, misc] # six numbers
    except (ValueError, OverflowError):
        raise _out_of_range(text, "day") from None
    written = moment.isoformat()[:19]
    if layout == MICROSECONDS:
        return f"{written}{fraction[0]}Z"
    return None if written + "Z" == _ZERO else written + "Z"


def _zone(text: str) -> timezone:
    if text == "Z":
        return UTC
    offset = timedelta(hours=int(text[1:3]), minutes=int(text[4:]))
    return timezone(-offset if text[0] == "-" else offset)


def _out_of_range(text: str, name: str) -> ValueError:
    return ValueError(f'parsing time "{text}": {name} out of range')


def _unparsed(text: str, layout: str, rest: str, wanted: str) -> ValueError:
    return ValueError(f'parsing time "{text}" as "{layout}": cannot parse "{rest}" as "{wanted}"')
