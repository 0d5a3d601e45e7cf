"""Literals that make an expression wrong whatever its variables are: the real server refuses such an expression.

| literal | the real server says |
|---|---|
| `duration('1d')`, `timestamp('x')`, `self.matches('[')` | invalid duration argument, and so on |
| `['a', 1]`, `{'a': 1, 'b': 'c'}`, except in what is formatted | expected type 'string' but found 'int' |
| `self.find('[')`, `self.findAll('[')` | program instantiation failed: error parsing regexp: ... |
| `int('a')`, `uint('a')`, `double('a')`, `bool('a')` | program instantiation failed: type conversion error ... |

Not guaranteed: that mixed lists and maps are found which contain a value of an unknown type, nor what cannot be
formatted, as in `'%d'.format(['a'])`.

Reads the compiled expression in its serialized form, `cel.expr.CheckedExpr`. Source: cel-go `cel/validator.go`,
k8s.io/apiserver `pkg/cel/environment/base.go`; cel-spec `proto/cel/expr/checked.proto`, `syntax.proto`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import cache, cached_property
from typing import Any, NamedTuple

from kubeshard.core.errors import ConfigurationError
from kubeshard.version import how_to_install
from kubeshard_apiserver.schema.formats import searching

IsValid = Callable[[str, str], bool]
"""Whether a function can be called with this text."""

_CONVERSIONS = ("duration", "timestamp", "int", "uint", "double", "bool")
_OF_TIME = _CONVERSIONS[:2]
_SEARCHES = ("find", "findAll")
_EXEMPT = "format"


class Wrong(NamedTuple):
    """`offset` is the place in the expression, None for what is found when the program is made."""

    offset: int | None
    message: str


def wrong_literals(serialized: bytes, is_valid: IsValid) -> list[Wrong]:
    """In the order of the expression. Raises ConfigurationError if protobuf is missing."""
    anything, checked = (message() for message in _messages())
    anything.ParseFromString(serialized)
    checked.ParseFromString(anything.value)
    found = _Literals(checked, is_valid).wrong(checked.expr, formatted=False)
    return sorted(found, key=lambda each: (each.offset is None, each.offset))


class _Literals:
    def __init__(self, checked: Any, is_valid: IsValid) -> None:
        self._checked = checked
        self._is_valid = is_valid

    def wrong(self, node: Any, *, formatted: bool) -> Iterator[Wrong]:
        """What is wrong in an expression. `formatted`: it is a part of what is formatted, whose lists may be mixed."""
        inner: Sequence[Any] = ()
        match node.WhichOneof("kind"):
            case "select":
                inner = (node.select.operand,)
            case "call":
                yield from self._wrong_call(node.call)
                formatted |= node.call.function == _EXEMPT
                inner = (node.call.target, *node.call.args)
            case "list":
                inner = node.list.elements
                if not formatted and len(inner) > 1:
                    optional = set(node.list.optional)
                    yield from self._mixed(each for at, each in enumerate(inner) if at not in optional)
            case "map":
                inner = [part for entry in node.map.entries for part in (entry.key, entry.value)]
                if not formatted and len(inner) > 2:
                    entries = [entry for entry in node.map.entries if not entry.optional]
                    yield from self._mixed(entry.key for entry in entries)
                    yield from self._mixed(entry.value for entry in entries)
            case "loop":
                loop = node.loop
                inner = (loop.range, loop.init, loop.condition, loop.step, loop.result)
        for each in inner:
            yield from self.wrong(each, formatted=formatted)

    def _wrong_call(self, call: Any) -> Iterator[Wrong]:
        name = call.function
        if name not in _CHECKED or not call.args or call.args[0].const.WhichOneof("kind") != "text":
            return
        argument = call.args[0]
        text = argument.const.text
        if name in _CONVERSIONS:
            if self._is_valid(name, text):
                return
            told = f"program instantiation failed: type conversion error from 'string' to '{name}'"
            yield self._at(argument, f"invalid {name} argument") if name in _OF_TIME else Wrong(None, told)
            return
        try:
            searching(text)
        except ValueError as error:
            if name in _SEARCHES:
                yield Wrong(None, f"program instantiation failed: {error}")
            else:
                yield self._at(argument, f"invalid {name} argument")

    def _mixed(self, items: Iterator[Any]) -> Iterator[Wrong]:
        """The first item of another type than the first one."""
        first = ""
        for item in items:
            type_ = _type(self._types[item.id]) if item.id in self._types else _ANY
            if first and _ANY not in first + type_ and type_ != first:
                yield self._at(item, f"expected type '{first}' but found '{type_}'")
                return
            first = first or type_

    def _at(self, node: Any, message: str) -> Wrong:
        offsets = {entry.key: entry.value for entry in self._checked.source.positions}
        return Wrong(offsets.get(node.id, 0), message)

    @cached_property
    def _types(self) -> dict[int, Any]:
        return {entry.key: entry.value for entry in self._checked.types}


_CHECKED = frozenset((*_CONVERSIONS, *_SEARCHES, "matches"))
_ANY = "dyn"
_PRIMITIVE = ("", "bool", "int", "uint", "double", "string", "bytes")
_WELL_KNOWN = ("", "any", "timestamp", "duration")


def _type(type_: Any) -> str:
    match type_.WhichOneof("kind"):
        case "null":
            return "null_type"
        case "primitive":
            return _PRIMITIVE[type_.primitive]
        case "known":
            return _WELL_KNOWN[type_.known]
        case "list":
            return f"list({_type(type_.list.item)})"
        case "map":
            return f"map({_type(type_.map.key)}, {_type(type_.map.value)})"
        case "message":
            return str(type_.message)
    return _ANY


_FILE = {
    "Any": "2 value bytes",
    "Checked": "3* types TypeEntry, 4 expr Expr, 5 source Source",
    "Expr": "2 id int64 | 3 const Const, 5 select Select, 6 call Call, 7 list List, 8 map Map, 9 loop Loop",
    "Const": "| 6 text string",
    "Select": "1 operand Expr",
    "Call": "1 target Expr, 2 function string, 3* args Expr",
    "List": "1* elements Expr, 2* optional int32",
    "Map": "2* entries Entry",
    "Entry": "3 key Expr, 4 value Expr, 5 optional bool",
    "Loop": "2 range Expr, 4 init Expr, 5 condition Expr, 6 step Expr, 7 result Expr",
    "Source": "4* positions Position",
    "Position": "1 key int64, 2 value int32",
    "TypeEntry": "1 key int64, 2 value Type",
    "Type": "| 2 null int32, 3 primitive int32, 5 known int32, 6 list ListType, 7 map MapType, 9 message string",
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
