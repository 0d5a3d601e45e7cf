"""A compiled expression as a tree, with the types and functions that the compiler has found.

Reads the serialized form of the library's expressions, `cel.expr.CheckedExpr`. Source: cel-spec
`proto/cel/expr/checked.proto`, `syntax.proto`.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache, cached_property
from typing import Any

from kubeshard.core.errors import ConfigurationError
from kubeshard.version import how_to_install

Node = Any
"""An expression: a message as `_FILE` says. `WhichOneof("kind")` tells which of its forms it has."""


class Checked:
    """Raises ConfigurationError if protobuf is missing."""

    def __init__(self, serialized: bytes) -> None:
        anything, self._checked = (message() for message in _messages())
        anything.ParseFromString(serialized)
        self._checked.ParseFromString(anything.value)
        self.root: Node = self._checked.expr

    @cached_property
    def types(self) -> dict[int, Any]:
        """The types of nodes, by their ids."""
        return {entry.key: entry.value for entry in self._checked.types}

    @cached_property
    def overloads(self) -> dict[int, Sequence[str]]:
        """The functions that a call may be one of, by the id of its node."""
        return {entry.key: entry.value.overloads for entry in self._checked.references}

    @cached_property
    def offsets(self) -> dict[int, int]:
        """The places of nodes in the expression."""
        return {entry.key: entry.value for entry in self._checked.source.positions}


ANY = "dyn"
_PRIMITIVE = ("", "bool", "int", "uint", "double", "string", "bytes")
_WELL_KNOWN = ("", "any", "timestamp", "duration")


def type_name(type_: Any) -> str:
    match type_.WhichOneof("kind"):
        case "null":
            return "null_type"
        case "primitive":
            return _PRIMITIVE[type_.primitive]
        case "known":
            return _WELL_KNOWN[type_.known]
        case "list":
            return f"list({type_name(type_.list.item)})"
        case "map":
            return f"map({type_name(type_.map.key)}, {type_name(type_.map.value)})"
        case "message":
            return str(type_.message)
        case "abstract":
            return f"{type_.abstract.name}({', '.join(map(type_name, type_.abstract.parameters))})"
    return ANY


_FILE = {
    "Any": "2 value bytes",
    "Checked": "2* references Referring, 3* types TypeEntry, 4 expr Expr, 5 source Source",
    "Referring": "1 key int64, 2 value Reference",
    "Reference": "3* overloads string",
    "Expr": "2 id int64 | 3 const Const, 4 ident Ident, 5 select Select, 6 call Call, 7 list List, 8 map Map, "
    "9 loop Loop",
    "Const": "| 2 flag bool, 3 whole int64, 6 text string, 7 raw bytes",
    "Ident": "1 name string",
    "Select": "1 operand Expr, 2 field string, 3 test bool",
    "Call": "1 target Expr, 2 function string, 3* args Expr",
    "List": "1* elements Expr, 2* optional int32",
    "Map": "1 name string, 2* entries Entry",
    "Entry": "3 key Expr, 4 value Expr, 5 optional bool",
    "Loop": "1 var string, 2 range Expr, 3 accu string, 4 init Expr, 5 condition Expr, 6 step Expr, 7 result Expr, "
    "8 var2 string",
    "Source": "4* positions Position",
    "Position": "1 key int64, 2 value int32",
    "TypeEntry": "1 key int64, 2 value Type",
    "Type": "| 2 null int32, 3 primitive int32, 5 known int32, 6 list ListType, 7 map MapType, 9 message string, "
    "14 abstract Abstract",
    "Abstract": "1 name string, 2* parameters Type",
    "ListType": "1 item Type",
    "MapType": "1 key Type, 2 value Type",
}
"""What is read of each message: number, name and type of a field. `*` is for a repeated one, `|` before a choice."""


@cache
def _messages() -> tuple[Any, Any]:
    """The classes of a packed message, and of a checked expression."""
    try:
        from google.protobuf import (  # type: ignore[import-untyped,unused-ignore] # untyped, or not installed
            descriptor_pb2,
            descriptor_pool,
            message_factory,
        )
    except ImportError as error:
        raise ConfigurationError(f"CEL needs protobuf: {how_to_install('apiserver')} ({error})") from error
    kinds = descriptor_pb2.FieldDescriptorProto
    file = descriptor_pb2.FileDescriptorProto(name="checked.proto", package="checked", syntax="proto2")
    for name, said in _FILE.items():
        message = file.message_type.add(name=name)
        plain, _, choice = said.partition("|")
        if choice:
            message.oneof_decl.add(name="kind")
        for part in filter(str.strip, (*plain.split(","), *choice.split(","))):
            number, field_name, type_ = part.split()
            label = kinds.LABEL_REPEATED if "*" in number else kinds.LABEL_OPTIONAL
            field = message.field.add(name=field_name, number=int(number.strip("*")), label=label)
            if type_ in _FILE:
                field.type, field.type_name = kinds.TYPE_MESSAGE, f".checked.{type_}"
            else:
                field.type = getattr(kinds, f"TYPE_{type_.upper()}")
            if part in choice.split(","):
                field.oneof_index = 0
    pool = descriptor_pool.DescriptorPool()
    pool.AddSerializedFile(file.SerializeToString())
    one, other = (pool.FindMessageTypeByName(f"checked.{name}") for name in ("Any", "Checked"))
    return message_factory.GetMessageClass(one), message_factory.GetMessageClass(other)
