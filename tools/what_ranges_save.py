"""What sharding by ranges saves: runs what measures it, one after the other, and prints a table of the figures beside
those that were to be reached.

    python tools/what_ranges_save.py [--rows join basic] [--again] [--short]

The Go reference's sharder takes part if KUBESHARD_GO_SHARDER names it. All takes some 25 minutes on two cores with
nothing else on them. The figures of a row are kept in `build/ranges`, and not measured again (`--again` does). The row
"million" is only measured when it is named: it takes six minutes of a core and 3.8 GiB. A row's commands run at the
same time: where there are two, time is virtual, and other work changes nothing. `--short` tries whether all run.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from evaluation import FIGURES, ROOT
from kubeshard_lab.experiment.report.words import digits, percent, seconds

SIZES = {"objects": 10_000, "moved": 2000, "pairs": 4, "created": 300, "rest": 60, "shards": 50, "load": 40}
SHORT = {"objects": 300, "moved": 100, "pairs": 1, "created": 50, "rest": 5, "shards": 5, "load": 10}
COLUMNS = {"Go, labels": ("go",), "labels": ("labels", "kubeshard"), "ranges": ("ranges",)}
"""The programs of each, by which benchmarks call them."""
GRACE = 60.0
"""Seconds that a benchmark has to end its programs."""


class Line(NamedTuple):
    """`figures`: of what, and which, given to `show`."""

    words: str
    goal: str
    figures: Sequence[tuple[str, str]]
    show: Callable[..., str]


class Row(NamedTuple):
    commands: Sequence[str]
    lines: Sequence[Line]


def _change(words: str, goal: str, what: str) -> Line:
    figures = [(what, each) for each in ("wall", "CPU", "writes")]
    return Line(words, goal, figures, lambda wall, cpu, n: f"{seconds(wall)}, {seconds(cpu)}, {n:.0f}")


def _basic(words: str, goal: str, figure: str, show: Callable[[float], str]) -> Line:
    figures = [("basic", figure), ("basic", "valid")]
    return Line(words, goal, figures, lambda value, valid: show(value) + ("" if valid else " (not valid)"))


def _three_minutes(assigns: float, other: float = 0.0) -> str:
    return seconds((assigns - other) * 3 / 1000)


_SCALE = "benchmarks/scale.py"
_BOTH = [f"--delivery {each}" for each in ("labels", "ranges")]
_HANDED = "1.5 s, 10 writes"
ROWS = {
    "join": Row(
        ["benchmarks/assignment.py --objects {objects}"],
        [
            _change("the first instance begins: until it has worked on all; CPU; writes", "", "assign"),
            _change("a second one joins: until both have worked on theirs", _HANDED, "join"),
            _change("the first one stops: until the other has worked on all", _HANDED, "leave"),
        ],
    ),
    "creates": Row(
        ["benchmarks/creates.py --pairs {pairs} --objects {created}"],
        [Line("creates, sharded: of the rate without", "98 %", [("sharded / not", "rate")], percent)],
    ),
    "idle": Row(
        ["benchmarks/idle.py --seconds {rest} --subjects sharder,labels,assigning,ranges"],
        [
            Line(
                "what assigns, at rest: CPU in three minutes", "0.3 s", [("sharder", "CPU")], _three_minutes
            ),
            Line(
                "... inside an instance: beyond another one",
                "0.3 s",
                [(each, "CPU") for each in ("assigning", "ranges")],
                _three_minutes,
            ),
        ],
    ),
    "basic": Row(
        ["tools/evaluation.py --only basic --again --run singleton --run external --run ranges"],
        [
            _basic(
                "basic: CPU of services that assign; by ranges, instances do", "0.3 s", "sharders", seconds
            ),
            _basic("... and of all, of a singleton's", "106 %", "ratio", percent),
        ],
    ),
    "rolling": Row(
        [f"benchmarks/rollout.py --objects {{moved}} {each}" for each in _BOTH],
        [
            Line(
                "a rolling update: longest without an owner", "0.3 s", [("without an owner", "most")], seconds
            )
        ],
    ),
    "shares": Row(
        [f"{_SCALE} ring --shards 3 5 10 50"],
        [
            Line(f"largest share of {n}, of an even one", most, [(f"{n} shards", "largest")], "{:.3f}".format)
            for n, most in ((3, "1.01"), (5, "1.01"), (10, "1.02"), (50, "1.18"))
        ],
    ),
    "instances": Row(
        [
            f"{_SCALE} instances --instances 1 5 20 --seconds {{load}} --load {n} {_BOTH[n == 6]}"
            for n in (3, 6)
        ],
        [
            Line(
                f"{n} instances carry, of what one does",
                str(n),
                [(f"{each} instances", "ready") for each in (n, 1)],
                lambda many, one: digits(many / one),
            )
            for n in (5, 20)
        ],
    ),
    "deaths": Row(
        [f"{_SCALE} changes --instances {{shards}} --objects {n} {_BOTH[n == 200]}" for n in (10, 200)],
        [Line("a shard of these dies: until all have an owner", "", [("death", "seconds")], seconds)],
    ),
    "million": Row(
        [f"{_SCALE} changes --instances {{shards}} --objects 20000 {_BOTH[1]} --without-children"],
        [Line("... of 100 times as many objects", "the same", [("death", "seconds")], seconds)],
    ),
}


def measure(row: Row, sizes: Mapping[str, int], kept: Path) -> None:
    """Keeps the figures if all commands end well."""
    unfinished = kept.with_suffix(".unfinished")
    unfinished.parent.mkdir(parents=True, exist_ok=True)
    unfinished.write_bytes(b"")
    running = list[subprocess.Popen[bytes]]()
    try:
        for words in row.commands:
            command = [sys.executable, *words.format_map(sizes).split()]
            print("$", *command, flush=True)
            environment = {**os.environ, FIGURES: str(unfinished)}
            running.append(subprocess.Popen(command, cwd=ROOT, env=environment, start_new_session=True))  # noqa: S603
        ended = [each.wait() for each in running]
        if any(ended):
            raise SystemExit("a command failed: its row is missing in the table")
        unfinished.replace(kept)
    finally:
        for each in running:
            if each.poll() is None:
                os.killpg(each.pid, signal.SIGINT)
                each.wait(GRACE)


def table(folder: Path, sizes: Mapping[str, int]) -> Iterator[str]:
    yield f"| | {' | '.join(COLUMNS)} | to be reached | `python ...` |\n|---|---|---|---|---|---|"
    for kept, row in ((folder / f"{name}.jsonl", row) for name, row in ROWS.items()):
        if not kept.exists():
            continue
        found = dict[tuple[str, str, str], float]()
        for each in map(json.loads, kept.read_text(encoding="utf-8").splitlines()):
            found |= {(each["what"], each["program"], name): n for name, n in each["figures"].items()}
        commands = ", ".join(f"`{each.format_map(sizes)}`" for each in row.commands)
        for line in row.lines:
            cells = [_cell(line, programs, found) for programs in COLUMNS.values()]
            yield f"| {line.words} | {' | '.join(cells)} | {line.goal} | {commands} |"


def _cell(line: Line, programs: Sequence[str], found: Mapping[tuple[str, str, str], float]) -> str:
    for program in programs:
        values = [found.get((what, program, figure)) for what, figure in line.figures]
        if None not in values:
            return line.show(*values)
    return ""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument(
        "--rows", nargs="+", choices=ROWS, default=[each for each in ROWS if each != "million"]
    )
    parser.add_argument("--again", action="store_true", help="measure what has been measured before")
    parser.add_argument("--short", action="store_true", help="small sizes, whose figures mean nothing")
    given = parser.parse_args()
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    folder, sizes = (
        (ROOT / "build/ranges/short", SHORT) if given.short else (ROOT / "build/ranges/full", SIZES)
    )
    try:
        for name in given.rows:
            if given.again or not (folder / f"{name}.jsonl").exists():
                measure(ROWS[name], sizes, folder / f"{name}.jsonl")
    except KeyboardInterrupt:
        sys.exit(130)
    finally:
        print(*table(folder, sizes), sep="\n")


if __name__ == "__main__":
    main()
