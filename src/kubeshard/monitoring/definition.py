"""What is known of a metric."""

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
    """Who exposes it. What only some of a side's processes do (a leader, one with async handlers) counts as theirs."""
    about: str

    @property
    def samples(self) -> tuple[str, ...]:
        """The names of its series."""
        if self.type == "histogram":
            return tuple(f"{self.name}_{part}" for part in ("bucket", "sum", "count"))
        return (self.name,)

    @property
    def unit(self) -> str:
        """`seconds`, `bytes`, or "" for a plain number."""
        base = self.name.removesuffix("_total")
        return next((unit for unit in ("seconds", "bytes") if base.endswith(f"_{unit}")), "")


def table(side: Side, *rows: tuple[str, Type, str, str]) -> tuple[Definition, ...]:
    """Of rows with name, type, labels and meaning; the labels are one text, as words."""
    return tuple(
        Definition(name, type_, tuple(labels.split()), side, about) for name, type_, labels, about in rows
    )
