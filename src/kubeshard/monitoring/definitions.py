"""The table of metrics. Rules, dashboards and docs/metrics.md are made of it; a test holds it to what a sharder and a
shard expose.

`expression` and `matching` are how the other modules name metrics: they know no name and no label that is not here.
"""

from __future__ import annotations

from collections.abc import Iterable

from kubeshard.monitoring.definition import Definition
from kubeshard.monitoring.of_processes import CACHES, CONTROLLERS, PROCESSES, QUEUES
from kubeshard.monitoring.of_sharding import RINGS, SHARDS, WEBHOOKS

PARTS = {
    "Rings": RINGS,
    "Shards": SHARDS,
    "Webhooks": WEBHOOKS,
    "Controllers": CONTROLLERS,
    "Work queues": QUEUES,
    "Caches": CACHES,
    "Processes": PROCESSES,
}

METRICS: tuple[Definition, ...] = tuple(metric for part in PARTS.values() for metric in part)

_BY_SAMPLE = {sample: metric for metric in METRICS for sample in metric.samples}


def defined(sample: str) -> Definition:
    """The metric of a series' name. Raises KeyError for one that nobody exposes."""
    return _BY_SAMPLE[sample]


def expression(sample: str, **matchers: str) -> str:
    """A selector of series, by values of labels; one that begins with `~` is a regular expression. Raises KeyError for
    a name or label that nobody exposes.
    """
    metric = defined(sample)
    if unknown := matchers.keys() - _labels(metric):
        raise KeyError(f"{sample} has no label {', '.join(sorted(unknown))}")
    return sample + matching(**matchers)


def matching(**matchers: str) -> str:
    """`{a="b",c=~"d"}`, or nothing."""
    parts = [
        f'{label}=~"{value[1:]}"' if value.startswith("~") else f'{label}="{value}"'
        for label, value in matchers.items()
    ]
    return f"{{{','.join(parts)}}}" if parts else ""


def by(labels: Iterable[str], *samples: str) -> str:
    """` by (a, b) `, of labels that all the series have. Raises KeyError."""
    chosen = tuple(labels)
    for sample in samples:
        if unknown := set(chosen) - _labels(defined(sample)):
            raise KeyError(f"{sample} has no label {', '.join(sorted(unknown))}")
    return f"by ({', '.join(chosen)})"


TARGET = ("instance", "job", "pod", "namespace")
"""What Prometheus adds to every series."""


def _labels(metric: Definition) -> set[str]:
    return {*metric.labels, *TARGET}
