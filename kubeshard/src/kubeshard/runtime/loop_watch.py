"""A watch over an event loop: how late it is, and what blocks it.

A blocked loop cannot report that itself, and a stack trace taken later shows something else. So a thread asks the loop
to answer: how long that takes is the lag, and if it takes too long, the thread logs one line with the running task's
name and its stack. To ask all the time would keep an idle process awake; to ask rarely would miss most blockages. But a
loop that sleeps cannot block before something makes it run a task, for which asyncio calls `loop.call_soon`. So an
alarm wakes the thread, and the loop itself sets it:

    asleep     set for `LOOK`
       |  the tripwire: the first `call_soon`
       v
    at work    set for `LONGEST_PAUSE`; when it goes off, the loop is asked, and begins here again
       |  nothing was scheduled from before a look until it ran: whatever had been was run before that
       v
    asleep

A look is a callback, one in each turn of the loop: what wakes a loop for some turns wakes no thread. If there are more
than `LOOKS` within `PAUSES` pauses, the loop has much to do, and each look would cost as much as a fifth of what it
does. From then on a timer looks, and sets the alarm anew, before that goes off: so no thread wakes up as long as the
loop turns. The tripwire is an attribute of this one loop that hides its method, and goes when it is touched. A loop
without attributes is always at work.

Guaranteed: one line when a task has blocked the loop for half a limit more than `limit` seconds at most, one when it
runs again. A plain callback (of a timer, a reader or a protocol) that blocks a loop which slept until then is noticed
only if it still does at the next `LOOK`. Not guaranteed: anything while C code holds the interpreter lock, or while the
whole process is stopped (that is logged when it continues, with the task that runs at that moment).
"""

from __future__ import annotations

import asyncio
import math
import sys
import threading
import time
import traceback
from collections import deque
from collections.abc import Callable
from contextvars import Context
from types import FrameType, TracebackType
from typing import Any, Protocol

from kubeshard.runtime.logs import get_logger
from kubeshard.runtime.thread_alarm import ThreadAlarm, thread_alarm

LONGEST_PAUSE = 0.5
"""Seconds between two questions to a loop at work, or less: what blocks it for less time may not be noticed."""
LOOKS, PAUSES = 32, 2
"""How often a loop looks in a turn whether it sleeps again, within so many pauses,"""
LATER = 0.75
"""and how soon, as a part of the pause, if that is not enough."""
LOOK = 30.0
"""Seconds between two questions to a loop that sleeps."""
LAG_MEMORY = 60.0
NO_LAG = 0.001
"""As long as a turn may take."""
FRAMES = 4
"""Innermost frames of the stack: enough to include a caller of the standard library."""

_log = get_logger("kubeshard.runtime")


class LoopWatch(Protocol):
    """Watches the loop that enters the block, until the block exits."""

    limit: float
    """Seconds after which a blockage is reported; 0: none is. Set before the block."""

    def __enter__(self) -> object: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...

    def longest_lag(self) -> float:
        """The maximum lag of the loop within the last minute, in seconds. May be called from any thread."""
        ...

    def lag(self) -> float:
        """For how many seconds the loop has not answered. May be called from any thread."""
        ...


class LoopWatchThread:
    """`blocked` is called with the task's name for each blockage, in the thread, and must not wait or raise. A loop
    that is late because its thread gets no processor is not blocked by a task: that is told apart by `waited`.
    """

    def __init__(
        self,
        blocked: Callable[[str], None],
        *,
        alarm: Callable[[], ThreadAlarm] = thread_alarm,
        waited: Callable[[int], float] | None = None,
    ) -> None:
        self.limit = 0.0
        self._tell = blocked
        self._make_alarm = alarm
        self._waited = waited or waited_for_processor
        self._over = False
        self._answered = threading.Event()
        self._asked_at: float | None = None
        """None while no question is open."""
        self._lags: deque[tuple[float, float]] = deque()
        """Times and lags of the loop within the last minute, with descending lags."""
        self._thread = threading.Thread(target=self._watch, name="loop-watch", daemon=True)

    def __enter__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._loops_thread, self._native_id = threading.get_ident(), threading.get_native_id()
        self._alarm = self._make_alarm()
        pause = min(LONGEST_PAUSE, self.limit / 2) if self.limit else LONGEST_PAUSE
        self._looks = _Looks(self._loop, self._alarm, pause, self._note)
        self._looks.begin()
        self._thread.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._over = True
        self._looks.end()
        self._answered.set()
        self._alarm.set(0.0)
        self._thread.join()
        self._alarm.close()

    def lag(self) -> float:
        return 0.0 if (asked := self._asked_at) is None else time.monotonic() - asked

    def longest_lag(self) -> float:
        earliest = time.monotonic() - LAG_MEMORY
        return max([self.lag(), *(lag for when, lag in list(self._lags) if when >= earliest)])

    # In the thread

    def _watch(self) -> None:
        while True:
            self._alarm.wait()
            if self._over:
                return
            self._ask()

    def _ask(self) -> None:
        self._answered.clear()
        self._asked_at = asked = time.monotonic()
        self._loop.call_soon_threadsafe(self._answer)
        if self._over or self._answered.wait(self.limit / 4 or None):
            return
        late, waited = time.monotonic(), self._waited(self._native_id)  # only now: it reads a file
        if self._answered.wait(self.limit * 3 / 4):
            return
        now, waited = time.monotonic(), self._waited(self._native_id) - waited
        lag = now - asked
        if waited > (now - late) / 2:
            _log.warning(
                "The event loop is late, because the process gets no processor",
                seconds=round(lag, 1),
                waited=round(waited, 1),
                advice="raise the CPU limit of the container, or its request on a busy node",
            )
        else:
            self._report(lag)
        self._answered.wait()
        if not self._over:
            blocked_for = round(time.monotonic() - asked, 1)
            _log.info("The event loop is running again", blocked_for=blocked_for)

    def _answer(self) -> None:
        """In the loop."""
        self._note(self.lag())
        self._asked_at = None
        self._answered.set()
        if not self._over:
            self._looks.begin()

    def _note(self, lag: float) -> None:
        """In the loop."""
        if lag <= NO_LAG:
            return
        now = time.monotonic()
        while self._lags and self._lags[-1][1] <= lag:
            self._lags.pop()
        while self._lags and self._lags[0][0] < now - LAG_MEMORY:
            self._lags.popleft()
        self._lags.append((now, lag))

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


