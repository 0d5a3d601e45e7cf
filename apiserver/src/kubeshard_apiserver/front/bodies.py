"""Request bodies in JSON and YAML, with the warnings about duplicate fields, of which the last one wins.

From YAML only JSON's types are read, only the first document, and no document that expands far beyond its size.
Guaranteed: the document is built in a single pass over the parser's events, so a large body is read only once and has
no second representation in memory. Nesting deeper than `DEEPEST` and aliases that expand to more than `MOST_NODES`
nodes are rejected during the pass. (Otherwise code that walks the document would crash on the former and never finish
on the latter.) A JSON body without duplicates costs only one search for text that looks like a key. Source: YAML 1.1 as
sigs.k8s.io/yaml reads it; sigs.k8s.io/json.
"""

from __future__ import annotations

import base64
import binascii
import json
import math
import re
from collections.abc import Iterator
from typing import Any, NamedTuple

import yaml
from yaml.events import (
    AliasEvent,
    DocumentEndEvent,
    MappingEndEvent,
    MappingStartEvent,
    ScalarEvent,
    SequenceEndEvent,
    SequenceStartEvent,
    StreamEndEvent,
)
from yaml.scanner import ScannerError

from kubeshard_apiserver.model import NO_DUPLICATES, Duplicates

DEEPEST = 1000
MOST_NODES = 1_000_000

_Loader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_TAG = "tag:yaml.org,2002:"
_MERGE = "<<"

_INT = r"[-+]?(?:0[bB][01_]+|0[xX][0-9a-fA-F_]+|0[oO]?[0-7_]*|[1-9][0-9_]*)"
_FLOAT = r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?|[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN)"
_WORDS: dict[str, bool | None] = {
    **dict.fromkeys(["y", "Y", "yes", "Yes", "YES", "on", "On", "ON", "true", "True", "TRUE"], True),
    **dict.fromkeys(["n", "N", "no", "No", "NO", "off", "Off", "OFF", "false", "False", "FALSE"], False),
    **dict.fromkeys(("~", "null", "Null", "NULL", ""), None),
}
_is_int = re.compile(_INT).fullmatch
_is_float = re.compile(_FLOAT).fullmatch
_NUMERIC = frozenset("-+.0123456789")

_NO_KEY = object()


class Repeated(NamedTuple):
    """A duplicate key in a map: the line of its value, and the key as shown in messages."""

    line: int
    key: str


class _Mapping:
    """A mapping that is not complete yet."""

    __slots__ = ("anchor", "document", "entries", "key", "keys", "line", "merges", "start")

    def __init__(self, anchor: str | None, start: int, line: int) -> None:
        self.document: dict[str, Any] = {}
        self.keys: set[Any] = set()
        """The keys so far: strings as they are, and other keys with their type, because 1 and "1" are different keys.
        """
        self.entries: list[tuple[Any, int]] = []
        self.key: Any = _NO_KEY
        """The key whose value comes next."""
        self.merges = False
        self.anchor, self.start, self.line = anchor, start, line


class _Sequence:
    __slots__ = ("anchor", "document", "line", "start")

    def __init__(self, anchor: str | None, start: int, line: int) -> None:
        self.document: list[Any] = []
        self.anchor, self.start, self.line = anchor, start, line


def read_yaml(body: bytes) -> tuple[Any, list[Repeated]]:
    """Returns the document, or None if there is none, and its duplicate keys, the last of which wins. Raises
    yaml.YAMLError with the server's message.
    """
    loader = None
    try:
        loader = _Loader(body)
        return _Reading(loader.get_event, may_merge=b"<" in body).document()
    except yaml.MarkedYAMLError as error:
        raise yaml.YAMLError(f"yaml: {_line(error)}{error.problem}") from None
    except yaml.reader.ReaderError as error:
        raise yaml.YAMLError(f"yaml: {error.reason}") from None
    finally:
        if loader is not None:
            loader.dispose()


