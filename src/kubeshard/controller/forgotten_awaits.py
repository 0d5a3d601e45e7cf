"""Coroutines that a reconcile created and never awaited: what they were to do did not happen, without an error.

Python reports such a coroutine by a RuntimeWarning when it is dropped. That is easily missed, and shown once per line.
Here each of these warnings is kept for the run that caused it, and shown only if no run has.

Guaranteed: nothing is noted that was awaited, or closed on purpose. Not guaranteed: that a coroutine is noted that a
reference cycle keeps; nor, on an interpreter without reference counts, that it is noted in time. It costs nothing while
nothing is forgotten.
"""

from __future__ import annotations

import asyncio
import re
import warnings
from contextvars import ContextVar
from pathlib import Path
from typing import Any, Self, TextIO

_found: ContextVar[list[str] | None] = ContextVar("kubeshard.unawaited", default=None)

_WARNING = r"coroutine '(.+)' was never awaited"

_LOOPS = tuple(f"{folder}/" for folder in (Path(__file__).parents[1], Path(asyncio.__file__).parent))
"""What runs a reconcile. A coroutine that is dropped there was in a variable of a reconcile that has ended."""


class ForgottenAwait(TypeError):
    """A reconcile created a coroutine and did not await it."""


class ForgottenAwaits:
    """A context manager: `found` tells of the coroutines that have been dropped inside so far."""

    __slots__ = ("_reset", "found")

    def __enter__(self) -> Self:
        if not isinstance(warnings.showwarning, _Notes):  # pytest, for one, restores it after each test
            warnings.showwarning = _Notes(warnings.showwarning)
            warnings.filterwarnings("always", _WARNING, RuntimeWarning)
        self.found: list[str] = []
        self._reset = _found.set(self.found)
        return self

    def __exit__(self, *_: object) -> None:
        _found.reset(self._reset)


class _Notes:
    """A `warnings.showwarning` that keeps these warnings for the run, and leaves all others to the former one."""

    def __init__(self, before: Any) -> None:
        self._before = before

    def __call__(
        self,
        message: Warning | str,
        category: type[Warning],
        filename: str,
        lineno: int,
        file: TextIO | None = None,
        line: str | None = None,
    ) -> None:
        found, about = _found.get(), re.match(_WARNING, str(message))
        if found is None or about is None:
            self._before(message, category, filename, lineno, file, line)
            return
        authors = filename.endswith(".py") and not filename.startswith(_LOOPS)
        where = f" ({filename}, line {lineno})" if authors else ""
        found.append(f"{about[1]}(...) was never awaited, so it did nothing{where}: write `await`")
