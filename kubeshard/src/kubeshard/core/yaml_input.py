"""Reads YAML and JSON as Kubernetes' clients and servers do: as sigs.k8s.io/yaml, of which the types of JSON are all.

PyYAML's own loaders read other things: a date is an object to them, `22:30` is 1350, `y` and `1e3` are text. Here
`y`, `on` and `yes` are true, also as keys (`"true"`), a date is text, and of a duplicate key the last one wins.

Guaranteed: the document is built in a single pass over the parser's events, so a large body is read only once and has
no second representation in memory. Nesting deeper than `DEEPEST` and aliases that expand to more than `MOST_NODES`
nodes are rejected during the pass. (Otherwise code that walks the document would crash on the former and never finish
on the latter.) Every key is a string. Source: YAML 1.1 as sigs.k8s.io/yaml reads it; `YAMLOrJSONDecoder` of
k8s.io/apimachinery, with which kubectl reads files.
"""

from __future__ import annotations

import base64
import binascii
import json
import math
import re
import struct
from typing import Any, NamedTuple

import msgspec
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

DEEPEST = 1000
MOST_NODES = 1_000_000

_Loader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_TAG = "tag:yaml.org,2002:"
_MERGE = "<<"

_INT = r"[-+]?(?:0[bB][01]+|0[xX][0-9a-fA-F]+|0[oO]?[0-7]*|[1-9][0-9]*)"
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


def read_yaml(data: bytes) -> tuple[Any, list[Repeated]]:
    """The first document, or None, and its duplicate keys, the last of which wins. Raises yaml.YAMLError."""
    loader = None
    try:
        loader = _Loader(data)
        return _Reading(loader.get_event, may_merge=_may_merge(data)).document()
    finally:
        if loader is not None:
            loader.dispose()


class Unreadable(ValueError):
    """Text that is neither YAML nor JSON. The message has the line."""


def documents_in(data: bytes) -> list[Any]:
    """YAML documents, or JSON values one after the other, without empty ones, as in kubectl. Raises Unreadable."""
    found, rest = _json_in(data) if data.lstrip().startswith(b"{") else ([], data)
    loader = None
    try:
        loader = _Loader(rest)
        loader.get_event()  # the beginning of the stream
        while not loader.check_event(StreamEndEvent):
            found.append(_Reading(loader.get_event, may_merge=_may_merge(rest)).document()[0])
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None) or getattr(error, "context_mark", None)
        line = f" on line {data[: len(data) - len(rest)].count(_LINE_END) + mark.line + 1}" if mark else ""
        problem = str(getattr(error, "problem", None) or getattr(error, "reason", None) or error)
        if problem.startswith(_NO_KEY_OF_JSON):
            problem = "a key is null, or a number of more than 64 bits: write it in quotes"
        raise Unreadable(f"not YAML{line}: {problem.removeprefix('yaml: ')}") from error
    finally:
        if loader is not None:
            loader.dispose()
    return [each for each in found if each is not None]


def without_nulls(document: Any) -> Any:
    """A copy without members that are null, which means absent, as in Go."""
    if isinstance(document, dict):
        return {name: without_nulls(value) for name, value in document.items() if value is not None}
    return [without_nulls(each) for each in document] if isinstance(document, list) else document


_NO_KEY_OF_JSON = "unsupported map key"
_LINE_END = b"\n"
_read_json = json.JSONDecoder().raw_decode
_SPACE = re.compile(r"\s*")


def _json_in(data: bytes) -> tuple[list[Any], bytes]:
    """The JSON values at the beginning, and what follows them. After more than one it cannot be YAML."""
    try:
        text = data.decode()
    except UnicodeDecodeError:
        return [], data
    found: list[Any] = []
    at = _end_of_space(text, 0)
    while at < len(text):
        try:
            end = _read_json(text, at)[1]
            found.append(msgspec.json.decode(text[at:end]))  # which is stricter
        except (msgspec.DecodeError, ValueError, RecursionError) as error:
            if len(found) > 1:
                line = text.count("\n", 0, getattr(error, "pos", at)) + 1
                raise Unreadable(f"not JSON on line {line}: {getattr(error, 'msg', error)}") from error
            break
        at = _end_of_space(text, end)
    return found, text[at:].encode()


