"""Types for the compiler, derived from a schema: what is known about `self` before it has a value.

An object is declared as a protobuf message, which is how the language declares types; the values evaluated later
remain JSON. Messages cannot express lists of lists or maps of lists, so the items of the inner lists are `dyn`.

Source: k8s.io/apiserver `pkg/cel/common/schemas.go`, `pkg/cel/escaping.go`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache, partial
from typing import Any, NamedTuple

from kubeshard.core.errors import ConfigurationError
from kubeshard.version import how_to_install
from kubeshard_apiserver.cel.checked import Checked, Node
from kubeshard_apiserver.cel.program import CelError, checked, environment, library

Schema = Mapping[str, Any]
TEXT: Schema = {"type": "string"}
ROOT: Mapping[str, Schema] = {
    "apiVersion": TEXT,
    "kind": TEXT,
    "metadata": {"type": "object", "properties": {"name": TEXT, "generateName": TEXT}},
}
"""The fields that rules see of every complete object."""

_PACKAGE = "kubeshard"
_RESERVED = frozenset(
    (
        *("as", "break", "const", "continue", "else", "for", "function", "if", "import", "let", "loop"),
        *("namespace", "package", "return", "var", "void", "while"),
    )
)
_TOKENS = frozenset(("true", "false", "null", "in"))
_SPECIAL = {"__": "__underscores__", ".": "__dot__", "-": "__dash__", "/": "__slash__"}
_ESCAPED = re.compile(r"__|[./-]")
_NAME = re.compile(r"[a-zA-Z_./-][a-zA-Z0-9_./-]*")
_SIMPLE = {"boolean": "bool", "number": "double", "integer": "int"}
_FORMATTED = {"byte": "bytes", "duration": "duration", "date": "timestamp", "date-time": "timestamp"}
_WRAPPED = {
    "dyn": ".google.protobuf.Value",
    "timestamp": ".google.protobuf.Timestamp",
    "duration": ".google.protobuf.Duration",
}


class _Declared(NamedTuple):
    """`kind` is `list`, `map`, `message` or the name of a simple type; `of` is the type of the items, or the name of
    the message.
    """

    kind: str
    of: Any = None


def names_in_expressions(name: str) -> tuple[str, ...]:
    """Returns the names of a field in expressions; none if they cannot refer to it. A reserved word may be escaped or
    not, unless it has a meaning of its own in the language.
    """
    if not _NAME.fullmatch(name):
        return ()
    if name in _RESERVED:
        return f"__{name}__", name
    return (f"__{name}__" if name in _TOKENS else _ESCAPED.sub(lambda found: _SPECIAL[found[0]], name),)


def members(schema: Schema, *, is_root: bool) -> Mapping[str, Schema]:
    """The fields of an object that expressions can refer to."""
    properties: Mapping[str, Schema] = schema.get("properties") or {}
    if is_root or schema.get("x-kubernetes-embedded-resource"):
        return {**properties, **ROOT}
    return properties


class Untyped(ValueError):
    """A schema has no type that an expression could use."""


class Typed(NamedTuple):
    """An expression whose types are known: that of its result, and its tree, of which `node` is the expression.
    `is_loose`: but for those of numbers, which are `dyn`.
    """

    returns: str
    tree: Checked
    node: Node
    is_loose: bool


class TypedScope:
    """The variables `self` and `oldSelf` of one schema. Raises Untyped."""

    def __init__(self, schema: Schema, *, is_root: bool = False) -> None:
        self._typed = _environment_of(schema, is_root=is_root)
        self._loose = partial(_environment_of, schema, is_root=is_root, numbers=False)

    def check(self, expression: str, *, optional_old: bool = False) -> Typed:
        """Raises CelError."""
        before, after = OPTIONAL if optional_old else ("", "")
        text, is_loose = f"{before}{expression}{after}", False
        try:
            _, returns, tree = checked(self._typed, text)
        except CelError as error:
            # The library's compiler only compares numbers of one type; its evaluator and the real server compare any.
            if not _MIXED.search(str(error)):
                raise CelError(_own_words(str(error), optional_old)) from None
            is_loose = True
            _, returns, tree = checked(self._loose(), text)
        if not optional_old:
            return Typed(returns, tree, tree.root, is_loose)
        inner = tree.root.loop.step.call.args[1].list.elements[0]
        returns = returns.removeprefix("list(").removesuffix(")") if returns.startswith("list(") else "dyn"
        return Typed(returns, tree, inner, is_loose)


_MIXED = re.compile(r"overload for '_[<>]=?_' applied to '\((?:double|int|uint), (?:double|int|uint)\)'")


def _environment_of(schema: Schema, *, is_root: bool, numbers: bool = True) -> Any:
    """`numbers` says whether the numeric types are distinct."""
    messages = _Messages(numbers)
    declared = messages.declare(schema, is_root=is_root)
    if declared is None:
        raise Untyped
    own = _type_of(declared)
    variables = {"self": own, "oldSelf": own, "old_self_": own, "has_old_": library().Type.BOOL}
    return environment(variables, messages.pool())


def _own_words(text: str, optional_old: bool) -> str:
    for name in ("Timestamp", "Duration"):
        text = text.replace(f"google.protobuf.{name}", name.lower())
    if optional_old:
        text = re.sub(r"(?<=<input>:)\d+", lambda found: str(int(found[0]) - 1), text)
    return text


OPTIONAL = ("[has_old_ ? optional.of(old_self_) : optional.none()].map(oldSelf,\n", "\n)")
"""Wraps an expression so that `oldSelf` is an optional value. The result is a list with the expression's result."""


