"""Paths to the structs of the built-in kinds: which request contains one, and where in its body."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

Types = dict[str, dict[str, Any]]
"""The fields of each struct, as in `types.json`."""
_LIST = "[]"
_MAP = "map[string]"


class Place(NamedTuple):
    """A path of the API that accepts bodies of a type."""

    method: str
    path: str
    type: str


class Way(NamedTuple):
    """A path from a body down: names of fields, each with the lists and maps around its value."""

    place: Place
    steps: tuple[tuple[str, str], ...] = ()

    def body(self, value: Any) -> Any:
        """A body with this value at the end of the path."""
        for name, around in reversed(self.steps):
            for form in reversed(around):
                value = [value] if form == "l" else {"a": value}
            value = {name: value}
        return value


def places(kinds: Mapping[str, list[dict[str, Any]]], types: Types) -> Iterator[Place]:
    """One for each type that is the body of a request."""
    found = set()
    for group_version, entries in kinds.items():
        base = f"/apis/{group_version}" if "/" in group_version else f"/api/{group_version}"
        for entry in entries:
            method = "POST" if "create" in entry["verbs"] else "PUT" if "update" in entry["verbs"] else ""
            if method and entry["type"] in types and entry["type"] not in found:
                found.add(entry["type"])
                plural, _, part = entry["name"].partition("/")
                inside = f"{base}/namespaces/default" if entry["namespaced"] else base
                yield Place(
                    method, f"{inside}/{plural}/x/{part}" if part else f"{inside}/{plural}", entry["type"]
                )
    yield Place("DELETE", "/api/v1/namespaces/default/pods/x", "meta.v1.DeleteOptions")


def ways(places: Iterator[Place], types: Types) -> dict[str, Way]:
    """The shortest path to every struct."""
    found = {place.type: Way(place) for place in places}
    queue = list(found)
    for name in queue:
        for field, markers in types[name]["fields"].items():
            around, inner = unwrapped(markers["type"])
            if inner in types and inner not in found:
                found[inner] = Way(found[name].place, (*found[name].steps, (field, around)))
                queue.append(inner)
    return found


def unwrapped(expression: str) -> tuple[str, str]:
    """`l` or `m` for every enclosing list or map, and the innermost type."""
    around = ""
    while True:
        expression = expression.lstrip("*")
        if expression.startswith(_LIST):
            around, expression = around + "l", expression[len(_LIST) :]
        elif expression.startswith(_MAP):
            around, expression = around + "m", expression[len(_MAP) :]
        else:
            return around, expression
