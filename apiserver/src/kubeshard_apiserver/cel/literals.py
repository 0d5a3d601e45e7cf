"""Literals that make an expression wrong whatever its variables are: the real server refuses such an expression.

| literal | the real server says |
|---|---|
| `duration('1d')`, `timestamp('x')`, `self.matches('[')` | invalid duration argument, and so on |
| `['a', 1]`, `{'a': 1, 'b': 'c'}`, except in what is formatted | expected type 'string' but found 'int' |
| `self.find('[')`, `self.findAll('[')` | program instantiation failed: error parsing regexp: ... |
| `int('a')`, `uint('a')`, `double('a')`, `bool('a')` | program instantiation failed: type conversion error ... |

Not guaranteed: that mixed lists and maps are found which contain a value of an unknown type, nor what cannot be
formatted, as in `'%d'.format(['a'])`.

Source: cel-go `cel/validator.go`, k8s.io/apiserver `pkg/cel/environment/base.go`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

from kubeshard_apiserver.cel.checked import ANY, Checked, type_name
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


def wrong_literals(checked: Checked, is_valid: IsValid) -> list[Wrong]:
    """In the order of the expression."""
    found = _Literals(checked, is_valid).wrong(checked.root, formatted=False)
    return sorted(found, key=lambda each: (each.offset is None, each.offset))


class _Literals:
    def __init__(self, checked: Checked, is_valid: IsValid) -> None:
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
            types = self._checked.types
            type_ = type_name(types[item.id]) if item.id in types else ANY
            if first and ANY not in first + type_ and type_ != first:
                yield self._at(item, f"expected type '{first}' but found '{type_}'")
                return
            first = first or type_

    def _at(self, node: Any, message: str) -> Wrong:
        return Wrong(self._checked.offsets.get(node.id, 0), message)


_CHECKED = frozenset((*_CONVERSIONS, *_SEARCHES, "matches"))