class _Messages:
    def __init__(self, numbers: bool) -> None:
        self._simple = _SIMPLE if numbers else {**_SIMPLE, "number": "dyn", "integer": "dyn"}
        self._descriptors = _protobuf()
        self._file = self._descriptors.pb2.FileDescriptorProto(
            name="schema.proto",
            package=_PACKAGE,
            syntax="proto2",
            dependency=[f"google/protobuf/{name}.proto" for name in ("struct", "timestamp", "duration")],
        )

    def pool(self) -> Any:
        pool = self._descriptors.pool()
        for known in self._descriptors.known:
            pool.AddSerializedFile(known.DESCRIPTOR.serialized_pb)
        pool.AddSerializedFile(self._file.SerializeToString())
        return pool

    def declare(self, schema: Schema, *, is_root: bool = False) -> _Declared | None:
        """Declares the type of a schema. Returns None for a part that is not visible to expressions."""
        if schema.get("x-kubernetes-int-or-string"):
            return _Declared("dyn")
        match schema.get("type"):
            case "array":
                items = schema.get("items")
                of = self.declare(items) if isinstance(items, Mapping) else None
                return of and _Declared("list", of)
            case "object":
                additional = schema.get("additionalProperties")
                if isinstance(additional, Mapping):
                    of = self.declare(additional)
                    return of and _Declared("map", of)
                return self._message(members(schema, is_root=is_root))
            case "string":
                return _Declared(_FORMATTED.get(schema.get("format") or "", "string"))
            case str(type_) if type_ in self._simple:
                return _Declared(self._simple[type_])
        return None

    def _message(self, fields: Mapping[str, Schema]) -> _Declared:
        message = self._file.message_type.add(name=f"Type{len(self._file.message_type)}")
        # Names that are equal in lowerCamelCase are allowed.
        message.options.deprecated_legacy_json_field_conflicts = True
        for name, schema in fields.items():
            if (declared := self.declare(schema)) is not None:
                for shown in names_in_expressions(name):
                    self._field(message, shown, declared)
        return _Declared("message", f"{_PACKAGE}.{message.name}")

    def _field(self, message: Any, name: str, declared: _Declared) -> None:
        kinds = self._descriptors.pb2.FieldDescriptorProto
        number = _number(len(message.field))
        field = message.field.add(name=name, number=number, label=kinds.LABEL_OPTIONAL)
        # The name of a map's entry type must be derived from the name of the field.
        entry_name = "".join(part[:1].upper() + part[1:] for part in name.split("_")) + "Entry"
        if declared.kind == "map" and any(entry.name == entry_name for entry in message.nested_type):
            # A second field with the same entry type cannot be a map.
            declared = _Declared("dyn")
        if declared.kind in ("list", "map"):
            field.label = kinds.LABEL_REPEATED
        if declared.kind == "map":
            entry = message.nested_type.add(name=entry_name)
            entry.options.map_entry = True
            entry.field.add(name="key", number=1, type=kinds.TYPE_STRING, label=kinds.LABEL_OPTIONAL)
            value = entry.field.add(name="value", number=2, label=kinds.LABEL_OPTIONAL)
            _set_type(kinds, value, declared.of)
            field.type = kinds.TYPE_MESSAGE
            field.type_name = f".{_PACKAGE}.{message.name}.{entry_name}"
        else:
            _set_type(kinds, field, declared.of if declared.kind == "list" else declared)


def _number(index: int) -> int:
    """Returns the number of a field. Some numbers are reserved."""
    return index + 1 if index < 18_999 else index + 1001


def _set_type(kinds: Any, field: Any, declared: _Declared) -> None:
    scalars = {"bool": "BOOL", "int": "INT64", "double": "DOUBLE", "string": "STRING", "bytes": "BYTES"}
    if declared.kind in scalars:
        field.type = getattr(kinds, f"TYPE_{scalars[declared.kind]}")
        return
    field.type = kinds.TYPE_MESSAGE
    if declared.kind == "message":
        field.type_name = f".{declared.of}"
    else:
        field.type_name = _WRAPPED.get(declared.kind, _WRAPPED["dyn"])


def _type_of(declared: _Declared) -> Any:
    types = library().Type
    match declared.kind:
        case "list":
            return types.List(_type_of(declared.of))
        case "map":
            return types.Map(types.STRING, _type_of(declared.of))
        case "message":
            return types(declared.of)
    return getattr(types, declared.kind.upper())


def timestamp(seconds: int, nanos: int) -> Any:
    """Returns a timestamp that may appear anywhere in the value of a variable."""
    return _protobuf().timestamp(seconds=seconds, nanos=nanos)


def duration(seconds: int, nanos: int) -> Any:
    return _protobuf().duration(seconds=seconds, nanos=nanos)


class _Protobuf(NamedTuple):
    pb2: Any
    pool: Any
    known: tuple[Any, ...]
    timestamp: Any
    duration: Any


@cache
def _protobuf() -> _Protobuf:
    try:
        from google.protobuf import (  # type: ignore[import-untyped,unused-ignore] # untyped, or not installed
            any_pb2,
            descriptor_pb2,
            descriptor_pool,
            duration_pb2,
            struct_pb2,
            timestamp_pb2,
            wrappers_pb2,
        )
    except ImportError as error:
        raise ConfigurationError(
            f"rules of custom resources need protobuf: {how_to_install('apiserver')} ({error})"
        ) from error
    known = (any_pb2, duration_pb2, struct_pb2, timestamp_pb2, wrappers_pb2)
    made = timestamp_pb2.Timestamp, duration_pb2.Duration
    return _Protobuf(descriptor_pb2, descriptor_pool.DescriptorPool, known, *made)
