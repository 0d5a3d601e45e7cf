"""Repeats the evaluation: runs every set-up one after the other, and writes the tables that compare them to
`docs/project/performance.md`.

    make evaluation                      # scaled to fit an hour on two cores
    make evaluation ARGS=--full          # at the published rates, 15 minutes a run: about five hours
    make evaluation ARGS="--only basic"  # one part
    make evaluation ARGS="--full --only basic --run singleton --run ranges"  # some of its runs

Runs are kept in `build/evaluation`: what is there and has finished is not run again (`--again` does). A run that is not
valid stays in its table, and says so. The Go project's programs take part if KUBESHARD_GO_SHARDER and
KUBESHARD_GO_OPERATOR name them.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from kubeshard_lab.experiment.recording import read_run
from kubeshard_lab.experiment.report.figures import CONTROLLERS, SHARES, processes, waiting
from kubeshard_lab.experiment.report.recorded import Recorded
from kubeshard_lab.experiment.report.series import Windows
from kubeshard_lab.experiment.report.words import digits, percent, seconds, size

ROOT = Path(__file__).resolve().parents[1]
RUNS = ROOT / "build" / "evaluation"
PAGE = ROOT / "docs" / "project" / "performance.md"
BEGIN, END = "<!-- begin: {} -->\n", "<!-- end: {} -->"
GO = ("KUBESHARD_GO_SHARDER", "KUBESHARD_GO_OPERATOR")
FIGURES = "BENCHMARK_FIGURES"
"""As in `benchmarks/fleet.py`: who asks for figures gets them, and the page stays as it is."""
INVALID, MISSED = 3, 1
_P99 = SHARES.index(0.99)


class Planned(NamedTuple):
    """A run. `share`: which part of the load of its part it gets."""

    name: str
    arguments: tuple[str, ...]
    share: float = 1.0


class Run:
    """A run in figures, as far as the tables need them."""

    def __init__(self, recorded: Recorded) -> None:
        self.recorded, self.run = recorded, recorded.run
        self.name = f"{self.run.program} {self.run.setup}, {self.run.instances} x {self.run.workers}"
        self.waiting = waiting(recorded)
        used = processes(recorded, Windows(recorded.begin, recorded.end))
        self.operators = [each for each in used if each.role == "operator"]
        self.sharders = [each for each in used if each.role == "sharder"]
        self.servers = [each for each in used if each.role == "server"]
        self.cpu = math.fsum(each.cpu for each in used if each.role in CONTROLLERS)

    def baseline(self, runs: Sequence[Run]) -> float:
        """CPU seconds of the singleton of its program or, if there is none, of another; NaN without any."""
        alone = [each for each in runs if each.run.setup == "singleton"]
        own = [each for each in alone if each.run.program == self.run.program]
        return next((each.cpu for each in own or alone), math.nan)


class Part(NamedTuple):
    """Runs that are compared with each other, and their size in the short evaluation and the full one."""

    name: str
    scale: float
    duration: str
    runs: tuple[Planned, ...]


_SETUPS = (
    Planned("singleton", ("--setup", "singleton")),
    Planned("external", ("--setup", "external")),
    Planned("go-singleton", ("--setup", "singleton", "--program", "go")),
    Planned("go-external", ("--setup", "external", "--program", "go")),
    Planned("in-manager", ("--setup", "in-manager")),
    Planned("ranges", ("--setup", "ranges")),
)
# With 10 ms for each request, as in a cluster, the workers are what limits an instance, and not the machine. Five
# instances of one worker are as many as two cores carry. The load grows with the instances, so that each reaches its
# limit after the same time.
_SCALE_OUT = tuple(
    Planned(
        f"instances-{number}",
        ("--instances", str(number), "--workers", "1", "--latency", "10ms"),
        number / 5,
    )
    for number in range(1, 6)
)
_EXTERNAL = (_SETUPS[1], _SETUPS[3])
PARTS = (
    Part("basic", 1.0, "3m", _SETUPS),
    Part("scale-out", 2.0, "2m", _SCALE_OUT),
    Part("chaos", 0.5, "4m", _EXTERNAL),
    Part("rolling-update", 0.25, "4m", _EXTERNAL),
)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--full", action="store_true", help="the published rates, 15 minutes each")
    parser.add_argument("--only", choices=[part.name for part in PARTS], action="append")
    names = sorted({planned.name for part in PARTS for planned in part.runs})
    parser.add_argument("--run", choices=names, action="append", help="start only this run of each part")
    parser.add_argument("--again", action="store_true", help="run what has been run before")
    parser.add_argument("--tables", action="store_true", help="run nothing: only write the tables again")
    given = parser.parse_args()
    parts = [part for part in PARTS if not given.only or part.name in given.only]
    for part in parts:
        if not given.tables:
            _run(part, given.full, given.again, given.run or names)
        folders = [folder for folder in _folders(part, given.full) if (folder / "run.json").exists()]
        if not folders:
            print(f"{part.name}: nothing was run")
            continue
        runs = [Run(Recorded.load(folder)) for folder in folders]
        print(*map(_server, runs), sep="\n")
        if path := os.environ.get(FIGURES):
            with Path(path).open("a", encoding="utf-8") as file:
                print(*(json.dumps(_figures(part, run, runs)) for run in runs), sep="\n", file=file)
            continue
        _write(part.name, [*_table(runs), *(_capacities(runs) if part.name == "scale-out" else ())])


def _folders(part: Part, full: bool) -> Iterator[Path]:
    for planned in part.runs:
        yield RUNS / ("full" if full else "short") / part.name / planned.name


def _run(part: Part, full: bool, again: bool, names: Sequence[str]) -> None:
    for planned, folder in zip(part.runs, _folders(part, full), strict=True):
        if planned.name not in names:
            continue
        if "go" in planned.arguments and not all(os.environ.get(name) for name in GO):
            print(f"{part.name}, {planned.name}: not run, since {' and '.join(GO)} do not name its programs")
            continue
        if (folder / "run.json").exists() and not again and read_run(folder).finished:
            continue
        if folder.exists():
            shutil.rmtree(folder)
        scale, duration = (1.0, ()) if full else (part.scale, ("--duration", part.duration))
        size = ("--scale", f"{scale * planned.share:g}", *duration)
        command = ["experiment", part.name, *size, *planned.arguments, "--output", str(folder)]
        print("$ kubeshard", *command, flush=True)
        ended = subprocess.run([sys.executable, "-m", "kubeshard", *command], check=False).returncode  # noqa: S603
        if ended not in (0, MISSED, INVALID):
            raise SystemExit(ended)


def _table(runs: Sequence[Run]) -> Iterator[str]:
    """What users waited for, and what it cost."""
    yield (
        "| set-up | generations | p50 | p99 | CPU of each instance, relative to the singleton's | sharders "
        "| all together | CPU per generation | memory of an instance at most | valid |\n"
    )
    yield "|" + "---|" * 10 + "\n"
    for each in runs:
        yield "| " + " | ".join(_cells(each, each.baseline(runs))) + " |\n"


def _cells(each: Run, alone: float) -> Sequence[str]:
    latency = each.waiting.latency
    return (
        each.name,
        f"{each.waiting.ready} of {each.waiting.written}",
        seconds(latency[SHARES.index(0.5)]),
        seconds(latency[_P99]),
        ", ".join(f"{digits(one.cpu)} s ({percent(one.cpu / alone)})" for one in each.operators),
        ", ".join(f"{digits(one.cpu)} s" for one in each.sharders) or "-",
        percent(each.cpu / alone),
        seconds(each.cpu / each.waiting.ready if each.waiting.ready else math.nan),
        size(max((one.memory_at_most for one in each.operators), default=math.nan)),
        "yes" if not each.run.invalid else f"no: {' '.join(each.run.invalid)}",
    )


def _figures(part: Part, each: Run, runs: Sequence[Run]) -> Mapping[str, Any]:
    sharders = math.fsum(one.cpu for one in each.sharders)
    figures = {"ratio": each.cpu / each.baseline(runs), "sharders": sharders, "valid": not each.run.invalid}
    program = "go" if each.run.program == "go" else {"external": "labels"}.get(each.run.setup, each.run.setup)
    return {"what": part.name, "program": program, "figures": figures}


def _server(each: Run) -> str:
    """What the run demanded of the API server, which is not in the tables."""
    lasted, cpu = each.recorded.end - each.recorded.begin, math.fsum(one.cpu for one in each.servers)
    share = percent(cpu / lasted) if lasted else "-"
    memory = size(math.fsum(one.memory_at_most for one in each.servers))
    of_each = seconds(cpu / each.waiting.ready if each.waiting.ready else math.nan)
    return f"{each.name}: API server {share} of a core, {of_each} per generation, {memory} at most"


def _capacities(runs: Sequence[Run]) -> Iterator[str]:
    """What the instances carry: what becomes ready in the last quarter of the load, which is more than they can do."""
    rates = [_rates(each) for each in runs]
    _, first = rates[0]
    yield "\n| instances | asked for | became ready | against one instance |\n|---|---|---|---|\n"
    for each, (asked, ready) in zip(runs, rates, strict=True):
        found = digits(ready) if ready < asked else f"at least {digits(ready)}"
        against = f"{ready / first:.2f}" if first else "-"
        yield f"| {each.run.instances} | {digits(asked)}/s | {found}/s | {against} |\n"


def _rates(each: Run) -> tuple[float, float]:
    """Generations per second in the last quarter of the load: that were due, and that became ready."""
    end = each.recorded.end
    length = (end - each.recorded.begin) / 4
    asked = sum(end - length <= one.due < end for one in each.recorded.generations)
    ready = sum(end - length <= one.ready < end for one in each.recorded.generations)
    return asked / length, ready / length


def _write(name: str, lines: Sequence[str]) -> None:
    """Replaces the part of the page between its marks. Without marks, prints."""
    begin, end = BEGIN.format(name), END.format(name)
    text = PAGE.read_text(encoding="utf-8") if PAGE.exists() else ""
    if begin not in text:
        print(*lines, sep="")
        return
    before, _, rest = text.partition(begin)
    after = rest.partition(end)[2]
    PAGE.write_text(before + begin + "\n" + "".join(lines) + "\n" + end + after, encoding="utf-8")


if __name__ == "__main__":
    main()
