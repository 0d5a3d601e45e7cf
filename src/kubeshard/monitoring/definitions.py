"""The table of metrics. Rules, dashboards and docs/metrics.md are generated from it, and a test compares it with what a
sharder and a shard expose.

The other modules refer to metrics through `expression` and `matching`, which reject unknown names and labels.
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
    """The metric that a series belongs to. Raises KeyError for an unknown name."""
    return _BY_SAMPLE[sample]


def expression(sample: str, **matchers: str) -> str:
    """A selector of series by label values; a value that begins with `~` is a regular expression. Raises KeyError for
    an unknown name or label.
    """
    metric = defined(sample)
    if unknown := matchers.keys() - _labels(metric):
        raise KeyError(f"{sample} has no label {', '.join(sorted(unknown))}")
    return sample + matching(**matchers)


def matching(**matchers: str) -> str:
    """Label matchers, such as `{a="b",c=~"d"}`; empty without any."""
    parts = [
        f'{label}=~"{value[1:]}"' if value.startswith("~") else f'{label}="{value}"'
        for label, value in matchers.items()
    ]
    return f"{{{','.join(parts)}}}" if parts else ""


def by(labels: Iterable[str], *samples: str) -> str:
    """The clause ` by (a, b) ` for labels that all the series have. Raises KeyError."""
    chosen = tuple(labels)
    for sample in samples:
        if unknown := set(chosen) - _labels(defined(sample)):
            raise KeyError(f"{sample} has no label {', '.join(sorted(unknown))}")
    return f"by ({', '.join(chosen)})"


TARGET = ("instance", "job", "pod", "namespace")
"""Labels that Prometheus adds to every series."""


def _labels(metric: Definition) -> set[str]:
    return {*metric.labels, *TARGET}
