"""How a value is divided into fields that managers can own: maps and lists, granular or atomic.

Path elements are those of FieldsV1: `f:name` is a field or map key, `v:"x"` an item of a set, and `k:{"name":"a"}` an
item of a list of type map. Without a schema, maps are granular and lists are atomic. The shape of a built-in kind is
derived from its Go types. Source: KEP-555 and sigs.k8s.io/structured-merge-diff.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import cache, cached_property, lru_cache
from typing import Any, NamedTuple

from kubeshard_apiserver.schema.decoding import (
    NUMBERS,
    Field,
    IntOrString,
    List,
    Map,
    Pointer,
    Quantity,
    Scalar,
    Struct,
    Type,
)
from kubeshard_apiserver.schema.numbers import in_digits, whole_numbers
from kubeshard_apiserver.status import escaped

Path = tuple[str, ...]


@dataclass(frozen=True)
class Shape:
    """`kind` is `scalar`, `map`, `list` or `untyped`. `fields` are declared, so they are not owned by themselves;
    other keys of a map have the shape `items`. A list is atomic unless `list_type` is `set` or `map`.
    """

    kind: str = "untyped"
    fields: Mapping[str, Shape] = field(default_factory=dict)
    items: Shape | None = None
    atomic: bool = False
    list_type: str = "atomic"
    keys: Mapping[str, Any] = field(default_factory=dict)
    """The key fields of a list of type map, with their defaults or None."""
    closed: bool = False
    """Whether an undeclared field is an error."""
    scalar: str = ""
    """The type of a scalar: `string`, `boolean`, `numeric` or `any scalar`; empty if it is not checked."""
    lenient: bool = False
    """Whether the schema takes values, here or inside, that do not fit: of an integer or a string that has a type."""

    @cached_property
    def is_granular_map(self) -> bool:
        """Whether the fields of an object of this shape have owners of their own."""
        return not self.atomic and self.kind in ("map", "untyped")

    @cached_property
    def is_keyed_list(self) -> bool:
        """Whether the items of a list of this shape have owners of their own."""
        return self.kind == "list" and self.list_type in ("set", "map")

    @cached_property
    def compared(self) -> tuple[dict[bytes, bytes], dict[bytes, Any]]:
        """Results of comparisons, by digest, and the digest of the result by that of the values."""
        return {}, {}

    @cached_property
    def sorted_keys(self) -> list[tuple[str, Any]]:
        return sorted(self.keys.items())


class Part(NamedTuple):
    element: str
    shape: Shape
    value: Any
    declared: bool


class Repeated(list[Any]):
    """The items of a list that have the same key, which only an apply refuses. They are owned as a whole."""


UNTYPED = Shape()
_AS_A_WHOLE = Shape(atomic=True)
SCALAR = Shape("scalar")
STRING, BOOLEAN, NUMERIC, ANY_SCALAR = (
    Shape("scalar", scalar=scalar) for scalar in ("string", "boolean", "numeric", "any scalar")
)
_OF_TYPE = {"boolean": BOOLEAN, "integer": NUMERIC, "number": NUMERIC}


def parts(shape: Shape, value: Any) -> dict[str, Part] | None:
    """The parts of a granular value by path element; None for a leaf, which is owned as a whole."""
    if isinstance(value, dict):
        if not shape.is_granular_map:
            return None
        fields, item_shape = shape.fields, shape.items or UNTYPED
        found = {}
        for name, member in value.items():
            declared = fields.get(name)
            element = f"f:{name}"
            found[element] = Part(element, declared or item_shape, member, declared is not None)
        return found
    if isinstance(value, list) and shape.is_keyed_list:
        item_shape = shape.items or UNTYPED
        found = {
            element: Part(element, item_shape, item, False)
            for item in value
            for element in [item_element(shape, item)]
        }
        return found if len(found) == len(value) else _with_repeated(shape, value, found)
    return None


def _with_repeated(shape: Shape, items: list[Any], found: dict[str, Part]) -> dict[str, Part]:
    same: dict[str, Repeated] = {element: Repeated() for element in found}
    for item in items:
        same[item_element(shape, item)].append(item)
    return {
        element: Part(element, _AS_A_WHOLE, same[element], False) if len(same[element]) > 1 else part
        for element, part in found.items()
    }


def item_element(shape: Shape, item: Any) -> str:
    """The path element of a list's item."""
    if shape.list_type == "set" or not isinstance(item, dict):
        return "v:" + _canonical(item)
    keys = [(key, item.get(key, default)) for key, default in shape.sorted_keys]
    for _, value in keys:
        if type(value) is not str or len(value) > _LONGEST_SHARED:
            return "k:" + _canonical(dict(keys))
    return _key_element(*keys)


_LONGEST_SHARED = 256


@lru_cache(8192)
def _key_element(*keys: tuple[str, str]) -> str:
    """Returns the element of an item whose keys are all strings: most are names that many objects have."""
    return "k:" + _canonical(dict(keys))


