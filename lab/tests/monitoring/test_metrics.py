"""The table of metrics lists what a running sharder and shard expose, and everything generated uses only names in the
table.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from prometheus_client import REGISTRY
from scraping import scraped

from kubeshard.core.objects import ObjectMeta
from kubeshard.monitoring import ALERTS, METRICS, Definition, dashboards
from kubeshard.monitoring.promql import by, expression
from kubeshard_lab.examples.webhosting.api import Theme, Website
from kubeshard_lab.examples.webhosting.dashboard import webhosting
from kubeshard_lab.examples.webhosting.operator import StateMetrics
from kubeshard_lab.simulation.cluster import SimulatedCluster, Touch
from kubeshard_lab.virtual_time import run_virtual
from scenes import begin

pytestmark = pytest.mark.quick

ROOT = Path(__file__).resolve().parents[3]


class Exposed(NamedTuple):
    type: str
    about: str
    labels: frozenset[str]
    """The labels of all its series; empty while it has no series."""


@cache
def pair() -> dict[str, dict[str, Exposed]]:
    """Returns what a leading sharder and a shard expose after an object was handed over, by sample or family."""

    async def run() -> dict[str, dict[str, Exposed]]:
        async with SimulatedCluster(1) as world:
            await begin(world)
            world.processes["x1"].kill()
            world.shard("s2", Touch())
            await asyncio.sleep(60)
            return {side: exposed(world, name) for side, name in (("sharder", "x0"), ("shard", "s0"))}

    return run_virtual(run())


def exposed(world: SimulatedCluster, name: str) -> dict[str, Exposed]:
    found = {}
    for family in scraped(world.processes[name]):
        full = f"{family.name}_total" if family.type == "counter" else family.name
        labels = frozenset(label for sample in family.samples for label in sample.labels) - {"le"}
        found[full] = Exposed(family.type, family.documentation, labels)
    return found


SIDES = {"sharder": ("sharder",), "shard": ("shard",), "both": ("sharder", "shard")}

ELSEWHERE = {
    "certwatcher_read_certificate_total",
    "certwatcher_read_certificate_errors_total",
    "cert_not_after",
}
"""Exposed only by a webhook server with TLS, which worlds on virtual time do not have."""

OF_SUPERVISORS = {"kubeshard_process_restarts_total"}
"""Exposed only where one runs (kubeshard/tests/supervisor)."""

PYTHONS = re.compile(r"(process|python)_")
"""On a machine without /proc some of these are missing."""


@pytest.mark.parametrize("metric", METRICS, ids=lambda metric: metric.name)
def test_what_the_table_says_is_exposed_with_that_type_meaning_and_labels(metric: Definition) -> None:
    if metric.name in ELSEWHERE | OF_SUPERVISORS:
        return
    for side in SIDES[metric.side]:
        if PYTHONS.match(metric.name) and metric.name not in pair()[side]:
            continue
        found = pair()[side][metric.name]
        assert (found.type, found.about) == (metric.type, metric.about)
        assert not found.labels or found.labels == set(metric.labels)


@pytest.mark.parametrize("side", ["sharder", "shard"])
def test_what_a_side_exposes_is_in_the_table(side: str) -> None:
    known = {metric.name for metric in METRICS if side in SIDES[metric.side]}
    # What other tests of this process count, as the authors of operators do, is on the page of every manager.
    others = {f"{f.name}_total" if f.type == "counter" else f.name for f in REGISTRY.collect()}
    assert pair()[side].keys() - others - known == set()


def test_what_the_webhook_server_adds_is_in_the_table() -> None:
    from prometheus_client import CollectorRegistry, generate_latest

    from kubeshard.webhook.certificates import ServingCertificate
    from kubeshard_lab.virtual_world import virtual_world

    async def names() -> set[str]:
        registry = CollectorRegistry()
        ServingCertificate(clock=virtual_world().clock, registry=registry)
        lines = generate_latest(registry).decode().splitlines()
        return {line.split()[2] for line in lines if line.startswith("# TYPE")}

    assert {name for name in run_virtual(names()) if not name.endswith("_created")} == ELSEWHERE


def words(text: str) -> set[str]:
    """Returns the names in an expression, without label values and windows."""
    return set(re.findall(r"[a-zA-Z_][a-zA-Z0-9_]*", re.sub(r'"[^"]*"|\[[^]]*\]', "", text)))


LANGUAGE = {
    "absent", "and", "by", "count", "group_left", "histogram_quantile", "increase", "max", "max_over_time", "min", "on",
    "or", "rate", "sum", "time", "unless",
}  # fmt: skip
GIVEN = {"instance", "job", "le"}
"""Labels of every series, and of buckets."""


def expressions() -> Iterator[tuple[str, str]]:
    for alert in ALERTS:
        yield alert.name, alert.expr
    for name, dashboard in dashboards().items():
        for panel in dashboard["panels"]:
            for target in panel.get("targets", ()):
                yield f"{name}: {panel['title']} {target['refId']}", target["expr"]


@pytest.mark.parametrize(
    ("place", "text"), list(expressions()), ids=lambda value: value if ":" in value else ""
)
def test_an_expression_names_nothing_but_metrics_of_the_table_and_their_labels(place: str, text: str) -> None:
    samples = {sample: metric for metric in METRICS for sample in metric.samples}
    named = words(text) & samples.keys()
    labels = {label for sample in named for label in samples[sample].labels}
    assert named
    assert words(text) - named - labels - LANGUAGE - GIVEN == set()


@pytest.mark.parametrize("alert", ALERTS, ids=lambda alert: alert.name)
def test_an_alerts_summary_names_labels_that_it_has(alert: Any) -> None:
    used = set(re.findall(r"\$labels\.(\w+)", alert.summary))
    grouped = {
        label.strip() for part in re.findall(r"by \(([^)]*)\)", alert.expr) for label in part.split(",")
    }
    assert used <= grouped


def test_a_name_or_label_that_nobody_exposes_is_refused() -> None:
    with pytest.raises(KeyError, match="controller_sharding_moves"):
        expression("controller_sharding_moves")
    with pytest.raises(KeyError, match="has no label pod_name"):
        expression("controller_sharding_drains_total", pod_name="a")
    with pytest.raises(KeyError, match="has no label shard"):
        by(["shard"], "controller_sharding_drains_total")


def every_dashboard() -> list[dict[str, Any]]:
    return [*dashboards().values(), webhosting()]


def test_every_panel_has_its_own_place() -> None:
    for dashboard in every_dashboard():
        taken = [cell for panel in dashboard["panels"] for cell in cells(panel["gridPos"])]
        assert len(taken) == len(set(taken))
        assert max(x for x, _ in taken) < 24
        numbers = [panel["id"] for panel in dashboard["panels"]]
        assert numbers == list(range(1, len(numbers) + 1))


def cells(place: dict[str, int]) -> Iterator[tuple[int, int]]:
    for x in range(place["x"], place["x"] + place["w"]):
        for y in range(place["y"], place["y"] + place["h"]):
            yield x, y


def test_panels_have_titles_in_words_units_and_one_meaning_each() -> None:
    for dashboard in dashboards().values():
        panels = [panel for panel in dashboard["panels"] if panel["type"] != "row"]
        rows = [panel["title"] for panel in dashboard["panels"] if panel["type"] == "row"]
        assert rows[0] == "Overview"
        for panel in panels:
            assert not re.search(r"_|^[a-z]", panel["title"]), panel["title"]
            assert panel["description"]
            assert panel["fieldConfig"]["defaults"]["unit"]
        numbers = [panel for panel in panels if panel["type"] == "stat"]
        assert numbers == panels[: len(numbers)]
        assert all(panel["fieldConfig"]["defaults"]["thresholds"]["steps"] for panel in numbers)


def test_everything_can_be_restricted_to_rings_jobs_and_instances() -> None:
    for dashboard in dashboards().values():
        names = {variable["name"] for variable in dashboard["templating"]["list"]}
        assert names == {"datasource", "job", "instance", "ring"}
        for panel in dashboard["panels"]:
            for target in panel.get("targets", ()):
                assert "$job" in target["expr"], panel["title"]
                used = set(re.findall(r"\$([a-z]+)", target["expr"]))
                assert used <= names


def test_the_examples_dashboard_names_what_the_example_exposes() -> None:
    found = StateMetrics(lambda: (), lambda: ())
    exposed = {family.name: family for family in found.collect()}
    for panel in webhosting()["panels"]:
        for target in panel.get("targets", ()):
            named = set(re.findall(r"kube_\w+", target["expr"]))
            assert named
            assert named <= exposed.keys()
            grouped = {
                label.strip()
                for part in re.findall(r"by \(([^)]*)\)", target["expr"])
                for label in part.split(",")
            }
            labels = {label for name in named for label in exposed[name]._labelnames}
            assert grouped <= labels


NAMED_BY_GO_DASHBOARDS = """
controller_runtime_active_workers controller_runtime_max_concurrent_reconciles controller_runtime_reconcile_errors_total
controller_runtime_reconcile_time_seconds_bucket controller_runtime_reconcile_time_seconds_sum
controller_runtime_reconcile_total controller_runtime_webhook_latency_seconds_bucket
controller_runtime_webhook_requests_total controller_sharding_assignments_total
controller_sharding_controllerring_metadata_generation controller_sharding_controllerring_status_available_shards
controller_sharding_controllerring_status_shards controller_sharding_drains_total controller_sharding_movements_total
controller_sharding_ring_calculations_total controller_sharding_shard_info controller_sharding_shard_state
rest_client_requests_total workqueue_adds_total workqueue_depth workqueue_longest_running_processor_seconds
workqueue_queue_duration_seconds_bucket workqueue_retries_total workqueue_unfinished_work_seconds
workqueue_work_duration_seconds_bucket
"""
"""By those of the Go project for sharding, webhosting, client-go and controller-runtime; without those of other
programs (kube-state-metrics, cAdvisor), and without four that its own programs do not expose either:
`kube_shard_state`, `rest_client_request_size_bytes`, `rest_client_response_size_bytes`,
`rest_client_rate_limiter_duration_seconds`.
"""
GO_EXAMPLE_RECORDS = {
    "kube_theme_info": "color font_family",
    "kube_website_info": "namespace theme",
    "kube_website_shard": "namespace shard drain",
    "kube_website_status_phase": "namespace phase",
}
"""What the recording rules of the Go project's example sum, by the labels that they keep."""


def test_the_dashboards_of_the_go_project_find_the_metrics_that_they_name() -> None:
    ours = {sample for metric in METRICS for sample in metric.samples}
    assert not set(NAMED_BY_GO_DASHBOARDS.split()) - ours
    website, theme = (
        Website(metadata=ObjectMeta(name="a", namespace="b")),
        Theme(metadata=ObjectMeta(name="c")),
    )
    state = StateMetrics(lambda: [website], lambda: [theme])
    exposed = {sample.name: sample.labels.keys() for family in state.collect() for sample in family.samples}
    for name, labels in GO_EXAMPLE_RECORDS.items():
        assert exposed[name] >= set(labels.split()), name


def test_every_alert_has_its_section_and_there_is_no_other() -> None:
    sections = re.findall(r"^## (\w+)$", (ROOT / "docs/alerts.md").read_text(), re.M)
    assert sections == [alert.name for alert in ALERTS]
