"""A run in figures: nothing is dropped, and processes are judged over the whole time of the load."""

from __future__ import annotations

import math
from collections import Counter
from contextlib import closing
from pathlib import Path

import pytest
from made_runs import BEGAN

from kubeshard_lab.experiment.recording import Generation, Recorder, Request, RunRecord, Usage, save
from kubeshard_lab.experiment.report.figures import loads, processes, together, waiting
from kubeshard_lab.experiment.report.recorded import Recorded
from kubeshard_lab.experiment.report.series import Windows

MIB = 1 << 20


def recorded(folder: Path, *rows: Generation | Request | Usage) -> Recorded:
    """A load of 10 s."""
    run = RunRecord(
        id="one", scenario="basic", setup="external", program="kubeshard", server="embedded", instances=1, workers=5,
        scale=1.0, seed=1, duration=10.0, began=BEGAN, ended=BEGAN + 10, finished=True,
    )  # fmt: skip
    with closing(Recorder(folder)) as recorder:
        save(folder, run)
        for row in rows:
            recorder.add(row)
    return Recorded.load(folder)


def generation(waited: float, *, backfilled: bool = False, gone: bool = False) -> Generation:
    return Generation("ns", "a", "uid", 1, BEGAN, BEGAN, BEGAN, BEGAN + waited, backfilled, gone)


def usage(second: float, cpu: float, process: str = "operator-1", mib: int = 100) -> Usage:
    return Usage(BEGAN + second, process, process.split("-")[0], cpu, mib * MIB, 0, 0)


def test_every_generation_is_counted_whatever_became_of_it(tmp_path: Path) -> None:
    found = waiting(
        recorded(
            tmp_path,
            generation(0.5),
            generation(2.0, backfilled=True),
            generation(math.nan),
            generation(math.nan, gone=True),
        )
    )
    assert (found.written, found.ready, found.never, found.gone, found.backfilled) == (4, 2, 1, 1, 1)
    assert found.latency == [2.0, math.inf, math.inf, math.inf]
    assert found.within == {0.1: 0, 1.0: 1, 5.0: 2}


def test_requests_are_judged_by_verb_and_all_together() -> None:
    rows = [
        Request("create", "ns", "a", 1.0, 1.5, 1.7, "ok"),
        Request("patch", "ns", "a", 2.0, 2.0, 2.1, "409"),
        Request("patch", "ns", "a", 3.0, 3.0, math.nan, "unreachable"),
    ]
    create, patch, whole = loads(rows)
    assert (create.verb, create.requests, create.late) == ("create", 1, 0.5)
    assert create.answered == pytest.approx([0.2] * 4)
    assert (patch.requests, patch.failed) == (2, Counter({"409": 1, "unreachable": 1}))
    assert (whole.verb, whole.requests) == ("all", 3)


def test_cores_and_memory_are_means_of_the_load(tmp_path: Path) -> None:
    rows = [usage(second, 0.5 * second + 7, mib=100 + second) for second in range(-3, 12)]
    found = recorded(tmp_path, *rows)
    (process,) = processes(found, Windows(found.begin, found.end))
    assert (process.cpu, process.cores, process.cores_at_most) == pytest.approx((5.0, 0.5, 0.5))
    assert (process.memory, process.memory_at_most) == (105 * MIB, 110 * MIB)


def test_a_process_that_ran_for_half_of_the_load_is_half_of_its_memory_in_the_sum(tmp_path: Path) -> None:
    rows = [usage(second, 0.1 * second, "operator-1") for second in range(10)]
    rows += [usage(second, 0.0, "operator-2") for second in range(5)]
    found = recorded(tmp_path, *rows)
    parts = processes(found, Windows(found.begin, found.end))
    assert [part.memory for part in parts] == [100 * MIB, 100 * MIB]
    assert together(parts, "sum").memory == 150 * MIB


def test_what_a_process_used_to_start_during_the_load_counts(tmp_path: Path) -> None:
    rows = [usage(second, 0.0, "operator-1") for second in range(10)]
    rows += [usage(second, 0.8, "operator-2") for second in range(5, 10)]
    found = recorded(tmp_path, *rows)
    assert [part.cpu for part in processes(found, Windows(found.begin, found.end))] == [0.0, 0.8]