def shape_of(
    schema: Mapping[str, Any], metadata: Shape, *, is_root: bool = True, open_: bool = False
) -> Shape:
    """Derives the shape from a structural schema. `metadata` is the shape of the metadata of a complete object; `open_`
    means that the schema is inside of one whose unknown fields are preserved.

    Source: kube-openapi `pkg/schemaconv`; apiextensions-apiserver `pkg/controller/openapi/builder`.
    """
    open_ = open_ or bool(schema.get("x-kubernetes-preserve-unknown-fields"))
    is_object = is_root or bool(schema.get("x-kubernetes-embedded-resource"))
    given = "object" if is_object else schema.get("type") or ""
    if given not in ("object", "array", ""):
        scalar = _formatted(schema) if given == "string" else _OF_TYPE[given]
        return replace(scalar, lenient=True) if schema.get("x-kubernetes-int-or-string") else scalar

    def inner(found: Mapping[str, Any]) -> Shape:
        return shape_of(found, metadata, is_root=False, open_=open_)

    if given == "array":
        return _list_shape(schema, inner)
    fields = {name: inner(found) for name, found in (schema.get("properties") or {}).items()}
    if is_object:
        fields |= {"apiVersion": STRING, "kind": STRING, "metadata": metadata}
    additional = schema.get("additionalProperties")
    items = inner(additional) if isinstance(additional, Mapping) else None
    closed = bool(fields) and not open_ if additional is None else additional is False
    kind = "map" if given or fields or items else "untyped"
    is_atomic = schema.get("x-kubernetes-map-type") == "atomic"
    lenient = any(part.lenient for part in (*fields.values(), items or UNTYPED))
    return Shape(kind, fields, items, is_atomic, closed=closed, lenient=lenient)


def _formatted(schema: Mapping[str, Any]) -> Shape:
    """A string with a format counts as a scalar of any type."""
    return STRING if schema.get("format") in (None, "", "byte") else ANY_SCALAR


def readable(path: Path) -> str:
    """The path as messages show it: `.spec.ports[port=80].name`."""
    return "".join(_readable(element) for element in path)


def _list_shape(schema: Mapping[str, Any], inner: Callable[[Mapping[str, Any]], Shape]) -> Shape:
    items = schema.get("items") or {}
    properties = items.get("properties") or {}
    keys = {
        key: (properties.get(key) or {}).get("default")
        for key in schema.get("x-kubernetes-list-map-keys") or ()
    }
    list_type, shape = schema.get("x-kubernetes-list-type", "atomic"), inner(items)
    return Shape("list", items=shape, list_type=list_type, keys=keys, lenient=shape.lenient)


def _readable(element: str) -> str:
    form, _, rest = element.partition(":")
    if form == "f":
        return f".{rest}"
    if form == "i":
        return f"[{rest}]"
    if form == "v":
        return f"[={rest}]"
    return "[" + ",".join(f"{key}={_shown(value)}" for key, value in json.loads(rest).items()) + "]"


_shown = json.JSONEncoder(separators=(",", ":"), ensure_ascii=False).encode


def _canonical(value: Any) -> str:
    if isinstance(value, float):
        value = in_digits(value)
    elif isinstance(value, dict):
        value = {**value}
        whole_numbers(value)
    return escaped(_shown(value))


@cache
def shape_of_type(type_: Struct) -> Shape:
    """Derives the shape from a Go type. A recursive type has a recursive shape. All servers of a process share it."""
    return _of(type_, {})


def _of(type_: Type, made: dict[Struct, Shape]) -> Shape:
    match type_:
        case Pointer():
            return _of(type_.to, made)
        case IntOrString():
            return SCALAR
        case Quantity():
            return ANY_SCALAR
        case Scalar():
            return BOOLEAN if type_.go == "bool" else NUMERIC if type_.go in NUMBERS else STRING
        case Map():
            return Shape("map", items=_of(type_.values, made))
        case List():
            return Shape("list", items=_of(type_.items, made))
        case Struct():
            if type_ not in made:
                fields: dict[str, Shape] = {}
                made[type_] = Shape("map", fields, atomic=type_.atomic, closed=True)
                fields |= {name: _of_field(field, made) for name, field in type_.fields.items()}
            return made[type_]
    return Shape(atomic=True)


def _of_field(field: Field, made: dict[Struct, Shape]) -> Shape:
    shape, markers = _of(field.type, made), field.markers
    if shape.kind == "list":
        return Shape("list", items=shape.items, list_type=markers.get("list", "atomic"), keys=_keys(field))
    if markers.get("map") == "atomic":
        return Shape(shape.kind, shape.fields, shape.items, atomic=True, closed=shape.closed)
    return shape


def _keys(field: Field) -> dict[str, Any]:
    """The keys, with the defaults for keys that are omitted."""
    items = field.type.items if isinstance(field.type, List) else None
    if not isinstance(items, Struct):
        return {}
    return {key: _default(items.fields[key]) for key in field.markers.get("keys", ())}


def _default(key: Field) -> Any:
    """What is always written has its empty value as the default."""
    return key.markers.get("default", key.type.zero() if key.always else None)
