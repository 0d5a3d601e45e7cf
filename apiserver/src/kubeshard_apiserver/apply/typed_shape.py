"""The shape of a built-in kind, from its Go types."""

from __future__ import annotations

from typing import Any

from kubeshard_apiserver.apply.shape import ANY_SCALAR, BOOLEAN, NUMERIC, SCALAR, STRING, Shape
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


def shape_of_type(type_: Struct) -> Shape:
    """Types that contain themselves make a shape that contains itself."""
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
    shape, facts = _of(field.type, made), field.facts
    if shape.kind == "list":
        return Shape("list", items=shape.items, list_type=facts.get("list", "atomic"), keys=_keys(field))
    if facts.get("map") == "atomic":
        return Shape(shape.kind, shape.fields, shape.items, atomic=True, closed=shape.closed)
    return shape


def _keys(field: Field) -> dict[str, Any]:
    """With the defaults that stand for a key that is left out."""
    items = field.type.items if isinstance(field.type, List) else None
    if not isinstance(items, Struct):
        return {}
    return {key: items.fields[key].facts.get("default") for key in field.facts.get("keys", ())}
