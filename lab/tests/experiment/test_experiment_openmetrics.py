"""The recording of a run is OpenMetrics that a Prometheus imports, and both compute the same figures from it."""

from __future__ import annotations

import math
import re
from pathlib import Path

import pytest
from prometheus_client import Metric
from prometheus_client.openmetrics.parser import text_string_to_metric_families
from recorded import BEGAN, Recorded

from kubeshard_lab.experiment.openmetrics import write
from kubeshard_lab.experiment.recording import Gauge, Generation, Request, Usage


@pytest.fixture
def recorded(tmp_path: Path) -> Recorded:
    return Recorded(tmp_path / "run")


def families(recorded: Recorded) -> dict[str, Metric]:
    """What the strict parser of OpenMetrics reads, one time after the other: of a group with several series it drops
    what has a second time.
    """
    recorded.close()
    *lines, end = write(recorded.folder).read_text().splitlines(keepends=True)
    assert end == "# EOF\n"
    times = {line.split()[-1] for line in lines if not line.startswith("#")}
    found: dict[str, Metric] = {}
    for time in sorted(times, key=float):
        page = "".join(line for line in lines if line.startswith("#") or line.split()[-1] == time)
        for family in text_string_to_metric_families(page + end):
            known = found.setdefault(family.name, family)
            if known is not family:
                known.samples += family.samples
    return found


def series(family: Metric, name: str) -> dict[tuple[tuple[str, str], ...], list[tuple[float, float]]]:
    """Times since the load began, and values, by labels."""
    found: dict[tuple[tuple[str, str], ...], list[tuple[float, float]]] = {}
    for sample in family.samples:
        if sample.name == name:
            assert sample.timestamp is not None
            point = (float(sample.timestamp) - BEGAN, sample.value)
            found.setdefault(tuple(sorted(sample.labels.items())), []).append(point)
    return found


def test_the_samples_of_a_group_stand_together_in_the_order_of_their_times(recorded: Recorded) -> None:
    for time in (0, 10):
        for process in ("operator-1", "operator-2"):
            recorded.scrape(time, process, queue={0.1: time, 1: time})
    recorded.close()
    samples = [line for line in write(recorded.folder).read_text().splitlines() if not line.startswith("#")]
    places = [(re.findall(r'instance="([^"]+)"', line)[0], float(line.split()[-1])) for line in samples]
    assert places == sorted(places)
    assert len(samples) == 2 * 2 * 5


def test_what_the_processes_said_is_there_by_process_job_and_time(recorded: Recorded) -> None:
    for time, count in ((0, 1), (10, 7)):
        for process in ("operator-1", "operator-2"):
            recorded.scrape(time, process, queue={0.1: count, 1: count})
    found = families(recorded)["workqueue_queue_duration_seconds"]
    assert found.type == "histogram"
    counts = series(found, "workqueue_queue_duration_seconds_count")
    assert [dict(key)["instance"] for key in counts] == ["operator-1", "operator-2"]
    assert {dict(key)["job"] for key in counts} == {"webhosting-operator"}
    assert list(counts.values()) == [[(0, 1), (10, 7)]] * 2


def test_counters_end_in_total_and_their_creation_is_left_out(recorded: Recorded) -> None:
    page = (
        "# HELP workqueue_adds_total Keys added.\n# TYPE workqueue_adds_total counter\n"
        'workqueue_adds_total{name="website"} 5.0\n'
        "# TYPE workqueue_adds_created gauge\n"
        'workqueue_adds_created{name="website"} 1.7e9\n'
    )
    recorded.page(0, "operator-1", "operator", page)
    found = families(recorded)
    assert "workqueue_adds_created" not in found
    assert series(found["workqueue_adds"], "workqueue_adds_total")


def test_a_label_that_the_target_has_too_is_renamed_as_by_a_prometheus(recorded: Recorded) -> None:
    recorded.page(0, "operator-1", "operator", '# TYPE up gauge\nup{job="mine"} 1\n')
    (labels,) = series(families(recorded)["up"], "up")
    assert dict(labels) == {"exported_job": "mine", "instance": "operator-1", "job": "webhosting-operator"}


def test_a_page_of_a_go_program_is_read(recorded: Recorded) -> None:
    """It spells bounds and quantiles in another way, and has summaries."""
    page = (
        "# HELP go_gc_duration_seconds A summary.\n# TYPE go_gc_duration_seconds summary\n"
        'go_gc_duration_seconds{quantile="0"} 1e-05\ngo_gc_duration_seconds{quantile="1"} 0.5\n'
        "go_gc_duration_seconds_sum 0.1\ngo_gc_duration_seconds_count 3\n"
        "# TYPE workqueue_queue_duration_seconds histogram\n"
        'workqueue_queue_duration_seconds_bucket{name="website",le="1"} 2\n'
        'workqueue_queue_duration_seconds_bucket{name="website",le="+Inf"} 3\n'
        'workqueue_queue_duration_seconds_sum{name="website"} 4\n'
        'workqueue_queue_duration_seconds_count{name="website"} 3\n'
    )
    recorded.page(0, "operator-1", "operator", page)
    recorded.page(5, "operator-1", "operator", page)
    found = families(recorded)
    assert len(found["go_gc_duration_seconds"].samples) == 8
    bounds = series(found["workqueue_queue_duration_seconds"], "workqueue_queue_duration_seconds_bucket")
    assert {dict(labels)["le"] for labels in bounds} == {"1.0", "+Inf"}


