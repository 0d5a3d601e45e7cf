"""Values over time are those that one computes by hand from the rows of a run."""

from __future__ import annotations

import math

import pytest

from kubeshard_lab.experiment.recording import Gauge, Generation, Usage
from kubeshard_lab.experiment.report.figures import natural
from kubeshard_lab.experiment.report.series import (
    Sample,
    Windows,
    cores,
    gauge,
    growth,
    latencies,
    mean,
    percentiles,
    rate,
    steps,
)

NAN, INF = math.nan, math.inf


def generation(due: float, ready: float, *, gone: bool = False) -> Generation:
    return Generation("ns", "site", "uid", 1, due, due, due, ready, False, gone)


def usage(time: float, cpu: float, switches: int = 0) -> Usage:
    return Usage(time, "operator-1", "operator", cpu, 1 << 20, switches, 0)


@pytest.mark.parametrize(
    ("begin", "end", "width", "edges"),
    [
        (100.0, 130.0, 10.0, [100, 110, 120, 130]),
        (100.0, 134.0, 10.0, [100, 110, 120, 134]),  # a short rest belongs to the last
        (100.0, 136.0, 10.0, [100, 110, 120, 130, 136]),
        (100.0, 102.0, 10.0, [100, 102]),
        (100.0, 100.0, 10.0, []),
        (NAN, NAN, 10.0, []),
        (100.0, 90.0, 10.0, []),
    ],
)
def test_windows_are_equal_but_for_the_last(
    begin: float, end: float, width: float, edges: list[float]
) -> None:
    assert Windows(begin, end, width).edges == edges


@pytest.mark.parametrize(
    ("seconds", "width"),
    [(10, 2), (50, 2), (51, 5), (450, 5), (451, 10), (900, 10), (3600, 60), (1e6, 1e6 / 90)],
)
def test_a_run_of_any_length_has_at_most_90_windows(seconds: float, width: float) -> None:
    windows = Windows(0, seconds)
    assert windows.width == pytest.approx(width)
    assert len(windows) <= 90


def test_percentiles_are_samples_and_each_window_has_its_own() -> None:
    samples = [Sample(5.0, float(value)) for value in range(1, 101)] + [Sample(15.0, 7.0)]
    assert percentiles(samples, Windows(0, 30, 10), (0.5, 0.9, 0.99, 1.0)) == [
        [50.0, 7.0, pytest.approx(NAN, nan_ok=True)],
        [90.0, 7.0, pytest.approx(NAN, nan_ok=True)],
        [99.0, 7.0, pytest.approx(NAN, nan_ok=True)],
        [100.0, 7.0, pytest.approx(NAN, nan_ok=True)],
    ]


def test_a_user_waits_from_when_the_write_was_due_and_for_ever_if_it_is_never_ready() -> None:
    rows = [generation(10.0, 12.5), generation(11.0, NAN), generation(12.0, NAN, gone=True)]
    assert latencies(rows) == [(10.0, 2.5), (11.0, INF)]


def test_a_percentile_that_what_was_never_ready_decides_is_infinite() -> None:
    rows = [generation(1.0, 1.5)] * 98 + [generation(1.0, NAN)] * 2
    assert percentiles(latencies(rows), Windows(0, 10, 10), (0.98, 0.99)) == [[0.5], [INF]]


def test_a_rate_counts_each_window_by_its_length_and_nothing_outside() -> None:
    assert rate([-1.0, 0.0, 1.0, 9.9, 10.0, 24.0, 25.0], Windows(0, 24, 10)) == [0.3, 2 / 14]


def test_objects_are_those_created_and_not_yet_deleted() -> None:
    assert growth([1.0, 2.0, 11.0], [12.0, 30.0], Windows(0, 20, 10)) == [2.0, 2.0]


def test_a_gauge_is_the_mean_of_each_window_for_each_subject() -> None:
    rows = [
        Gauge(1.0, "objects-of-shard", "a", 2.0),
        Gauge(2.0, "objects-of-shard", "a", 4.0),
        Gauge(11.0, "objects-of-shard", "b", 1.0),
        Gauge(11.0, "other", "b", 5.0),
    ]
    found = gauge(rows, "objects-of-shard", Windows(0, 20, 10))
    assert found == {
        "a": [3.0, pytest.approx(NAN, nan_ok=True)],
        "b": [pytest.approx(NAN, nan_ok=True), 1.0],
    }


def test_cores_are_the_seconds_of_cpu_in_each_second() -> None:
    taken = steps([usage(0.0, 1.0), usage(10.0, 3.0), usage(20.0, 3.5)])
    assert cores(taken, Windows(0, 20, 10)) == [0.2, 0.05]


def test_a_step_across_two_windows_belongs_to_both() -> None:
    taken = steps([usage(5.0, 0.0), usage(15.0, 1.0)])
    assert cores(taken, Windows(0, 20, 10)) == pytest.approx([0.1, 0.1])


def test_what_a_process_used_before_the_load_is_not_in_the_first_window() -> None:
    taken = steps([usage(-10.0, 0.0), usage(0.0, 50.0), usage(10.0, 51.0)])
    assert cores(taken, Windows(0, 10, 10)) == [0.1]


def test_after_a_restart_counters_begin_at_0() -> None:
    taken = steps([usage(0.0, 5.0, 900), usage(1.0, 6.0, 1000), usage(4.0, 0.5, 80), usage(5.0, 0.7, 90)])
    assert [(step.cpu, step.restarted) for step in taken] == [
        (1.0, False),
        (0.5, True),
        (pytest.approx(0.2), False),
    ]


def test_a_restart_is_seen_by_any_counter_that_fell() -> None:
    """One that was restarted may have used more CPU by its next line than the one before it ever had."""
    (step,) = steps([usage(0.0, 0.1, 5000), usage(3.0, 0.4, 10)])
    assert step == (0.0, 3.0, 0.4, True)


def test_a_time_in_which_a_process_was_restarted_is_no_part_of_a_rate() -> None:
    taken = steps([usage(0.0, 0.0), usage(10.0, 5.0), usage(20.0, 1.0), usage(30.0, 2.0)])
    assert cores(taken, Windows(0, 30, 10)) == [0.5, pytest.approx(NAN, nan_ok=True), 0.1]


def test_what_a_process_used_before_its_first_row_counts_if_it_is_fresh() -> None:
    rows = [usage(30.0, 0.4, 10), usage(31.0, 0.5, 30)]
    assert [step.cpu for step in steps(rows, fresh=True)] == pytest.approx([0.4, 0.1])
    assert [step.cpu for step in steps(rows)] == pytest.approx([0.1])


def test_a_run_without_rows_has_no_values() -> None:
    windows = Windows(NAN, NAN)
    assert percentiles([], windows, (0.5,)) == [[]]
    assert (rate([1.0], windows), growth([1.0], [], windows), mean([Sample(1.0, 1.0)], windows)) == (
        [],
        [],
        [],
    )
    assert steps([usage(1.0, 1.0)]) == []


def test_names_are_in_the_order_of_their_numbers() -> None:
    assert sorted(["operator-10", "operator-2", "a1", "operator"], key=natural) == [
        "a1",
        "operator",
        "operator-2",
        "operator-10",
    ]
