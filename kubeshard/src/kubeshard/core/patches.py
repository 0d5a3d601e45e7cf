"""Patches: computing and building them, and applying merge patches, without a server.

The types `MergePatch`, `JsonPatch` and `ApplyPatch` select the content type of a patch. The functions work
on JSON-able values (dicts, lists, strings, numbers, None) and never change their arguments. Sources: RFC 7386
(merge patch), RFC 6902 (JSON Patch), RFC 6901 (pointers).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

__all__ = [
    "ApplyPatch",
    "JsonPatch",
    "MergePatch",
    "add",
    "json_patch",
    "merge_patch",
    "remove",
    "replace",
    "test",
]


_MAPS, _LISTS = (dict, Mapping), (list, tuple)
"""A dict first: an abstract class has to be asked in Python."""


@dataclass(frozen=True, slots=True)
class MergePatch:
    """RFC 7386: maps are merged, None removes, everything else (lists too) replaces."""

    body: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class JsonPatch:
    """RFC 6902: all operations, in order, or none. A `test` is checked against the live object, atomically."""

    ops: Sequence[Mapping[str, Any]]


@dataclass(frozen=True, slots=True)
class ApplyPatch:
    """Server-side apply of exactly these fields; fields applied before and absent now are removed."""

    body: Mapping[str, Any]


def merge_patch(base: Any, desired: Any) -> dict[str, Any]:
    """The smallest merge patch that turns `base` into `desired`, in which None means "absent"."""
    patch: dict[str, Any] = {key: None for key in base if key not in desired}
    for key, value in desired.items():
        if key not in base:
            if value is not None:
                patch[key] = value
        elif value is (have := base[key]):
            continue  # most values have not been touched
        elif isinstance(value, _MAPS) and isinstance(have, _MAPS):
            if inner := merge_patch(have, value):
                patch[key] = inner
        elif not json_equal(value, have):
            patch[key] = value
    return patch


def json_patch(base: Any, desired: Any, *path: str) -> Iterator[dict[str, Any]]:
    """Operations that turn the map `base` at the path into `desired`. Lists are replaced as a whole."""
    for key in base:
        if key not in desired:
            yield remove(pointer(*path, key))
    for key, value in desired.items():
        if key not in base:
            yield add(pointer(*path, key), value)
        elif isinstance(value, Mapping) and isinstance(base[key], Mapping):
            yield from json_patch(base[key], value, *path, key)
        elif not json_equal(value, base[key]):
            yield replace(pointer(*path, key), value)


def apply_merge_patch(document: Any, patch: Any) -> Any:
    """The document after a merge patch (RFC 7386, section 2)."""
    if not isinstance(patch, Mapping):
        return _copied(patch)
    merged = dict(document) if isinstance(document, Mapping) else {}
    for key, value in patch.items():
        if value is None:
            merged.pop(key, None)
        else:
            merged[key] = apply_merge_patch(merged.get(key), value)
    return merged


def pointer(*parts: str | int) -> str:
    """From unescaped parts: `pointer("metadata", "labels", "a/b")` is `/metadata/labels/a~1b`."""
    return "".join("/" + str(part).replace("~", "~0").replace("/", "~1") for part in parts)


def add(path: str, value: Any) -> dict[str, Any]:
    """Sets a member (its parent must exist), or inserts into a list at an index or at its end (`-`)."""
    return {"op": "add", "path": path, "value": value}


def replace(path: str, value: Any) -> dict[str, Any]:
    return {"op": "replace", "path": path, "value": value}


def remove(path: str) -> dict[str, Any]:
    return {"op": "remove", "path": path}


def test(path: str, value: Any) -> dict[str, Any]:
    """The whole patch is rejected unless the value is equal; None also matches an absent member."""
    return {"op": "test", "path": path, "value": value}


test.__test__ = False  # type: ignore[attr-defined] # the operation's name is the RFC's; pytest must not collect it


def json_equal(a: Any, b: Any) -> bool:
    """JSON equality: in Python, True equals 1."""
    if a is b:
        return True
    if isinstance(a, str):
        return bool(a == b)  # most values are text
    if isinstance(a, bool) or isinstance(b, bool):
        return False
    if isinstance(a, _LISTS):
        return isinstance(b, _LISTS) and len(a) == len(b) and all(map(json_equal, a, b))
    if isinstance(a, _MAPS):
        return (
            isinstance(b, _MAPS)
            and a.keys() == b.keys()
            and all(json_equal(value, b[key]) for key, value in a.items())
        )
    return bool(a == b)


def _copied(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _copied(inner) for name, inner in value.items()}
    return [*map(_copied, value)] if isinstance(value, (list, tuple)) else value
