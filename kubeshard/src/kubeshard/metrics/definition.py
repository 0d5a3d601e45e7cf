"""The definition of a metric."""

from __future__ import annotations

from typing import Literal, NamedTuple

Type = Literal["counter", "gauge", "histogram"]
Side = Literal["sharder", "shard", "both"]


class Definition(NamedTuple):
    """A metric. A counter's name ends in `_total`; a histogram has the series `_bucket`, `_sum` and `_count`."""

    name: str
    type: Type
    labels: tuple[str, ...]
    side: Side
    """The side that exposes it, even if only some of its processes do (a leader, one with async handlers)."""
    about: str

    @property
    def samples(self) -> tuple[str, ...]:
        if self.type == "histogram":
            return tuple(f"{self.name}_{part}" for part in ("bucket", "sum", "count"))
        return (self.name,)

    @property
    def unit(self) -> str:
        """The unit: `seconds`, `bytes`, or "" for a plain number."""
        base = self.name.removesuffix("_total")
        return next((unit for unit in ("seconds", "bytes") if base.endswith(f"_{unit}")), "")


def table(side: Side, *rows: tuple[str, Type, str, str]) -> tuple[Definition, ...]:
    """Definitions from rows of name, type, labels and meaning. The labels are one string of words."""
    return tuple(
        Definition(name, type_, tuple(labels.split()), side, about) for name, type_, labels, about in rows
    )
