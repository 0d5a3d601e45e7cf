"""Strategic merge patch: a merge patch that knows the keys of lists.

Lists with the strategy `merge` are merged item by item, and all others are replaced; directives in the patch
(`$patch`, `$setElementOrder/`, `$deleteFromPrimitiveList/`, `$retainKeys`) change that. Pure; arguments are not
modified. Raises BadDirective for a patch that cannot be applied. Source: k8s.io/apimachinery
`pkg/util/strategicpatch`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cmp_to_key
from typing import Any

from kubeshard_apiserver.schema.decoding import Field, List, Map, Pointer, Struct, Type

_PATCH = "$patch"
_RETAIN = "$retainKeys"
_ORDER = "$setElementOrder/"
_DELETE = "$deleteFromPrimitiveList/"
_NO_MARKERS: Mapping[str, Any] = {}


class BadDirective(Exception):
    """`code` is the HTTP status with which the server responds."""

    def __init__(self, message: str, code: int = 500) -> None:
        super().__init__(message)
        self.code = code


def strategic_merge(type_: Type | None, live: Mapping[str, Any], patch: Mapping[str, Any]) -> dict[str, Any]:
    """Merges `patch` into `live`. `type_` is the type of `live`, or None if its fields are unknown."""
    if _PATCH in patch:
        return _directed(patch)
    merged, rest = dict(live), dict(patch)
    _retain(merged, rest)
    _set_orders(type_, merged, rest)
    for name, given in rest.items():
        deletes = name.startswith(_DELETE)
        key = name.removeprefix(_DELETE)
        if given is None:
            merged.pop(key, None)
        elif key not in merged or not _alike(merged[key], given):
            if not deletes and _is_plain(given):
                merged[key] = _plain(given)
        else:
            merged[key] = _merged(_field(type_, key), merged[key], given, deletes=deletes)
    return merged


def _directed(patch: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the result of a patch that replaces the whole map."""
    match patch[_PATCH]:
        case "replace":
            return {name: value for name, value in patch.items() if name != _PATCH}
        case "delete":
            return {}
        case other:
            raise BadDirective(f"unknown patch type: {go_text(other)} in map: {go_text(patch)}")


def _retain(merged: dict[str, Any], patch: dict[str, Any]) -> None:
    if _RETAIN not in patch:
        return
    kept = patch.pop(_RETAIN)
    if not isinstance(kept, list) or any(not name.startswith("$") and name not in kept for name in patch):
        raise BadDirective("invalid patch format of retainKeys", 400)
    for name in merged.keys() - set(kept):
        del merged[name]


def _set_orders(type_: Type | None, merged: dict[str, Any], patch: dict[str, Any]) -> None:
    """Merges the lists for which the patch specifies an order, and removes them from the patch."""
    for directive in [name for name in patch if name.startswith(_ORDER)]:
        order, name = patch.pop(directive), directive.removeprefix(_ORDER)
        ours, theirs = merged.get(name), patch.pop(name, None)
        for value in (order, ours, theirs):
            if value is not None and not isinstance(value, list):
                raise BadDirective(f"expected a []interface {{}}, but received a {form_in_go(value)}")
        field = _field(type_, name)
        key = _markers(field).get("merge-key", "")
        _check_order(theirs or [], order or [], key)
        if ours is None and theirs is None:
            continue
        if ours is None:
            items = _plain(theirs)
        else:
            items = ours if theirs is None else _merged(field, ours, theirs, deletes=False)
        merged[name] = _ordered(items, order or [], ours or [], key)


def _merged(field: Field | None, live: Any, given: Any, *, deletes: bool) -> Any:
    """Merges two values of the same form."""
    strategies = _markers(field).get("strategy", "").split(",")
    if isinstance(given, dict):
        return _plain(given) if "replace" in strategies else strategic_merge(_inner(field), live, given)
    if not isinstance(given, list):
        return given
    return _merged_lists(field, live, given, deletes=deletes) if "merge" in strategies else given


def _merged_lists(field: Field | None, live: list[Any], given: list[Any], *, deletes: bool) -> list[Any]:
    if not live and not given:
        return live
    kinds = {_form(item) for item in (*live, *given)}
    if len(kinds) != 1 or list in kinds:
        raise BadDirective(f"list element types are not identical: {go_text([live, given])}")
    if kinds != {dict}:
        if deletes:
            return [item for item in live if item not in given]
        both = list(dict.fromkeys([*live, *given]))
        return _ordered(both, given, live, "")
    key = _markers(field).get("merge-key", "")
    live, given = _specially(live, given, key)
    merged = list(live)
    for item in given:
        at = _find(merged, _key_of(item, key), key)
        if at is None:
            merged.append(_plain(item))
        else:
            merged[at] = strategic_merge(_inner(field), merged[at], item)
    return _ordered(merged, given, live, key)


