"""All declared metrics."""

from __future__ import annotations

from collections.abc import Iterator

from kubeshard.metrics.definition import Definition
from kubeshard.metrics.processes import CACHES, CONTROLLERS, PROCESSES, QUEUES
from kubeshard.metrics.sharding import RINGS, SHARDS, WEBHOOKS

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

_BY_NAME = {metric.name: metric for metric in METRICS}
_BY_SAMPLE = {sample: metric for metric in METRICS for sample in metric.samples}


def defined(sample: str) -> Definition:
    """The metric that a series belongs to. Raises KeyError for an unknown name."""
    return _BY_SAMPLE[sample]


def declared(name: str) -> tuple[str, str, tuple[str, ...]]:
    """Name, meaning and labels, as the classes of prometheus_client and `kubeshard.manager.series` take them. Raises
    KeyError for a name that is not declared.
    """
    metric = _BY_NAME[name]
    return metric.name, metric.about, metric.labels


def tables() -> str:
    """The metrics as Markdown, a heading and a table for each part: what docs/metrics.md is generated from."""
    return "\n".join(_table_lines())


def _table_lines() -> Iterator[str]:
    for title, metrics in PARTS.items():
        yield f"## {title}\n"
        yield "| metric | type | labels | exposed by | |"
        yield "|---|---|---|---|---|"
        for metric in metrics:
            labels = ", ".join(f"`{label}`" for label in metric.labels)
            yield f"| `{metric.name}` | {metric.type} | {labels} | {metric.side} | {metric.about} |"
        yield ""