class _Reading:
    def __init__(self, next_event: Any, *, may_merge: bool) -> None:
        self._next_event = next_event
        self._may_merge = may_merge
        self._open: list[_Mapping | _Sequence] = []
        self._anchors: dict[str, tuple[Any, int]] = {}
        """The value of each anchor, and the number of its nodes."""
        self._entries: dict[int, list[tuple[Any, int]]] = {}
        """The keys and lines of complete mappings, by identity; only if there may be merges."""
        self._nodes = 0
        self._repeated: list[Repeated] = []

    def document(self) -> tuple[Any, list[Repeated]]:
        next_event, open_ = self._next_event, self._open
        root: Any = None
        while True:
            event = next_event()
            kind = type(event)
            if kind is ScalarEvent:
                tag = event.tag
                # Most scalars have no tag; a quoted one is always a string.
                value = event.value if tag is None and not event.implicit[0] else _scalar(event)
                self._nodes += 1
                if event.anchor is not None:
                    self._anchors[event.anchor] = value, 1
                if open_:
                    self._put(value, event, event.start_mark.line)
                else:
                    root = value
            elif kind is MappingStartEvent or kind is SequenceStartEvent:
                self._begin(event)
            elif kind is MappingEndEvent or kind is SequenceEndEvent:
                ended = self._end()
                if open_:
                    self._put(ended.document, event, ended.line)
                else:
                    root = ended.document
            elif kind is AliasEvent:
                self._put(self._meant(event.anchor), event, event.start_mark.line)
            elif kind is DocumentEndEvent or kind is StreamEndEvent:
                return root, self._repeated

    def _begin(self, event: Any) -> None:
        if len(self._open) == DEEPEST:
            raise yaml.YAMLError(f"yaml: exceeded max depth of {DEEPEST}")
        self._nodes += 1
        made = (_Mapping if type(event) is MappingStartEvent else _Sequence)(
            event.anchor, self._nodes, event.start_mark.line
        )
        if event.anchor is not None:
            self._anchors[event.anchor] = _NO_KEY, 0
        self._open.append(made)

    def _end(self) -> _Mapping | _Sequence:
        ended = self._open.pop()
        if ended.anchor is not None:
            self._anchors[ended.anchor] = ended.document, 1 + self._nodes - ended.start
        if self._may_merge and isinstance(ended, _Mapping):
            self._entries[id(ended.document)] = ended.entries
        return ended

    def _meant(self, anchor: str) -> Any:
        try:
            value, size = self._anchors[anchor]
        except KeyError:
            raise yaml.YAMLError(f"yaml: unknown anchor '{anchor}' referenced") from None
        if value is _NO_KEY:
            raise yaml.YAMLError(f"yaml: anchor '{anchor}' value contains itself")
        self._nodes += size
        if self._nodes > MOST_NODES:
            raise yaml.YAMLError("yaml: document contains excessive aliasing")
        return value

    def _put(self, value: Any, event: Any, line: int) -> None:
        """Adds a value to the innermost open collection. `event` is the last event of the value, and `line` the line
        on which it begins.
        """
        into = self._open[-1]
        if isinstance(into, _Sequence):
            into.document.append(value)
        elif into.key is _NO_KEY and not into.merges:
            if isinstance(value, dict | list):
                found = "[]interface {}" if isinstance(value, list) else "map[interface {}]interface {}"
                raise yaml.YAMLError(f"yaml: invalid map key: {found}")
            if value == _MERGE and type(event) is ScalarEvent and _is_merge(event):
                into.merges = True
            else:
                into.key = value
        elif into.merges:
            into.merges = False
            self._merge(into, value, event)
        else:
            key, into.key = into.key, _NO_KEY
            self._set(into, key, value, line + 1)

    def _set(self, into: _Mapping, key: Any, value: Any, line: int) -> None:
        known = key if type(key) is str else (type(key), key)
        if known in into.keys:
            self._repeated.append(Repeated(line, _shown(key)))
        into.keys.add(known)
        if self._may_merge:
            into.entries.append((key, line))
        into.document[key if type(key) is str else _text_of(key, value)] = value

    def _merge(self, into: _Mapping, value: Any, event: Any) -> None:
        """Merges the value at its position: later keys win, whether they are written out or merged."""
        sources = value if isinstance(value, list) and type(event) is SequenceEndEvent else [value]
        if not all(isinstance(source, dict) for source in sources):
            raise yaml.YAMLError("yaml: map merge requires map or sequence of maps as the value")
        for source in reversed(sources):
            for key, line in self._entries[id(source)]:
                self._set(into, key, source[key if type(key) is str else _text_of(key, None)], line)


def _is_merge(event: Any) -> bool:
    return bool(event.implicit[0]) or event.tag == _TAG + "merge"


def _scalar(event: Any) -> Any:
    tag, text = event.tag, event.value
    if tag is None:
        return _plain(text)
    if tag == _TAG + "binary":
        try:
            return base64.b64decode(re.sub(r"[\r\n]", "", text), validate=True).decode(errors="replace")
        except (binascii.Error, ValueError):
            raise yaml.YAMLError("yaml: !!binary value contains invalid base64 data") from None
    expected = _TYPES.get(tag.removeprefix(_TAG))
    if expected is None:
        return text  # an unknown tag, or `!!str`
    value = _plain(text)
    if type(value) is int and expected is float:
        return float(value)
    if type(value) is not expected:
        found = next((name for name, of in _TYPES.items() if of is type(value)), "str")
        raise yaml.YAMLError(f"yaml: cannot decode !!{found} `{text}` as a !!{tag.removeprefix(_TAG)}")
    return value


