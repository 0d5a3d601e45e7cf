"""A run is judged from what it recorded: percentiles as a Prometheus computes them; nothing measured is no success."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
from recorded import Recorded

from kubeshard_lab.experiment.levels import Measured, judge
from kubeshard_lab.experiment.objectives import objectives
from kubeshard_lab.experiment.quantiles import increase, of_buckets, of_samples
from kubeshard_lab.experiment.recording import Generation, Level, Request, read_run
from kubeshard_lab.experiment.scrapes import read_scrapes

INF = math.inf
NEVER = math.nan


@pytest.mark.parametrize(
    ("quantile", "buckets", "expected"),
    [
        (0.5, {0.1: 0, 0.2: 10, INF: 10}, 0.15),  # half of the way through the second bucket
        (0.99, {0.1: 90, 1: 100, INF: 100}, 0.1 + 0.9 * 9 / 10),
        (0.99, {0.1: 100, 1: 100, INF: 100}, 0.099),  # the lowest bucket begins at 0
        (0.99, {0.1: 50, 1: 60, INF: 100}, 1),  # beyond the last finite bound: that bound
        (0.9, {0.1: 90, 1: 100, INF: 100}, 0.1),  # a rank on a boundary is in the lower bucket
        (0.5, {-1: 10, 1: 10, INF: 10}, -1),
        (0.5, {0.1: 10, 0.2: 9, 0.4: 20, INF: 20}, 0.1),  # counts that fall are raised
        (0.99, {0.1: 0, INF: 0}, math.nan),
        (0.99, {0.1: 5, 1: 5}, math.nan),
        (0.99, {INF: 5}, math.nan),
        (0.99, {}, math.nan),
    ],
)
def test_a_quantile_of_buckets_follows_the_rule_of_histogram_quantile(
    quantile: float, buckets: dict[float, float], expected: float
) -> None:
    assert of_buckets(quantile, buckets) == pytest.approx(expected, nan_ok=True)


@pytest.mark.parametrize(
    ("count", "expected"), [(1, 0), (100, 98), (101, 99), (200, 197)], ids=lambda value: str(value)
)
def test_a_quantile_of_samples_is_one_of_them(count: int, expected: int) -> None:
    assert of_samples(0.99, [*reversed(range(count))]) == expected


def test_no_sample_has_no_quantile() -> None:
    assert math.isnan(of_samples(0.99, []))


@pytest.mark.parametrize(
    ("begin", "end", "expected"),
    [
        (0, 40, 5 + 3 + 2 + 4),  # from 0, and a restart counts from 0
        (10, 40, 3 + 2 + 4),
        (15, 35, 3 + 2),  # the value at the beginning is the last one before it
        (40, 99, 0),
    ],
)
def test_the_increase_of_a_counter_survives_a_restart(begin: float, end: float, expected: float) -> None:
    assert increase([10, 20, 30, 40], [5, 8, 2, 6], begin, end) == expected


@pytest.mark.parametrize(
    ("labels", "covering"),
    [
        ({"verb": "PATCH", "scope": "resource"}, ["latency-mutating"]),
        ({"verb": "WATCH", "scope": "cluster"}, []),
        ({"verb": "GET", "scope": "resource"}, ["latency-read-resource"]),
        ({"verb": "GET", "scope": "resource", "subresource": "log"}, []),
        ({"verb": "POST", "scope": "resource", "subresource": "exec"}, []),
        ({"verb": "LIST", "scope": "namespace", "subresource": ""}, ["latency-read-namespace-cluster"]),
    ],
    ids=str,
)
def test_each_request_counts_for_one_level_of_the_api_server_and_streams_for_none(
    labels: dict[str, str], covering: list[str]
) -> None:
    servers = [each for each in objectives() if each.role == "server"]
    assert [each.name for each in servers if each.covers(labels)] == covering


@pytest.fixture
def recorded(tmp_path: Path) -> Recorded:
    return Recorded(tmp_path / "run")


def by_name(levels: list[Level]) -> dict[str, Level]:
    return {level.name: level for level in levels}


def test_the_queue_is_measured_over_all_operators_and_only_while_the_load_ran(recorded: Recorded) -> None:
    recorded.scrape(-5, "operator-1", queue={0.1: 0, 1: 0, 5: 1000})  # before the load
    recorded.scrape(0, "operator-2", queue={0.1: 10, 1: 10, 5: 10})
    recorded.scrape(100, "operator-1", queue={0.1: 90, 1: 90, 5: 1090})
    recorded.scrape(100, "operator-2", queue={0.1: 10, 1: 20, 5: 20})
    recorded.scrape(130, "operator-1", queue={0.1: 90, 1: 90, 5: 9000})  # after it
    recorded.scrape(100, "sharder-1", "sharder", queue={0.1: 0, 1: 0, 5: 1000})
    level = by_name(recorded.judged())["queue p99"]
    assert level.worst == pytest.approx(0.1 + 0.9 * 9 / 10)
    assert level.kept


def test_a_queue_of_another_controller_does_not_count(recorded: Recorded) -> None:
    recorded.scrape(0, "operator-1", queue={0.1: 0, 1: 0, 5: 0})
    recorded.scrape(100, "operator-1", queue={0.1: 0, 1: 0, 5: 50})
    assert by_name(recorded.judged())["queue p99"].kept is False
    assert by_name(judge(recorded.folder, "other"))["queue p99"].worst is None


def test_what_a_restarted_process_counted_is_counted(recorded: Recorded) -> None:
    recorded.scrape(0, "operator-1", queue={0.1: 500, 1: 500, 5: 500})
    recorded.scrape(50, "operator-1", queue={0.1: 0, 1: 0, 5: 4})
    assert by_name(recorded.judged())["queue p99"].worst == pytest.approx(1 + 4 * 0.99)


def test_a_minute_that_misses_a_level_is_seen_though_the_run_keeps_it(recorded: Recorded) -> None:
    """Most waits are short, but those of the second minute are not."""
    for second in range(0, 121, 5):
        slow = 2 * min(max(second - 60, 0), 30)
        recorded.scrape(
            second, "operator-1", queue={0.1: 100 * second, 1: 100 * second, 5: 100 * second + slow}
        )
    measured = recorded.measured()
    assert by_name(measured.levels())["queue p99"].kept
    (queue, *_) = measured.objectives
    points = measured.over_time(queue, 60)
    assert [point.time - measured.run.began for point in points] == [60, 120]
    assert [point.seconds > 0.1 for point in points] == [False, False]
    worst = measured.over_time(queue, 10)
    assert [point.time - measured.run.began for point in worst if point.seconds > 0.1] == [70, 80, 90]


def test_reconciles_are_measured_by_the_trackers_samples_and_by_buckets(recorded: Recorded) -> None:
    recorded.generations(*(0.25 for _ in range(98)), 4.0, 4.5)
    recorded.scrape(0, "experiment", "tool", reconcile={1: 0, 5: 0})
    recorded.scrape(100, "experiment", "tool", reconcile={1: 98, 5: 100})
    levels = by_name(recorded.judged())
    assert levels["reconcile p99"].worst == pytest.approx(4.0)
    assert levels["reconcile p99 (buckets)"].worst == pytest.approx(1 + 4 / 2)


def test_a_generation_that_was_never_ready_has_waited_until_the_end(recorded: Recorded) -> None:
    recorded.generations(*(0.25 for _ in range(50)), NEVER, due=60)
    assert by_name(recorded.judged())["reconcile p99"].worst == pytest.approx(60)


def test_a_generation_of_an_object_that_the_load_deleted_is_not_waited_for(recorded: Recorded) -> None:
    recorded.generations(0.25)
    recorded.add(
        Generation("ns", "gone", "g", 1, recorded.began, recorded.began, recorded.began, NEVER, False, True)
    )
    assert by_name(recorded.judged())["reconcile p99"].worst == pytest.approx(0.25)


def test_the_api_servers_levels_name_the_worst_resource_and_verb(recorded: Recorded) -> None:
    fast, slow = {0.1: 10, 1: 10, 30: 10}, {0.1: 0, 1: 0, 30: 10}
    none = dict.fromkeys(fast, 0)
    for time, (quick, late) in ((0, (none, none)), (100, (fast, slow))):
        recorded.scrape(
            time,
            "kube-apiserver",
            "server",
            requests={
                ("websites", "PATCH", "resource", ""): late,
                ("websites", "POST", "resource", ""): quick,
                ("websites", "WATCH", "cluster", ""): late,
                ("pods", "POST", "resource", "exec"): late,
                ("websites", "LIST", "namespace", ""): late,
                ("leases", "GET", "resource", ""): quick,
            },
        )
    levels = by_name(recorded.judged())
    writes = levels["API server: writes p99"]
    assert (writes.kept, writes.subject) == (False, "websites PATCH")
    assert levels["API server: reads of one object p99"].subject == "leases resource"
    lists = levels["API server: lists p99"]
    assert (lists.kept, lists.subject, lists.limit) == (True, "websites namespace", 30)


def test_without_the_servers_metrics_the_loads_own_requests_are_judged_and_reads_are_left_out(
    recorded: Recorded,
) -> None:
    recorded.add(Request("patch", "ns", "a", recorded.began, recorded.began + 1, recorded.began + 3, "ok"))
    recorded.add(Request("create", "ns", "a", recorded.began, recorded.began, recorded.began + 0.1, "ok"))
    recorded.add(Request("create", "ns", "a", recorded.began, recorded.began, NEVER, "unreachable"))
    levels = by_name(recorded.judged())
    writes = levels["API server: writes p99 of the load"]
    assert (writes.worst, writes.kept, writes.subject) == (pytest.approx(2.0), False, "patch")
    assert not any("reads" in name or "lists" in name for name in levels)
    notes = read_run(recorded.folder).notes
    assert len([note for note in notes if "not measured" in note]) == 2
    judge(recorded.folder)
    assert read_run(recorded.folder).notes == notes


def test_what_was_not_measured_is_not_kept(recorded: Recorded) -> None:
    levels = by_name(recorded.judged())
    assert {name: (level.worst, level.kept) for name, level in levels.items()} == {
        "queue p99": (None, False),
        "reconcile p99": (None, False),
        "API server: writes p99 of the load": (None, False),
    }


def test_a_run_whose_load_never_began_kept_nothing(tmp_path: Path) -> None:
    recorded = Recorded(tmp_path / "run", began=math.nan)
    recorded.scrape(100, "operator-1", queue={0.1: 10, 1: 10})
    assert not any(level.kept for level in recorded.judged())
    assert recorded.measured().over_time(recorded.measured().objectives[0], 60) == []


def test_a_run_that_was_killed_is_judged_up_to_its_last_scrape(tmp_path: Path) -> None:
    recorded = Recorded(tmp_path / "run", ended=math.nan)
    recorded.scrape(0, "operator-1", queue={0.1: 0, 1: 0})
    recorded.scrape(60, "operator-1", queue={0.1: 100, 1: 100})
    recorded.generations(NEVER, due=10)
    levels = by_name(recorded.judged())
    assert levels["queue p99"].worst == pytest.approx(0.099)
    assert levels["reconcile p99"].worst == pytest.approx(50)
    assert len(recorded.measured().over_time(recorded.measured().objectives[0], 60)) == 1


def test_the_verdict_is_saved_with_the_run(recorded: Recorded) -> None:
    levels = recorded.judged()
    assert read_run(recorded.folder).levels == levels


def test_the_last_line_of_a_run_that_was_killed_is_no_scrape(recorded: Recorded) -> None:
    recorded.scrape(0, "operator-1", queue={0.1: 10, 1: 10})
    recorded.close()
    path = recorded.folder / "scrapes.txt"
    path.write_text(
        path.read_text() + "# scrape 5 operator-1 operator\nworkqueue_queue_duration_seconds_bucket{na"
    )
    scrapes = list(read_scrapes(recorded.folder))
    assert [(scrape.time, len(scrape.parts())) for scrape in scrapes] == [(recorded.began, 1), (5.0, 0)]


@pytest.mark.parametrize(
    "text",
    [
        "# scrape soon operator-1 operator\n",
        "# scrape 5 operator\n",
        "# scrape 5 operator-1 operator\n# TYPE workqueue_queue_duration_seconds histogram\nx y\n",
    ],
)
def test_a_block_that_is_none_is_an_error_with_its_place(text: str, recorded: Recorded) -> None:
    recorded.close()
    (recorded.folder / "scrapes.txt").write_text("\n" + text)
    with pytest.raises(ValueError, match=r"scrapes\.txt, block in line 2: "):
        Measured.read(recorded.folder)


def test_a_run_without_scrapes_has_none(tmp_path: Path) -> None:
    assert list(read_scrapes(tmp_path)) == []


def test_a_run_is_judged_from_memory_as_from_its_folder(recorded: Recorded) -> None:
    recorded.scrape(0, "operator-1", queue={0.1: 0, 1: 0})
    recorded.scrape(90, "operator-1", queue={0.1: 5, 1: 9})
    recorded.generations(0.5)
    from_folder = recorded.judged()
    run = read_run(recorded.folder)
    assert Measured(run, read_scrapes(recorded.folder), recorded.added, ()).levels() == from_folder
