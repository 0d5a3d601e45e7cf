"""What a run leaves on disk: a folder that every part of the run appends to, and that reports are made from.

| file | one line for each |
|---|---|
| `run.json` | the whole run: `RunRecord`; written at the start, replaced at the end |
| `requests.csv` | request of the load: `Request` |
| `generations.csv` | generation of an object that a user wrote: `Generation` |
| `events.csv` | thing that happened: `Event` |
| `processes.csv` | process and second: `Usage` |
| `gauges.csv` | value that was read off at some time: `Gauge` |
| `scrapes.txt` | line of metrics, as exposed, in blocks that begin with `# scrape <unix time> <process> <role>` |

The gauges, once a second:

| name | subject | value |
|---|---|---|
| `rate-wanted`, `rate-reached` | | requests that were due, and that were answered with success, in that second |
| `late` | | seconds by which the last request was sent late |
| `in-flight` | | requests without an answer yet |
| `unready` | | generations that are not ready yet |
| `objects` | | objects that the watch knows |
| `objects-of-shard` | shard, or empty | its objects; those without a shard |
| `moves` | | objects that went from one shard to another, since the start |
| `probe` | | seconds that a small read took; infinite without an answer |

Guaranteed: lines are written as they happen and flushed at least once a second, so a run that is killed leaves all but
its last second; `read` ignores an incomplete last line. All times are Unix time in seconds. Not guaranteed: that lines
are in the order of their times.
"""

from __future__ import annotations

import csv
import math
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import IO, Any, NamedTuple, TypeVar

import msgspec

RUN = "run.json"


class Request(NamedTuple):
    """A request of the load. It was late by `sent - due`; a user waited for `answered - due`."""

    verb: str
    """create, patch or delete."""
    namespace: str
    name: str
    due: float
    sent: float
    answered: float
    """NaN if no answer came."""
    outcome: str
    """`ok`, or the reason of the failure: an HTTP status such as `409`, or `unreachable`."""


class Generation(NamedTuple):
    """From a write until its status said ready. A user waited `ready - due`, so a slow API server counts."""

    namespace: str
    name: str
    uid: str
    generation: int
    due: float
    sent: float
    answered: float
    ready: float
    """NaN if it never was: the run ended first, or the object went."""
    backfilled: bool
    """A later generation was the first that was seen to be ready, and its time stands here."""
    gone: bool
    """The load deleted the object before it was ready: it does not count as never reconciled."""


class Event(NamedTuple):
    """Something that happened to the set-up or to the load."""

    time: float
    kind: str
    """started, ready, killed, crashed, stopped, ended, restarted, rolled, joined, left, load-began, load-ended, ..."""
    subject: str
    """A process or an instance; empty for the load itself."""
    detail: str


class Usage(NamedTuple):
    """What a process has used since it started. Counters begin at 0 again when a process of that name is restarted."""

    time: float
    process: str
    """Unique in the run: `sharder-1`, `operator-2`, `kube-apiserver`, `experiment`."""
    role: str
    """sharder, operator, server or tool."""
    cpu: float
    """Seconds, of all threads, user and system."""
    resident: int
    """Bytes."""
    voluntary: int
    """Context switches."""
    involuntary: int


class Gauge(NamedTuple):
    """A value at a time, such as `rate-wanted` or `objects-of-shard`."""

    time: float
    name: str
    subject: str
    """What it is of, such as a shard; empty if there is only one."""
    value: float


class Level(msgspec.Struct, frozen=True):
    name: str
    limit: float
    """Seconds."""
    worst: float | None
    """Seconds; None if nothing was measured, which is no success."""
    kept: bool
    subject: str = ""
    """What was worst, if there are several, such as `websites PATCH`."""


class RunRecord(msgspec.Struct, kw_only=True):
    id: str
    scenario: str
    setup: str
    """singleton, in-manager, ranges or external."""
    program: str
    """kubeshard, go, or sharder and operator apart: `go+kubeshard`."""
    server: str
    """embedded, real or cluster."""
    instances: int
    workers: int
    scale: float
    """Of the scenario's rates."""
    seed: int
    duration: float
    """Seconds of load that were asked for."""
    latency: float = 0.0
    """Seconds by which the embedded API server delayed each answer, or the simulated one."""
    costs: str = ""
    """What work cost in a simulation, as it was given."""
    began: float = math.nan
    """When the load began. NaN as long as it has not."""
    ended: float = math.nan
    finished: bool = False
    """Whether the load ran to its end."""
    invalid: list[str] = []
    """Why the figures say nothing about the controllers: sentences. Empty: the run is valid."""
    notes: list[str] = []
    levels: list[Level] = []
    machine: dict[str, str] = {}
    """Processor, cores, memory, kernel, versions."""

    @property
    def title(self) -> str:
        return f"{self.scenario}, {self.setup}, {self.program}, {self.instances} x {self.workers} on {self.server}"


Row = TypeVar("Row", Request, Generation, Event, Usage, Gauge)

_FILES: Mapping[type, str] = {
    Request: "requests.csv",
    Generation: "generations.csv",
    Event: "events.csv",
    Usage: "processes.csv",
    Gauge: "gauges.csv",
}


class Recorder:
    """Appends to a run's folder. Not safe for several processes at once."""

    def __init__(self, folder: Path) -> None:
        """Raises FileExistsError if the folder holds a run already."""
        folder.mkdir(parents=True, exist_ok=True)
        if (folder / RUN).exists():
            raise FileExistsError(f"{folder} holds a run already")
        self._files: dict[type, IO[str]] = {}
        self._writers: dict[type, Any] = {}
        for row, name in _FILES.items():
            file = self._files[row] = (folder / name).open("w", newline="", encoding="utf-8")
            self._writers[row] = csv.writer(file, lineterminator="\n")
            self._writers[row].writerow(row._fields)  # type: ignore[attr-defined]

    def add(self, row: Request | Generation | Event | Usage | Gauge) -> None:
        self._writers[type(row)].writerow(row)

    def flush(self) -> None:
        for file in self._files.values():
            file.flush()

    def close(self) -> None:
        for file in self._files.values():
            file.close()


def save(folder: Path, run: RunRecord) -> None:
    """Replaces `run.json` as a whole. JSON has no NaN: it is written as null."""
    fresh = folder / f".{RUN}"
    fresh.write_bytes(msgspec.json.format(msgspec.json.encode(run), indent=2) + b"\n")
    os.replace(fresh, folder / RUN)


def read_run(folder: Path) -> RunRecord:
    """Raises FileNotFoundError, and msgspec.ValidationError if it is not a run's file."""
    found = msgspec.json.decode((folder / RUN).read_bytes())
    if not isinstance(found, dict):
        raise msgspec.ValidationError(f"{folder / RUN}: not an object")
    return msgspec.convert({name: value for name, value in found.items() if value is not None}, RunRecord)


def read(folder: Path, row: type[Row]) -> Iterator[Row]:
    """All complete lines. Raises FileNotFoundError, and ValueError with file and line for a line that is none."""
    path = folder / _FILES[row]
    with path.open(newline="", encoding="utf-8") as file:
        lines = csv.reader(line for line in file if line.endswith("\n"))
        next(lines, None)
        for values in lines:
            try:
                yield msgspec.convert(values, row, strict=False)
            except msgspec.ValidationError as error:
                raise ValueError(f"{path}, line {lines.line_num}: {values}: {error}") from None
