"""Experiments on virtual time: what they record, and that they know what a real one would show."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner

from kubeshard.cli.program import cli
from kubeshard_lab.examples.webhosting.api import RING
from kubeshard_lab.experiment import levels
from kubeshard_lab.experiment.progress import Lines
from kubeshard_lab.experiment.quantiles import of_samples
from kubeshard_lab.experiment.recording import (
    Event,
    Gauge,
    Generation,
    Request,
    RunRecord,
    Usage,
    read,
    read_run,
)
from kubeshard_lab.experiment.running import Settings, Wanted
from kubeshard_lab.experiment.scenarios import SCENARIOS, scaled
from kubeshard_lab.experiment.scrapes import read_scrapes
from kubeshard_lab.experiment.setups import KINDS, Kind, Setup
from kubeshard_lab.experiment.simulated import OnVirtualTime
from kubeshard_lab.experiment.websites import Websites
from kubeshard_lab.simulation.cluster import SimulatedCluster
from kubeshard_lab.simulation.costs import Costs, costly_cluster
from kubeshard_lab.virtual_time import run_virtual
from kubeshard_lab.virtual_world import SeededRng

pytestmark = pytest.mark.long


def simulated(
    folder: Path,
    scenario: str = "basic",
    *,
    kind: Kind = "external",
    scale: float = 0.1,
    seconds: float = 20.0,
    latency: float = 0.01,
    rate: float = math.inf,
    meanwhile: Callable[[SimulatedCluster], None] = lambda cluster: None,
) -> RunRecord:
    """Runs a scenario; `meanwhile` is called before it begins."""
    instances = 1 if kind == "singleton" else 2
    settings = Settings(
        scaled(SCENARIOS[scenario], scale, seconds),
        Setup(kind, instances, 5),
        "simulation",
        scale,
        1,
        100,
        latency,
    )

    async def run() -> None:
        async with costly_cluster(
            Costs(latency=latency, rate=rate, request_cpu=0.001, event_cpu=0.0002),
            RING,
            feature_gates=settings.setup.feature_gates,
        ) as (
            cluster,
            charged,
        ):
            wanted = Wanted(
                settings,
                folder,
                lambda part: SeededRng(part),
                Lines(lambda line: None),
                lambda run: Websites(run, scenario),
            )
            experiment = OnVirtualTime(wanted, cluster, charged)
            meanwhile(cluster)
            await experiment.conduct()

    run_virtual(run())
    levels.judge(folder)
    return read_run(folder)


def waits(folder: Path) -> list[float]:
    return [each.ready - each.due for each in read(folder, Generation) if not math.isnan(each.ready)]


@pytest.mark.parametrize(
    "kind", [pytest.param(kind, marks=() if kind == "external" else pytest.mark.nightly) for kind in KINDS]
)
def test_a_simulated_run_leaves_what_any_other_does(
    kind: Kind, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "kubeshard.shard")
    run = simulated(tmp_path / "run", kind=kind)

    assert (run.server, run.finished, run.invalid) == ("simulation", True, [])
    assert all(level.kept for level in run.levels), run.levels
    judged = {level.name for level in run.levels}
    assert judged == {"queue p99", "reconcile p99", "API server: writes p99 of the load"}
    sent = list(read(tmp_path / "run", Request))
    assert len(sent) >= 20
    assert {each.outcome for each in sent} == {"ok"}
    generations = list(read(tmp_path / "run", Generation))
    assert generations
    assert not any(math.isnan(each.ready) for each in generations if not each.gone)
    roles = {"operator", "sharder"} if kind == "external" else {"operator"}
    assert {each.role for each in read_scrapes(tmp_path / "run")} == roles
    used = list(read(tmp_path / "run", Usage))
    assert {each.role for each in used} == roles
    assert max(each.cpu for each in used) > 0.1
    owned = [each for each in read(tmp_path / "run", Gauge) if each.name == "objects-of-shard" and each.value]
    assert bool(owned) or kind == "singleton"
    metrics = "".join(each.text for each in read_scrapes(tmp_path / "run") if each.role == "operator")
    assert "process_cpu_seconds" not in metrics, "that would be this process"
    assert ("The API server selects this shard's objects" in caplog.text) == (kind == "ranges")


@pytest.mark.nightly
def test_the_same_settings_give_the_same_recording(tmp_path: Path) -> None:
    for name in ("one", "two"):
        simulated(tmp_path / name, "crash", seconds=25)

    files = {path.name for path in (tmp_path / "one").iterdir() if path.is_file()}
    assert {"run.json", "generations.csv", "scrapes.txt"} <= files
    for file in files:
        assert (tmp_path / "one" / file).read_bytes() == (tmp_path / "two" / file).read_bytes(), file


@pytest.mark.nightly
def test_after_a_crash_users_wait_for_the_end_of_the_lease_and_after_a_deletion_hardly_at_all(
    tmp_path: Path,
) -> None:
    simulated(tmp_path / "crash", "crash", seconds=120, scale=0.1)
    simulated(tmp_path / "deletion", "chaos", seconds=120, scale=0.1)

    assert 15 < max(waits(tmp_path / "crash")) < 35
    assert max(waits(tmp_path / "deletion")) < 5
    for folder in (tmp_path / "crash", tmp_path / "deletion"):
        assert sum(each.kind in ("killed", "crashed") for each in read(folder, Event)) >= 2


@pytest.mark.nightly
def test_users_wait_in_proportion_to_what_requests_take(tmp_path: Path) -> None:
    for name, latency in (("near", 0.01), ("far", 0.1)):
        simulated(tmp_path / name, latency=latency)

    near, far = (of_samples(0.5, waits(tmp_path / name)) for name in ("near", "far"))
    assert 6 < far / near < 11


@pytest.mark.nightly
def test_a_server_that_answers_too_few_requests_is_the_limit_and_the_levels_say_so(tmp_path: Path) -> None:
    run = simulated(tmp_path / "run", rate=8.0)

    missed = {level.name for level in run.levels if not level.kept}
    assert "API server: writes p99 of the load" in missed
    assert any("small read" in sentence for sentence in run.invalid)


def test_an_instance_that_ends_by_itself_is_started_again_and_the_run_is_not_valid(tmp_path: Path) -> None:
    def kill_later(cluster: SimulatedCluster) -> None:
        asyncio.get_running_loop().call_later(12, lambda: cluster.processes["operator-2"].kill())

    run = simulated(tmp_path / "run", meanwhile=kill_later)

    kinds = [each.kind for each in read(tmp_path / "run", Event) if each.subject == "operator-2"]
    assert kinds == ["started", "ready", "ended", "restarted"]
    assert ["operator-2" in sentence for sentence in run.invalid] == [True]


@pytest.mark.nightly
def test_the_command_simulates_and_the_page_says_what_it_depends_on(tmp_path: Path) -> None:
    def pages(folder: str, costs: str) -> tuple[RunRecord, str]:
        options = ["experiment", "basic", "--on", "simulation", "--duration", "15s", "--costs", costs]
        result = CliRunner().invoke(cli, [*options, "-o", str(tmp_path / folder)])
        assert result.exit_code == 0, result.output
        return read_run(tmp_path / folder), (tmp_path / folder / "report.html").read_text()

    cheap, page = pages("cheap", "request=1ms,rate=500")
    dear, _ = pages("dear", "request=20ms,rate=500")

    assert cheap.costs == "request=1ms,event=0.2ms,rate=500"
    assert cheap.id != dear.id
    assert of_samples(0.5, waits(tmp_path / "dear")) > 1.5 * of_samples(0.5, waits(tmp_path / "cheap"))
    assert (
        "a simulated API server, on virtual time, where an answer takes 10 ms and work costs request=1ms"
        in page
    )
    assert "Resident memory" not in page
    assert "Bytes over TCP" not in page
    both = CliRunner().invoke(
        cli, ["report", str(tmp_path / "cheap"), str(tmp_path / "dear"), "-o", str(tmp_path / "both.html")]
    )
    assert both.exit_code == 0, both.output
    page = (tmp_path / "both.html").read_text()
    assert page.count("work costs request=") == 2, "runs with other costs are not compared"
