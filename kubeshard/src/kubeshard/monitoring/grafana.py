"""Dashboards for Grafana: an overview of what a person asks first, and below it a row for each part of the program.

| type | panel |
|---|---|
| counter | the rate per second, by label |
| gauge | the maximum over the processes, by label, because the sharder's replicas expose the same values |
| histogram | the 50th and the 99th percentile, by label |

Titles are in words, and the name of the metric is in the description. Labels that would add a line for each object,
host or process are left out. Everything can be restricted to rings, jobs and instances.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Literal, NamedTuple

from kubeshard.metrics.declared import Definition, defined
from kubeshard.monitoring.promql import by, expression

WINDOW = "$__rate_interval"
COLUMNS, WIDTH, HEIGHT = 3, 8, 7
WHOLE, STAT_WIDTH, STAT_HEIGHT = 24, 4, 4

UNITS = {"seconds": "s", "bytes": "bytes", "": "short"}
RATES = {"seconds": "percentunit", "bytes": "Bps", "": "ops"}


class Row(NamedTuple):
    title: str
    panels: Mapping[str, str]
    """The series of each panel, by the panel's title; for a histogram, its `_bucket`."""


SHARDER = (
    Row(
        "Rings and shards",
        {
            "Available shards": "controller_sharding_controllerring_status_available_shards",
            "Shards with a Lease": "controller_sharding_controllerring_status_shards",
            "Shards by state": "controller_sharding_shard_state",
            "Shards declared dead": "controller_sharding_takeovers_total",
            "Shards evicted": "controller_sharding_evictions_total",
            "Rings whose shards fail together": "controller_sharding_shards_failing_together",
            "Objects of shards that are not confirmed to have ended": "controller_sharding_objects_unconfirmed",
            "Duration of a resync": "controller_sharding_resync_duration_seconds_bucket",
        },
    ),
    Row(
        "Moving objects",
        {
            "Objects moved": "controller_sharding_movements_total",
            "Drains requested": "controller_sharding_drains_total",
            "Drains that are pending": "controller_sharding_drains_pending",
            "Age of the oldest drain": "controller_sharding_oldest_drain_seconds",
            "Objects without a shard": "controller_sharding_objects_unassigned",
            "Objects that are not sharded": "controller_sharding_objects_not_sharded",
            "Moves that failed": "controller_sharding_move_failures_total",
            "Assignments by ranges that cannot be used": "controller_sharding_assignment_unusable",
        },
    ),
    Row(
        "Webhook",
        {
            "Objects assigned when created": "controller_sharding_assignments_total",
            "Objects assigned later": "controller_sharding_late_assignments_total",
            "Objects let through without a shard": "controller_sharding_webhook_unassigned_total",
            "Reviews": "controller_runtime_webhook_requests_total",
            "Duration of a review": "controller_runtime_webhook_latency_seconds_bucket",
            "Reviews under way": "controller_runtime_webhook_requests_in_flight",
        },
    ),
)

SHARDS = (
    Row(
        "Leases and hand-over",
        {
            "Time left to work without renewal": "controller_sharding_lease_margin_seconds",
            "Renewals of Leases": "controller_sharding_lease_renewals_total",
            "Renewals that failed": "controller_sharding_lease_renewal_failures_total",
            "Objects released on request": "controller_sharding_drains_acknowledged_total",
            "Time until an object is released": "controller_sharding_drain_acknowledgement_seconds_bucket",
            "Writes refused by the fence": "controller_sharding_refused_writes_total",
            "Writes without a fence": "controller_sharding_unfenced_writes_total",
            "Buckets of a ring by ranges": "controller_sharding_buckets",
        },
    ),
)

PROCESSES = (
    Row(
        "Reconciles",
        {
            "Reconciles by result": "controller_runtime_reconcile_total",
            "Duration of a reconcile": "controller_runtime_reconcile_time_seconds_bucket",
            "Workers that are busy": "controller_runtime_active_workers",
            "Objects that wait for a worker": "workqueue_depth",
            "Time waited for a worker": "workqueue_queue_duration_seconds_bucket",
            "Longest reconcile under way": "workqueue_longest_running_processor_seconds",
            "Controllers that wait for a kind": "kubeshard_controller_waiting",
            "Reconciles beyond their deadline": "kubeshard_controller_overdue_reconciles",
            "Reasons for reconciles": "kubeshard_controller_reconcile_causes_total",
        },
    ),
    Row(
        "Processes",
        {
            "Requests to the API server": "rest_client_requests_total",
            "Duration of a request": "rest_client_request_duration_seconds_bucket",
            "Leaders": "leader_election_master_status",
            "Lag of the event loop": "kubeshard_event_loop_lag_seconds",
            "Blockages of the event loop": "kubeshard_event_loop_blockages_total",
            "Objects in memory": "kubeshard_cache_objects",
            "Silence of watches": "kubeshard_cache_silence_seconds",
            "Lists and watches that failed": "kubeshard_cache_failures_total",
            "Memory": "process_resident_memory_bytes",
            "CPU": "process_cpu_seconds_total",
        },
    ),
)

