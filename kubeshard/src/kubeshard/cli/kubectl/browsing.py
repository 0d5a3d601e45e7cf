"""What the keys of `top` do: choosing a ring, and asking where an object is; sans I/O.

| key | |
|---|---|
| right, Tab; left | the next ring; the one before |
| / | begins the name of an object, such as `secret/a team` |
| Enter; Escape | asks where it is; closes the question and its answer |
| q | ends |
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

KEYS = "arrows: other rings, /: find an object, q: end"

_KEY = re.compile(r"\x1b\[[0-9;]*[A-Za-z~]|.", re.S)
_NEXT, _BEFORE, _ESCAPE, _ERASE, _ENTER = ("\x1b[C", "\t"), ("\x1b[D", "\x1b[Z"), "\x1b", "\x7f\b", "\r\n"


@dataclass(slots=True)
class Browsing:
    """`rings` are at least one."""

    rings: Sequence[str]
    number: int = 0
    """Of the ring that is shown."""
    typed: str | None = None
    """The question as far as it has been typed; None if none is being typed."""
    answer: Sequence[str] = ()
    """The lines that say where the object of the last question is."""
    ended: bool = False

    @property
    def ring(self) -> str:
        return self.rings[self.number]

    def keys(self, text: str) -> Iterator[str]:
        """Takes what was typed, and yields the questions that it completes."""
        for key in _KEY.findall(text):
            if self.typed is not None:
                yield from self._typing(key)
            elif key in _NEXT or key in _BEFORE:
                step = 1 if key in _NEXT else -1
                self.number = (self.number + step) % len(self.rings)
            elif key == "/":
                self.typed, self.answer = "", ()
            elif key == _ESCAPE:
                self.answer = ()
            elif key == "q":
                self.ended = True

    def _typing(self, key: str) -> Iterator[str]:
        assert self.typed is not None
        if key in _ENTER:
            question, self.typed = self.typed.strip(), None
            if question:
                yield question
        elif key == _ESCAPE:
            self.typed = None
        elif key in _ERASE:
            self.typed = self.typed[:-1]
        elif key.isprintable():
            self.typed += key


def asked(question: str) -> tuple[list[str], str | None]:
    """The words that name an object (`secret/a`, `secret a`), and the namespace if one follows."""
    words = question.split()
    count = 1 if "/" in words[0] else 2
    return words[:count], next(iter(words[count:]), None)
