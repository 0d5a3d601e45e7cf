"""Dashboards for Grafana: a row of panels for each part of the table of metrics, with one panel for each metric of
interest.

| type | panel |
|---|---|
| counter | the rate per second, by label |
| gauge | the maximum over the processes, by label, because the sharder's replicas expose the same values |
| histogram | the 50th and the 99th percentile, by label |

Labels that would add a line for each object, host or process are left out.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from kubeshard.metrics.declared import defined
from kubeshard.metrics.definition import Definition
from kubeshard.monitoring.promql import by, expression

WINDOW = "$__rate_interval"
COLUMNS, WIDTH, HEIGHT = 3, 8, 7

UNITS = {"seconds": "s", "bytes": "bytes", "": "short"}
RATES = {"seconds": "percentunit", "bytes": "Bps", "": "ops"}


class Row(NamedTuple):
    title: str
    samples: tuple[str, ...]
    """The metrics of the panels; for a histogram, its `_bucket`."""


SHARDER = (
    Row(
        "Rings",
        (
            "controller_sharding_controllerring_status_available_shards",
            "controller_sharding_controllerring_status_shards",
            "controller_sharding_shard_state",
            "controller_sharding_oldest_drain_seconds",
            "controller_sharding_oldest_unassigned_seconds",
            "controller_sharding_objects_unassigned",
            "controller_sharding_drains_pending",
            "controller_sharding_movements_total",
            "controller_sharding_drains_total",
            "controller_sharding_takeovers_total",
            "controller_sharding_shards_failing_together",
            "controller_sharding_move_failures_total",
            "controller_sharding_resync_duration_seconds_bucket",
        ),
    ),
    Row(
        "Webhook",
        (
            "controller_sharding_assignments_total",
            "controller_sharding_late_assignments_total",
            "controller_sharding_webhook_unassigned_total",
            "controller_runtime_webhook_requests_total",
            "controller_runtime_webhook_latency_seconds_bucket",
            "controller_runtime_webhook_requests_in_flight",
        ),
    ),
)

SHARDS = (
    Row(
        "Leases and hand-over",
        (
            "controller_sharding_lease_margin_seconds",
            "controller_sharding_lease_renewals_total",
            "controller_sharding_lease_renewal_failures_total",
            "controller_sharding_drains_acknowledged_total",
            "controller_sharding_drain_acknowledgement_seconds_bucket",
            "controller_sharding_refused_writes_total",
            "controller_sharding_unfenced_writes_total",
        ),
    ),
)

PROCESSES = (
    Row(
        "Reconciles",
        (
            "controller_runtime_reconcile_total",
            "controller_runtime_reconcile_time_seconds_bucket",
            "controller_runtime_active_workers",
            "workqueue_depth",
            "workqueue_queue_duration_seconds_bucket",
            "workqueue_longest_running_processor_seconds",
            "kubeshard_controller_waiting",
            "kubeshard_controller_overdue_reconciles",
            "kubeshard_controller_reconcile_causes_total",
        ),
    ),
    Row(
        "Process",
        (
            "rest_client_requests_total",
            "rest_client_request_duration_seconds_bucket",
            "leader_election_master_status",
            "kubeshard_event_loop_lag_seconds",
            "kubeshard_event_loop_blockages_total",
            "kubeshard_cache_objects",
            "kubeshard_cache_silence_seconds",
            "kubeshard_cache_failures_total",
            "process_resident_memory_bytes",
            "process_cpu_seconds_total",
        ),
    ),
)

_LEFT_OUT = {"uid", "host", "namespace"}


class Chart(NamedTuple):
    """What a panel shows."""

    title: str
    about: str
    unit: str
    """As Grafana names it."""
    queries: Sequence[tuple[str, str]]
    """Expressions and their legends."""
    limit: float | None = None
    """Drawn as a line, if there is one."""


def dashboards() -> dict[str, dict[str, Any]]:
    """The dashboards by name, in the form that Grafana imports."""
    return {
        name: dashboard(
            name,
            f"kubeshard: {name}",
            {row.title: [_chart(sample) for sample in row.samples] for row in rows},
            [_JOB],
        )
        for name, rows in (("sharder", (*SHARDER, *PROCESSES)), ("shards", (*SHARDS, *PROCESSES)))
    }


def dashboard(
    name: str, title: str, rows: Mapping[str, Sequence[Chart]], variables: Sequence[Mapping[str, Any]] = ()
) -> dict[str, Any]:
    """A dashboard with charts in rows by title. Its variables are the data source, and these."""
    panels: list[dict[str, Any]] = []
    y = 0
    for row, charts in rows.items():
        panels.append({"type": "row", "title": row, "gridPos": {"x": 0, "y": y, "w": 24, "h": 1}})
        y += 1
        for number, chart in enumerate(charts):
            x, line = number % COLUMNS, number // COLUMNS
            place = {"x": x * WIDTH, "y": y + line * HEIGHT, "w": WIDTH, "h": HEIGHT}
            panels.append(_panel(chart, place))
        y += -(-len(charts) // COLUMNS) * HEIGHT
    for number, panel in enumerate(panels, start=1):
        panel["id"] = number
    return {
        "uid": f"kubeshard-{name}",
        "title": title,
        "tags": ["kubeshard"],
        "schemaVersion": 39,
        "timezone": "browser",
        "refresh": "30s",
        "time": {"from": "now-1h", "to": "now"},
        "templating": {"list": [_DATA_SOURCE, *variables]},
        "panels": panels,
    }


_DATA_SOURCE = {"name": "datasource", "type": "datasource", "query": "prometheus", "label": "Data source"}
_SOURCE = {"type": "prometheus", "uid": "${datasource}"}
_JOB = {
    "name": "job",
    "type": "query",
    "label": "Job",
    "datasource": _SOURCE,
    "query": f"label_values({expression('kubeshard_build_info')}, job)",
    "multi": True,
    "includeAll": True,
    "allValue": ".*",
    "current": {"text": "All", "value": "$__all"},
    "refresh": 2,
}


def _panel(chart: Chart, place: Mapping[str, int]) -> dict[str, Any]:
    defaults: dict[str, Any] = {"unit": chart.unit, "min": 0}
    if chart.limit is not None:
        steps = [{"color": "green", "value": None}, {"color": "red", "value": chart.limit}]
        defaults |= {
            "custom": {"thresholdsStyle": {"mode": "dashed"}},
            "thresholds": {"mode": "absolute", "steps": steps},
        }
    return {
        "type": "timeseries",
        "title": chart.title,
        "description": chart.about,
        "datasource": _SOURCE,
        "gridPos": place,
        "fieldConfig": {"defaults": defaults, "overrides": []},
        "options": {"legend": {"displayMode": "list", "placement": "bottom"}, "tooltip": {"mode": "multi"}},
        "targets": [
            {"refId": letter, "datasource": _SOURCE, "expr": expr, "legendFormat": legend}
            for letter, (expr, legend) in zip("ABC", chart.queries, strict=False)
        ],
    }


def _chart(sample: str) -> Chart:
    metric = defined(sample)
    labels = tuple(label for label in metric.labels if label not in _LEFT_OUT) or ("instance",)
    unit = (RATES if metric.type == "counter" else UNITS)[metric.unit]
    return Chart(metric.name, metric.about, unit, list(_queries(metric, sample, labels)))


def _queries(metric: Definition, sample: str, labels: tuple[str, ...]) -> Iterator[tuple[str, str]]:
    """Yields expressions and their legends."""
    series, legend = expression(sample, job="~$job"), " ".join(f"{{{{{label}}}}}" for label in labels)
    if metric.type == "counter":
        yield f"sum {by(labels, sample)} (rate({series}[{WINDOW}]))", legend
    elif metric.type == "gauge":
        yield f"max {by(labels, sample)} ({series})", legend
    else:
        rates = f"sum {by(labels, sample)[:-1]}, le) (rate({series}[{WINDOW}]))"
        for quantile in (50, 99):
            yield f"histogram_quantile(0.{quantile}, {rates})", f"p{quantile} {legend}"
