"""How well a simulation predicts this machine: runs that were measured, beside the same runs on virtual time.

    kubeshard experiment crash --scale 0.5 --duration 150s --latency 10ms -o measured/crash
    kubeshard experiment crash --scale 0.5 --duration 150s --on simulation --latency 11ms --costs rate=333 \\
        -o simulated/crash
    python benchmarks/calibration.py measured simulated

Each folder has runs by name; those that both have are compared. Percentiles are of samples. Those of the queue are not
compared, as a bucket of its histogram is ten times as wide as the one before; its mean is, and that of reconciles. An
instance that ends is *left* when the watch shows none of its objects any more (once a second), and users of its objects
have waited for as long as the longest of all who had to wait by the next such event. Nothing below 5 ms is compared:
real event loops take turns.
"""

from __future__ import annotations

import argparse
import math
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

from kubeshard_lab.experiment.objectives import CONTROLLER, QUEUE
from kubeshard_lab.experiment.quantiles import increase, of_samples
from kubeshard_lab.experiment.recording import RUN, Event, Gauge, Generation, RunRecord, read, read_run
from kubeshard_lab.experiment.scrapes import read_scrapes

RECONCILE = "controller_runtime_reconcile_time_seconds"
ENDS = ("killed", "crashed", "rolled")
LAST_QUARTER = 0.75
ALIKE = 0.2
SHORTEST = 0.005


def figures(folder: Path) -> Iterator[tuple[str, str, float]]:
    """Name, unit and value of everything that is compared."""
    run = read_run(folder)
    generations = [each for each in read(folder, Generation) if not math.isnan(each.ready)]
    quarter = run.began + LAST_QUARTER * run.duration
    ready = sum(quarter <= each.ready < run.ended for each in generations)
    yield "ready, in the last quarter", "/s", ready / (run.ended - quarter)
    for part in (0.5, 0.99):
        yield (
            f"waited, p{part * 100:.0f}",
            "s",
            of_samples(part, [each.ready - each.due for each in generations]),
        )
    for what, family in (("in the queue, mean", QUEUE), ("reconciled, mean", RECONCILE)):
        yield what, "s", _mean(folder, run, family)
    gauges = list(read(folder, Gauge))
    last = run.began + run.duration - 1
    ends = [each for each in read(folder, Event) if each.kind in ENDS and each.time < last]
    if not ends:
        return
    yield "moves", "", max(each.value for each in gauges if each.name == "moves")
    left = [_left(each, gauges) for each in ends]
    yield "an instance left, mean", "s", math.fsum(left) / len(left)
    for number, (end, following) in enumerate(
        zip(ends, [*(each.time for each in ends[1:]), math.inf], strict=True)
    ):
        if number == 0 or end.time - ends[number - 1].time > 10:
            yield f"longest wait after {end.subject}", "s", _longest(generations, end.time, following)


def _mean(folder: Path, run: RunRecord, family: str) -> float:
    """Of what the operators' histogram counted during the load."""
    series = defaultdict[tuple[str, str], tuple[list[float], list[float]]](lambda: ([], []))
    for scrape in read_scrapes(folder):
        part = scrape.parts().get(family) if scrape.role == "operator" else None
        for metric in scrape.parsed(part) if part else ():
            for sample in metric.samples:
                what = sample.name.removeprefix(family)
                if what in ("_sum", "_count") and CONTROLLER in sample.labels.values():
                    times, values = series[scrape.process, what]
                    times.append(scrape.time)
                    values.append(sample.value)
    total = {"_sum": 0.0, "_count": 0.0}
    for (_, what), (times, values) in series.items():
        total[what] += increase(times, values, run.began, run.ended)
    return total["_sum"] / total["_count"] if total["_count"] else math.nan


def _left(end: Event, gauges: list[Gauge]) -> float:
    """How many seconds after its end the instance had no objects; NaN if it never had none."""
    times = (
        gauge.time - end.time
        for gauge in gauges
        if (gauge.name, gauge.subject) == ("objects-of-shard", end.subject)
        and gauge.time >= end.time
        and not gauge.value
    )
    return next(times, math.nan)


def _longest(generations: list[Generation], begin: float, end: float) -> float:
    waits = (each.ready - each.due for each in generations if each.ready >= begin and each.due < end)
    return max(waits, default=math.nan)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("measured", type=Path)
    parser.add_argument("simulated", type=Path)
    given = parser.parse_args()
    names = sorted(path.parent.name for path in given.measured.glob(f"*/{RUN}"))
    print("| run | | measured | simulated | difference |\n|---|---|---|---|---|")
    compared = alike = 0
    for name in names:
        if not (given.simulated / name / RUN).exists():
            continue
        other = {what: value for what, _, value in figures(given.simulated / name)}
        for number, (what, unit, measured) in enumerate(figures(given.measured / name)):
            simulated = other.get(what, math.nan)
            if unit == "s" and max(measured, simulated) < SHORTEST:
                continue
            difference = simulated / measured - 1 if measured else math.nan
            compared += 1
            alike += abs(difference) <= ALIKE
            cells = " | ".join(f"{value:.3g}{unit and f' {unit}'}" for value in (measured, simulated))
            print(f"| {'' if number else name} | {what} | {cells} | {difference:+.0%} |")
    print(f"\n{alike} of {compared} differ by {ALIKE:.0%} at most")


if __name__ == "__main__":
    main()
