"""Field sets: of a value, of the difference between two values, and as FieldsV1 on the wire. Pure.

A field set is a tree and has the form of FieldsV1: a node maps path elements to nodes, and is in the set itself if it
has the element `.`, or no element at all. All sets here are as the server writes them: elements are in order, `.` is
only where others are, and every node leads to a member. Sets share nodes with each other and with stored objects, and
are never modified; an operation that changes nothing returns its argument. So the cost of an operation depends on the
smaller of two sets, which is what a write has changed. Source: KEP-555, structured-merge-diff `typed` and `fieldpath`.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from hashlib import blake2b
from typing import Any, NamedTuple

import msgspec

from kubeshard_apiserver.apply.shape import (
    UNTYPED,
    Part,
    Path,
    Repeated,
    Shape,
    item_element,
    parts,
)
from kubeshard_apiserver.objects import is_shared

FieldSet = dict[str, Any]
EMPTY: FieldSet = {}
_LEAF: FieldSet = {}
"""The node of a member below which there is none."""


class Comparison(NamedTuple):
    added: FieldSet
    modified: FieldSet
    removed: FieldSet


def fields_of(shape: Shape, value: Any) -> FieldSet:
    """The fields that an applier of this value owns: leaves, items of maps and lists, and empty or null maps."""
    return _owned(shape, value) or EMPTY


def has_fields(shape: Shape, value: Any) -> bool:
    """Whether anybody can own the value or something in it."""
    return _owned(shape, value) is not None


def compare(shape: Shape, before: Any, after: Any) -> Comparison:
    """Returns the fields that differ. If only one side has a part, every level of it belongs to the difference; beside
    null, only what is in it does.
    """
    found: _Found = ({}, {}, {})
    if type(before) is dict is type(after) and shape.is_granular_map:
        _compare_maps(shape, before, after, found)
        return Comparison(*[nodes and _in_order(nodes) for nodes in found])
    _compare(shape, before, after, "", found)
    return Comparison(*(each.get("", EMPTY) for each in found))


def from_fields_v1(fields: Any) -> FieldSet:
    """Reads a field set that a client has sent. Raises ValueError for anything that is not FieldsV1."""
    found = _read({} if fields is None else fields) or EMPTY
    return {element: node for element, node in found.items() if element != "."} if "." in found else found


def contains(fields: FieldSet, path: Path) -> bool:
    node: Any = fields
    for element in path:
        node = node.get(element)
        if node is None:
            return False
    return is_member(node)


def is_member(node: FieldSet) -> bool:
    """Whether the node is in the set itself, and not only something below it."""
    return not node or "." in node


def paths_of(fields: FieldSet, above: Path = ()) -> Iterator[Path]:
    """Yields the paths of the members in order."""
    for element, node in fields.items():
        if element != ".":
            here = (*above, element)
            if is_member(node):
                yield here
            yield from paths_of(node, here)


def intersection(fields: FieldSet, others: FieldSet) -> FieldSet:
    return difference(fields, difference(fields, others))


def union(fields: FieldSet, others: FieldSet) -> FieldSet:
    if not fields:
        return others
    joined = fields
    for element, node in others.items():
        mine = fields.get(element)
        if mine is None:
            both = node
        elif not mine or not node:
            both = _with_itself(mine or node)
        else:
            both = union(mine, node)
        if both is not mine:
            if joined is fields:
                joined = fields.copy()
            joined[element] = both
    return joined if joined is fields or len(joined) == len(fields) else _in_order(joined)


def difference(fields: FieldSet, others: FieldSet) -> FieldSet:
    return (_without(fields, others) or EMPTY) if fields and others else fields


def _without(fields: FieldSet, others: FieldSet) -> FieldSet | None:
    """`difference` of nodes with others below them; None if nothing is left."""
    left = fields
    for element in fields.keys() & others.keys():
        mine, node = fields[element], others[element]
        rest: FieldSet | None
        if mine is node:
            rest = None
        elif mine and node:
            rest = _without(mine, node)
        elif not mine:
            rest = None if is_member(node) else mine
        else:
            rest = {name: inner for name, inner in mine.items() if name != "."} if "." in mine else mine
        if rest is not mine:
            if left is fields:
                left = fields.copy()
            if rest is None:
                del left[element]
            else:
                left[element] = rest
    if left is fields:
        return fields
    return _LEAF if len(left) == 1 and "." in left else left or None


def _with_itself(node: FieldSet | None) -> FieldSet:
    return {".": _LEAF, **node} if node and "." not in node else node or _LEAF


def _in_order(node: FieldSet) -> FieldSet:
    return dict(sorted(node.items())) if len(node) > 1 else node


def _owned(shape: Shape, value: Any) -> FieldSet | None:
    inner = parts(shape, value)
    if inner is None:
        return _LEAF
    found: FieldSet = {}
    for element, part in inner.items():
        node = _owned(part.shape, part.value)
        if not part.declared or part.value == {}:
            node = _with_itself(node)
        if node is not None:
            found[element] = node
    return _in_order(found) or None


_Found = tuple[FieldSet, FieldSet, FieldSet]
"""What is added, modified and removed."""
_ABSENT: Any = object()
_NONE: dict[str, Part] = {}
_encode = msgspec.json.Encoder().encode


def _compare(shape: Shape, before: Any, after: Any, element: str, into: _Found) -> None:
    """Notes what differs, if anything does, in nodes for this element."""
    kind = type(before)
    if (
        (kind is dict or kind is list)
        and before == after
        and (is_shared(before, after) or _encode(before) == _encode(after))
    ):
        return  # equal, and of the same types
    found: _Found = ({}, {}, {})
    itself = False
    if kind is dict is type(after) and shape.is_granular_map:
        if len(shape.fields) < _MANY_FIELDS:
            _compare_maps(shape, before, after, found)
        else:
            found = _remembered(shape, before, after)
    elif kind is list is type(after) and (pair := _items_by_key(shape, before, after)) is not None:
        _compare_items(shape.items or UNTYPED, *pair, found)
    else:
        old, new = parts(shape, before), parts(shape, after)
        if not old and not new:
            if not _is_equal(before, after):
                into[1][element] = _LEAF
            return
        itself = (old is None and before is not None) or (new is None and after is not None)
        _compare_parts(old or _NONE, new or _NONE, found)
    for part, nodes in zip(into, found, strict=True):
        if nodes:
            part[element] = _in_order(nodes) if len(nodes) > 1 else nodes
    if itself:
        into[1][element] = _with_itself(into[1].get(element))


def _compare_maps(shape: Shape, before: dict[str, Any], after: dict[str, Any], found: _Found) -> None:
    fields, items = shape.fields, shape.items or UNTYPED
    left = len(before)
    for name, member in after.items():
        former = before.get(name, _ABSENT)
        left -= former is not _ABSENT
        if former is member:
            continue
        if former is _ABSENT:
            found[0][f"f:{name}"] = _every(fields.get(name) or items, member)
        elif (kind := type(member)) is dict or kind is list or kind is not type(former):
            _compare(fields.get(name) or items, former, member, f"f:{name}", found)
        elif former != member:
            found[1][f"f:{name}"] = _LEAF
    if left:
        for name in before.keys() - after.keys():
            found[2][f"f:{name}"] = _every(fields.get(name) or items, before[name])


_MANY_FIELDS = 32
"""The pod specs of an operator's objects are different texts with the same fields: from so many on, a comparison is
remembered.
"""
_MOST_REMEMBERED, _MOST_RESULTS = 16 * 1024, 256
_LONGEST_REMEMBERED, _MOST_NAMES = 32 * 1024, 64
"""Larger ones are rare, and would take much memory."""


def _remembered(shape: Shape, before: dict[str, Any], after: dict[str, Any]) -> _Found:
    (known, results), text = shape.compared, _encode((before, after))
    digest = blake2b(text, digest_size=16).digest()
    result = known.get(digest)
    found: _Found | None = None if result is None else results.get(result)
    if found is not None:
        return found
    found = ({}, {}, {})
    _compare_maps(shape, before, after, found)
    if len(text) > _LONGEST_REMEMBERED:
        return found
    result = blake2b(_encode(found), digest_size=16).digest()
    for memory, key, value, most in (
        (known, digest, result, _MOST_REMEMBERED),
        (results, result, results.get(result, found), _MOST_RESULTS),
    ):
        if key not in memory and len(memory) >= most:
            memory.clear()  # in one step: large objects are compared in another thread
        memory[key] = value
    return found


def _items_by_key(
    shape: Shape, before: list[Any], after: list[Any]
) -> tuple[dict[str, Any], dict[str, Any]] | None:
    """Returns the items of both lists by their elements; None if they have no owners of their own, or share keys."""
    if not shape.is_keyed_list:
        return None
    old, new = ({item_element(shape, item): item for item in items} for items in (before, after))
    return (old, new) if len(old) == len(before) and len(new) == len(after) else None


def _compare_items(shape: Shape, old: dict[str, Any], new: dict[str, Any], found: _Found) -> None:
    for element, item in new.items():
        former = old.get(element, _ABSENT)
        if former is _ABSENT:
            found[0][element] = _every(shape, item)
        elif former is not item:
            _compare(shape, former, item, element, found)
    for element in old.keys() - new.keys():
        found[2][element] = _every(shape, old[element])


def _compare_parts(old: dict[str, Part], new: dict[str, Part], found: _Found) -> None:
    for element, part in new.items():
        former = old.get(element)
        if former is None:
            found[0][element] = _every(part.shape, part.value)
        else:
            shape = former.shape if isinstance(former.value, Repeated) else part.shape
            _compare(shape, former.value, part.value, element, found)
    for element, part in old.items():
        if element not in new:
            found[2][element] = _every(part.shape, part.value)


def _every(shape: Shape, value: Any) -> FieldSet:
    """Returns every level of a part that only one side has."""
    if type(value) is dict:
        if not value or not shape.is_granular_map:
            return _LEAF
        fields, items = shape.fields, shape.items or UNTYPED
        if not fields and items.kind == "scalar" and len(value) <= _MOST_NAMES:
            return _every_key(tuple(value))
        return {
            ".": _LEAF,
            **{
                f"f:{name}": _every(fields.get(name) or items, member)
                if type(member := value[name]) is dict or type(member) is list
                else _LEAF
                for name in sorted(value)
            },
        }
    if type(value) is list and (pair := _items_by_key(shape, [], value)) is not None:
        of_item, by_key = shape.items or UNTYPED, pair[1]
        return (
            {".": _LEAF, **{element: _every(of_item, by_key[element]) for element in sorted(by_key)}}
            if by_key
            else _LEAF
        )
    if isinstance(value, list) and (inner := parts(shape, value)):
        return {".": _LEAF, **{name: _every(inner[name].shape, inner[name].value) for name in sorted(inner)}}
    return _LEAF


@lru_cache(2048)
def _every_key(names: tuple[str, ...]) -> FieldSet:
    """The levels of a map of scalars: many objects have labels, annotations and selectors of the same names."""
    return {".": _LEAF, **{f"f:{name}": _LEAF for name in sorted(names)}}


def _is_equal(a: Any, b: Any) -> bool:
    """Whether two leaves are equal. An integer may equal a float."""
    return bool(a == b) and (type(a) is type(b) or bool not in (type(a), type(b)))


def _read(node: Any) -> FieldSet | None:
    if not isinstance(node, dict):
        raise ValueError(f"{node!r} is not a field set")
    if not node:
        return _LEAF
    found: FieldSet = {}
    for element, inner in node.items():
        if element != "." and _is_known(element) and (below := _read(inner)) is not None:
            found[element] = below
    if "." in node:
        return _with_itself(_in_order(found))
    return _in_order(found) or None


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
