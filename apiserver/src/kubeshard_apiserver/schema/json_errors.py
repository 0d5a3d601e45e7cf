"""What is wrong with a text that is no JSON, in the words of Go's encoding/json, which end up in messages.

Only for texts that a decoder has refused: it is slow. Source: encoding/json `scanner.go`.
"""

from __future__ import annotations

import re

_END = "unexpected end of JSON input"
_SPACE = re.compile(rb"[ \t\r\n]*")
_STRING = re.compile(rb'"(?:[^"\\\x00-\x1f]|\\["\\/bfnrt]|\\u[0-9a-fA-F]{4})*')
_HEX = re.compile(rb"\\u[0-9a-fA-F]{0,3}")
_DIGITS = re.compile(rb"[0-9]+")
_WORDS = {word[:1]: word for word in (b"true", b"false", b"null")}


class _Broken(Exception):
    pass


def json_problem(text: bytes) -> str:
    """Returns an empty text for JSON."""
    try:
        _Scanner(text).scan()
    except _Broken as problem:
        return str(problem)
    return ""


class _Scanner:
    def __init__(self, text: bytes) -> None:
        self._text = text + b" "  # as which the decoder reads the end of a scalar
        self._end = len(text)
        self._at = 0

    def scan(self) -> None:
        within = [b""]
        """What ends the maps and lists around the place."""
        self._begin(within)
        while len(within) > 1:
            end = within[-1]
            char = self._next()
            if char == end:
                self._at += 1
                within.pop()
            elif char == b",":
                self._at += 1
                if end == b"}":
                    self._next()
                    self._key()
                self._begin(within)
            else:
                raise self._wrong("after array element" if end == b"]" else "after object key:value pair")
        self._skip()
        if self._at < self._end:
            raise self._wrong("after top-level value")

    def _begin(self, within: list[bytes]) -> None:
        """Reads a scalar, or the beginning of maps and lists down to the first scalar or empty one."""
        while (char := self._next()) in (b"{", b"["):
            self._at += 1
            within.append(b"}" if char == b"{" else b"]")
            if self._next() == within[-1]:
                return
            if char == b"{":
                self._key()
        self._scalar(char)

    def _key(self) -> None:
        if self._next() != b'"':
            raise self._wrong("looking for beginning of object key string")
        self._string()
        if self._next() != b":":
            raise self._wrong("after object key")
        self._at += 1

    def _scalar(self, char: bytes) -> None:
        if char == b'"':
            self._string()
        elif char in _WORDS:
            word = _WORDS[char]
            for expected in word.decode():
                self._expect(expected.encode(), f"in literal {word.decode()} (expecting '{expected}')")
        elif char == b"-" or char.isdigit():
            self._number()
        else:
            raise self._wrong("looking for beginning of value")

    def _string(self) -> None:
        found = _STRING.match(self._text, self._at)
        assert found
        self._at = found.end()
        if self._at > self._end:
            raise _Broken(_END)
        if self._peek() == b"\\":
            self._at += 1
            if self._peek() != b"u":
                raise self._wrong("in string escape code")
            escape = _HEX.match(self._text, self._at - 1)
            assert escape
            self._at = escape.end()
            raise self._wrong("in \\u hexadecimal character escape")
        self._expect(b'"', "in string literal")

    def _number(self) -> None:
        self._at += self._peek() == b"-"
        if self._peek() == b"0":
            self._at += 1
        else:
            self._digits("in numeric literal")
        if self._peek() == b".":
            self._at += 1
            self._digits("after decimal point in numeric literal")
        if self._peek() in (b"e", b"E"):
            self._at += 1
            self._at += self._peek() in (b"+", b"-")
            self._digits("in exponent of numeric literal")

    def _digits(self, where: str) -> None:
        found = _DIGITS.match(self._text, self._at)
        if found is None:
            raise self._wrong(where)
        self._at = found.end()

    def _expect(self, char: bytes, where: str) -> None:
        if self._peek() != char:
            raise self._wrong(where)
        self._at += 1

    def _skip(self) -> None:
        found = _SPACE.match(self._text, self._at)
        self._at = found.end() if found else self._at

    def _next(self) -> bytes:
        self._skip()
        if self._at >= self._end:
            raise _Broken(_END)
        return self._peek()

    def _peek(self) -> bytes:
        return self._text[self._at : self._at + 1]

    def _wrong(self, where: str) -> _Broken:
        return _Broken(f"invalid character {_shown(self._text[self._at])} {where}")


def _shown(char: int) -> str:
    if char == ord("'"):
        return r"'\''"
    if char == ord('"'):
        return "'\"'"
    text = chr(char)
    if text in _ESCAPES:
        return f"'{_ESCAPES[text]}'"
    if text.isprintable():
        return f"'{text}'"
    return rf"'\x{char:02x}'" if char < 0x80 else rf"'\u{char:04x}'"


_ESCAPES = dict(
    zip("\\\a\b\f\n\r\t\v", (r"\\", r"\a", r"\b", r"\f", r"\n", r"\r", r"\t", r"\v"), strict=True)
)