def _end_of_space(text: str, start: int) -> int:
    match = _SPACE.match(text, start)
    return match.end() if match else start


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
                if type(value) is float and not self._awaits_key():
                    value = _in_json(value)
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

    def _awaits_key(self) -> bool:
        into = self._open[-1] if self._open else None
        return isinstance(into, _Mapping) and into.key is _NO_KEY and not into.merges

    def _put(self, value: Any, event: Any, line: int) -> None:
        """Into the innermost open collection. `event` is the last of the value, which begins on `line`."""
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


def _may_merge(data: bytes) -> bool:
    """Whether there may be a merge key: written as it is, or with a tag."""
    return b"<" in data or b"!" in data


def _is_merge(event: Any) -> bool:
    return bool(event.implicit[0]) or event.tag == _TAG + "merge"


def _scalar(event: Any) -> Any:
    tag, text = event.tag, event.value
    if tag is None:
        return _plain(text)
    if tag == _TAG + "binary":
        try:
            data = base64.b64decode(re.sub(r"[\r\n]", "", text), validate=True)
            return _ESCAPED_BYTE.sub("\ufffd", data.decode(errors="surrogateescape"))
        except (binascii.Error, ValueError):
            raise yaml.YAMLError("yaml: !!binary value contains invalid base64 data") from None
    name, value = tag.removeprefix(_TAG), _plain(text)
    expected = _TYPES.get(name)
    if expected is None and name != "timestamp":
        return text  # an unknown tag, or `!!str`
    if expected is float and type(value) is int and value < 2**63:
        return float(value)
    if type(value) is not expected and not (name == "timestamp" and value == text and _is_time(text)):
        found = next((name for name, of in _TYPES.items() if of is type(value)), "str")
        raise yaml.YAMLError(f"yaml: cannot decode !!{found} `{text}` as a !!{tag.removeprefix(_TAG)}")
    return value


_TYPES: dict[str, type] = {"int": int, "float": float, "bool": bool, "null": type(None)}
_ESCAPED_BYTE = re.compile("[\udc80-\udcff]")
_is_time = re.compile(r"\d{4}-\d\d?-\d\d?(?:[Tt ].*)?").fullmatch


def _plain(text: str) -> Any:
    """Resolves the words and numbers of YAML 1.1; a timestamp remains a string."""
    if text[:1] not in _NUMERIC or not text:
        return _WORDS.get(text, text)
    plain = text if text[0] == "." else text.replace("_", "")
    if _is_int(plain):
        number = _whole(plain)
        return text if number is None else number
    if not _is_float(plain):
        return text
    number = float(plain.lower().replace(".inf", "inf").replace(".nan", "nan"))
    return (
        text if math.isinf(number) and "n" not in plain.lower() else number
    )  # the text if it is out of range


def _in_json(number: float) -> int | float:
    """A number as JSON from Go has it: a whole one has no point. Raises yaml.YAMLError for those that JSON lacks."""
    if not math.isfinite(number):
        name = {".inf": "+Inf", "-.inf": "-Inf", ".nan": "NaN"}[_number_text(number)]
        raise yaml.YAMLError(f"json: unsupported value: {name}")
    return int(number) if number.is_integer() and abs(number) < 2**63 else number


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
    if isinstance(key, float) or (isinstance(key, int) and key < 2**63):
        return _number_text(key)
    shown = "a collection" if isinstance(value, dict | list) else json.dumps(value)
    raise yaml.YAMLError(f"{_NO_KEY_OF_JSON} of type: %!s(<nil>), key: <nil>, value: {shown}")


def _number_text(number: float) -> str:
    """A number as a key: of a float the fewest digits that are the same number in 32 bits, as in Go."""
    if isinstance(number, int):
        return str(number)
    try:
        single = struct.pack("f", number)
    except OverflowError:
        single = struct.pack("f", math.copysign(math.inf, number))
    (rounded,) = struct.unpack("f", single)
    if not math.isfinite(rounded):
        return f"{rounded}".replace("inf", ".inf").replace("nan", ".nan")
    digits = next(n for n in range(9) if struct.pack("f", float(f"{rounded:.{n}e}")) == single)
    text = f"{rounded:.{digits}e}"
    exponent = int(text.partition("e")[2])
    return f"{rounded:.{max(digits - exponent, 0)}f}" if -4 <= exponent < 6 else text


def _shown(key: Any) -> str:
    return json.dumps(key, ensure_ascii=False) if isinstance(key, str) else _text_of(key, None)
