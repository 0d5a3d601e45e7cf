"""What is shown while an experiment runs says what a reader needs, on a terminal and in a log."""

from __future__ import annotations

import io
import math

from rich.console import Console

from kubeshard_lab.experiment.progress import Percentiles, Progress, line
from kubeshard_lab.experiment.recording import Event, Usage
from kubeshard_lab.experiment.screen import frame

PICTURE = Progress(
    title="basic, external",
    doing="loading",
    elapsed=75.0,
    duration=900.0,
    wanted=15.5,
    reached=14.25,
    in_flight=3,
    waited=Percentiles(0.05, 1.25),
    queue=Percentiles(0.001, 12.0),
    reconcile=Percentiles(math.nan, math.nan),
    objects=120,
    unready=4,
    shards={"operator-1": 60, "operator-2": 59, "": 1, "gone": 0},
    usage=[(Usage(1.0, "operator-1", "operator", 1.0, 50 << 20, 0, 0), 0.25)],
    happened=[Event(1.0, "killed", f"operator-{number}", "[why]") for number in range(9)],
    warnings=["7 requests were sent late"],
)


def shown(width: int = 140) -> str:
    console = Console(file=io.StringIO(), width=width, force_terminal=False)
    console.print(frame(PICTURE))
    file = console.file
    assert isinstance(file, io.StringIO)
    return file.getvalue()


def test_the_live_view_has_rates_times_shards_processes_and_the_latest_events() -> None:
    text = " ".join(shown().split())
    for part in (
        "1:15 of 15:00", "15.5 requests/s wanted, 14.2 reached", "3 unanswered", "0.050 s 1.250 s", "0.001 s 12.0 s",
        "of a reconcile - -", "operator-1 60", "(none) 1", "not ready 4", "0.25 50", "killed operator-8 [why]",
        "7 requests were sent late",
    ):  # fmt: skip
        assert part in text
    assert "gone" not in text
    assert "operator-2 [why]" not in text, "only the latest"


def test_a_line_of_a_log_has_the_same_and_no_other_line() -> None:
    text = line(PICTURE)
    assert "\n" not in text
    for part in (
        "1:15/15:00 loading",
        "15.5 wanted, 14.2 reached/s",
        "queue p50 0.001 s p99 12.0 s",
        "4 not ready",
    ):
        assert part in text
    assert text.endswith("7 requests were sent late")
