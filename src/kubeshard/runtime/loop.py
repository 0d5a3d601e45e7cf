"""The event loop of a program - uvloop if it is installed (the extra `speed`), else asyncio's - and a
watch that reports what blocks it; whether a task is being cancelled; and waiting with a limit.

A blocked loop cannot report that itself, and a stack trace taken later shows something else. A thread checks a few
times a second how late the loop is, and logs one line per blockage: the running task's name and its stack. It
reads two attributes, takes no lock and does not wake the loop.

Guaranteed: one line when the loop has not run for `limit` seconds, one when it runs again. Not guaranteed: anything
while C code holds the interpreter lock, or while the whole process is stopped (that is logged when it
continues, with the task that runs at that moment).
"""

from __future__ import annotations

import asyncio
import math
import sys
import threading
import traceback
from collections.abc import Callable
from types import FrameType, TracebackType

from kubeshard.runtime.logs import get_logger


def loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    """The loop factory for `asyncio.Runner`; None means asyncio's own."""
    try:
        import uvloop
    except ImportError:
        return None
    factory: Callable[[], asyncio.AbstractEventLoop] = uvloop.new_event_loop
    return factory


def being_cancelled() -> bool:
    """Whether the running task has been cancelled: a CancelledError may be left over from a task that it awaited, and
    its own one may be lost in a task group that failed at the same time.
    """
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0


def forget_cancellations() -> None:
    """Takes back all requests to cancel the running task.

    A task group that fails while it waits for its tasks leaves one behind (before Python 3.13), which is not meant for
    its caller: every later timeout in the task would raise CancelledError (before 3.11.3), and `being_cancelled` would
    be true. Only where nothing else would end the task: its own cancellation cannot be told from such a request.
    """
    task = asyncio.current_task()
    while task is not None and task.cancelling():
        task.uncancel()


async def set_within(event: asyncio.Event, seconds: float | None) -> bool:
    """Waits until the event is set, so many seconds at most (None or infinity: without a limit). Returns whether it
    is.
    """
    try:
        async with asyncio.timeout(None if seconds == math.inf else seconds):
            await event.wait()
    except TimeoutError:
        return event.is_set()  # it may have been set at the same moment
    return True


FRAMES = 4
"""Innermost frames of the stack: enough to include a caller of the standard library."""

_log = get_logger("kubeshard.runtime")


class LoopWatch:
    """Watches the loop that enters the block, until the block exits.

    `lag`: by how many seconds that loop is late. `blocked` is called with the task's name for each blockage. Both are
    called in the thread, and must not wait or raise.
    """

    def __init__(
        self, lag: Callable[[], float], limit: float = 1.0, blocked: Callable[[str], None] = lambda task: None
    ) -> None:
        if not limit > 0:
            raise ValueError(f"limit {limit} s must be positive")
        self._lag = lag
        self._limit = limit
        self._tell = blocked
        self._over = threading.Event()
        self._blocked = False
        self._longest = 0.0
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread = threading.Thread(target=self._watch, name="loop-watch", daemon=True)
        self._loops_thread = 0

    def __enter__(self) -> LoopWatch:
        self._loop = asyncio.get_running_loop()
        self._loops_thread = threading.get_ident()
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._over.set()
        self._thread.join()

    def _watch(self) -> None:
        while not self._over.wait(self._limit / 4):
            lag = self._lag()
            if lag > self._limit:
                self._longest = lag
                if not self._blocked:
                    self._blocked = True
                    self._report(lag)
            elif self._blocked:
                self._blocked = False
                _log.info("The event loop is running again", blocked_for=round(self._longest, 1))

    def _report(self, lag: float) -> None:
        task = asyncio.current_task(self._loop)
        name = task.get_name() if task else "none: a callback"
        frame = sys._current_frames().get(self._loops_thread)
        _log.error(
            "The event loop is blocked; nothing else runs meanwhile",
            seconds=round(lag, 1),
            task=name,
            at=_where(frame),
            advice="use await, a BlockingReconciler or a thread for code that waits or computes for long",
        )
        self._tell(name if task else "callback")


def _where(frame: FrameType | None) -> str:
    """The innermost frames, innermost first."""
    stack = reversed(traceback.extract_stack(frame, limit=FRAMES)) if frame else ()
    return " < ".join(f"{entry.filename}:{entry.lineno} {entry.name}" for entry in stack)
