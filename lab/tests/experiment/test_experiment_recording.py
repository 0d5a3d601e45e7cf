"""What a run has recorded is read back as it was, even if the run was killed while it wrote."""

from __future__ import annotations

import math
from contextlib import closing
from pathlib import Path

import msgspec
import pytest
from recorded import RUN

from kubeshard_lab.experiment.recording import (
    Event,
    Gauge,
    Generation,
    Level,
    Recorder,
    Request,
    Usage,
    read,
    read_run,
    save,
)

ROWS = (
    Request("create", "project", 'a "quoted", name', 1.5, 1.6, math.nan, "unreachable"),
    Generation("project", "site", "uid", 2, 1.0, 1.1, 1.2, 1.3, True, False),
    Event(1.0, "killed", "operator-1", "line one\nline two"),
    Usage(1.0, "operator-1", "operator", 0.25, 1 << 20, 3, 4),
    Gauge(1.0, "rate-wanted", "", 12.0),
)


@pytest.mark.parametrize("row", ROWS, ids=lambda row: type(row).__name__)
def test_a_row_is_read_back_as_it_was_written(
    row: Request | Generation | Event | Usage | Gauge, tmp_path: Path
) -> None:
    with closing(Recorder(tmp_path)) as recorder:
        recorder.add(row)
    (found,) = read(tmp_path, type(row))
    assert repr(found) == repr(row)


def test_the_last_line_of_a_run_that_was_killed_while_it_wrote_is_ignored(tmp_path: Path) -> None:
    with closing(Recorder(tmp_path)) as recorder:
        recorder.add(ROWS[4])
    with (tmp_path / "gauges.csv").open("a") as file:
        file.write("2.0,rate-wan")
    assert list(read(tmp_path, Gauge)) == [ROWS[4]]


def test_a_line_that_is_none_is_an_error_with_its_place(tmp_path: Path) -> None:
    with closing(Recorder(tmp_path)) as recorder:
        recorder.add(ROWS[4])
    with (tmp_path / "gauges.csv").open("a") as file:
        file.write("soon,rate-wanted,,12\n")
    with pytest.raises(ValueError, match=r"gauges\.csv, line 3: .*'soon'"):
        list(read(tmp_path, Gauge))


def test_a_run_is_read_back_as_it_was_saved(tmp_path: Path) -> None:
    with closing(Recorder(tmp_path)):
        save(tmp_path, RUN)
        assert math.isnan(read_run(tmp_path).began)
        ended = msgspec.structs.replace(RUN, began=5.0, ended=6.0, levels=[Level("queue", 1.0, None, False)])
        save(tmp_path, ended)
    assert read_run(tmp_path) == ended


def test_a_run_is_never_recorded_over_another(tmp_path: Path) -> None:
    with closing(Recorder(tmp_path)):
        save(tmp_path, RUN)
    with pytest.raises(FileExistsError):
        Recorder(tmp_path)
