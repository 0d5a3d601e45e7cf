"""A column: its definition, which clients read, and a function from an object to its cell.

Names, types, formats and priorities are those of the real server, since clients display and select by them. The
descriptions are our own. Ages have at most two units and are less precise the longer the duration, as by apimachinery's
`duration.HumanDuration`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from kubeshard.core.times import parse_time
from kubeshard_apiserver.objects import Object

_MINUTE, _HOUR, _DAY = 60, 3600, 86400
_YEAR = 365 * _DAY
_NEVER = "0001-01-01T00:00:00Z"


def human_duration(seconds: float) -> str:
    """Format a duration. Up to two seconds in the future count as zero; anything beyond is `<invalid>`."""
    whole = int(seconds)
    if whole < -1:
        return "<invalid>"
    if whole < 2 * _MINUTE:
        return f"{max(whole, 0)}s"
    if whole < 10 * _MINUTE:
        return _two(whole, _MINUTE, "m", 1, "s")
    if whole < 3 * _HOUR:
        return f"{whole // _MINUTE}m"
    if whole < 8 * _HOUR:
        return _two(whole, _HOUR, "h", _MINUTE, "m")
    if whole < 2 * _DAY:
        return f"{whole // _HOUR}h"
    if whole < 8 * _DAY:
        return _two(whole, _DAY, "d", _HOUR, "h")
    if whole < 2 * _YEAR:
        return f"{whole // _DAY}d"
    if whole < 8 * _YEAR:
        return _two(whole, _YEAR, "y", _DAY, "d")
    return f"{whole // _YEAR}y"


def since(time: str | None, now: float) -> str:
    """Format the time since `time`, a timestamp as on the wire; `<unknown>` if there is none."""
    then = parse_time(time)
    return "<unknown>" if then is None else human_duration(now - then)


def _two(seconds: int, unit: int, name: str, rest_unit: int, rest_name: str) -> str:
    count, rest = seconds // unit, seconds % unit // rest_unit
    return f"{count}{name}{rest}{rest_name}" if rest else f"{count}{name}"


Cell = Callable[[Object, float], Any]
"""Takes an object and the current time in seconds since the epoch, and returns the cell's value."""


@dataclass(frozen=True)
class Column:
    """A column of a table. `wide` gives it priority 1: only `-o wide` shows it."""

    name: str
    cell: Cell
    description: str
    type: str = "string"
    format: str = ""
    wide: bool = False
    priority: int = 0

    @property
    def definition(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "type": self.type,
            "format": self.format,
            "description": self.description,
            "priority": self.priority or int(self.wide),
        }


@dataclass(frozen=True)
class Printer:
    """The columns of a kind.

    `conditions` returns the row's conditions, which mark rows that no longer need attention. `surplus` are columns that
    the server fills but does not define.
    """

    columns: tuple[Column, ...]
    conditions: Callable[[Object], list[dict[str, str]]] | None = None
    surplus: tuple[Column, ...] = ()

    @cached_property
    def definitions(self) -> list[dict[str, Any]]:
        return [column.definition for column in self.columns]

    @cached_property
    def _cells(self) -> tuple[Cell, ...]:
        return tuple(column.cell for column in (*self.columns, *self.surplus))

    def row(self, obj: Object, now: float) -> dict[str, Any]:
        """Return the row, without the object itself."""
        row: dict[str, Any] = {"cells": [cell(obj, now) for cell in self._cells]}
        if self.conditions and (conditions := self.conditions(obj)):
            row["conditions"] = conditions
        return row


def at(obj: Any, path: str, default: Any = None) -> Any:
    """Return the value at a dotted path, or `default` if it or any of its parents is absent or null."""
    for part in path.split("."):
        obj = obj.get(part) if isinstance(obj, Mapping) else None
        if obj is None:
            return default
    return obj


def text(name: str, path: str, description: str, default: str = "", **options: Any) -> Column:
    return Column(name, lambda obj, _: str(at(obj, path) or default), description, **options)


def integer(name: str, path: str, description: str, type_: str = "integer") -> Column:
    return Column(name, lambda obj, _: at(obj, path, 0), description, type_)


def boolean(name: str, path: str, description: str, default: bool = False, type_: str = "boolean") -> Column:
    return Column(name, lambda obj, _: at(obj, path, default), description, type_)


def count(name: str, path: str, description: str) -> Column:
    return Column(name, lambda obj, _: len(at(obj, path, ())), description, "integer")


def name_of(obj: Object, _: float = 0) -> str:
    return str(obj["metadata"].get("name", ""))


def label_selector(selector: Mapping[str, Any] | None) -> str:
    """Return the selector in the form that `kubectl -l` accepts; empty if it selects everything or nothing."""
    selector = selector or {}
    requirements = [(key, f"{key}={value}") for key, value in (selector.get("matchLabels") or {}).items()]
    for expression in selector.get("matchExpressions") or ():
        key, operator = expression["key"], expression["operator"]
        values = ",".join(sorted(expression.get("values") or ()))
        written = {"Exists": key, "DoesNotExist": f"!{key}"}.get(
            operator
        ) or f"{key} {operator.lower()} ({values})"
        requirements.append((key, written))
    return ",".join(written for _, written in sorted(requirements, key=lambda requirement: requirement[0]))


def labels(found: Mapping[str, Any] | None) -> str:
    return ",".join(f"{key}={value}" for key, value in sorted((found or {}).items())) or "<none>"


def selector(path: str) -> Column:
    """Return a column that shows a pod selector as a label selector."""
    return Column(
        "Selector",
        lambda obj, _: label_selector(at(obj, path)) or "<none>",
        "Label selector of its pods",
        wide=True,
    )


def containers(path: str) -> tuple[Column, Column]:
    """Return the columns that show the containers of the pod spec at `path`."""

    def of(name: str) -> Cell:
        return lambda obj, _: ",".join(one.get(name, "") for one in at(obj, f"{path}.containers", ()))

    return (
        Column("Containers", of("name"), "Names of the containers of its pods", wide=True),
        Column("Images", of("image"), "Images of the containers of its pods", wide=True),
    )


def some(items: Sequence[str], limit: int, empty: str, total: int | None = None) -> str:
    """Join the first few items, and append the number of the rest."""
    shown = ",".join(items[:limit])
    total = len(items) if total is None else total
    return f"{shown} + {total - limit} more..." if total > limit else shown or empty


def condition(obj: Object, type_: str) -> Mapping[str, Any]:
    """Return the condition of this type, or an empty mapping if there is none."""
    return next((one for one in at(obj, "status.conditions", ()) if one.get("type") == type_), {})


NAME = Column("Name", name_of, "Name of the object, unique within its kind and namespace", format="name")
CREATED = Column(
    "Created At",
    lambda obj, _: at(obj, "metadata.creationTimestamp", _NEVER),
    "Time of creation",
    "date",
)
AGE = Column(
    "Age",
    lambda obj, now: since(obj["metadata"].get("creationTimestamp"), now),
    "Time since its creation",
)
TEMPLATE = containers("spec.template.spec")