_TYPES: dict[str, type] = {"int": int, "float": float, "bool": bool, "null": type(None)}


def _plain(text: str) -> Any:
    """Resolves the words and numbers of YAML 1.1; a timestamp remains a string."""
    if text[:1] not in _NUMERIC or not text:
        return _WORDS.get(text, text)
    if _is_int(text):
        number = _whole(text.replace("_", ""))
    elif _is_float(text):
        number = float(text.lower().replace(".inf", "inf").replace(".nan", "nan"))
    else:
        return text
    if number is None or not math.isinf(number):
        return text if number is None else number
    if "n" in text.lower():
        raise yaml.YAMLError(f"json: unsupported value: {'-' if number < 0 else '+'}Inf")
    return text  # out of range


def _whole(digits: str) -> int | float | None:
    """Parses an integer; returns None if the text is not one after all."""
    for base in (0, 8):  # 8 is for a leading zero without a letter
        try:
            number = int(digits, base)
            return number if -(2**63) <= number < 2**64 else float(number)
        except (ValueError, OverflowError):
            continue
    return None


def _text_of(key: Any, value: Any) -> str:
    """Returns the text of a key, as in JSON."""
    if isinstance(key, bool):
        return "true" if key else "false"
    if isinstance(key, int | float):
        return str(key).removesuffix(".0")
    shown = "a collection" if isinstance(value, dict | list) else json.dumps(value)
    raise yaml.YAMLError(f"unsupported map key of type: %!s(<nil>), key: <nil>, value: {shown}")


def _shown(key: Any) -> str:
    return json.dumps(key, ensure_ascii=False) if isinstance(key, str) else _text_of(key, None)


def _line(error: yaml.MarkedYAMLError) -> str:
    """Returns the line of an error. Lines count from 0, as on the server, except for errors of the scanner."""
    mark = error.problem_mark or error.context_mark
    line = 0 if mark is None or not mark.line else mark.line + isinstance(error, ScannerError)
    return f"line {line}: " if line else ""


_KEY = re.compile(rb'"\s*:')


def duplicates_in_json(body: bytes, document: Any, *, is_json_patch: bool = False) -> Duplicates:
    """Reports duplicate keys in a JSON body. `document` is the decoded body."""
    if len(_KEY.findall(body)) == _keys(document):
        return NO_DUPLICATES
    paths = list(dict.fromkeys(_repeated(json.loads(body, object_pairs_hook=_Pairs), "")))
    if not is_json_patch:
        return _duplicates([f'duplicate field "{path}"' for path in paths])
    found = [f'json patch duplicate field "{path}"' for path in paths]
    return _duplicates(found + [f'duplicate field "{path}"' for path in _patched(paths, document)])


def duplicates_in_yaml(repeated: list[Repeated]) -> Duplicates:
    """Reports duplicate keys with their lines."""
    found = [f"line {line}: key {key} already set in map" for line, key in repeated]
    return Duplicates(tuple(found), "\n  ".join(("yaml: unmarshal errors:", *found)) if found else "")


def _duplicates(found: list[str]) -> Duplicates:
    return Duplicates(tuple(found), ", ".join(found))


class _Pairs(list[tuple[str, Any]]):
    """An object with all its members, duplicates included."""


def _keys(document: Any) -> int:
    count, left = 0, [document]
    while left:
        node = left.pop()
        if isinstance(node, dict):
            count += len(node)
            left.extend(member for member in node.values() if isinstance(member, dict | list))
        elif isinstance(node, list):
            left.extend(member for member in node if isinstance(member, dict | list))
    return count


def _repeated(node: Any, path: str) -> Iterator[str]:
    if isinstance(node, _Pairs):
        seen = set()
        for name, member in node:
            below = f"{path}.{name}" if path else name
            if name in seen:
                yield below
            seen.add(name)
            yield from _repeated(member, below)
    elif isinstance(node, list):
        for index, item in enumerate(node):
            yield from _repeated(item, f"{path}[{index}]")


def _patched(paths: list[str], operations: Any) -> Iterator[str]:
    """Yields the paths in the patched object that correspond to duplicates in the values of the operations."""
    for path in paths:
        found = re.fullmatch(r"\[(\d+)\]\.value\.(.+)", path, re.S)
        if (
            found
            and isinstance(operations, list)
            and isinstance(operation := operations[int(found[1])], dict)
        ):
            yield ".".join((*str(operation.get("path", "")).split("/")[1:], found[2]))