_LEFT_OUT = {"uid", "host", "namespace"}


class Step(NamedTuple):
    """A colour from a value on; the first step is from the beginning on."""

    value: float | None
    colour: Literal["green", "yellow", "red"]


class Chart(NamedTuple):
    title: str
    about: str
    unit: str
    queries: Sequence[tuple[str, str]]
    limit: float | None = None
    """Drawn as a line, if there is one."""
    number: tuple[Step, ...] = ()
    """If there are steps, the panel shows the present value, in the colour of the last step that it has reached."""
    wide: bool = False


GOOD_AT_ZERO = (Step(None, "green"), Step(1, "yellow"), Step(100, "red"))


def dashboards() -> dict[str, dict[str, Any]]:
    """The dashboards by name, in the form that Grafana imports."""
    return {
        "sharder": dashboard(
            "sharder",
            "kubeshard: sharder and rings",
            {"Overview": list(_rings_now()), **_charts((*SHARDER, *PROCESSES))},
            [_JOB, _INSTANCE, _RING],
        ),
        "operators": dashboard(
            "operators",
            "kubeshard: operators",
            {"Overview": list(_operators_now()), **_charts((*SHARDS, *PROCESSES))},
            [_JOB, _INSTANCE, _RING],
        ),
    }


def _charts(rows: Sequence[Row]) -> dict[str, list[Chart]]:
    return {row.title: [_chart(title, sample) for title, sample in row.panels.items()] for row in rows}


def _of_rings(sample: str, of: str = "max") -> str:
    """Over all processes, by ring."""
    labels = ("controllerring",)
    return f"{of} {by(labels, sample)} ({expression(sample, **_chosen(sample))})"


def _rings_now() -> Iterator[Chart]:
    available = "controller_sharding_controllerring_status_available_shards"
    shards = "controller_sharding_controllerring_status_shards"
    yield Chart(
        "Available shards",
        "Shards that hold their Lease, by ring. Without any, nothing works on the ring's objects.",
        "short",
        [(_of_rings(available), "{{controllerring}}")],
        number=(Step(None, "red"), Step(1, "yellow"), Step(2, "green")),
    )
    yield Chart(
        "Shards that are not available",
        "Leases of shards that have expired, or were released or taken over.",
        "short",
        [(f"({_of_rings(shards)}) - ({_of_rings(available)})", "{{controllerring}}")],
        number=(Step(None, "green"), Step(1, "yellow")),
    )
    unassigned, drains = "controller_sharding_objects_unassigned", "controller_sharding_drains_pending"
    yield Chart(
        "Objects without a shard",
        "As of the last resync.",
        "short",
        [(_sum_of_maxima(unassigned), "{{controllerring}}")],
        number=GOOD_AT_ZERO,
    )
    yield Chart(
        "Drains that are pending",
        "Objects whose shard was asked to release them, as of the last resync.",
        "short",
        [(_sum_of_maxima(drains), "{{controllerring}}")],
        number=(Step(None, "green"), Step(1000, "yellow")),
    )
    yield Chart(
        "Age of the oldest drain",
        "A minute is long: see the alert KubeshardDrainStuck.",
        "s",
        [(_of_rings("controller_sharding_oldest_drain_seconds"), "{{controllerring}}")],
        number=(Step(None, "green"), Step(30, "yellow"), Step(60, "red")),
    )
    latency = "controller_runtime_webhook_latency_seconds_bucket"
    quantile = (
        f"histogram_quantile(0.99, sum by (le) (rate({expression(latency, **_chosen(latency))}[{WINDOW}])))"
    )
    yield Chart(
        "Webhook, 99th percentile",
        "How long the creation of an object waits for the sharder.",
        "s",
        [(quantile, "p99")],
        number=(Step(None, "green"), Step(0.1, "yellow"), Step(1, "red")),
    )
    leads = "leader_election_master_status"
    leader = f"max {by(('instance', 'name'), leads)} ({expression(leads, name='~sharder(-.+)?', job='~$job')}) == 1"
    yield Chart(
        "Leading sharder",
        "The process that moves objects. All others serve the webhook only.",
        "string",
        [(leader, "{{instance}}")],
        number=(Step(None, "green"),),
    )
    moved = "controller_sharding_movements_total"
    yield Chart(
        "Objects moved in the last hour",
        "To other shards.",
        "short",
        [(f"sum {by(('controllerring',), moved)} (increase({expression(moved, **_chosen(moved))}[1h]))",
          "{{controllerring}}")],
        number=(Step(None, "green"),),
    )  # fmt: skip
    yield _objects_by_shard()


