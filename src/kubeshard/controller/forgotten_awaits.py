"""Coroutines that a reconcile created and never awaited: what they were to do did not happen, without an error.

Python reports such a coroutine when it is dropped, as a RuntimeWarning, which is easily missed, and is shown once per
line. Guaranteed: nothing is noted that was awaited, or closed on purpose. Not guaranteed: that one is noted that a
reference cycle keeps, or an interpreter other than CPython; there, Python's warning is all. It costs nothing while
nothing is forgotten.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Coroutine
from contextvars import ContextVar
from pathlib import Path
from types import FrameType
from typing import Any, Self

_found: ContextVar[list[str] | None] = ContextVar("kubeshard.unawaited", default=None)

_HOOK = "_warn_unawaited_coroutine"
"""What CPython calls when it drops a coroutine that was never started."""

_HERE = str(Path(__file__).parents[1])


class ForgottenAwait(TypeError):
    """A reconcile created a coroutine and did not await it."""


class ForgottenAwaits:
    """A context manager: `found` tells of the coroutines that have been dropped inside so far."""

    __slots__ = ("_reset", "found")

    def __enter__(self) -> Self:
        _install()
        self.found: list[str] = []
        self._reset = _found.set(self.found)
        return self

    def __exit__(self, *_: object) -> None:
        _found.reset(self._reset)


def _install() -> None:
    before = getattr(warnings, _HOOK, None)
    if before is None or getattr(before, "notes", False):
        return

    def note(coroutine: Coroutine[Any, Any, Any]) -> None:
        found = _found.get()
        if found is not None:
            found.append(_explained(coroutine, sys._getframe(1)))
        before(coroutine)

    note.notes = True  # type: ignore[attr-defined]
    setattr(warnings, _HOOK, note)


def _explained(coroutine: Coroutine[Any, Any, Any], frame: FrameType | None) -> str:
    while frame is not None and frame.f_code.co_filename.startswith(_HERE):
        frame = frame.f_back
    name = getattr(coroutine, "__qualname__", "a coroutine")
    where = (
        f" ({frame.f_code.co_filename}, line {frame.f_lineno})" if frame and _is_the_authors(frame) else ""
    )
    return f"{name}(...) was never awaited, so it did nothing{where}: write `await`"


def _is_the_authors(frame: FrameType) -> bool:
    """False for a loop that runs the reconcile: it dropped the coroutine in a variable after it had ended."""
    return frame.f_globals.get("__name__", "").partition(".")[0] not in ("asyncio", "uvloop")
