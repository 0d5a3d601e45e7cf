"""The table of metrics as Markdown: the part of docs/metrics.md that is generated from the definitions."""

from __future__ import annotations

from collections.abc import Iterator

from kubeshard.metrics.declared import PARTS


def tables() -> str:
    """A heading and a table for each part, as Markdown."""
    return "\n".join(_lines())


def _lines() -> Iterator[str]:
    for title, metrics in PARTS.items():
        yield f"## {title}\n"
        yield "| metric | type | labels | exposed by | |"
        yield "|---|---|---|---|---|"
        for metric in metrics:
            labels = ", ".join(f"`{label}`" for label in metric.labels)
            yield f"| `{metric.name}` | {metric.type} | {labels} | {metric.side} | {metric.about} |"
        yield ""