def _operators_now() -> Iterator[Chart]:
    held = "controller_sharding_lease_held"
    yield Chart(
        "Shards at work",
        "Shards that hold their Lease, by ring. None in operators without sharding.",
        "short",
        [
            (
                f"sum {by(('controllerring',), held)} ({expression(held, **_chosen(held))})",
                "{{controllerring}}",
            )
        ],
        number=(Step(None, "red"), Step(1, "yellow"), Step(2, "green")),
    )
    waiting, depth = "kubeshard_controller_waiting", "workqueue_depth"
    yield Chart(
        "Controllers that wait for a kind",
        "It is not installed, or may not be read: see the alert KubeshardKindUnreadable.",
        "short",
        [(f"sum({expression(waiting, **_chosen(waiting))})", "controllers")],
        number=(Step(None, "green"), Step(1, "red")),
    )
    yield Chart(
        "Objects that wait for a worker",
        "Over all controllers and instances.",
        "short",
        [(f"sum({expression(depth, **_chosen(depth))})", "objects")],
        number=(Step(None, "green"), Step(1000, "yellow"), Step(10000, "red")),
    )
    failed = "controller_runtime_reconcile_errors_total"
    yield Chart(
        "Reconciles that fail",
        "Per second, over all controllers.",
        "ops",
        [(f"sum(rate({expression(failed, **_chosen(failed))}[{WINDOW}]))", "failures")],
        number=(Step(None, "green"), Step(0.1, "yellow"), Step(1, "red")),
    )
    waited = "workqueue_queue_duration_seconds_bucket"
    quantile = (
        f"histogram_quantile(0.99, sum by (le) (rate({expression(waited, **_chosen(waited))}[{WINDOW}])))"
    )
    yield Chart(
        "Time waited, 99th percentile",
        "From a change until a worker has it.",
        "s",
        [(quantile, "p99")],
        number=(Step(None, "green"), Step(1, "yellow"), Step(10, "red")),
    )
    lag = "kubeshard_event_loop_lag_seconds"
    yield Chart(
        "Lag of the event loop",
        "The maximum. Above a second: see the alert KubeshardEventLoopBlocked.",
        "s",
        [(f"max({expression(lag, **_chosen(lag))})", "lag")],
        number=(Step(None, "green"), Step(0.2, "yellow"), Step(1, "red")),
    )
    yield _objects_by_shard()


def _objects_by_shard() -> Chart:
    """A shard has in memory what it works on."""
    held, objects = "controller_sharding_lease_held", "kubeshard_cache_objects"
    shards = f"max {by(('instance', 'job', 'shard'), held)} ({expression(held, **_chosen(held))} == 1)"
    query = f"sum by (shard, kind) ({expression(objects)} * on (instance, job) group_left (shard) ({shards}))"
    return Chart(
        "Objects by shard",
        "What each shard has in memory, by kind: its own objects, and those that it looks up.",
        "short",
        [(query, "{{shard}} {{kind}}")],
        wide=True,
    )


def _sum_of_maxima(sample: str) -> str:
    """By ring, over its resources; of these the maximum over all processes."""
    labels = ("controllerring", "group", "resource")
    return f"sum by (controllerring) (max {by(labels, sample)} ({expression(sample, **_chosen(sample))}))"


def dashboard(
    name: str, title: str, rows: Mapping[str, Sequence[Chart]], variables: Sequence[Mapping[str, Any]] = ()
) -> dict[str, Any]:
    """A dashboard with charts in rows by title. Its variables are the data source, and these."""
    panels: list[dict[str, Any]] = []
    y = 0
    for row, charts in rows.items():
        panels.append(
            {"type": "row", "title": row, "collapsed": False, "panels": [], "gridPos": _place(0, y, WHOLE, 1)}
        )
        y, x, height = y + 1, 0, 0
        for chart in charts:
            w, h = (STAT_WIDTH, STAT_HEIGHT) if chart.number else (WHOLE if chart.wide else WIDTH, HEIGHT)
            if x + w > WHOLE or (height and h != height):
                x, y = 0, y + height
            panels.append(_panel(chart, _place(x, y, w, h)))
            x, height = x + w, h
        y += height
    for number, panel in enumerate(panels, start=1):
        panel["id"] = number
    return {
        "uid": f"kubeshard-{name}",
        "title": title,
        "tags": ["kubeshard"],
        "editable": True,
        "graphTooltip": 1,
        "schemaVersion": 39,
        "timezone": "browser",
        "refresh": "30s",
        "time": {"from": "now-1h", "to": "now"},
        "templating": {"list": [_DATA_SOURCE, *variables]},
        "annotations": {"list": []},
        "links": [
            {
                "type": "dashboards",
                "title": "kubeshard",
                "tags": ["kubeshard"],
                "asDropdown": True,
                "includeVars": True,
                "keepTime": True,
                "targetBlank": False,
                "icon": "external link",
                "tooltip": "",
                "url": "",
            }
        ],
        "panels": panels,
    }


