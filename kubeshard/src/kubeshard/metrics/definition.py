"""The definition of a metric."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Literal, NamedTuple, get_args

Type = Literal["counter", "gauge", "histogram"]
Side = Literal["sharder", "shard", "both"]
_TYPES: Mapping[str, Type] = {each: each for each in get_args(Type)}


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


def table(side: Side, text: str) -> tuple[Definition, ...]:
    """Definitions from a text: for each metric a line `NAME: TYPE by LABEL LABEL ...`, and indented lines that say what
    it means. Raises KeyError for another type.
    """
    found = []
    for block in re.split(r"\n(?=\S)", text.strip()):
        head, about = block.split("\n", 1)
        name, _, kind = head.partition(": ")
        type_, _, labels = kind.partition(" by ")
        found.append(Definition(name, _TYPES[type_], tuple(labels.split()), side, " ".join(about.split())))
    return tuple(found)
