"""Columns: a definition that clients read, and a function from an object to its cell.

Names, types, formats and priorities are those of the real server, since clients show and select by them; the
descriptions are our own.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from kubeshard_apiserver.objects import Object
from kubeshard_apiserver.printing.durations import since

Cell = Callable[[Object, float], Any]
"""From an object and the time in seconds since the epoch."""


@dataclass(frozen=True)
class Column:
    """`wide`: of priority 1, shown by `-o wide` only."""

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
    """`conditions`: those of a row, which say that a line needs no attention any more. `surplus`: columns
    that the server fills but does not define.
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
        """Without the object itself."""
        row: dict[str, Any] = {"cells": [cell(obj, now) for cell in self._cells]}
        if self.conditions and (conditions := self.conditions(obj)):
            row["conditions"] = conditions
        return row


def at(obj: Any, path: str, default: Any = None) -> Any:
    """The value under a dotted path; `default` where it, or something above it, is absent or null."""
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
    """The form that `kubectl -l` accepts; empty for a selector of everything or of nothing."""
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
    """Of pods, as a label selector."""
    return Column(
        "Selector",
        lambda obj, _: label_selector(at(obj, path)) or "<none>",
        "Label selector of the pods that it concerns",
        wide=True,
    )


def containers(path: str) -> tuple[Column, Column]:
    """Of the pod spec at `path`."""

    def of(name: str) -> Cell:
        return lambda obj, _: ",".join(one.get(name, "") for one in at(obj, f"{path}.containers", ()))

    return (
        Column("Containers", of("name"), "Names of the containers of its pods", wide=True),
        Column("Images", of("image"), "Images of the containers of its pods", wide=True),
    )


def some(items: Sequence[str], limit: int, empty: str, total: int | None = None) -> str:
    """The first few, and the number of the others."""
    shown = ",".join(items[:limit])
    total = len(items) if total is None else total
    return f"{shown} + {total - limit} more..." if total > limit else shown or empty


def condition(obj: Object, type_: str) -> Mapping[str, Any]:
    """The status of a condition; empty if there is none of this type."""
    return next((one for one in at(obj, "status.conditions", ()) if one.get("type") == type_), {})


NAME = Column(
    "Name", name_of, "What the object is called; unique for its kind in its namespace", format="name"
)
AGE = Column(
    "Age",
    lambda obj, now: since(obj["metadata"].get("creationTimestamp"), now),
    "Time since its creation",
)
TEMPLATE = containers("spec.template.spec")
