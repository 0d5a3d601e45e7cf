"""The queries that come with kubeshard: load, service levels and resources of an experiment.

They have the file's format, so `kubeshard measure SCENARIO --print` prints a file to begin with. For `scale-out` the
percentiles are cumulative and without limits: when they pass the limits is how much that many instances carry.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import msgspec

from kubeshard_lab.experiment.measuring.queries import RANGE, Query
from kubeshard_lab.experiment.objectives import JOBS, QUANTILE, Matcher, Objective, objectives
from kubeshard_lab.experiment.scenarios import SCENARIOS

CUMULATIVE = {"scale-out"}
WINDOW = "1m"


def queries_of(scenario: str) -> list[Query]:
    """Raises KeyError for a scenario that there is not."""
    if scenario not in SCENARIOS:
        raise KeyError(scenario)
    return [*load(), *_levels(scenario in CUMULATIVE), *resources()]


def as_file(queries: Iterable[Query]) -> Mapping[str, Any]:
    return {"queries": [msgspec.to_builtins(query) for query in queries]}


def load() -> Iterator[Query]:
    reconciles = _series(
        "controller_runtime_reconcile_total",
        Matcher("job", "=", JOBS["tool"]),
        Matcher("result", "!=", "error"),
        Matcher("controller", "=~", "website-(generator|mutator|deleter)"),
    )
    yield Query("website-count", "sum(kube_website_info) or sum(experiment_objects_of_shard)", optional=True)
    yield Query("website-churn", f"sum by (controller) (rate({reconciles}[{WINDOW}]))")


def _levels(cumulative: bool) -> Iterator[Query]:
    for objective in objectives():
        if objective.role == "server":
            yield Query(objective.name, percentile(objective, RANGE), "instant", True, objective.limit)
        elif cumulative:
            yield Query(objective.name, percentile(objective))
        else:
            yield Query(objective.name, percentile(objective, RANGE), "instant", False, objective.limit)
            yield Query(f"{objective.name}-{WINDOW}", percentile(objective, WINDOW))


def percentile(objective: Objective, window: str | None = None) -> str:
    """The expression for what was counted in that time or, without one, since the processes started."""
    # In a cluster, kube-apiserver is scraped under several names.
    job = () if objective.role == "server" else (Matcher("job", "=", JOBS[objective.role]),)
    buckets = _series(objective.bucket, *job, *objective.matchers)
    counts = f"rate({buckets}[{window}])" if window else buckets
    return f"histogram_quantile({QUANTILE}, sum by ({', '.join((*objective.by, 'le'))}) ({counts}))"


def resources() -> Iterator[Query]:
    """By process. In a recording they are what the experiment saw, elsewhere what the processes say of themselves."""
    job = Matcher("job", "=~", "|".join((JOBS["operator"], JOBS["sharder"])))
    for name, metric, rate in (
        ("cpu", "cpu_seconds_total", True),
        ("memory", "resident_memory_bytes", False),
        ("network-receive", "receive_bytes_total", True),
        ("network-transmit", "transmit_bytes_total", True),
    ):
        sources = [_series(f"{prefix}process_{metric}", job) for prefix in ("experiment_", "")]
        if name.startswith("network"):
            sources = sources[:1]
        terms = [f"rate({source}[{WINDOW}])" if rate else source for source in sources]
        yield Query(
            name, f"sum by (job, instance) ({' or '.join(terms)})", optional=name.startswith("network")
        )


def _series(name: str, *matchers: Matcher) -> str:
    return f"{name}{{{','.join(map(str, matchers))}}}"
