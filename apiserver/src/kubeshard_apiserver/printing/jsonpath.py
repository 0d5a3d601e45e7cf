"""JSONPath as used by printer columns.

Supported: fields (`.a`, `['a']`, `\\.` for a dot in a name), indices and slices, `*`, `..`, unions, and filters
`[?(@.a == "b")]`. Not supported: `range` and templates, which columns do not allow. Source: client-go's
`util/jsonpath`. Its errors leave a cell empty; so does `NotFound` here.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any

Step = Callable[[list[Any]], list[Any]]

_TOKEN = re.compile(
    r"""
    (?P<recursive>\.\.)
  | \.?(?P<wild>\*)
  | \.(?P<field>(?:\\.|[^.,\[\]${}@\s\\])+)
  | (?P<dot>\.)
  | \[\?\((?P<filter>(?:"[^"]*"|'[^']*'|[^"'])*?)\)\]
  | \[(?P<array>[^\]\n]*)\]
  | (?P<bare>[A-Za-z_][\w-]*)
    """,
    re.VERBOSE,
)
_SLICE = re.compile(r"^-?\d*(:-?\d*){0,2}$")
_COMPARISON = re.compile(r"^(?P<left>.*?)\s*(?P<operator>==|!=|<=|>=|<|>)\s*(?P<right>.*)$")
_OPERATORS: Mapping[str, Callable[[Any, Any], bool]] = {
    "==": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    ">": operator.gt,
    "<=": operator.le,
    ">=": operator.ge,
}


class NotFound(LookupError):
    """The path does not fit this object: an index is out of range, or a value is not a list."""


def parse(path: str) -> Callable[[Any], list[Any]]:
    """Return a function that finds the values at the path, in order; it finds none where a field is missing.

    Raises ValueError if the path is malformed. The returned function raises NotFound.
    """
    find = _path(path)
    return lambda obj: find([obj])


def _path(path: str) -> Step:
    steps = list(_steps(path))

    def find(found: list[Any]) -> list[Any]:
        for step in steps:
            found = step(found)
        return found

    return find


def _steps(path: str) -> Iterator[Step]:
    position = 0
    while position < len(path):
        token = _TOKEN.match(path, position)
        if token is None:
            raise ValueError(f"no JSONPath: {path}")
        position = token.end()
        match token.lastgroup, token[token.lastgroup or 0]:
            case "recursive", _:
                yield _recursive
            case "wild", _:
                yield _children
            case "dot", _:
                yield _field("")
            case "field" | "bare", name:
                yield _field(re.sub(r"\\(.)", r"\1", name))
            case "array", text:
                yield _union([_member(part.strip()) for part in text.split(",")])
            case "filter", text:
                yield _filter(text.strip())


def _field(name: str) -> Step:
    def step(found: list[Any]) -> list[Any]:
        return [obj[name] for obj in found if isinstance(obj, Mapping) and name in obj]

    return step


def _union(steps: list[Step]) -> Step:
    return lambda found: [value for step in steps for value in step(found)]


def _member(text: str) -> Step:
    """Parse the content of brackets: a quoted name, which may itself be a path, or a list index or slice."""
    if len(text) > 1 and text[0] == text[-1] == "'":
        return _path(f".{text[1:-1]}")
    if text != "*" and not _SLICE.match(text):
        raise ValueError(f"invalid array index {text}")
    return _items(":" if text == "*" else text)


def _children(found: list[Any]) -> list[Any]:
    return [child for obj in found for child in _below(obj)]


def _below(obj: Any) -> list[Any]:
    if isinstance(obj, Mapping):
        return list(obj.values())
    return obj if isinstance(obj, list) else []


def _recursive(found: list[Any]) -> list[Any]:
    """Return all values that have children, depth first."""
    everything = []
    for obj in found:
        if below := _below(obj):
            everything += [obj, *_recursive(below)]
    return everything


def _items(text: str) -> Step:
    def step(found: list[Any]) -> list[Any]:
        chosen: list[Any] = []
        for obj in found:
            if obj is None:
                continue
            if not isinstance(obj, list):
                raise NotFound(f"{obj} is not a list")
            chosen += _slice(obj, text)
        return chosen

    return step


def _slice(items: list[Any], text: str) -> list[Any]:
    if ":" not in text:
        index = int(text or 0)
        try:
            return [items[index]]
        except IndexError:
            raise NotFound(f"no item {index}") from None
    start, end, step = ([int(part) if part else None for part in text.split(":")] + [None])[:3]
    return items[start:end:step]


def _filter(text: str) -> Step:
    comparison = _COMPARISON.match(text)
    left = _operand(comparison["left"] if comparison else text)
    right = _operand(comparison["right"]) if comparison else None
    compare = _OPERATORS[comparison["operator"]] if comparison else None

    def passes(item: Any) -> bool:
        ours = left(item)
        if compare is None or right is None:
            return bool(ours)
        theirs = right(item)
        if not ours or not theirs:
            return False
        if len(ours) > 1 or len(theirs) > 1 or _basic(ours[0]) is not _basic(theirs[0]):
            raise NotFound(f"{ours} cannot be compared with {theirs}")
        return compare(ours[0], theirs[0])

    def step(found: list[Any]) -> list[Any]:
        if not all(isinstance(obj, list) for obj in found):
            raise NotFound("only lists can be filtered")
        return [item for obj in found for item in obj if passes(item)]

    return step


def _basic(value: Any) -> type:
    return next((kind for kind in (bool, int, float, str) if isinstance(value, kind)), object)


def _operand(text: str) -> Callable[[Any], list[Any]]:
    text = text.strip()
    if text.startswith("@"):
        return parse(text[1:])
    if text[:1] in ("'", '"') and text[-1:] == text[:1]:
        return lambda _: [text[1:-1]]
    if text in ("true", "false"):
        return lambda _: [text == "true"]
    try:
        number = float(text) if "." in text else int(text)
    except ValueError:
        raise ValueError(f"invalid filter operand: {text}") from None
    return lambda _: [number]
