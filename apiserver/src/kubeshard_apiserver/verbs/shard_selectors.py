"""The parameter `shardSelector` of lists and watches: the objects whose hash is in one of some ranges (KEP-5866).

A selector is an expression of CEL that is read and never evaluated: calls of `shardRange(FIELD, START, END)` with `||`
between them. FIELD is `object.metadata.uid` or `object.metadata.namespace`, the same in all calls; an object is
selected if START <= h < END for the 64-bit FNV-1a hash h of the field.

What kube-apiserver 1.37 does, and so this does, though a client would not expect it:

* A selector that cannot be read is answered with 500, not 400, and after all other parameters have been checked.
  (400 as of 1.38.)
* Only lists of built-in kinds, in full, say what was selected (`metadata.shardInfo`). Lists of custom resources,
  Tables, lists of metadata, and watches are filtered and do not say so. (As of 1.38 the first and the third do.)
* What remains after a page is not counted.
* `deletecollection` deletes what is selected only.
* A receiver is ignored: `x.shardRange(...)` is a call of `shardRange`.

Not guaranteed: the words about an expression that is no chain of calls.
Source: KEP-5866, and the answers of kube-apiserver 1.37.2 and 1.38.0-beta.0 (`test_conformance_shard_selectors.py`).
"""

from __future__ import annotations

import re
from bisect import bisect_right
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple, NoReturn

from kubeshard.core.hash_ranges import HASHES, HashedField, HashRange, HashRanges, fnv1a
from kubeshard.core.objects import Key
from kubeshard_apiserver.objects import Object
from kubeshard_apiserver.states import State
from kubeshard_apiserver.status import internal

SHARDED_LIST_AND_WATCH = "ShardedListAndWatch"
"""The feature gate, off by default in 1.36 and 1.37, on in 1.38. Without it, servers ignore the parameter."""

FIELDS = ("object.metadata.uid", "object.metadata.namespace")


@dataclass(frozen=True)
class ShardRanges:
    """A selector. `str` is what the server echoes."""

    field: str
    ranges: tuple[HashRange, ...]

    def selects(self, obj: Object) -> bool:
        return self._has(fnv1a(obj["metadata"].get(self._hashed, "")))

    def selects_stored(self, key: Key, state: State) -> bool:
        """The same, without decoding the object."""
        return self._has(state.uid_hash if self._hashed == "uid" else fnv1a(key.namespace))

    def _has(self, hashed: int) -> bool:
        return bisect_right(self._edges, hashed) % 2 == 1

    @cached_property
    def _hashed(self) -> HashedField:
        return "uid" if self.field == FIELDS[0] else "namespace"

    @cached_property
    def _edges(self) -> tuple[int, ...]:
        """Where the ranges, joined, start and end, in turn."""
        joined = HashRanges.of(self._hashed, self.ranges)
        return tuple(edge for each in joined.ranges for edge in each)

    def __str__(self) -> str:
        ranges = (f"shardRange({self.field}, '0x{start:016x}', '0x{end:016x}')" for start, end in self.ranges)
        return " || ".join(ranges)


def parse_shard_selector(text: str) -> ShardRanges | None:
    """None if there is no selector. Raises ApiError (500)."""
    if not text:
        return None
    if not text.strip():
        _refuse("empty shard selector is not allowed; omit the parameter for unfiltered lists")
    calls = _Reader(text).calls()
    for field, _ in calls:
        if field != calls[0][0]:
            _refuse(f'all shard ranges must use the same field, got "{calls[0][0]}" and "{field}"')
    return ShardRanges(calls[0][0], tuple(found for _, found in calls))


class _Word(NamedTuple):
    kind: str
    text: str


_WORD = re.compile(
    r"""(?P<space>(?:\s|//[^\n]*)+)"""
    r"""|(?P<text>[rR]?(?:'''(?:[^\\]|\\.)*?'''|\"{3}(?:[^\\]|\\.)*?\"{3}|'(?:[^'\\\n]|\\.)*'|"(?:[^"\\\n]|\\.)*"))"""
    r"""|(?P<number>\d[\w.]*)|(?P<name>[A-Za-z_]\w*)|(?P<sign>\|\||&&|.)""",
    re.S,
)
_ESCAPE = re.compile(r"\\(?:u([0-9a-fA-F]{4})|U([0-9a-fA-F]{8})|[xX]([0-9a-fA-F]{2})|(.))", re.S)


