"""What to write instead of an argument that a class does not have."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar, Self


class ArgumentHints:
    """A class whose TypeError for an argument of another class, or of another library, says what to write."""

    __slots__ = ()
    INSTEAD: ClassVar[Mapping[str, str]] = {}
    """What to write, by the argument."""

    def __new__(cls, *_: object, **given: object) -> Self:
        for name in given.keys() & cls.INSTEAD.keys():
            raise TypeError(f"{cls.__name__} has no {name}=: write {cls.INSTEAD[name]}")
        return super().__new__(cls)
