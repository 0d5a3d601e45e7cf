"""Numbers and verdicts for people."""

from __future__ import annotations

import math
from enum import Enum

from kubeshard_lab.experiment.recording import Level, RunRecord

KIB, MIB, GIB = 1 << 10, 1 << 20, 1 << 30


class Unit(Enum):
    SECONDS = "seconds"
    CORES = "cores"
    BYTES = "bytes"
    PER_SECOND = "per second"
    OBJECTS = "objects"


def seconds(value: float) -> str:
    """A duration with about three digits: 950 us, 12.3 ms, 1.25 s, 12 min 30 s."""
    if math.isnan(value):
        return "-"
    if math.isinf(value):
        return "never"
    if abs(value) >= 120:
        minutes, rest = divmod(round(value), 60)
        return f"{minutes} min {rest} s" if rest else f"{minutes} min"
    if abs(value) >= 0.9995:
        return f"{digits(value)} s"
    return f"{digits(value * 1000)} ms"


def size(value: float) -> str:
    if math.isnan(value):
        return "-"
    for unit, name in ((GIB, "GiB"), (MIB, "MiB"), (KIB, "KiB")):
        if abs(value) >= unit:
            return f"{digits(value / unit)} {name}"
    return f"{value:.0f} B"


def count(value: float) -> str:
    """With a narrow space between thousands."""
    return f"{value:,.0f}".replace(",", "\u202f") if math.isfinite(value) else "-"


def digits(value: float) -> str:
    """Three digits, without zeros that say nothing, and at most five places."""
    if not math.isfinite(value):
        return "-"
    places = 2 - math.floor(math.log10(abs(value))) if value else 0
    text = f"{value:.{min(max(places, 0), 5)}f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


def percent(value: float) -> str:
    """100 % is all."""
    if not math.isfinite(value):
        return "-"
    if 0.99 <= value < 1:
        return f"{math.floor(value * 1000) / 10:.1f} %"
    return f"{value * 100:.{0 if abs(value) >= 0.0995 else 1}f} %"


def clock(value: float) -> str:
    """Minutes and seconds since the load began: 5:07."""
    sign, whole = ("-" if value < 0 else ""), round(abs(value))
    return f"{sign}{whole // 60}:{whole % 60:02}"


def amount(unit: Unit, value: float) -> str:
    match unit:
        case Unit.SECONDS:
            return seconds(value)
        case Unit.BYTES:
            return size(value)
        case Unit.OBJECTS:
            return count(value)
        case Unit.CORES | Unit.PER_SECOND:
            return digits(value)


def plural(number: float, noun: str) -> str:
    return f"{count(number)} {noun}{'' if number == 1 else 's'}"


def join(parts: list[str]) -> str:
    """a, b and c"""
    return " and ".join(filter(None, (", ".join(parts[:-1]), *parts[-1:])))


PROGRAMS = {"kubeshard": "kubeshard", "go": "the Go project"}
SERVERS = {
    "embedded": "the embedded API server",
    "real": "a real API server",
    "cluster": "the API server of a cluster",
    "simulation": "a simulated API server, on virtual time",
}


def what(run: RunRecord) -> str:
    sharder, operator = (PROGRAMS.get(each, each) for each in (run.program.split("+") * 2)[:2])
    workers = f"{plural(run.workers, 'worker')}{' each' if run.instances > 1 else ''}"
    whose = "an" if sharder == operator else f"{sharder}'s"
    instances = f"{plural(run.instances, 'instance')} of {operator}'s operator with {workers}"
    made_of = {
        "singleton": f"{operator}'s operator as a singleton with {workers}",
        "in-manager": f"{instances}, one of which is also the sharder",
        "ranges": f"{instances}, one of which shares out hash ranges",
        "external": f"{instances} and {whose} external sharder",
    }.get(run.setup, f"{instances}, set up as {run.setup}")
    rates = "at its full rates" if run.scale == 1 else f"at {digits(run.scale)} of its rates"
    return (
        f"Scenario {run.scenario} {rates} for {seconds(run.duration)}: {made_of}, on "
        f"{SERVERS.get(run.server, run.server)}{costs(run)}."
    )


def costs(run: RunRecord) -> str:
    """What was given in a simulation, which all of its figures depend on."""
    if not run.costs:
        return ""
    return f", where an answer takes {seconds(run.latency)} and work costs {run.costs.replace(',', ', ')}"


def verdict(run: RunRecord) -> tuple[str, str]:
    """(good, bad or unsure; a sentence or two): whether the figures count, and which levels were kept."""
    missed = [level for level in run.levels if not level.kept]
    ended = (
        ""
        if run.finished
        else "The run was cut off before its load was over; this is what it recorded until then. "
    )
    if run.invalid:
        why = " ".join(run.invalid)
        return "unsure", f"{ended}Invalid: the figures say nothing about the controllers. {why}"
    if not run.levels:
        return "unsure", f"{ended}No service level was judged."
    if not missed:
        all_levels = (
            "The service level was" if len(run.levels) == 1 else f"All {len(run.levels)} service levels were"
        )
        return (
            "good" if run.finished else "unsure"
        ), f"{ended}{'Valid. ' if run.finished else ''}{all_levels} kept."
    names = join([f"{level.name} ({against(level)})" for level in missed])
    kept = len(run.levels) - len(missed)
    others = f" {plural(kept, 'level')} {'was' if kept == 1 else 'were'} kept." if kept else ""
    return "bad", f"{ended}{'Valid, but missed' if run.finished else 'Missed'}: {names}.{others}"


def against(level: Level) -> str:
    if level.worst is None:
        return "nothing was measured"
    return f"{seconds(level.worst)}, limit {seconds(level.limit)}"
