"""A real Prometheus imports a recording, and its figures are those of `levels`, within a bucket."""

from __future__ import annotations

import asyncio
import math
import random
import shutil
import subprocess
from bisect import bisect_left
from collections import defaultdict
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from recorded import BEGAN, Recorded

from kubeshard.runtime.tls import Tls
from kubeshard.runtime.transport import HttpRequest, Transport, TransportError
from kubeshard.runtime.world import REAL_WORLD
from kubeshard_apiserver.testing.child import Child
from kubeshard_apiserver.testing.control_plane import free_port
from kubeshard_lab.experiment.dashboard import experiments
from kubeshard_lab.experiment.measuring.measurement import ask_all
from kubeshard_lab.experiment.measuring.prometheus import Prometheus
from kubeshard_lab.experiment.measuring.queries import RANGE, Query, Window
from kubeshard_lab.experiment.measuring.standard_queries import queries_of
from kubeshard_lab.experiment.objectives import RECONCILE
from kubeshard_lab.experiment.openmetrics import BOUNDS, write
from kubeshard_lab.experiment.recording import Gauge, Request, Usage

pytestmark = pytest.mark.system

DURATION = 600
SCRAPED_EACH = 10
BUCKETS = (*BOUNDS, 30.0)
PATIENCE = 60
PROGRAMS = ("prometheus", "promtool")


@pytest.fixture
def programs() -> dict[str, str]:
    found = {name: shutil.which(name) for name in PROGRAMS}
    if missing := [name for name, path in found.items() if path is None]:
        pytest.skip(f"did not run: {' and '.join(missing)} not on PATH")
    return {name: path for name, path in found.items() if path is not None}


@asynccontextmanager
async def started(program: str, data: Path, folder: Path) -> AsyncIterator[Prometheus]:
    """A Prometheus with that data, which is not told to scrape anything."""
    (folder / "prometheus.yml").write_text("{}\n")
    address = f"127.0.0.1:{free_port()}"
    command = [
        program,
        f"--config.file={folder}/prometheus.yml",
        f"--storage.tsdb.path={data}",
        "--storage.tsdb.retention.time=100y",
        f"--web.listen-address={address}",
    ]
    child = Child("prometheus", command, folder / "prometheus.log")
    transport = REAL_WORLD.connect(f"http://{address}", Tls())
    try:
        async with asyncio.timeout(PATIENCE):
            while not await is_ready(transport):
                assert child.running, child.log.read_text()
                await asyncio.sleep(0.1)
        async with Prometheus(f"http://{address}", REAL_WORLD.connect) as prometheus:
            yield prometheus
    finally:
        await transport.close()
        child.kill()


async def is_ready(transport: Transport) -> bool:
    try:
        return (await transport.request(HttpRequest("GET", "/-/ready", {}, timeout=5))).status == 200
    except TransportError:
        return False


class Counts:
    """A cumulative histogram."""

    def __init__(self) -> None:
        self.counts = dict.fromkeys((*BUCKETS, math.inf), 0.0)

    def add(self, seconds: float) -> None:
        for bound in (*BUCKETS, math.inf)[bisect_left(BUCKETS, seconds) :]:
            self.counts[bound] += 1


def waits(rng: random.Random, median: float) -> Iterator[float]:
    while True:
        yield median * math.exp(rng.gauss(0, 1))


def a_run(folder: Path) -> Recorded:
    """Ten minutes of three operators, of which one is restarted in the fourth minute."""
    recorded, rng = Recorded(folder, ended=BEGAN + DURATION), random.Random(7)
    queue, server = defaultdict(Counts), defaultdict(Counts)
    queued, answered, ready = waits(rng, 0.06), waits(rng, 0.02), waits(rng, 0.3)
    for second in range(0, DURATION + 1, SCRAPED_EACH):
        for number in (1, 2, 3):
            if (second, number) == (220, 2):
                del queue[2]
            for _ in range(40):
                queue[number].add(next(queued))
            recorded.scrape(second, f"operator-{number}", queue=queue[number].counts)
            recorded.add(
                Usage(
                    BEGAN + second,
                    f"operator-{number}",
                    "operator",
                    second / 4,
                    1 << 26,
                    second,
                    second,
                    0,
                    0,
                )
            )
        for of in (("websites", "PATCH"), ("configmaps", "POST"), ("leases", "GET"), ("websites", "LIST")):
            for _ in range(50):
                server[of].add(next(answered) * (1 + len(of[0])))
        scopes = {"LIST": "cluster"}
        requests = {(*of, scopes.get(of[1], "resource"), ""): counts.counts for of, counts in server.items()}
        recorded.scrape(second, "kube-apiserver", "server", requests=requests)
        recorded.generations(*(next(ready) for _ in range(20)), due=second)
        recorded.add(Request("patch", "ns", "a", *[BEGAN + second] * 3, "ok"))
    return recorded


