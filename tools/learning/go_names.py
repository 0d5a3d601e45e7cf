"""Learns Go's names of field types from the server's error messages about values of the wrong type."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterable
from typing import Any

from learning.asking import Asker
from learning.ways import Place, Types, Way, unwrapped, ways

_UNFIT = re.compile(r"Go struct field (\w+)\.(\S+) of type (\S+)$")
_GO = {"bytes": "[]uint8", "time": "string", "micro-time": "string", "int-or-string": "int32"}
_SILENT = ("any", "quantity", "schema-or-array", "schema-or-bool", "schema-or-strings")
"""Types whose errors have another form, or which accept everything."""
_AT_ONCE = 16


async def learn_go_names(ask: Asker, places: Iterable[Place], types: Types) -> None:
    """In place: `go`, a type's unexpected name, and `embedded`, what a field is promoted from, with a dot."""
    limit = asyncio.Semaphore(_AT_ONCE)
    found = ways(iter(places), types)
    prefixes: dict[str, str] = {}

    async def look(struct: str, field: str) -> None:
        markers = types[struct]["fields"][field]
        around, inner = unwrapped(markers["type"])
        way = found[struct]
        if (not around and inner in _SILENT) or (not way.steps and field in ("apiVersion", "kind")):
            return
        wrong: Any = 1 if inner == "string" or inner in ("bytes", "time", "micro-time") else "x"
        body = way.body({field: True if around or inner == "int-or-string" else wrong})
        async with limit:
            said = await ask.ask(way.place.method, f"{way.place.path}?dryRun=All", body)
        told = _UNFIT.search(said.body.get("message", ""))
        if told is None:
            raise LookupError(f"{struct}.{field}: {said}")
        path, go = told[2], told[3]
        if go != _derived(markers["type"], types):
            markers["go"] = go
        own = path.removesuffix(field)
        if own != prefixes[struct]:
            markers["embedded"] = own.removeprefix(prefixes[struct])

    by_depth = sorted(found, key=lambda name: len(found[name].steps))
    for depth in range(len(found[by_depth[-1]].steps) + 1):
        level = [name for name in by_depth if len(found[name].steps) == depth]
        for name in level:
            prefixes[name] = _prefix(found[name], types)
        await asyncio.gather(*(look(name, field) for name in level for field in types[name]["fields"]))


def _prefix(way: Way, types: Types) -> str:
    """How messages begin the path of a struct's fields."""
    name, path = way.place.type, ""
    for field, _ in way.steps:
        markers = types[name]["fields"][field]
        path += f"{markers.get('embedded', '')}{field}."
        name = unwrapped(markers["type"])[1]
    return path


def _derived(expression: str, types: Types) -> str:
    """The type's name as its notation suggests."""
    expression = expression.lstrip("*")
    for form in ("[]", "map[string]"):
        if expression.startswith(form):
            return form + _derived(expression.removeprefix(form), types)
    if expression in types:
        return expression.partition(".")[2]
    return _GO.get(expression, expression)