def _place(x: int, y: int, w: int, h: int) -> dict[str, int]:
    return {"x": x, "y": y, "w": w, "h": h}


_DATA_SOURCE = {"name": "datasource", "type": "datasource", "query": "prometheus", "label": "Data source"}
_SOURCE = {"type": "prometheus", "uid": "${datasource}"}


def variable(name: str, label: str, query: str) -> dict[str, Any]:
    """Values of a label, of which several can be chosen, or all."""
    return {
        "name": name,
        "type": "query",
        "label": label,
        "datasource": _SOURCE,
        "query": query,
        "multi": True,
        "includeAll": True,
        "allValue": ".*",
        "current": {"text": "All", "value": "$__all"},
        "refresh": 2,
        "sort": 1,
    }


_JOB = variable("job", "Job", f"label_values({expression('kubeshard_build_info')}, job)")
_INSTANCE = variable(
    "instance", "Instance", f"label_values({expression('kubeshard_build_info', job='~$job')}, instance)"
)
_RING = variable(
    "ring",
    "Ring",
    f"label_values({expression('controller_sharding_controllerring_status_shards')}, controllerring)",
)


def _chosen(sample: str) -> dict[str, str]:
    """Matchers for the variables that restrict a series."""
    matchers = {"job": "~$job", "instance": "~$instance"}
    return matchers | ({"controllerring": "~$ring"} if "controllerring" in defined(sample).labels else {})


def _panel(chart: Chart, place: Mapping[str, int]) -> dict[str, Any]:
    defaults: dict[str, Any] = {"unit": chart.unit, "min": 0}
    steps = [*chart.number]
    if chart.limit is not None:
        steps = [Step(None, "green"), Step(chart.limit, "red")]
        defaults["custom"] = {"thresholdsStyle": {"mode": "dashed"}}
    if steps:
        coloured = [{"color": step.colour, "value": step.value} for step in steps]
        defaults["thresholds"] = {"mode": "absolute", "steps": coloured}
    if chart.number:
        del defaults["min"]
    return {
        "type": "stat" if chart.number else "timeseries",
        "title": chart.title,
        "description": chart.about,
        "datasource": _SOURCE,
        "gridPos": place,
        "fieldConfig": {"defaults": defaults, "overrides": []},
        "options": _stat_options(chart) if chart.number else _SERIES_OPTIONS,
        "targets": [
            {
                "refId": letter,
                "datasource": _SOURCE,
                "expr": expr,
                "legendFormat": legend,
                **({"instant": True, "range": False} if chart.number else {}),
            }
            for letter, (expr, legend) in zip("ABC", chart.queries, strict=False)
        ],
    }


_SERIES_OPTIONS: Mapping[str, Any] = {
    "legend": {"displayMode": "list", "placement": "bottom", "showLegend": True, "calcs": []},
    "tooltip": {"mode": "multi", "sort": "desc"},
}


def _stat_options(chart: Chart) -> dict[str, Any]:
    return {
        "reduceOptions": {"calcs": ["lastNotNull"], "fields": "", "values": False},
        "orientation": "auto",
        "textMode": "name" if chart.unit == "string" else "value_and_name",
        "colorMode": "value",
        "graphMode": "none",
        "justifyMode": "auto",
    }


def _chart(title: str, sample: str) -> Chart:
    metric = defined(sample)
    labels = tuple(label for label in metric.labels if label not in _LEFT_OUT) or ("instance",)
    unit = (RATES if metric.type == "counter" else UNITS)[metric.unit]
    return Chart(title, f"{metric.about} ({metric.name})", unit, list(_queries(metric, sample, labels)))


def _queries(metric: Definition, sample: str, labels: tuple[str, ...]) -> Iterator[tuple[str, str]]:
    """Yields expressions and their legends."""
    series, legend = expression(sample, **_chosen(sample)), " ".join(f"{{{{{label}}}}}" for label in labels)
    if metric.type == "counter":
        yield f"sum {by(labels, sample)} (rate({series}[{WINDOW}]))", legend
    elif metric.type == "gauge":
        yield f"max {by(labels, sample)} ({series})", legend
    else:
        rates = f"sum {by(labels, sample)[:-1]}, le) (rate({series}[{WINDOW}]))"
        for quantile in (50, 99):
            yield f"histogram_quantile(0.{quantile}, {rates})", f"p{quantile} {legend}"
