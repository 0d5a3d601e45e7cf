"""Asks all queries, writes the answers, and compares them with their limits."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import UTC, datetime
from typing import NamedTuple

from kubeshard_lab.experiment.measuring.answers import Point, Series, csv_lines, number
from kubeshard_lab.experiment.measuring.prometheus import Prometheus, Unanswered
from kubeshard_lab.experiment.measuring.queries import Query, Window

SHOWN = 20
"""Violations that are listed for one query; the CSV has all."""


class Findings(NamedTuple):
    """The names of queries with reasons, in the order of the file."""

    levels: int
    """How many queries had a limit and were measured."""
    missed: Sequence[str]
    unmeasured: Sequence[str]

    @property
    def problem(self) -> str:
        """One line; empty if there is none."""
        parts = (("not kept", self.missed), ("not measured", self.unmeasured))
        return "; ".join(f"{what}: {', '.join(names)}" for what, names in parts if names)


async def ask_all(
    queries: Iterable[Query],
    window: Window,
    prometheus: Prometheus,
    write: Callable[[str, Iterable[str]], None],
    say: Callable[[str], None],
) -> Findings:
    """`write` gets names and lines of CSV, `say` sentences. Each query is asked. Raises Unusable."""
    levels, missed, unmeasured = 0, list[str](), list[str]()
    for query in queries:
        try:
            answer = await prometheus.ask(query, window)
        except Unanswered as error:
            say(f"{query.name}: {error}")
            unmeasured.append(f"{query.name} ({error})")
            continue
        for warning in answer.warnings:
            say(f"{query.name}: warning: {warning}")
        if answer.series:
            write(query.name, csv_lines(answer.series))
        if query.slo is not None and (found := _numbers(answer.series)):
            levels += 1
            worst = max(point.value for _, point in found)
            if worst > query.slo:
                missed.append(f"{query.name} ({number(worst)} > {number(query.slo)})")
            for line in _verdict(query.name, query.slo, found, worst):
                say(line)
        elif not answer.series or query.slo is not None:
            say(f"{query.name}: no data" + (", which is optional" if query.optional else ""))
            if not query.optional:
                unmeasured.append(f"{query.name} (no data)")
        else:
            say(f"{query.name}: {len(answer.series)} series")
    return Findings(levels, missed, unmeasured)


def _numbers(series: Iterable[Series]) -> list[tuple[Series, Point]]:
    """What can be compared: a quantile of nothing is not a number."""
    return [(each, point) for each in series for point in each.points if not math.isnan(point.value)]


def _verdict(name: str, limit: float, found: Sequence[tuple[Series, Point]], worst: float) -> Iterator[str]:
    violations = [(series, point) for series, point in found if point.value > limit]
    if not violations:
        yield f"{name}: kept, {number(worst)} <= {number(limit)}"
        return
    yield f"{name}: NOT KEPT, {number(worst)} > {number(limit)}"
    for series, point in violations[:SHOWN]:
        yield f"  {number(point.value)} at {rfc3339(point.time)} {series}"
    if len(violations) > SHOWN:
        yield f"  and {len(violations) - SHOWN} more"


def rfc3339(time: float) -> str:
    """In UTC, with whole seconds."""
    return datetime.fromtimestamp(math.floor(time), UTC).isoformat().replace("+00:00", "Z")
