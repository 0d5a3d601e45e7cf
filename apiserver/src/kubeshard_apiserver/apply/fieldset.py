"""Field sets: of a value, of the difference between two values, and as FieldsV1 on the wire. Pure.

A field set is a frozenset of paths and uses Python's set operations. Source: KEP-555, structured-merge-diff `typed`
and `fieldpath`.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import msgspec

from kubeshard_apiserver.apply.shape import (
    UNTYPED,
    Path,
    Repeated,
    Shape,
    field_element,
    is_granular_map,
    parts,
)

FieldSet = frozenset[Path]
EMPTY: FieldSet = frozenset()


class Comparison(NamedTuple):
    added: FieldSet
    modified: FieldSet
    removed: FieldSet


def fields_of(shape: Shape, value: Any) -> FieldSet:
    """The fields that an applier of this value owns: leaves, items of maps and lists, and empty or null maps."""
    found: set[Path] = set()
    _collect(shape, value, (), found)
    return frozenset(found)


def compare(shape: Shape, before: Any, after: Any) -> Comparison:
    """Returns the fields that differ. If only one side has a part, every level of it belongs to the difference; beside
    null, only what is in it does.
    """
    added: set[Path] = set()
    modified: set[Path] = set()
    removed: set[Path] = set()
    _compare(shape, before, after, (), (added, modified, removed))
    return Comparison(frozenset(added), frozenset(modified), frozenset(removed))


def to_fields_v1(paths: FieldSet) -> dict[str, Any]:
    """Returns the FieldsV1 form of a field set. Equal sets share one dict, which must not be changed."""
    if (known := _shared.get(paths)) is not None:
        return known
    made = _made(paths)
    if sum(len(element) for path in paths for element in path) <= _LONGEST_SHARED:
        if len(_shared) >= _MOST_SHARED:
            del _shared[next(iter(_shared))]
        _shared[paths] = made
    return made


_shared: dict[FieldSet, dict[str, Any]] = {}
_MOST_SHARED = 1024
_LONGEST_SHARED = 20_000
"""The maximum length of a cached set in characters, so that clients cannot fill the memory with invented fields."""


def _made(paths: FieldSet) -> dict[str, Any]:
    root: dict[str, Any] = {}
    # In sorted order a path comes before the paths below it, and elements come in the order in which they are written.
    for path in sorted(paths):
        node, is_new = root, True
        for element in path:
            inner = node.get(element)
            if inner is None:
                if not node and not is_new:
                    node["."] = {}
                inner = node[element] = {}
                is_new = True
            else:
                is_new = False
            node = inner
    return root


def from_fields_v1(fields: Any) -> FieldSet:
    """Reads a field set. Raises ValueError for anything that is not FieldsV1. Most equal sets are one object."""
    text = msgspec.json.encode(fields)
    if (known := _known.get(text)) is not None:
        return known
    found: set[Path] = set()
    _read({} if fields is None else fields, (), found)
    made = frozenset(found)
    if len(text) <= _LONGEST_SHARED:
        if len(_known) >= _MOST_SHARED:
            del _known[next(iter(_known))]
        _known[text] = made
    return made


_known: dict[bytes, FieldSet] = {}


def contains(fields: dict[str, Any], path: Path) -> bool:
    """Whether FieldsV1 in the server's form has this path, without reading all of it."""
    node: Any = fields
    for element in path:
        node = node.get(element)
        if node is None:
            return False
    return not node or "." in node


def _collect(shape: Shape, value: Any, path: Path, found: set[Path]) -> None:
    inner = parts(shape, value)
    if inner is None:
        found.add(path)
        return
    for element, part in inner.items():
        here = (*path, element)
        _collect(part.shape, part.value, here, found)
        if not part.declared or part.value is None or part.value == {}:
            found.add(here)


_ABSENT = object()


def _compare(
    shape: Shape, before: Any, after: Any, path: Path, found: tuple[set[Path], set[Path], set[Path]]
) -> None:
    added, modified, removed = found
    if before is _ABSENT:
        _collect_all(shape, after, path, added)
        return
    if after is _ABSENT:
        _collect_all(shape, before, path, removed)
        return
    if before is after:
        return
    if isinstance(before, (dict, list)) and before == after and _is_identical(before, after):
        return
    if isinstance(before, dict) and isinstance(after, dict) and is_granular_map(shape):
        for name, member in after.items():
            former = before.get(name, _ABSENT)
            if former is not member and not (type(former) is str is type(member) and former == member):
                inner = shape.fields.get(name) or shape.items or UNTYPED
                _compare(inner, former, member, (*path, field_element(name)), found)
        for name in before.keys() - after.keys():
            inner = shape.fields.get(name) or shape.items or UNTYPED
            _compare(inner, before[name], _ABSENT, (*path, field_element(name)), found)
        return
    old, new = parts(shape, before), parts(shape, after)
    if not old and not new:
        if not _same(before, after):
            modified.add(path)
        return
    if (old is None and before is not None) or (new is None and after is not None):
        modified.add(path)
    for element in {**(old or {}), **(new or {})}:
        part = (new or {}).get(element) or (old or {})[element]
        if old and element in old and isinstance(old[element].value, Repeated):
            part = old[element]
        _compare(
            part.shape,
            old[element].value if old and element in old else _ABSENT,
            new[element].value if new and element in new else _ABSENT,
            (*path, element),
            found,
        )


def _collect_all(shape: Shape, value: Any, path: Path, found: set[Path]) -> None:
    """Adds every level of a part that only one side has."""
    found.add(path)
    if isinstance(value, list):
        for element, part in (parts(shape, value) or {}).items():
            _collect_all(part.shape, part.value, (*path, element), found)
    elif isinstance(value, dict) and is_granular_map(shape):
        for name, member in value.items():
            here = (*path, field_element(name))
            if isinstance(member, (dict, list)):
                _collect_all(shape.fields.get(name) or shape.items or UNTYPED, member, here, found)
            else:
                found.add(here)


def _is_identical(before: Any, after: Any) -> bool:
    """Whether equal values also have the same types. False if their order differs."""
    return msgspec.json.encode(before) == msgspec.json.encode(after)


def _same(a: Any, b: Any) -> bool:
    """Whether two leaves are equal. An integer may equal a float."""
    return bool(a == b) and (type(a) is type(b) or bool not in (type(a), type(b)))


def _read(node: Any, path: Path, found: set[Path]) -> None:
    if not isinstance(node, dict):
        raise ValueError(f"{node!r} is not a field set")
    if path and (not node or "." in node):
        found.add(path)
    for element, inner in node.items():
        if element != "." and _is_known(element):
            _read(inner, (*path, element), found)


def _is_known(element: str) -> bool:
    """Whether a path element is of a known form; the server skips others. Raises ValueError for what is no element."""
    form, colon, rest = element[:1], element[1:2], element[2:]
    if colon != ":":
        raise ValueError(f"{element!r} is no path element")
    if form in "kv":
        value = msgspec.json.decode(rest)
        if form == "k" and not isinstance(value, dict):
            raise ValueError(f"{element!r} has no keys")
    elif form == "i":
        int(rest)
    return form in "fkvi"
