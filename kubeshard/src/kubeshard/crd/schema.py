"""The schema of a class: OpenAPI v3 in the structural form of CustomResourceDefinitions.

| Python | schema |
|---|---|
| `str`, `bool`, `int`, `float` | string, boolean, integer (int64), number (double) |
| `datetime`, `date`, `bytes` | string of format date-time, date, byte |
| `Literal`, an `Enum` | its values |
| `int` or `str` | x-kubernetes-int-or-string |
| a list, a tuple of one type, a set | array; a set is also x-kubernetes-list-type: set |
| a mapping of strings | object with additionalProperties |
| a `Struct` | object with properties; those without a default are required |
| `Any` | x-kubernetes-preserve-unknown-fields |
| `Condition` | metav1.Condition; a list of them is a map by type |
| `T` or None | `T`; nullable where None is not the default |
| `msgspec.Meta` | bounds, lengths, pattern, title, description; `extra_json_schema` is copied unchanged |

Defaults become defaults of the schema. The exceptions are None and UNSET, defaults made by the author's own factories,
those of classes that omit defaults, and everything inside `status`, because a status is what the controller wrote.
Docstrings of classes and strings below fields become descriptions if the source is available.

Guaranteed: the schema accepts what the class encodes, and treats null in an optional field as absence. Anything that a
structural schema cannot express (other unions, recursion, tuples of several types) raises TypeError.
"""

from __future__ import annotations

import ast
import datetime
import decimal
import enum
import inspect
import json
import re
import textwrap
import types
import typing
from collections import abc
from collections.abc import Iterator, Mapping
from copy import deepcopy
from functools import cache, partial
from itertools import pairwise, repeat
from typing import Any, NamedTuple

import msgspec

from kubeshard.core.conditions import Condition
from kubeshard.core.objects import KubeObject
from kubeshard.crd.declaring import ListMap, Rule, rules_of
from kubeshard.crd.metav1 import CONDITION

Schema = dict[str, Any]

_PRESERVE = "x-kubernetes-preserve-unknown-fields"
_RULES = "x-kubernetes-validations"

_PLAIN: dict[Any, Schema] = {
    str: {"type": "string"},
    bool: {"type": "boolean"},
    int: {"type": "integer", "format": "int64"},
    float: {"type": "number", "format": "double"},
    bytes: {"type": "string", "format": "byte"},
    datetime.datetime: {"type": "string", "format": "date-time"},
    datetime.date: {"type": "string", "format": "date"},
    datetime.timedelta: {"type": "string", "pattern": "^-?P"},
    decimal.Decimal: {"type": "string"},
    Any: {_PRESERVE: True},
    object: {_PRESERVE: True},
    msgspec.Raw: {_PRESERVE: True},
}
_SETS = (set, frozenset, abc.Set, abc.MutableSet)
_LISTS = (list, tuple, abc.Sequence, abc.MutableSequence, abc.Collection, abc.Iterable)
_MAPS = (dict, abc.Mapping, abc.MutableMapping)
_ADVICE = "describe it with Annotated[..., msgspec.Meta(extra_json_schema={'type': ...})]"


def schema_of(cls: type[KubeObject]) -> Schema:
    """The `openAPIV3Schema` of a kind. Raises TypeError for a field that no schema can describe, or for a default that
    does not fit its field.
    """
    schema = _Writer(defaults=True).struct(cls, cls.__name__)
    meta = {"apiVersion": {"type": "string"}, "kind": {"type": "string"}, "metadata": {"type": "object"}}
    properties = {**meta, **{n: s for n, s in schema["properties"].items() if n not in meta}}
    return {**schema, "properties": properties}


class _Hint(NamedTuple):
    """A type without its annotations, aliases and None."""

    type: Any
    metas: tuple[msgspec.Meta, ...]
    rules: tuple[Rule, ...]
    keys: tuple[str, ...]
    nullable: bool


