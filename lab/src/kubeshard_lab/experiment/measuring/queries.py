"""The file of queries: what to ask a Prometheus, and which limits the answers have."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from difflib import get_close_matches
from typing import Any, Literal, NamedTuple

import msgspec

from kubeshard.core.errors import ConfigurationError

RANGE = "$__range"
"""In an instant query, it stands for the time between start and end."""


class Query(msgspec.Struct, frozen=True, omit_defaults=True):
    """What a Prometheus is asked. Other than a range query, an instant one is answered for the end only."""

    name: str
    """Of the file that the answer is written to."""
    query: str
    type: Literal["range", "instant"] = "range"
    optional: bool = False
    """Whether there may be no answer."""
    slo: float | None = None
    """What no value may exceed."""


class Window(NamedTuple):
    """Unix times, and the seconds between the points of a range query."""

    start: float
    end: float
    step: float

    @property
    def range(self) -> str:
        """As a duration of PromQL, which has no fractions."""
        return f"{round((self.end - self.start) * 1000)}ms"


class Queries(NamedTuple):
    queries: Sequence[Query]
    unknown: Sequence[str]
    """A sentence for each field that is ignored."""


def parse_queries(documents: Sequence[Any], source: str) -> Queries:
    first = documents[0] if documents else None
    if not isinstance(first, dict) or not isinstance(first.get("queries"), list) or not first["queries"]:
        raise ConfigurationError(f"{source}: no list of queries: it begins with `queries:`")
    queries, unknown = [], [_ignored("", name, ["queries"]) for name in first if name != "queries"]
    for number, given in enumerate(first["queries"]):
        try:
            query = msgspec.convert(given, Query, strict=False)
        except msgspec.ValidationError as error:
            raise ConfigurationError(f"{source}: queries[{number}]: {error}") from error
        if not query.name or not query.query.strip():
            raise ConfigurationError(f"{source}: queries[{number}]: name and query must not be empty")
        queries.append(query)
        fields = Query.__struct_fields__
        unknown += [
            _ignored(f"query {query.name}: ", str(name), fields) for name in given if name not in fields
        ]
    for name, count in Counter(query.name for query in queries).items():
        if count > 1:
            raise ConfigurationError(
                f"{source}: {count} queries have the name {name}: they would write the same file"
            )
    return Queries(queries, unknown)


def _ignored(where: str, name: str, known: Sequence[str]) -> str:
    close = get_close_matches(name, known, n=1)
    return f"{where}field {name} is unknown and ignored" + (f"; did you mean {close[0]}?" if close else "")
