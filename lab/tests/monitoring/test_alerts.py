"""Every alert fires when its problem occurs, and none when all is well, as evaluated by Prometheus' own engine on
scrapes of the production classes.
"""

from __future__ import annotations

import asyncio
import re
import subprocess
import time
from collections.abc import Collection
from pathlib import Path

import pytest
import yaml
from prometheus_client import CollectorRegistry
from scraping import INTERVAL, Prometheus, evaluated, named, promtool, unlike

from kubeshard.monitoring import ALERTS, dashboards, rules
from kubeshard.runtime.certificate_authority import new_authority, new_server_leaf
from kubeshard.runtime.clock import SystemClock
from kubeshard.webhook.certificates import ServingCertificate
from kubeshard_lab.simulation.cluster import SimulatedCluster
from kubeshard_lab.virtual_time import run_virtual
from scenes import (
    FAULTS,
    SHARDERS,
    Scene,
    a_leader_leaves,
    a_ring_waits_for_its_first_shard,
    all_shards_die,
    begin,
    begin_in_manager,
    nothing,
)

pytestmark = pytest.mark.system

COUNT = 100

USED = {sample for alert in ALERTS for sample in named(alert.expr)}
CERTIFICATE = "KubeshardCertificateExpires"


def scrapes_of(scene: Scene, samples: Collection[str] = USED, *, begin: Scene = begin) -> Prometheus:
    async def run() -> Prometheus:
        async with SimulatedCluster(1, users=SHARDERS) as world:
            prometheus = Prometheus(world, samples)
            scraping = asyncio.create_task(prometheus.run())
            await begin(world)
            await scene(world)
            scraping.cancel()
            return prometheus

    return run_virtual(run())


def test_promtool_finds_no_fault_with_the_rules(tmp_path: Path) -> None:
    (tmp_path / "rules.yaml").write_text(yaml.safe_dump(rules()))
    check = subprocess.run(
        [promtool(), "check", "rules", "rules.yaml"], cwd=tmp_path, capture_output=True, text=True
    )
    assert check.returncode == 0, check.stdout + check.stderr
    assert f"{len(ALERTS)} rules found" in check.stdout


def test_every_alert_has_a_fault() -> None:
    assert {alert.name for alert in ALERTS} == {*FAULTS, CERTIFICATE}


@pytest.mark.parametrize("alert", list(FAULTS))
def test_an_alert_fires_in_its_fault(alert: str, tmp_path: Path) -> None:
    prometheus = scrapes_of(FAULTS[alert])
    said = evaluated(prometheus.input_series, prometheus.scrapes, {alert: True}, tmp_path)
    assert not said


def test_no_alert_fires_while_all_is_in_order(tmp_path: Path) -> None:
    prometheus = scrapes_of(nothing)
    said = evaluated(prometheus.input_series, prometheus.scrapes, {"": False}, tmp_path)
    assert not said


def test_no_alert_fires_where_operators_are_their_own_sharder(tmp_path: Path) -> None:
    prometheus = scrapes_of(a_leader_leaves, begin=begin_in_manager)
    said = evaluated(prometheus.input_series, prometheus.scrapes, {"": False}, tmp_path)
    assert not said


def test_no_alert_fires_for_a_ring_that_never_had_a_shard(tmp_path: Path) -> None:
    prometheus = scrapes_of(a_ring_waits_for_its_first_shard)
    said = evaluated(prometheus.input_series, prometheus.scrapes, {"": False}, tmp_path)
    assert not said


def test_the_alert_of_a_ring_without_shards_goes_on_after_their_leases_are_removed(tmp_path: Path) -> None:
    prometheus = scrapes_of(all_shards_die)
    firing = 'count(ALERTS{alertname="KubeshardNoShardAvailable",alertstate="firing"}) > bool 0'
    assert not unlike(prometheus.input_series, prometheus.scrapes, {firing: True}, tmp_path)


def test_the_alert_of_the_certificate_fires_before_it_ends(tmp_path: Path) -> None:
    def samples(lifetime: float) -> str:
        """promtool's time begins at zero, so it sees only the remaining samples."""
        now, registry = time.time(), CollectorRegistry()
        serving = ServingCertificate("sharder", clock=SystemClock(), registry=registry)
        authority = new_authority("a", now, 2 * lifetime)
        serving.install(new_server_leaf(authority, ["sharder"], now, lifetime))
        end = registry.get_sample_value("cert_not_after")
        assert end is not None
        return " ".join([repr(end - now)] * COUNT)

    for days, fires in ((2.9, True), (3.1, False)):
        values = samples(days * 86400)
        series = [{"series": 'cert_not_after{instance="x0",job="sharder"}', "values": values}]
        assert not evaluated(series, COUNT, {CERTIFICATE: fires}, tmp_path)


def test_every_panel_shows_something_as_soon_as_there_is_something_to_count(tmp_path: Path) -> None:
    expressions = {
        re.sub(r"\$(job|instance|ring)", ".*", target["expr"].replace("$__rate_interval", "5m"))
        for dashboard in dashboards().values()
        for panel in dashboard["panels"]
        for target in panel.get("targets", ())
    }
    prometheus = scrapes_of(nothing, {sample for expression in expressions for sample in named(expression)})
    counted = {series["series"].partition("{")[0] for series in prometheus.input_series}
    assert len(counted) > 30
    at_some_time = f"[{prometheus.scrapes * INTERVAL}s:2m]"  # promtool keeps no more samples
    found = {
        f"count(max_over_time(({expr}){at_some_time})) > bool 0": named(expr) <= counted
        for expr in sorted(expressions)
    }
    assert not unlike(prometheus.input_series, prometheus.scrapes, found, tmp_path)