class _Writer:
    def __init__(self, *, defaults: bool) -> None:
        self._defaults = defaults
        self._open: list[Any] = []
        """The classes that enclose the one being described."""

    def schema(self, hint: Any, where: str) -> Schema:
        """The schema of a type. If the type includes None, the caller handles that (`_bare(hint).nullable`)."""
        bare = _bare(hint)
        extra = {key: value for meta in bare.metas for key, value in (meta.extra_json_schema or {}).items()}
        try:
            schema = self._core(bare.type, where)
        except TypeError:
            if "type" not in extra:
                raise
            schema = {}
        for meta in bare.metas:
            schema |= _constraints(meta, schema.get("type"))
        if bare.keys:
            schema |= self._list_map(bare.keys, schema, where)
        if bare.rules:
            schema[_RULES] = [*schema.get(_RULES, ()), *(rule.manifest for rule in bare.rules)]
        return schema | extra

    def struct(self, cls: Any, where: str) -> Schema:
        origin = typing.get_origin(cls) or cls
        if origin in self._open:
            raise TypeError(
                f"{where}: {origin.__name__} contains itself, which no schema can express; {_ADVICE}"
            )
        try:
            fields = msgspec.structs.fields(cls)
        except NameError as error:
            raise TypeError(f"{where}: {error}; define it at the top of a module") from error
        self._open.append(origin)
        properties = {field.encode_name: self._field(field, origin, where) for field in fields}
        self._open.pop()
        schema: Schema = {"type": "object", "properties": properties}
        if text := _text(origin.__dict__.get("__doc__")):
            schema = {"description": text, **schema}
        if required := [field.encode_name for field in fields if field.required]:
            schema["required"] = required
        if rules := rules_of(origin):
            schema[_RULES] = [rule.manifest for rule in rules]
        return schema

    def _field(self, field: msgspec.structs.FieldInfo, cls: Any, where: str) -> Schema:
        path = f"{where}.{field.name}"
        is_kind = issubclass(cls, KubeObject)
        if is_kind and field.name == "metadata":
            return {"type": "object"}
        writer = _Writer(defaults=False) if is_kind and field.name == "status" else self
        schema = writer.schema(field.type, path)
        if text := _text(_comments(cls).get(field.name)):
            schema = {"description": text, **schema}
        if _bare(field.type).nullable and field.default not in (None, msgspec.UNSET):
            schema |= _nullable(schema)
        if writer._defaults and not _omits(cls) and (value := _default(field)) is not _NONE:
            _check(value, field.type, path)
            schema["default"] = value
        return schema

    def _core(self, hint: Any, where: str) -> Schema:
        origin, arguments = typing.get_origin(hint) or hint, typing.get_args(hint)
        if origin in _PLAIN:
            return dict(_PLAIN[origin])
        if origin is typing.Literal:
            return _values(arguments, where)
        if origin in (typing.Union, types.UnionType):
            return _union(arguments, where)
        if origin in (*_SETS, *_LISTS):
            return self._list(origin, arguments, where)
        if origin in _MAPS:
            return self._map(arguments, where)
        if isinstance(origin, type):
            if issubclass(origin, enum.Enum):
                return _values([member.value for member in origin], where)
            if origin is Condition:
                return deepcopy(CONDITION)
            if issubclass(origin, msgspec.Struct) and not issubclass(origin, KubeObject):
                return self.struct(hint, where)
        raise TypeError(f"{where}: no schema can describe {_named(hint)}: use a Struct, or {_ADVICE}")

    def _list(self, origin: Any, arguments: tuple[Any, ...], where: str) -> Schema:
        if origin is tuple and arguments[1:] != (...,) and arguments:
            raise TypeError(f"{where}: a list has items of one type: tuple[{_named(arguments[0])}, ...]")
        item = arguments[0] if arguments else Any
        schema: Schema = {"type": "array", "items": self._inner(item, f"{where}[]")}
        if origin in _SETS:
            schema["x-kubernetes-list-type"] = "set"
        elif item is Condition:
            schema |= _list_map(("type",))
        return schema

    def _map(self, arguments: tuple[Any, ...], where: str) -> Schema:
        key, value = arguments or (str, Any)
        if (bare := _bare(key).type) is not str:
            raise TypeError(f"{where}: the keys of a map are strings, not {_named(bare)}")
        if value in (Any, object):
            return {"type": "object", _PRESERVE: True}
        return {"type": "object", "additionalProperties": self._inner(value, f"{where}[*]")}

    def _inner(self, hint: Any, where: str) -> Schema:
        schema = self.schema(hint, where)
        return schema | _nullable(schema) if _bare(hint).nullable else schema

    def _list_map(self, keys: tuple[str, ...], schema: Schema, where: str) -> Schema:
        known = schema.get("items", {}).get("required", ())
        if missing := [key for key in keys if key not in known]:
            names = ", ".join(missing)
            raise TypeError(
                f"{where}: {names} is a key of the list, so it needs to be a field without a default"
            )
        return _list_map(keys)


def _bare(hint: Any) -> _Hint:
    metas: list[msgspec.Meta] = []
    rules: list[Rule] = []
    keys: tuple[str, ...] = ()
    nullable = False
    while True:
        origin = typing.get_origin(hint)
        if origin is typing.Annotated:
            hint, *notes = typing.get_args(hint)
            metas = [*(note for note in notes if isinstance(note, msgspec.Meta)), *metas]
            rules = [*(note for note in notes if isinstance(note, Rule)), *rules]
            keys = next((note.keys for note in notes if isinstance(note, ListMap)), keys)
        elif origin in (typing.Union, types.UnionType):
            members = typing.get_args(hint)
            kept = tuple(m for m in members if m not in (types.NoneType, msgspec.UnsetType))
            nullable = nullable or types.NoneType in members
            if len(kept) == len(members):
                break
            hint = typing.Union[kept]  # noqa: UP007 - of a tuple
        elif isinstance(hint, typing.NewType):
            hint = hint.__supertype__
        elif (value := getattr(hint, "__value__", None)) is not None:  # `type Name = ...`
            hint = value
        else:
            break
    nullable = nullable or (typing.get_origin(hint) is typing.Literal and None in typing.get_args(hint))
    return _Hint(hint, tuple(metas), tuple(rules), keys, nullable)