def test_a_histogram_that_was_cut_off_is_left_out(recorded: Recorded) -> None:
    recorded.scrape(0, "operator-1", queue={0.1: 1, 1: 1})
    cut = '# TYPE workqueue_queue_duration_seconds histogram\nworkqueue_queue_duration_seconds_bucket{le="0.1"} 4\n'
    recorded.page(10, "operator-1", "operator", cut)
    (queue,) = families(recorded).values()
    assert {float(sample.timestamp or 0) for sample in queue.samples} == {BEGAN}


def test_what_the_experiment_recorded_is_there_under_the_names_of_its_metrics(recorded: Recorded) -> None:
    recorded.generations(0.02, 0.2, 7.0)
    recorded.add(Generation("ns", "late", "l", 1, BEGAN, BEGAN, BEGAN, BEGAN + 20, True, False))
    recorded.add(Generation("ns", "never", "n", 1, BEGAN, BEGAN, BEGAN, math.nan, False, False))
    for verb, outcome in (("create", "ok"), ("patch", "ok"), ("patch", "409"), ("delete", "ok")):
        recorded.add(Request(verb, "ns", "a", BEGAN, BEGAN, BEGAN + 1, outcome))
    found = families(recorded)
    name = "experiment_website_reconciliation_duration_seconds"
    counts = series(found[name], f"{name}_count")
    (values,) = counts.values()
    assert (values[0][1], values[-1][1]) == (0, 4)
    assert values == sorted(values)
    buckets = {
        dict(labels)["le"]: points[-1][1] for labels, points in series(found[name], f"{name}_bucket").items()
    }
    assert (buckets["0.01"], buckets["0.025"], buckets["0.25"], buckets["10.0"]) == (0, 1, 2, 3)
    backfilled = "experiment_website_backfilled_generations"
    ((*_, last),) = series(found[backfilled], f"{backfilled}_total").values()
    assert last[1] == 1
    reconciles = series(found["controller_runtime_reconcile"], "controller_runtime_reconcile_total")
    by_label = {
        (dict(key)["controller"], dict(key)["result"]): points[-1][1] for key, points in reconciles.items()
    }
    assert by_label == {
        ("website-generator", "success"): 1,
        ("website-mutator", "success"): 1,
        ("website-mutator", "error"): 1,
        ("website-deleter", "success"): 1,
    }
    assert {dict(key)["job"] for key in reconciles} == {"experiment"}


def test_an_experiment_whose_own_metrics_were_scraped_is_not_told_twice(recorded: Recorded) -> None:
    recorded.generations(0.2)
    recorded.scrape(0, "experiment", "tool", reconcile={1: 5})
    name = "experiment_website_reconciliation_duration_seconds"
    ((point,),) = series(families(recorded)[name], f"{name}_count").values()
    assert point == (0, 5)


def test_what_operators_and_the_experiment_count_is_one_family(recorded: Recorded) -> None:
    recorded.add(Request("create", "ns", "a", BEGAN, BEGAN, BEGAN + 1, "ok"))
    page = (
        "# TYPE controller_runtime_reconcile_total counter\n"
        'controller_runtime_reconcile_total{controller="website",result="success"} 5\n'
    )
    recorded.page(0, "operator-1", "operator", page)
    found = families(recorded)["controller_runtime_reconcile"]
    jobs = {dict(labels)["job"] for labels in series(found, "controller_runtime_reconcile_total")}
    assert jobs == {"webhosting-operator", "experiment"}


def test_gauges_are_there_with_what_they_are_of(recorded: Recorded) -> None:
    recorded.add(Gauge(BEGAN, "objects-of-shard", "shard-a", 5))
    found = families(recorded)["experiment_objects_of_shard"]
    ((labels, points),) = series(found, "experiment_objects_of_shard").items()
    assert (dict(labels)["subject"], points) == ("shard-a", [(0, 5)])


def test_what_processes_used_is_there(recorded: Recorded) -> None:
    for time in (0.0, 1.0):
        recorded.add(Usage(BEGAN + time, "operator-1", "operator", time / 2, 1 << 20, 10, 20, 3, 4))
    found = families(recorded)
    (cpu,) = series(found["experiment_process_cpu_seconds"], "experiment_process_cpu_seconds_total").values()
    assert cpu == [(0, 0), (1, 0.5)]


def test_a_run_that_recorded_nothing_is_an_empty_recording(recorded: Recorded) -> None:
    assert families(recorded) == {}
