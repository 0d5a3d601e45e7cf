"""The queries that come with kubeshard: load, service levels and resources of an experiment.

They have the file's format, so `kubeshard measure SCENARIO --print` prints a file to begin with. For `scale-out` the
percentiles are cumulative and without limits: when they pass the limits is how much that many instances carry.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import msgspec

from kubeshard.experiment.measuring.queries import RANGE, Query
from kubeshard.experiment.objectives import JOBS, QUANTILE, Matcher, Objective, objectives
from kubeshard.experiment.scenarios import SCENARIOS

CUMULATIVE = {"scale-out"}
WINDOW = "1m"


def queries_of(scenario: str) -> list[Query]:
    """Raises KeyError for a scenario that there is not."""
    if scenario not in SCENARIOS:
        raise KeyError(scenario)
    return [*_load(), *_levels(scenario in CUMULATIVE), *_resources()]


def as_file(queries: Iterable[Query]) -> Mapping[str, Any]:
    """What the file says."""
    return {"queries": [msgspec.to_builtins(query) for query in queries]}


def _load() -> Iterator[Query]:
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
            yield Query(objective.name, _over_the_run(objective), "instant", True, objective.limit)
        elif cumulative:
            yield Query(objective.name, _quantile(objective, _buckets(objective)))
        else:
            yield Query(objective.name, _over_the_run(objective), "instant", False, objective.limit)
            each_minute = _quantile(objective, f"rate({_buckets(objective)}[{WINDOW}])")
            yield Query(f"{objective.name}-{WINDOW}", each_minute)


def _over_the_run(objective: Objective) -> str:
    return _quantile(objective, f"rate({_buckets(objective)}[{RANGE}])")


def _quantile(objective: Objective, buckets: str) -> str:
    return f"histogram_quantile({QUANTILE}, sum by ({', '.join((*objective.by, 'le'))}) ({buckets}))"


def _buckets(objective: Objective) -> str:
    # In a cluster, kube-apiserver is scraped under several names.
    job = () if objective.role == "server" else (Matcher("job", "=", JOBS[objective.role]),)
    return _series(objective.bucket, *job, *objective.matchers)


def _resources() -> Iterator[Query]:
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
