"""Coroutines that a reconcile created and never awaited: what they were to do did not happen, without an error.

Python reports such a coroutine by a RuntimeWarning when it is dropped. That is easily missed, and shown once per line.
Here each of these warnings is also noted for the run that caused it (`Activities.forgotten`), so every one of them is
shown.

Guaranteed: nothing is noted that was awaited, or closed on purpose; Python's warning is shown as it would be without
us. Not guaranteed: that a coroutine is noted that a reference cycle keeps, or that is dropped after the run has ended;
that it is noted in time on an interpreter without reference counts, or at all where the program has asked for an error
instead of the warning (`-W error`), which Python then raises where nobody can catch it. It costs nothing while nothing
is forgotten.
"""

from __future__ import annotations

import asyncio
import re
import warnings
from pathlib import Path
from typing import Any, TextIO

from kubeshard.controller.in_flight import current_run

_WARNING = r"coroutine '(.+)' was never awaited"

_LOOPS = tuple(f"{folder}/" for folder in (Path(__file__).parents[1], Path(asyncio.__file__).parent))
"""What runs a reconcile. A coroutine that is dropped there was in a variable of a reconcile that has ended."""


class ForgottenAwait(TypeError):
    """A reconcile created a coroutine and did not await it."""


class _Notes:
    """A `warnings.showwarning` that notes these warnings, and goes on with the former one."""

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
        run, about = current_run(), re.match(_WARNING, str(message))
        if about is not None and run is not None:
            authors = filename.endswith(".py") and not filename.startswith(_LOOPS)
            where = f" ({filename}, line {lineno})" if authors else ""
            told = f"{about[1]}(...) was never awaited, so it did nothing{where}: write `await`"
            if told not in run.forgotten:  # a daemon may go on for ever
                run.forgotten = (*run.forgotten, told)
        self._before(message, category, filename, lineno, file, line)


_filter: object = None
"""The one of ours in `warnings.filters`."""


def listen() -> None:
    """Called before each run, since others replace both: pytest restores them after each test, and a program may add a
    filter at any time.
    """
    global _filter
    if not isinstance(warnings.showwarning, _Notes):
        warnings.showwarning = _Notes(warnings.showwarning)
    filters = warnings.filters
    if (not filters or filters[0] is not _filter) and not _are_errors():
        warnings.filterwarnings("always", _WARNING, RuntimeWarning)
        _filter = warnings.filters[0]


def _are_errors() -> bool:
    for action, message, category, module, _ in warnings.filters:
        about_these = message is None or re.match(message, "coroutine 'f' was never awaited")
        if about_these and module is None and issubclass(RuntimeWarning, category):
            return action == "error"
    return False
