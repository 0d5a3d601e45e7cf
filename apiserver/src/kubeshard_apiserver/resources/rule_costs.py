"""What the rules of a definition may cost at most: the server refuses definitions whose rules may become too slow.

A rule's cost is that of its expression, as often as the value that it is attached to may be in an object. Where
nothing bounds that, it is as often as the shortest such value fits into a request. Source:
k8s.io/apiextensions-apiserver `pkg/apis/apiextensions/validation`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from kubeshard_apiserver.cel.costs import MOST, Bound, bound_of, cost_of
from kubeshard_apiserver.cel.schema_types import Typed
from kubeshard_apiserver.status import FieldError, forbidden_field

Schema = Mapping[str, Any]

_MOST_OF_RULE = 10_000_000
_MOST_OF_ALL = 100_000_000
_NAMED = 4
"""The rules that are named if all together are too expensive."""
_UNBOUNDED = Bound("dyn", 0, 0)


class Budget:
    """Adds up the costs of a definition's rules. `limits_rules` says whether each has a limit of its own, too."""

    def __init__(self, *, limits_rules: bool = True) -> None:
        self._limits_rules = limits_rules
        self._total = 0
        self._expensive: list[tuple[int, str]] = []

    def rule_errors(self, path: str, typed: Typed, place: PlaceOfRules) -> Iterator[FieldError]:
        yield from self._errors(path, "rule", min(place.cost(typed) * place.times, MOST))

    def message_errors(self, path: str, typed: Typed, place: PlaceOfRules) -> Iterator[FieldError]:
        yield from self._errors(path, "messageExpression", place.cost(typed))

    def total_errors(self, path: str) -> Iterator[FieldError]:
        if self._total > _MOST_OF_ALL:
            problem = (
                "contributed to estimated rule cost total exceeding cost limit for entire OpenAPIv3 schema"
            )
            for _, expensive in self._expensive:
                yield forbidden_field(expensive, problem)
            what = "x-kubernetes-validations estimated rule cost total for entire OpenAPIv3 schema"
            yield forbidden_field(path, _exceeding(what, self._total / _MOST_OF_ALL))

    def _errors(self, path: str, what: str, cost: int) -> Iterator[FieldError]:
        if self._limits_rules and cost > _MOST_OF_RULE:
            yield forbidden_field(path, _exceeding(f"estimated {what} cost", cost / _MOST_OF_RULE))
        self._total = min(self._total + cost, MOST)
        if cost >= _MOST_OF_ALL // 100:
            dearest = sorted((*self._expensive, (cost, path)), key=lambda each: -each[0])
            self._expensive = dearest[:_NAMED]


class PlaceOfRules:
    """Where in a schema rules are. `most` is how often that may be in an object, None if nothing bounds it."""

    def __init__(self, schema: Schema, *, is_root: bool = False, most: int | None = 1) -> None:
        self._schema = schema
        self._is_root = is_root
        self._most = most

    def below(self, schema: Schema) -> PlaceOfRules:
        here, factor = self._schema, None if self._most is None else 1
        if here.get("type") == "array":
            factor = here.get("maxItems")
        elif here.get("type") == "object" and here.get("additionalProperties") is not None:
            factor = here.get("maxProperties")
        bounded = None if factor is None or self._most is None else self._most * max(0, factor)
        return PlaceOfRules(schema, most=bounded)

    @property
    def times(self) -> int:
        return self._bound.cardinality if self._most is None else self._most

    def cost(self, typed: Typed) -> int:
        return cost_of(typed.tree, self._bound, typed.node, is_loose=typed.is_loose)

    @property
    def _bound(self) -> Bound:
        return bound_of(self._schema, is_root=self._is_root) or _UNBOUNDED


def _exceeding(what: str, factor: float) -> str:
    shown = "more than 100x" if factor > 100 else f"{factor:f}x" if factor < 1.5 else f"{factor:.1f}x"
    return (
        f"{what} exceeds budget by factor of {shown} (try simplifying the rule, or adding maxItems, maxProperties, "
        "and maxLength where arrays, maps, and strings are declared)"
    )
