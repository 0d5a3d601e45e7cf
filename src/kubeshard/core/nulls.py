"""Null in fields that do not declare it.

Go writes a nil slice or map without `omitempty` as null (`rules: null` of a ClusterRole) and reads null as the
zero value. So a null member of an object means the default of the field, unless the field's type
includes None.
"""

from __future__ import annotations

from typing import Any

import msgspec


def without_nulls(type_: type[Any], data: bytes | bytearray | memoryview | msgspec.Raw) -> bytes:
    """The declared members of the JSON without nulls for fields that have a default and a type without None;
    nulls in fields of any type, in lists and in maps stay. Raises DecodeError if that is not possible.

    Slow (it looks at every member in Python): only for objects that failed to decode.
    """
    # Imported late: few processes ever receive such an object.
    from msgspec.inspect import type_info

    try:
        return msgspec.json.encode(_pruned(msgspec.json.decode(data), type_info(type_)))
    except (RecursionError, OverflowError) as error:
        raise msgspec.DecodeError(str(error)) from error


def _pruned(value: Any, type_: Any) -> Any:
    from msgspec import inspect

    match type_:
        case inspect.UnionType():
            for member in type_.types:
                value = _pruned(value, member)
        case inspect.StructType() if isinstance(value, dict):
            return {
                field.encode_name: _pruned(value[field.encode_name], field.type)
                for field in type_.fields
                if field.encode_name in value
                and (value[field.encode_name] is not None or field.required or _knows_null(field.type))
            }
        case inspect.DictType() if isinstance(value, dict):
            return {key: _pruned(member, type_.value_type) for key, member in value.items()}
        case inspect.CollectionType() if isinstance(value, list):
            return [_pruned(item, type_.item_type) for item in value]
    return value


def _knows_null(type_: Any) -> bool:
    from msgspec import inspect

    members = type_.types if isinstance(type_, inspect.UnionType) else (type_,)
    return any(isinstance(member, inspect.NoneType | inspect.AnyType | inspect.RawType) for member in members)