def _union(members: tuple[Any, ...], where: str) -> Schema:
    kinds = {_bare(member).type for member in members}
    if kinds == {int, str}:
        return {"x-kubernetes-int-or-string": True}
    if kinds == {int, float}:
        return dict(_PLAIN[float])
    if all(typing.get_origin(kind) is typing.Literal for kind in kinds):
        return _values([value for member in members for value in typing.get_args(member)], where)
    names = " | ".join(map(_named, members))
    raise TypeError(
        f"{where}: no schema can describe {names}: use a Struct with optional fields, or {_ADVICE}"
    )


def _values(values: Any, where: str) -> Schema:
    found = [value for value in values if value is not None]
    for type_ in (str, int):
        if found and all(type(value) is type_ for value in found):
            return {"type": _PLAIN[type_]["type"], "enum": found}
    raise TypeError(f"{where}: the values of an enumeration are all strings, or all integers")


def _nullable(schema: Schema) -> Schema:
    """API servers reject null for an enumeration, even if it contains null, so a rule replaces the enumeration."""
    if values := schema.pop("enum", None):
        rule = Rule(f"self in {json.dumps(values)}", f"must be one of {', '.join(map(str, values))}")
        schema[_RULES] = [rule.manifest, *schema.get(_RULES, ())]
    return {"nullable": True}


def _list_map(keys: tuple[str, ...]) -> Schema:
    return {"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": list(keys)}


def _constraints(meta: msgspec.Meta, type_: str | None) -> Iterator[tuple[str, Any]]:
    length = {"array": "Items", "object": "Properties"}.get(type_ or "", "Length")
    found = {
        "title": meta.title,
        "description": meta.description,
        "pattern": meta.pattern,
        "multipleOf": meta.multiple_of,
        "minimum": meta.ge if meta.gt is None else meta.gt,
        "exclusiveMinimum": None if meta.gt is None else True,
        "maximum": meta.le if meta.lt is None else meta.lt,
        "exclusiveMaximum": None if meta.lt is None else True,
        f"min{length}": meta.min_length,
        f"max{length}": meta.max_length,
    }
    return ((name, value) for name, value in found.items() if value is not None)


_NONE: Any = object()


def _default(field: msgspec.structs.FieldInfo) -> Any:
    """The default as JSON; `_NONE` if the schema should have none."""
    factory = field.default_factory
    if field.default is not msgspec.NODEFAULT:
        value = field.default
    elif isinstance(getattr(factory, "__self__", None), repeat) or isinstance(factory, type | partial):
        value = factory()
    else:
        return _NONE
    if value is None or value is msgspec.UNSET:
        return _NONE
    if isinstance(value, msgspec.Struct) and value == type(value)():
        return {}  # each field has its own
    return msgspec.json.decode(msgspec.json.encode(value))


def _check(value: Any, hint: Any, where: str) -> None:
    try:
        msgspec.convert(value, hint)
    except msgspec.ValidationError as error:
        raise TypeError(f"{where}: the default {value!r} does not fit: {error}") from error


def _omits(cls: Any) -> bool:
    omits = cls._OMIT if hasattr(cls, "_OMIT") else cls.__struct_config__.omit_defaults
    return omits is True


def _text(doc: str | None) -> str:
    return " ".join(doc.split()) if doc else ""


@cache
def _comments(cls: Any) -> Mapping[str, str]:
    """The strings below the fields of a class and its bases."""
    found: dict[str, str] = {}
    for base in reversed(cls.__mro__):
        if not issubclass(base, msgspec.Struct) or base.__module__ == msgspec.Struct.__module__:
            continue
        try:
            (tree,) = ast.parse(textwrap.dedent(inspect.getsource(base))).body
        except (OSError, TypeError, SyntaxError, ValueError):
            continue
        body = getattr(tree, "body", [])
        for above, below in pairwise(body):
            match above, below:
                case ast.AnnAssign(target=ast.Name(id=name)), ast.Expr(value=ast.Constant(value=str(text))):
                    found[name] = text
    return found


def _named(hint: Any) -> str:
    return getattr(hint, "__name__", None) or re.sub(r"\b\w+\.", "", str(hint))
