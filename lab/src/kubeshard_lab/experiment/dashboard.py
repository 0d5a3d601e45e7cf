"""The dashboard of experiments for Grafana: load, service levels, processes and moves.

It shows runs in a cluster, and recordings that a Prometheus has imported.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from kubeshard.monitoring.grafana import Chart, dashboard
from kubeshard.monitoring.promql import by, expression
from kubeshard_lab.experiment.measuring.queries import RANGE
from kubeshard_lab.experiment.measuring.standard_queries import WINDOW, load, percentile, resources
from kubeshard_lab.experiment.objectives import objectives

NAME = "experiments"


def experiments() -> dict[str, Any]:
    """The dashboard in the form that Grafana imports."""
    rows = {
        "Load": list(_load()),
        "Service levels": list(_levels()),
        "Processes": list(_processes()),
        "Sharding": list(_sharding()),
    }
    return dashboard(NAME, f"kubeshard: {NAME}", rows)


def _load() -> Iterator[Chart]:
    shards = "sum by (shard) (kube_website_shard) or sum by (subject) (experiment_objects_of_shard)"
    yield Chart(
        "Websites by shard", "Objects that each shard has.", "short", [(shards, "{{shard}}{{subject}}")]
    )
    churn = next(query.query for query in load() if query.name == "website-churn")
    yield Chart("Changes", "Writes of the load, by generator.", "ops", [(churn, "{{controller}}")])
    rates = [(f"sum(experiment_rate_{name})", name) for name in ("wanted", "reached")]
    yield Chart("Rate", "Writes that were due and that were sent; of recordings only.", "ops", rates)


def _levels() -> Iterator[Chart]:
    for objective in objectives():
        legend = " ".join(f"{{{{{label}}}}}" for label in objective.by) or "p99"
        queries = [(percentile(objective, WINDOW), f"{legend}, {WINDOW}")]
        if not objective.by:
            queries.append((percentile(objective, RANGE), f"{legend}, all shown"))
        about = f"At most {objective.limit:g} s over the whole run, which the time range should be."
        yield Chart(objective.title, about, "s", queries, objective.limit)


def _processes() -> Iterator[Chart]:
    units = {"cpu": "percentunit", "memory": "bytes", "network-receive": "Bps", "network-transmit": "Bps"}
    for query in resources():
        about = "Of each operator and sharder."
        yield Chart(query.name, about, units[query.name], [(query.query, "{{instance}}")])


def _sharding() -> Iterator[Chart]:
    for title, sample in (
        ("Moves", "controller_sharding_movements_total"),
        ("Drains", "controller_sharding_drains_total"),
    ):
        of = ("controllerring", "resource")
        query = f"sum {by(of, sample)} (rate({expression(sample)}[{WINDOW}]))"
        yield Chart(title, f"{title} per second, by resource.", "ops", [(query, "{{resource}}")])
    sample = "controller_sharding_controllerring_status_available_shards"
    query = f"max {by(('controllerring',), sample)} ({expression(sample)})"
    yield Chart("Available shards", "Shards that get objects.", "short", [(query, "{{controllerring}}")])
