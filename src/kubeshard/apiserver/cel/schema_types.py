"""Types for the compiler from a schema: what it finds out about `self` before there is a value.

An object is described to it as a message of protobuf, which is how the language declares types; the values that are
evaluated later stay JSON. Lists of lists and maps of lists, which messages do not have, are `dyn` inside.

Source: k8s.io/apiserver `pkg/cel/common/schemas.go`, `pkg/cel/escaping.go`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache
from typing import Any, NamedTuple

from kubeshard.apiserver.cel.program import CelError, checked, environment, library
from kubeshard.core.errors import ConfigurationError

Schema = Mapping[str, Any]
TEXT: Schema = {"type": "string"}
ROOT: Mapping[str, Schema] = {
    "apiVersion": TEXT,
    "kind": TEXT,
    "metadata": {"type": "object", "properties": {"name": TEXT, "generateName": TEXT}},
}
"""What rules see of every whole object."""

_PACKAGE = "kubeshard"
_RESERVED = frozenset(
    (
        *("true", "false", "null", "in", "as", "break", "const", "continue", "else", "for", "function", "if"),
        *("import", "let", "loop", "package", "namespace", "return", "var", "void", "while"),
    )
)
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
    """`kind`: `list`, `map`, `message` or the name of a simple type; `of` is the item's type, or the message's
    name.
    """

    kind: str
    of: Any = None


def escaped(name: str) -> str | None:
    """A field's name in expressions; None for one that cannot be said there."""
    if not _NAME.fullmatch(name):
        return None
    if name in _RESERVED:
        return f"__{name}__"
    return _ESCAPED.sub(lambda found: _SPECIAL[found[0]], name)


def members(schema: Schema, *, is_root: bool) -> Mapping[str, Schema]:
    """The fields of an object that expressions can name."""
    properties: Mapping[str, Schema] = schema.get("properties") or {}
    if is_root or schema.get("x-kubernetes-embedded-resource"):
        return {**properties, **ROOT}
    return properties


class TypedScope:
    """The variables `self` and `oldSelf` of one schema."""

    def __init__(self, schema: Schema, *, is_root: bool = False) -> None:
        self._messages = _Messages()
        declared = self._messages.declare(schema, is_root=is_root)
        self._environment = None
        if declared is not None:
            own = _type_of(declared)
            variables = {"self": own, "oldSelf": own, "old_self_": own, "has_old_": library().Type.BOOL}
            self._environment = environment(variables, self._messages.pool())

    def check(self, expression: str, *, optional_old: bool = False) -> str:
        """The type of its result. Raises CelError."""
        if self._environment is None:
            raise CelError("failed to convert to declType for CEL validation rules")
        if not optional_old:
            return checked(self._environment, expression)[1]
        before, after = OPTIONAL
        returns = checked(self._environment, f"{before}{expression}{after}")[1]
        return returns.removeprefix("list(").removesuffix(")") if returns.startswith("list(") else "dyn"


OPTIONAL = ("[has_old_ ? optional.of(old_self_) : optional.none()].map(oldSelf, ", ")")
"""Around an expression to which `oldSelf` is an optional value: a list of its one result."""


class _Messages:
    def __init__(self) -> None:
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
        """None for what expressions cannot see."""
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
            case str(type_) if type_ in _SIMPLE:
                return _Declared(_SIMPLE[type_])
        return None

    def _message(self, fields: Mapping[str, Schema]) -> _Declared:
        message = self._file.message_type.add(name=f"Type{len(self._file.message_type)}")
        for name, schema in fields.items():
            declared, shown = self.declare(schema), escaped(name)
            if declared is not None and shown is not None:
                self._field(message, shown, declared)
        return _Declared("message", f"{_PACKAGE}.{message.name}")

    def _field(self, message: Any, name: str, declared: _Declared) -> None:
        kinds = self._descriptors.pb2.FieldDescriptorProto
        field = message.field.add(name=name, number=_number(len(message.field)), label=kinds.LABEL_OPTIONAL)
        if declared.kind in ("list", "map"):
            field.label = kinds.LABEL_REPEATED
        if declared.kind == "map":
            entry = message.nested_type.add(name=f"Entry{len(message.nested_type)}")
            entry.options.map_entry = True
            entry.field.add(name="key", number=1, type=kinds.TYPE_STRING, label=kinds.LABEL_OPTIONAL)
            value = entry.field.add(name="value", number=2, label=kinds.LABEL_OPTIONAL)
            _set_type(kinds, value, declared.of)
            field.type = kinds.TYPE_MESSAGE
            # The name of an entry has to follow from that of its field.
            entry.name = "".join(part[:1].upper() + part[1:] for part in name.split("_")) + "Entry"
            field.type_name = f".{_PACKAGE}.{message.name}.{entry.name}"
        else:
            _set_type(kinds, field, declared.of if declared.kind == "list" else declared)


def _number(index: int) -> int:
    """Of a field. Some are not for users."""
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
    """As a value that may stand anywhere in a variable."""
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
        from google.protobuf import (  # type: ignore[import-untyped,unused-ignore]
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
            f"rules of custom resources need protobuf: pip install 'kubeshard[apiserver]' ({error})"
        ) from error
    known = (any_pb2, duration_pb2, struct_pb2, timestamp_pb2, wrappers_pb2)
    made = timestamp_pb2.Timestamp, duration_pb2.Duration
    return _Protobuf(descriptor_pb2, descriptor_pool.DescriptorPool, known, *made)
