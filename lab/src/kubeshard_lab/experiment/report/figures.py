"""A run in figures: what was written and became ready, how long it took, and what each process used for it.

All processes are judged over the whole time of the load, whether they ran all of it or not.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from kubeshard_lab.experiment.quantiles import of_samples
from kubeshard_lab.experiment.recording import Request, Usage
from kubeshard_lab.experiment.report.recorded import Recorded
from kubeshard_lab.experiment.report.series import Step, Windows, by_process, cores, finite, latencies, steps

SHARES = (0.5, 0.9, 0.99, 0.999)
CONTROLLERS = ("operator", "sharder")
"""The roles whose use is the price of a set-up. Server and tool are there in every set-up."""
ROLES = (*CONTROLLERS, "server", "tool")


@dataclass(frozen=True)
class Load:
    """How the load of one verb, or all of it, went."""

    verb: str
    requests: int
    failed: Counter[str]
    late: float
    """The 99th percentile of the seconds by which requests were sent later than due."""
    answered: list[float]
    """Percentiles of the seconds from sending to the answer, one for each of SHARES."""


@dataclass(frozen=True)
class Waiting:
    written: int
    ready: int
    never: int
    """The run ended and they were not ready."""
    gone: int
    """Deleted by the load before they were ready."""
    backfilled: int
    """Ready, with the time of a later generation of the object."""
    latency: list[float]
    """Percentiles, one for each of SHARES; infinite where a generation that was never ready decides."""
    within: dict[float, int]
    """How many were ready within so many seconds."""


@dataclass(frozen=True)
class Process:
    name: str
    role: str
    cpu: float
    """Seconds."""
    cores: float
    cores_at_most: float
    memory: float
    """Mean of the resident memory while it ran, in bytes."""
    memory_at_most: float
    memory_of_load: float
    """Mean over the load, for which a process that did not run had none."""
    restarts: int


def loads(requests: Sequence[Request]) -> list[Load]:
    """One for each verb, in the order of their names, and all together if there are several."""
    verbs = sorted({row.verb for row in requests})
    found = [_load(verb, [row for row in requests if row.verb == verb]) for verb in verbs]
    return [*found, _load("all", requests)] if len(found) > 1 else found


def waiting(recorded: Recorded) -> Waiting:
    rows = recorded.generations
    waited = [value for _, value in latencies(rows)]
    ready = finite(waited)
    return Waiting(
        written=len(rows),
        ready=len(ready),
        never=len(waited) - len(ready),
        gone=len(rows) - len(waited),
        backfilled=sum(row.backfilled for row in rows),
        latency=[of_samples(share, waited) for share in SHARES],
        within={limit: sum(value <= limit for value in ready) for limit in (0.1, 1.0, 5.0)},
    )


def processes(recorded: Recorded, windows: Windows) -> list[Process]:
    """In the order of their roles and names. Those that used nothing while the load ran are left out."""
    if not recorded.usages:
        return []
    first = recorded.usages[0].time
    rows_of = by_process(recorded.usages)
    readings = max(
        sum(recorded.begin <= row.time <= recorded.end for row in rows) for rows in rows_of.values()
    )
    found = []
    for name, rows in rows_of.items():
        taken = steps(rows, fresh=rows[0].time > first + 2)
        inside = [step for step in taken if recorded.begin < step.end <= recorded.end]
        if inside:
            resident = [row.resident for row in rows if recorded.begin <= row.time <= recorded.end]
            found.append(_process(name, rows, inside, resident, readings, recorded.seconds, windows))
    return sorted(found, key=lambda each: (_place(each.role), natural(each.name)))


def natural(name: str) -> list[tuple[int, str]]:
    """A key that sorts operator-2 before operator-10."""
    parts = re.split("([0-9]+)", name)
    return [(int(part), "") if number % 2 else (-1, part) for number, part in enumerate(parts)]


def _process(
    name: str,
    rows: Sequence[Usage],
    inside: Sequence[Step],
    resident: Sequence[int],
    readings: int,
    seconds: float,
    windows: Windows,
) -> Process:
    cpu = math.fsum(step.cpu for step in inside)
    measured = any(resident)  # no process does without memory: in a simulation it is not known
    return Process(
        name=name,
        role=rows[0].role,
        cpu=cpu,
        cores=cpu / seconds if seconds else math.nan,
        cores_at_most=max(finite(cores(inside, windows)), default=math.nan),
        memory=math.fsum(resident) / len(resident) if measured else math.nan,
        memory_at_most=float(max(resident)) if measured else math.nan,
        memory_of_load=math.fsum(resident) / readings if measured else math.nan,
        restarts=sum(step.restarted for step in inside),
    )


def _place(role: str) -> int:
    return ROLES.index(role) if role in ROLES else len(ROLES)


def _load(verb: str, requests: Sequence[Request]) -> Load:
    answered = finite(row.answered - row.sent for row in requests)
    return Load(
        verb=verb,
        requests=len(requests),
        failed=Counter(row.outcome for row in requests if row.outcome != "ok"),
        late=of_samples(0.99, finite(row.sent - row.due for row in requests)),
        answered=[of_samples(share, answered) for share in SHARES],
    )


def together(parts: Iterable[Process], name: str) -> Process:
    """The sum over processes. The most that they used together is not known from each of them alone."""
    given = list(parts)
    return Process(
        name=name,
        role="",
        cpu=math.fsum(each.cpu for each in given),
        cores=math.fsum(each.cores for each in given),
        cores_at_most=math.nan,
        memory=math.fsum(each.memory_of_load for each in given),
        memory_at_most=math.nan,
        memory_of_load=math.fsum(each.memory_of_load for each in given),
        restarts=sum(each.restarts for each in given),
    )
