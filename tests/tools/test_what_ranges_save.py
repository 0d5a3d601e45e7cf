"""What runs the benchmarks of ranges, and the table of their figures."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

import what_ranges_save
from what_ranges_save import ROOT, ROWS, SHORT, Row, measure, table

RING = "| largest share of 3, of an even one |  | 1.080 | 1.002 | 1.01 |"


@pytest.mark.system
def test_a_row_is_kept_as_it_was_measured_and_shown_beside_what_was_to_be_reached(tmp_path: Path) -> None:
    measure(ROWS["shares"], SHORT, tmp_path / "shares.jsonl")
    shown = list(table(tmp_path, SHORT))
    assert [line.startswith(RING) for line in shown] == [False, True, False, False, False]
    assert shown[1].endswith("| `benchmarks/scale.py ring --shards 3 5 10 50` |")


def test_every_line_says_so_if_a_program_took_no_part(tmp_path: Path) -> None:
    for name in ROWS:
        (tmp_path / f"{name}.jsonl").write_text("")
    for shown in list(table(tmp_path, SHORT))[1:]:
        assert [cell.strip() for cell in shown.split("|")[2:5]] == ["", "", ""]


def test_every_line_is_filled_by_the_figures_that_its_benchmarks_hand_over(tmp_path: Path) -> None:
    for name, row in ROWS.items():
        handed = [
            {"what": what, "program": "ranges", "figures": {figure: 2.0}}
            for line in row.lines
            for what, figure in line.figures
        ]
        (tmp_path / f"{name}.jsonl").write_text("\n".join(map(json.dumps, handed)))
    assert all(shown.split("|")[4].strip() for shown in list(table(tmp_path, SHORT))[1:])


@pytest.mark.system
def test_what_did_not_end_well_is_not_kept(tmp_path: Path) -> None:
    kept = tmp_path / "row.jsonl"
    with pytest.raises(SystemExit, match="its row is missing"):
        measure(Row(["-c raise(SystemExit(1))"], []), SHORT, kept)
    assert not kept.exists()


@pytest.mark.system
def test_an_interrupt_ends_what_was_started(tmp_path: Path) -> None:
    waits = tmp_path / "waits.py"
    waits.write_text(
        "import os, sys, time\nprint(os.getpid(), file=open(sys.argv[1], 'w'), flush=True)\ntime.sleep(600)"
    )
    told = tmp_path / "pid"
    script = (
        "import signal, sys, pathlib, what_ranges_save as w;"
        f"w.measure(w.Row(['{waits} {told}'], []), {{}}, pathlib.Path('{tmp_path}/kept'))"
    )
    path = os.pathsep.join([str(Path(what_ranges_save.__file__).parent), *sys.path])
    running = subprocess.Popen(
        [sys.executable, "-c", script],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": path},
        stderr=subprocess.DEVNULL,
    )
    deadline = time.monotonic() + 30
    while not (told.exists() and told.read_text()):
        assert time.monotonic() < deadline
        time.sleep(0.02)
    running.send_signal(signal.SIGINT)
    assert running.wait(30) != 0
    with pytest.raises(ProcessLookupError):
        os.kill(int(told.read_text()), 0)
