"""Learns which empty fields the server's encoder writes: the audit log shows every object as it was decoded."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from learning.asking import Asker
from learning.ways import Place, Types, unwrapped

AUDIT_POLICY = {
    "apiVersion": "audit.k8s.io/v1",
    "kind": "Policy",
    "rules": [{"level": "Request", "verbs": ["create", "update", "delete"]}],
}
_ZEROS: dict[str, Any] = {"string": "", "bool": False, "int32": 0, "int64": 0, "float64": 0}
_SAID = {"sessionAffinity": "ClientIP"}
"""Fields without which the server drops other fields."""
_MARK = "fieldManager"
_DEEPEST = 5
_ALL = 100


async def learn_zeros(ask: Asker, places: Iterable[Place], types: Types, audit_log: Path) -> None:
    """`*` remains on plain types written when zero; `always`: lists, maps, times written when absent. Plain types
    that have their zero as a default, and are not written then, keep it: in keys of lists it stands for a missing one.
    """
    bodies: dict[str, tuple[str, bool, Any]] = {}
    for number, place in enumerate(places):
        bodies[f"{number}-zero"] = (place.type, True, _filled(place.type, types, (), zeros=True))
        for depth in range(_DEEPEST):
            body = _filled(place.type, types, (), zeros=False, lists=depth)
            bodies[f"{number}-{depth}"] = (place.type, False, body)
        for mark in (mark for mark in bodies if mark.startswith(f"{number}-")):
            body = {**bodies[mark][2], "metadata": {"name": "x"}}
            await ask.ask(place.method, f"{place.path}?dryRun=All&{_MARK}={mark}", body)
    decoded = _decoded(audit_log)
    kept: set[tuple[str, str, bool]] = set()
    written: set[tuple[str, str, bool]] = set()
    left_out: set[tuple[str, str, bool]] = set()
    for mark, (root, given, body) in bodies.items():
        for fact in _empty(root, types, body, decoded.get(mark), given=given):
            (kept if given else written if fact[-1] else left_out).add(fact)
    for name, struct in types.items():
        for field, markers in struct["fields"].items():
            plain = markers["type"].lstrip("*") in _ZEROS
            if plain and markers["type"].startswith("*") and (name, field, True) not in kept:
                markers["type"] = markers["type"][1:]
            if not plain and "int-or-string" not in markers["type"] and (name, field, True) in written:
                markers |= {"always": True, "type": markers["type"].lstrip("*")}
            elif (name, field, False) in left_out:
                was_always = markers.pop("always", False)
                if was_always and plain and not markers.get("required"):
                    markers["default"] = _ZEROS[markers["type"]]


def _filled(
    name: str, types: Types, within: tuple[str, ...], *, zeros: bool, lists: int = _ALL
) -> dict[str, Any]:
    """Every struct once on each path, behind few lists and maps. Its plain fields are zero or missing."""
    body: dict[str, Any] = {}
    for field, markers in types[name]["fields"].items():
        around, inner = unwrapped(markers["type"])
        value: Any = None
        if inner in types and inner not in within and len(around) <= lists:
            value = _filled(inner, types, (*within, inner), zeros=zeros, lists=lists - len(around))
        elif zeros and not around and inner in _ZEROS:
            value = _SAID.get(field, _ZEROS[inner])
        if value is not None:
            for form in reversed(around):
                value = [value] if form == "l" else {"a": value}
            body[field] = value
    return body


def _empty(
    name: str, types: Types, body: Any, decoded: Any, *, given: bool
) -> Iterator[tuple[str, str, bool]]:
    """For the fields that were sent, or for those that were not: whether they are written although they are empty."""
    if not isinstance(body, dict) or not isinstance(decoded, dict):
        return
    for field, markers in types[name]["fields"].items():
        around, inner = unwrapped(markers["type"])
        if (field in body) == given and not decoded.get(field):
            yield name, field, field in decoded
        ours, theirs = body.get(field), decoded.get(field)
        for form in around:
            ours, theirs = _first(ours, form), _first(theirs, form)
        if inner in types:
            yield from _empty(inner, types, ours, theirs, given=given)


def _first(value: Any, form: str) -> Any:
    if form == "l":
        return value[0] if isinstance(value, list) and value else None
    return value.get("a") if isinstance(value, dict) else None


def _decoded(audit_log: Path) -> dict[str, Any]:
    """The decoded objects by their mark."""
    found = {}
    for line in audit_log.read_text().splitlines():
        event = json.loads(line)
        if event["stage"] == "ResponseComplete" and _MARK in event["requestURI"]:
            found[event["requestURI"].rpartition("=")[2]] = event.get("requestObject")
    return found
