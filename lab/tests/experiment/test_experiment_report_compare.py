"""Runs are compared with what they can be compared with: the singleton of the same load, and fewer instances."""

from __future__ import annotations

import csv
import math
import re
from html.parser import HTMLParser
from pathlib import Path

import pytest
from click.testing import CliRunner
from made_runs import BEGAN, make_run

from kubeshard.cli.program import cli
from kubeshard_lab.experiment.levels import Measured
from kubeshard_lab.experiment.recording import Generation, Request, RunRecord, Usage
from kubeshard_lab.experiment.report.compare import compare
from kubeshard_lab.experiment.report.comparison import Compared, capacity, groups, scaled_out
from kubeshard_lab.experiment.report.recorded import Recorded


def recorded(
    *,
    cores: float = 0.5,
    waits: float = 0.1,
    slow_from: float = math.inf,
    scenario: str = "basic",
    setup: str = "external",
    program: str = "kubeshard",
    instances: int = 1,
    scale: float = 1.0,
) -> Recorded:
    """60 s with one create a second; from `slow_from` on each takes 100 s. Operators use `cores` each."""
    run = RunRecord(
        id="one", scenario=scenario, setup=setup, program=program, server="embedded", instances=instances, workers=5,
        scale=scale, seed=1, duration=60.0, began=BEGAN, ended=BEGAN + 60, finished=True,
    )  # fmt: skip
    times = [BEGAN + second + 0.5 for second in range(60)]
    return Recorded(
        run=run,
        requests=[Request("create", "ns", f"{time}", time, time, time + 0.01, "ok") for time in times],
        generations=[
            Generation("ns", f"{time}", "uid", 1, time, time, time + 0.01, time + wait, False, False)
            for time in times
            for wait in (100.0 if time - BEGAN >= slow_from else waits,)
        ],
        events=[],
        usages=[
            Usage(BEGAN + second, f"operator-{number}", "operator", cores * second, 100 << 20, 0, 0, 0, 0)
            for number in range(instances)
            for second in range(61)
        ],
        gauges=[],
        measured=Measured(run, (), (), ()),
    )


def test_the_sum_of_all_processes_is_relative_to_the_singleton_of_the_same_program() -> None:
    runs = [
        recorded(setup="singleton", cores=0.8),
        recorded(setup="singleton", program="go", cores=1.0),
        recorded(instances=3, cores=0.4),
        recorded(instances=3, cores=0.4, program="go"),
        recorded(instances=3, cores=0.4, program="go+kubeshard"),
    ]
    (group,) = groups(runs)
    found = [group.relative(each, lambda other: other.sum.cores) for each in group.runs]
    assert found == pytest.approx([1.0, 1.0, 1.5, 1.2, 1.5])


def test_only_runs_of_the_same_load_are_compared() -> None:
    runs = [recorded(), recorded(scenario="chaos"), recorded(scale=0.5), recorded(setup="singleton")]
    assert [[each.run.setup for each in group.runs] for group in groups(runs)] == [
        ["external", "singleton"],
        ["external"],
        ["external"],
    ]


def test_without_a_singleton_nothing_is_relative() -> None:
    (group,) = groups([recorded(), recorded(instances=3)])
    assert all(math.isnan(group.relative(each, lambda other: other.sum.cores)) for each in group.runs)


def test_runs_have_names_that_tell_them_apart() -> None:
    (group,) = groups([recorded(), recorded(), recorded(program="go")])
    assert [each.name for each in group.runs] == [
        "kubeshard external, 1 x 5 (1)",
        "kubeshard external, 1 x 5 (2)",
        "go external, 1 x 5",
    ]


def test_capacity_is_the_load_before_users_waited_too_long() -> None:
    """From 30 s on 1 of 31 waits for 100 s, which is more than 1 %."""
    found = capacity(Compared("one", recorded(slow_from=30.0)))
    assert (found.held, found.changes, found.objects, found.missed) == (30.0, 1.0, 30.0, "reconcile p99")


def test_capacity_is_only_known_to_be_at_least_the_load_that_was_carried_to_the_end() -> None:
    found = capacity(Compared("one", recorded()))
    assert (found.held, found.missed) == (60.0, "")


def test_capacity_ends_where_keys_waited_too_long_in_the_queue(tmp_path: Path) -> None:
    """The queue of this run becomes slow after half of it, and users notice later."""
    folder = make_run(tmp_path, rate=20.0, capacity=19.0, scenario="scale-out")
    found = capacity(Compared("one", Recorded.load(folder)))
    assert found.missed == "queue p99"
    assert 60 <= found.held < 75


def test_a_run_that_was_overloaded_from_the_start_has_no_capacity() -> None:
    assert capacity(Compared("one", recorded(slow_from=0.0))).changes == 0.0


def test_runs_that_differ_in_instances_only_are_one_line() -> None:
    (group,) = groups([recorded(instances=3), recorded(), recorded(program="go"), recorded(instances=2)])
    (line,) = scaled_out(group)
    assert [each.run.instances for each in line] == [1, 2, 3]


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("runs")
    runs = [
        make_run(folder / "singleton", setup="singleton", instances=1, workers=50, duration=60.0),
        make_run(folder / "external", duration=60.0, operator="<script>{}"),
        *(
            make_run(
                folder / f"scaled-{count}",
                scenario="scale-out",
                instances=count,
                rate=30.0,
                capacity=8.0 * count,
                duration=60.0,
                program="<b>",
            )
            for count in (1, 2)
        ),
    ]
    return compare(runs, folder / "all.html")


class Labels(HTMLParser):
    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.labels: list[str] = []
        self.ids: list[str] = []
        self.feed(page)

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        given = dict(attributes)
        self.tags.append(tag)
        self.labels += [given["aria-label"] or ""] if tag == "svg" else []
        self.ids += [found] if (found := given.get("id")) else []


@pytest.mark.system
def test_a_comparison_has_the_charts_of_each_kind_of_runs(page: Path) -> None:
    labels = [label.partition(".")[0] for label in Labels(page.read_text()).labels]
    each = ["What a set-up costs", "How long users waited", "CPU over time"]
    assert labels == [*each, *each, "Capacity by the number of instances"]


@pytest.mark.system
def test_a_comparison_loads_nothing_and_names_are_text(page: Path) -> None:
    text = page.read_text()
    parsed = Labels(text)
    assert not re.findall(r"https?:|//[a-z]|@import", text)
    assert "script" not in parsed.tags
    assert len(parsed.ids) == len(set(parsed.ids))
    assert "<b>, external" not in text


@pytest.mark.system
def test_the_charts_of_a_comparison_are_beside_it(page: Path) -> None:
    beside = page.with_name("all-charts")
    with (beside / "group-2-capacity.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert [row["instances"] for row in rows if row["line"] != "ideal"] == ["1", "2"]
    assert {path.suffix for path in beside.iterdir()} == {".csv", ".svg", ".png"}


@pytest.mark.system
def test_the_command_compares_several_runs(tmp_path: Path) -> None:
    runs = [str(make_run(tmp_path / name, duration=10.0)) for name in ("a", "b")]
    output = tmp_path / "new" / "page.html"
    result = CliRunner().invoke(cli, ["report", *runs, "-o", str(output)], catch_exceptions=False)
    assert (result.exit_code, result.output.strip()) == (0, str(output))
    assert "2 runs compared: basic" in output.read_text()