def bucket(seconds: float, bounds: Sequence[float] = BUCKETS) -> int:
    return bisect_left(bounds, seconds)


def imported(promtool: str, recorded: Recorded) -> Path:
    """The recording as a Prometheus keeps it."""
    recorded.close()
    data = recorded.folder / "data"
    command = [promtool, "tsdb", "create-blocks-from", "openmetrics", "-q", write(recorded.folder), data]
    subprocess.run(command, check=True, capture_output=True)
    return data


async def test_a_prometheus_computes_the_same_figures_within_a_bucket(
    programs: dict[str, str], tmp_path: Path
) -> None:
    recorded = a_run(tmp_path / "run")
    data = imported(programs["promtool"], recorded)
    written: dict[str, list[str]] = {}
    async with started(programs["prometheus"], data, tmp_path) as prometheus:
        outcome = await ask_all(
            queries_of("basic"),
            Window(BEGAN, BEGAN + DURATION, 15),
            prometheus,
            lambda name, lines: written.update({name: list(lines)}),
            lambda _: None,
        )
    assert outcome.unmeasured == []
    measured = recorded.measured()
    ours = {level.name: level for level in measured.levels()}
    for objective in measured.objectives:
        rows = [line.split(",") for line in written[objective.name][1:]]
        theirs = max(float(value) for _, value, *_ in rows)
        level = ours[objective.title]
        assert level.worst is not None
        assert abs(bucket(level.worst) - bucket(theirs)) <= 1, objective.name
        assert level.kept is not any(name.startswith(f"{objective.name} ") for name in outcome.missed)
        if objective.histogram != RECONCILE:  # which is judged by its samples
            assert level.worst == pytest.approx(theirs, rel=0.02), objective.name
    minutes = [float(line.split(",")[1]) for line in written["latency-queue-1m"][1:]]
    points = measured.over_time(measured.objectives[0])
    assert abs(bucket(max(minutes)) - bucket(max(point.seconds for point in points))) <= 1
    assert written["cpu"][0] == "ts,value,instance,job\n"
    used = [float(line.split(",")[1]) for line in written["cpu"][1:]]
    assert max(used) == pytest.approx(0.25)
    assert sum("website-mutator" in line for line in written["website-churn"]) > DURATION / 15 / 2


async def test_every_panel_of_the_dashboard_shows_something_of_a_recording(
    programs: dict[str, str], tmp_path: Path
) -> None:
    recorded = a_run(tmp_path / "run")
    for name in ("rate-wanted", "rate-reached", "objects-of-shard"):
        for second in range(0, DURATION, SCRAPED_EACH):
            recorded.add(Gauge(BEGAN + second, name, "", 1.0))
    for second in range(0, DURATION, SCRAPED_EACH):
        page = "".join(
            f"# TYPE controller_sharding_{name} {kind}\n"
            f'controller_sharding_{name}{{controllerring="webhosting-operator",resource="websites"}} {second}\n'
            for name, kind in (
                ("movements_total", "counter"),
                ("drains_total", "counter"),
                ("controllerring_status_available_shards", "gauge"),
            )
        )
        recorded.page(second, "sharder-1", "sharder", page)
    data = imported(programs["promtool"], recorded)
    expressions = [target["expr"] for panel in experiments()["panels"] for target in panel.get("targets", ())]
    assert len(expressions) > 15
    window = Window(BEGAN, BEGAN + DURATION, 15)
    async with started(programs["prometheus"], data, tmp_path) as prometheus:
        empty = []
        for text in expressions:
            answer = await prometheus.ask(Query("panel", text.replace(RANGE, window.range)), window)
            if not any(value > 0 for series in answer.series for _, value in series.points):
                empty.append(text)
    assert empty == []