class _Looks:
    """Whether a loop is at work or asleep, as it finds out itself, and when the alarm goes off because of that. `note`
    is called with how long each turn took in which it has looked.
    """

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        alarm: ThreadAlarm,
        pause: float,
        note: Callable[[float], None],
    ) -> None:
        self._loop = loop
        self._alarm = alarm
        self._pause = pause
        self._note = note
        self._next: asyncio.Handle | None = None
        """The look that is scheduled, if there is one,"""
        self._due = 0.0
        """and when it is due."""
        self._touched = False
        """Whether the loop has scheduled anything else since."""
        self._left, self._until = 0, -math.inf
        """How many looks there may be in turns until a time."""

    def begin(self) -> None:
        """The loop is at work, or may be."""
        now = time.monotonic()
        if now >= self._until:
            self._left, self._until = LOOKS, now + PAUSES * self._pause
        self._alarm.set(self._pause)
        if self._next is None:
            self._look_again(now)

    def end(self) -> None:
        """The alarm is not set any more."""
        _Tripwire.remove(self._loop, self._trip)
        if self._next is not None:
            self._next.cancel()

    def _look_again(self, now: float) -> None:
        if self._left > 0:
            self._left -= 1
            self._next, self._due = _call_soon(self._loop, self._look), now
        else:
            later = LATER * self._pause
            self._next, self._due = self._loop.call_later(later, self._look), now + later
            self._alarm.set(self._pause)
        self._touched = False
        _Tripwire.lay(self._loop, self._trip)

    def _trip(self) -> None:
        self._touched = True
        if self._next is None:
            self.begin()

    def _look(self) -> None:
        now, self._next = time.monotonic(), None
        self._note(now - self._due)
        if self._touched:
            self._look_again(now)
        else:
            self._alarm.set(LOOK)


_METHOD = "call_soon"


def _call_soon(loop: asyncio.AbstractEventLoop, callback: Callable[[], object]) -> asyncio.Handle:
    """Touches no tripwire."""
    handle: asyncio.Handle = getattr(type(loop), _METHOD)(loop, callback)
    return handle


class _Tripwire:
    """Calls what was laid on a loop, once, when that has scheduled something. For the loop's thread."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._below = vars(loop).get(_METHOD)
        self._laid: dict[Callable[[], object], None] = {}

    @staticmethod
    def lay(loop: asyncio.AbstractEventLoop, touched: Callable[[], object]) -> None:
        """On a loop without attributes, it is touched at once."""
        try:
            wire = vars(loop).get(_METHOD)
        except TypeError:
            touched()
            return
        if not isinstance(wire, _Tripwire):
            wire = vars(loop)[_METHOD] = _Tripwire(loop)
        wire._laid[touched] = None

    @staticmethod
    def remove(loop: asyncio.AbstractEventLoop, touched: Callable[[], object]) -> None:
        wire = getattr(loop, _METHOD)
        if isinstance(wire, _Tripwire):
            wire._laid.pop(touched, None)
            if not wire._laid:
                wire._step_aside()

    def __call__(
        self, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> asyncio.Handle:
        self._step_aside()
        handle = self._loop.call_soon(callback, *args, context=context)
        for touched in self._laid:
            touched()
        return handle

    def _step_aside(self) -> None:
        if self._below is None:
            vars(self._loop).pop(_METHOD, None)
        else:
            vars(self._loop)[_METHOD] = self._below


def waited_for_processor(thread: int) -> float:
    """Seconds that a thread, by its native id, was ready to run and did not; 0 where Linux does not say."""
    try:
        with open(f"/proc/self/task/{thread}/schedstat", "rb") as file:
            return int(file.read().split()[1]) / 1e9
    except (OSError, IndexError, ValueError):
        return 0.0


def _where(frame: FrameType | None) -> str:
    """The innermost frames, innermost first."""
    stack = reversed(traceback.extract_stack(frame, limit=FRAMES)) if frame else ()
    return " < ".join(f"{entry.filename}:{entry.lineno} {entry.name}" for entry in stack)
