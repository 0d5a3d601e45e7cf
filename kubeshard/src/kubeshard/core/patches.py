"""Patches: computing, building and applying them, without a server.

The types `MergePatch`, `JsonPatch` and `ApplyPatch` select the content type of a patch. The functions work
on JSON-able values (dicts, lists, strings, numbers, None) and never change their arguments. Sources: RFC 7386
(merge patch), RFC 6902 (JSON Patch), RFC 6901 (pointers).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from kubeshard.core.errors import Invalid, PatchTestFailed

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
        elif isinstance(value, Mapping) and isinstance(base[key], Mapping):
            if inner := merge_patch(base[key], value):
                patch[key] = inner
        elif not _equal(value, base[key]):
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
        elif not _equal(value, base[key]):
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


def apply_json_patch(document: Any, ops: Sequence[Mapping[str, Any]]) -> Any:
    """The document after all operations. Raises PatchTestFailed for a failed test, Invalid for
    everything else that the API server would reject (unknown operation, missing path).
    """
    result = _copied(document)
    for op in ops:
        result = apply_operation(result, op)
    return result


def apply_operation(document: Any, op: Mapping[str, Any]) -> Any:
    """Applies one operation in place. Returns the document, which is another one if the operation replaces it. Raises
    what `apply_json_patch` raises, and may then have changed a part of the document.
    """
    path = _parts(op.get("path", ""))
    match op.get("op"):
        case "add":
            return _add(document, path, _copied(op["value"]))
        case "remove":
            return _remove(document, path)
        case "replace":
            _get(document, path)
            return _add(_remove(document, path) if path else None, path, _copied(op["value"]))
        case "move":
            source = _parts(op["from"])
            value = _get(document, source)
            return _add(_remove(document, source), path, value)
        case "copy":
            return _add(document, path, _copied(_get(document, _parts(op["from"]))))
        case "test":
            if not _equal(_get(document, path, absent_is_none=op.get("value") is None), op.get("value")):
                raise PatchTestFailed(f"test of {op.get('path')} failed", code=422, reason="Invalid")
            return document
        case unknown:
            raise Invalid(f"unknown JSON Patch operation {unknown!r}", code=422, reason="Invalid")


def _parts(path: str) -> list[str]:
    if path and not path.startswith("/"):
        raise Invalid(f"JSON pointer {path!r} does not start with a slash", code=422, reason="Invalid")
    return [part.replace("~1", "/").replace("~0", "~") for part in path.split("/")[1:]]


def _get(document: Any, parts: Sequence[str], absent_is_none: bool = False) -> Any:
    for part in parts:
        try:
            document = document[_index(part, document) if isinstance(document, list) else part]
        except (KeyError, IndexError, TypeError):
            if absent_is_none:
                return None
            raise _missing(parts) from None
    return document


def _add(document: Any, parts: Sequence[str], value: Any) -> Any:
    if not parts:
        return value
    parent, last = _get(document, parts[:-1]), parts[-1]
    if isinstance(parent, list):
        index = len(parent) if last == "-" else _index(last, parent)
        if index > len(parent):
            raise _missing(parts)
        parent.insert(index, value)
    elif isinstance(parent, dict):
        parent[last] = value
    else:
        raise _missing(parts)
    return document


def _remove(document: Any, parts: Sequence[str]) -> Any:
    _get(document, parts)
    if not parts:
        return None
    parent = _get(document, parts[:-1])
    del parent[_index(parts[-1], parent) if isinstance(parent, list) else parts[-1]]
    return document


def _index(part: str, parent: list[Any]) -> int:
    if not part.isdecimal():
        raise Invalid(f"{part!r} is not an index into a list of {len(parent)}", code=422, reason="Invalid")
    return int(part)


def _missing(parts: Sequence[str]) -> Invalid:
    return Invalid(f"no such path: {pointer(*parts)}", code=422, reason="Invalid")


def _equal(a: Any, b: Any) -> bool:
    """JSON equality: in Python, True equals 1."""
    if isinstance(a, bool) or isinstance(b, bool):
        return a is b
    if isinstance(a, Mapping) and isinstance(b, Mapping):
        return a.keys() == b.keys() and all(_equal(value, b[key]) for key, value in a.items())
    if isinstance(a, list | tuple) and isinstance(b, list | tuple):
        return len(a) == len(b) and all(map(_equal, a, b))
    return bool(a == b)


def _copied(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _copied(inner) for name, inner in value.items()}
    return [*map(_copied, value)] if isinstance(value, (list, tuple)) else value