class _Reader:
    def __init__(self, text: str) -> None:
        found = [_Word(str(each.lastgroup), each[0]) for each in _WORD.finditer(text)]
        self._words = [*(word for word in found if word.kind != "space"), _Word("end", "<EOF>")]
        self._at = 0

    def calls(self) -> list[tuple[str, HashRange]]:
        found = self._alternatives()
        if self._ahead.kind != "end":
            if self._ahead.text == "&&":
                _refuse_function("_&&_")
            self._refuse_rest()
        return found

    def _refuse_rest(self) -> NoReturn:
        _refuse_syntax(f"extraneous input '{self._ahead.text}' expecting <EOF>")

    def _alternatives(self) -> list[tuple[str, HashRange]]:
        found = self._alternative()
        while self._took("||"):
            found += self._alternative()
        return found

    def _alternative(self) -> list[tuple[str, HashRange]]:
        if self._took("("):
            found = self._alternatives()
            self._expect(")")
            return found
        if self._took("!"):
            _refuse_function("!_")
        if self._ahead.kind == "end":
            _refuse_syntax("mismatched input '<EOF>'")
        path = self._path()
        if not path or not self._took("("):
            if path and self._ahead == ("sign", ")"):
                self._refuse_rest()
            _refuse("unexpected expression; expected shardRange() call or || operator")
        function = path if path.rfind(".") == 0 else path.rpartition(".")[2]
        if function != "shardRange":
            _refuse_function(function)
        return [_range(self._arguments())]

    def _path(self) -> str:
        """The path that begins here; empty if none does."""
        path = "." if self._took(".") else ""
        while self._ahead.kind == "name":
            path += self._next().text
            if not self._took("."):
                break
            path += "."
        return path

    def _arguments(self) -> list[_Word]:
        """Words of the kinds text, path and, for everything else, other."""
        found: list[_Word] = []
        while not self._took(")"):
            if found:
                self._expect(")" if self._ahead.kind == "end" else ",")
            if self._ahead.kind == "text":
                found.append(_Word("text", _unquoted(self._next().text)))
            elif path := self._path():
                found.append(_Word("path", path))
            elif self._ahead.kind == "number":
                found.append(_Word("other", self._next().text))
            else:
                _refuse_syntax(f"mismatched input '{self._ahead.text}'")
        return found

    def _expect(self, sign: str) -> None:
        if not self._took(sign):
            _refuse_syntax(f"missing '{sign}' at '{self._ahead.text}'")

    def _took(self, sign: str) -> bool:
        taken = self._ahead == ("sign", sign)
        self._at += taken
        return taken

    def _next(self) -> _Word:
        self._at += 1
        return self._words[self._at - 1]

    @property
    def _ahead(self) -> _Word:
        return self._words[self._at]


def _range(arguments: list[_Word]) -> tuple[str, HashRange]:
    if len(arguments) != 3:
        _refuse(f"shardRange() requires exactly 3 arguments, got {len(arguments)}")
    field, start, end = arguments
    if field.kind != "path":
        _refuse("shardRange() first argument: expected field path (e.g. object.metadata.uid)")
    if field.text not in FIELDS:
        _refuse(f'unsupported field path "{field.text}"; supported: {", ".join(FIELDS)}')
    found = HashRange(_number(start, "hexStart"), _number(end, "hexEnd"))
    if found.start >= found.end:
        _refuse(f"shard range start {start.text} must be less than end {end.text}")
    return field.text, found


def _number(given: _Word, name: str) -> int:
    if given.kind != "text":
        _refuse(f"{name} must be a string literal (e.g. '0xff')")
    text, digits = given.text, given.text[2:]
    if not text.startswith("0x"):
        _refuse(f"{name} must have '0x' prefix, got \"{text}\"")
    if not digits:
        _refuse(f"{name}: hex value is required after '0x'")
    if (length := len(digits.encode())) > 17:
        _refuse(f'{name}: hex value too long ({length} chars, max 17): "{digits}"')
    if odd := re.search(r"[^0-9a-f]", digits):
        _refuse(f'{name}: invalid hex character "{odd[0]}" in "{text}"')
    number = int(digits, 16)
    if len(digits) == 17 and number != HASHES:
        _refuse(f"{name}: 17-digit hex value must be '0x{HASHES:x}' (2^64), got \"{text}\"")
    if len(digits) < 16:
        meant = f"0x{number:016x}"
        _refuse(f'{name} must be a 0x-prefixed 16-digit hex value, got "{text}" (did you mean "{meant}"?)')
    return number


def _unquoted(token: str) -> str:
    raw, quoted = token[0] in "rR", token.lstrip("rR")
    inside = quoted[3:-3] if quoted[:3] in ("'''", '"""') and len(quoted) >= 6 else quoted[1:-1]
    return inside if raw else _ESCAPE.sub(_unescaped, inside)


def _unescaped(found: re.Match[str]) -> str:
    digits = found[1] or found[2] or found[3]
    return chr(int(digits, 16)) if digits else str(found[4])


def _refuse_function(name: str) -> NoReturn:
    _refuse(f'unsupported function "{name}"; only shardRange() and || are allowed')


def _refuse_syntax(problem: str) -> NoReturn:
    _refuse(f"CEL parse error: Syntax error: {problem}")


def _refuse(problem: str) -> NoReturn:
    raise internal(f"invalid shard selector: {problem}")