def _specially(live: list[Any], given: list[Any], key: str) -> tuple[list[Any], list[Any]]:
    """Executes the directives among the items of a list."""
    plain, replaces = [], False
    for item in given:
        match item.get(_PATCH):
            case None if _PATCH not in item:
                plain.append(item)
            case "delete":
                doomed = _key_of(item, key)
                live = [other for other in live if other.get(key) != doomed]
            case "replace":
                replaces = True
            case "merge":
                raise BadDirective("merging lists cannot yet be specified in the patch")
            case other:
                raise BadDirective(f"unknown patch type: {go_text(other)} in map: {go_text(item)}")
    return ([], plain) if replaces else (live, plain)


def _ordered(items: list[Any], order: list[Any], live_order: list[Any], key: str) -> list[Any]:
    """Sorts the items named in `order` accordingly and keeps the order of the others. Where the relative order is
    undefined, the items named in `order` come first.
    """
    keys = [_identity(item, key) for item in order]
    was = [_identity(item, key) for item in live_order]
    named = _sorted([item for item in items if _identity(item, key) in keys], keys, key)
    others = _sorted([item for item in items if _identity(item, key) not in keys], was, key)
    result = []
    while others and named:
        left, right = _identity(others[0], key), _identity(named[0], key)
        first = left in was and right in was and was.index(left) < was.index(right)
        result.append(others.pop(0) if first else named.pop(0))
    return result + others + named


def _sorted(items: list[Any], order: list[Any], key: str) -> list[Any]:
    def place(item: Any) -> int:
        identity = _identity(item, key)
        return order.index(identity) if identity in order else -1

    return sorted(items, key=cmp_to_key(lambda a, b: place(a) - place(b)))


def _check_order(given: list[Any], order: list[Any], key: str) -> None:
    """Checks that the items of a list in the patch are in the specified order."""
    if not given or not order:
        return
    keys = [_identity(item, key) for item in order]
    wanted = [
        _identity(item, key)
        for item in given
        if not (isinstance(item, dict) and item.get(_PATCH) == "delete")
    ]
    places = [keys.index(identity) if identity in keys else -1 for identity in wanted]
    if -1 in places or places != sorted(places):
        lists = f"The order in patch list:\n{go_text(given)}\n doesn't match {_ORDER[:-1]} list:\n{go_text(order)}\n"
        raise BadDirective(lists)


def _identity(item: Any, key: str) -> Any:
    return _key_of(item, key) if key and isinstance(item, dict) else item


def _key_of(item: Mapping[str, Any], key: str) -> Any:
    if key not in item:
        raise BadDirective(f"map: {go_text(item)} does not contain declared merge key: {key}")
    return item[key]


def _find(items: list[Any], value: Any, key: str) -> int | None:
    return next((index for index, item in enumerate(items) if item.get(key) == value), None)


def _plain(value: Any) -> Any:
    """Returns a patch value that has nothing to merge with, without nulls and directives, except for `$retainKeys`,
    which the server does not remove.
    """
    if isinstance(value, list):
        return [_plain(item) for item in value if _is_plain(item)]
    if not isinstance(value, dict):
        return value
    return {
        name: _plain(inner)
        for name, inner in value.items()
        if inner is not None and _is_plain(inner) and not name.startswith((_ORDER, _DELETE))
    }


def _is_plain(value: Any) -> bool:
    """Whether the value is kept. A map with a `$patch` directive is dropped if there is nothing to merge with."""
    return not (isinstance(value, dict) and _PATCH in value)


def _alike(live: Any, given: Any) -> bool:
    return _form(live) is _form(given)


def _form(value: Any) -> Callable[..., Any]:
    return next((form for form in (dict, list) if isinstance(value, form)), str)


def _field(type_: Type | None, name: str) -> Field | None:
    return type_.fields.get(name) if isinstance(type_, Struct) else None


def _markers(field: Field | None) -> Mapping[str, Any]:
    return field.markers if field else _NO_MARKERS


def _inner(field: Field | None) -> Type | None:
    """The type of the maps in a field, or of its list items."""
    type_: Type | None = field.type if field else None
    while isinstance(type_, (Pointer, List, Map)):
        type_ = type_.to if isinstance(type_, Pointer) else type_.items if isinstance(type_, List) else None
    return type_


def go_text(value: Any) -> str:
    """Formats a value as Go prints it."""
    if isinstance(value, Mapping):
        return "map[" + " ".join(f"{name}:{go_text(value[name])}" for name in sorted(value)) + "]"
    if isinstance(value, list):
        return "[" + " ".join(map(go_text, value)) + "]"
    if value is None:
        return "<nil>"
    return str(value).lower() if isinstance(value, bool) else str(value)


def form_in_go(value: Any) -> str:
    """Returns Go's name for the kind of a decoded JSON value."""
    kinds = {bool: "bool", int: "int64", float: "float64", str: "string", list: "slice", dict: "map"}
    return kinds.get(type(value), "invalid")
