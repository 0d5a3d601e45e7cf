"""Human-readable ages: at most two units, and less precise the longer the duration.

Source: apimachinery's `duration.HumanDuration`, whose thresholds are used here.
"""

from __future__ import annotations

from kubeshard.core.times import parse_time

_MINUTE, _HOUR, _DAY = 60, 3600, 86400
_YEAR = 365 * _DAY


def human_duration(seconds: float) -> str:
    """Format a duration. Up to two seconds in the future count as zero; anything beyond is `<invalid>`."""
    whole = int(seconds)
    if whole < -1:
        return "<invalid>"
    if whole < 2 * _MINUTE:
        return f"{max(whole, 0)}s"
    if whole < 10 * _MINUTE:
        return _two(whole, _MINUTE, "m", 1, "s")
    if whole < 3 * _HOUR:
        return f"{whole // _MINUTE}m"
    if whole < 8 * _HOUR:
        return _two(whole, _HOUR, "h", _MINUTE, "m")
    if whole < 2 * _DAY:
        return f"{whole // _HOUR}h"
    if whole < 8 * _DAY:
        return _two(whole, _DAY, "d", _HOUR, "h")
    if whole < 2 * _YEAR:
        return f"{whole // _DAY}d"
    if whole < 8 * _YEAR:
        return _two(whole, _YEAR, "y", _DAY, "d")
    return f"{whole // _YEAR}y"


def since(time: str | None, now: float) -> str:
    """Format the time since `time`, a timestamp as on the wire; `<unknown>` if there is none."""
    then = parse_time(time)
    return "<unknown>" if then is None else human_duration(now - then)


def _two(seconds: int, unit: int, name: str, rest_unit: int, rest_name: str) -> str:
    count, rest = seconds // unit, seconds % unit // rest_unit
    return f"{count}{name}{rest}{rest_name}" if rest else f"{count}{name}"
