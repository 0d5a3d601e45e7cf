"""Expressions over the declared metrics (`kubeshard.metrics`): unknown names and labels are rejected."""

from __future__ import annotations

from collections.abc import Iterable

from kubeshard.metrics.declared import Definition, defined


def expression(sample: str, **matchers: str) -> str:
    """By label values; `~` begins a regular expression. Raises KeyError for an unknown name or label."""
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
