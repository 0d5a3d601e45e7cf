"""Asyncio on virtual time: hours of timers in milliseconds, in the same order every time.

`VirtualTimeLoop` is an ordinary asyncio loop whose clock stands still while anything can run, and jumps to
the next timer when nothing else can. Tests of code that sleeps, times out or backs off run the production
code unchanged:

    @virtual_time
    async def test_a_retry_waits_for_its_backoff() -> None:
        clock = VirtualClock()
        ...
        await asyncio.sleep(3600)          # returns at once; clock.monotonic() is an hour later

Guaranteed: timers fire in the order of their times, and times are exact decimals if the delays are (no drift). A run in
which every task waits for something that can no longer happen ends with `SleepsForever`, which names the tasks and the
lines where they wait. A run that makes no progress but keeps setting timers ends with `OutOfTime`.

Not guaranteed: anything about real threads and sockets. They take real time, for which this loop does not wait; give
the code under test an in-memory transport instead.
"""

from __future__ import annotations

import asyncio
import contextvars
import functools
import heapq
import itertools
import selectors
from collections import deque
from collections.abc import Callable, Coroutine
from contextvars import Context, ContextVar
from typing import Any, ParamSpec, TypeVar

__all__ = [
    "OutOfTime",
    "SleepsForever",
    "VirtualClock",
    "VirtualThread",
    "VirtualThreadRunner",
    "VirtualTimeLoop",
    "run_virtual",
    "settle",
    "virtual_loop",
    "virtual_time",
]

T = TypeVar("T")
P = ParamSpec("P")

ONE_DAY = 86_400.0

TURNS_BETWEEN_POLLS = 50
"""A loop on which something can always run notices a real thread within as many turns."""

_SHORTEST_WAIT = 1e-9

_THREAD: ContextVar[VirtualThread | None] = ContextVar("thread", default=None)


class SleepsForever(Exception):
    """No task can run and no timer is set: the run would never end."""


class OutOfTime(Exception):
    """The run reached its limit of virtual seconds."""


class VirtualTimeLoop(asyncio.SelectorEventLoop):
    """Its `time()` starts at 0 and only advances when every task waits. `limit`: virtual seconds of a run."""

    # Of asyncio's own loops, in every version of Python.
    _check_closed: Callable[[], None]
    _ready: deque[asyncio.Handle]
    _scheduled: list[asyncio.TimerHandle]

    def __init__(self, limit: float = ONE_DAY) -> None:
        self._now = 0.0
        self._limit = limit
        self._settling: list[asyncio.Future[None]] = []
        super().__init__(_IdleSelector(self._idle))
        numbers = itertools.count()
        self.set_task_factory(
            lambda loop, coroutine, **options: _NumberedTask(next(numbers), coroutine, loop=loop, **options)
        )

    def time(self) -> float:
        return self._now

    # Simulations schedule tens of thousands of callbacks per second: both do at once what asyncio does in three calls.

    def call_soon(  # type: ignore[override]
        self, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> asyncio.Handle:
        self._check_closed()
        context = contextvars.copy_context() if context is None else context
        thread = context.get(_THREAD)
        handle = (
            asyncio.Handle(callback, args, self, context)
            if thread is None
            else _Callback(thread, callback, args, self, context)
        )
        self._ready.append(handle)
        return handle

    def call_later(  # type: ignore[override]
        self, delay: float, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> asyncio.TimerHandle:
        when = self._now + delay
        if when == self._now and delay > 0:
            # Rounded to nothing, a wait for another clock that differs by its last digit would be repeated forever.
            when += _SHORTEST_WAIT
        return self.call_at(when, callback, *args, context=context)

    def call_at(  # type: ignore[override]
        self, when: float, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> asyncio.TimerHandle:
        self._check_closed()
        context = contextvars.copy_context() if context is None else context
        thread = context.get(_THREAD)
        timer = (
            asyncio.TimerHandle(when, callback, args, self, context)
            if thread is None
            else _Timer(thread, thread.main.when(self._now, when), callback, args, self, context)
        )
        heapq.heappush(self._scheduled, timer)
        timer._scheduled = True  # type: ignore[attr-defined]
        return timer

    def run_again(self, callback: asyncio.Handle) -> None:
        """Runs a callback whose turn came while its thread was stopped. It can still be cancelled."""
        self._ready.append(callback)

    def postpone(self, thread: VirtualThread, seconds: float) -> None:
        """The timers of this thread go off later."""
        for timer in self._scheduled:
            if isinstance(timer, _Timer) and timer._thread is thread:
                timer._when += seconds  # type: ignore[attr-defined]
        heapq.heapify(self._scheduled)

    def call_soon_threadsafe(  # type: ignore[override]
        self, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> asyncio.Handle:
        """As the loop of a process is that of its main thread, this is where the callback runs."""
        if context is None and (thread := _THREAD.get()) is not None:
            context = thread.main.context()
        return self.call_soon(callback, *args, context=context)

    def _write_to_self(self) -> None:
        """The selector never blocks, so that nothing has to wake it."""

    async def settle(self) -> None:
        """Returns when every other task waits for a timer or another task. No time passes."""
        waiter: asyncio.Future[None] = self.create_future()
        self._settling.append(waiter)
        await waiter

    def _idle(self, timeout: float | None) -> None:
        """Called when nothing can run; the next timer is `timeout` seconds away, or there is none."""
        if self._settling:
            waiter = self._settling.pop(0)
            if not waiter.done():
                waiter.set_result(None)
            return
        if timeout is None:
            waiting = "\n".join(f"  {_describe(task)}" for task in asyncio.all_tasks(self))
            raise SleepsForever(f"at {self._now} s every task sleeps forever:\n{waiting}")
        # Whole nanoseconds absorb binary rounding errors. At least one, so that code which wakes a rounding error
        # too early and sleeps for the rest makes progress.
        later = round(self._now + timeout, 9)
        self._now = later if later > self._now else round(self._now + 1e-9, 9)
        if self._now > self._limit:
            raise OutOfTime(f"the run took more than {self._limit} virtual seconds")


class VirtualThread:
    """A thread of a simulated process: it can be stopped, resumed and killed, with everything that runs in it.

        main = VirtualThread(loop)
        task = main.start(work(), "work")   # what it creates belongs to the thread, too
        main.stop()                         # SIGSTOP: no line of it runs
        main.resume()                       # after the last stop, what became due meanwhile runs, in its order
        main.kill()                         # SIGKILL: nothing of it runs ever again, no `finally` either

    A thread owns every callback whose context says so, and a context is inherited by whatever is created in it: tasks,
    timers and callbacks of futures. What has no thread always runs. `main`: the main thread of its process, if it is
    not that itself.
    """

    def __init__(self, loop: VirtualTimeLoop, main: VirtualThread | None = None) -> None:
        self.main = main or self
        self._loop = loop
        self._dead = False
        self._stops = 0
        """How many have not ended: it goes on when the last one has."""
        self.rate = 1.0
        """How many seconds pass for the timers of its process in each second."""
        self._due: list[asyncio.Handle] = []
        """What could not run. Of a killed thread it is kept, so that no garbage collection runs a `finally`."""

    def context(self) -> Context:
        """Returns a copy of the current context, in this thread."""
        context = contextvars.copy_context()
        context.run(_THREAD.set, self)
        return context

    def start(self, work: Coroutine[Any, Any, T], name: str) -> asyncio.Task[T]:
        return self._loop.create_task(work, name=name, context=self.context())

    def stop(self) -> None:
        self._stops += 1

    def resume(self, slept: float = 0.0) -> None:
        """Ends one stop. For its last `slept` seconds the machine was suspended: timers stood still."""
        self._stops -= 1
        self._loop.postpone(self, slept)
        began = self._loop.time() - slept
        due, self._due = self._due, []
        for callback in due:
            if isinstance(callback, _Timer) and callback.when() > began:
                self._loop.call_at(callback.when() + slept, self._loop.run_again, callback, context=Context())
            else:
                self._loop.run_again(callback)

    def when(self, now: float, when: float) -> float:
        """At which time of the loop a timer of the process goes off."""
        return when if self.rate == 1.0 else now + (when - now) / self.rate

    def kill(self) -> None:
        self._dead = True

    def let_end(self) -> None:
        """Lets what is left of a killed thread be cancelled, at the end of a simulation."""
        self._dead, self._stops = False, 1
        self.resume()

    def runs(self, callback: asyncio.Handle) -> bool:
        """Whether the callback may run now. If not, it does when the thread is resumed."""
        if self._stops or self._dead:
            self._due.append(callback)
            return False
        return True


class _OfThread:
    """A handle that runs when its thread does."""

    __slots__ = ()
    _thread: VirtualThread

    def __init__(self, thread: VirtualThread, *of: Any) -> None:
        self._thread = thread  # type: ignore[misc] # a slot of those below
        super().__init__(*of)

    def _run(self) -> None:
        if self._thread.runs(self):  # type: ignore[arg-type] # it is a handle
            super()._run()  # type: ignore[misc]


class _Callback(_OfThread, asyncio.Handle):
    __slots__ = ("_thread",)


class _Timer(_OfThread, asyncio.TimerHandle):
    __slots__ = ("_thread",)


class VirtualThreadRunner:
    """A simulated process' `LoopRunner`: its coroutine goes on when the main thread does not."""

    def __init__(self, thread: VirtualThread) -> None:
        self._thread = thread
        self._loop = asyncio.get_running_loop()
        self._runs = False

    async def run(self, main: Callable[[], Coroutine[Any, Any, T]]) -> T:
        task = self._thread.start(main(), "thread")
        self._runs = True
        try:
            return await asyncio.shield(task)
        except asyncio.CancelledError:
            task.cancel()
            await asyncio.wait([task])
            raise
        finally:
            self._runs = False

    def post(self, callback: Callable[..., None], *args: object) -> None:
        if self._runs:
            self._loop.call_soon(callback, *args, context=self._thread.context())


class VirtualClock:
    """By default of the running loop. `skew` shifts `wall`, `suspend` lets `boottime` run ahead, per machine."""

    EPOCH = 1_767_225_600.0
    """2026-01-01T00:00:00Z, which `wall` returns at loop time 0 without skew."""

    def __init__(self, loop: asyncio.AbstractEventLoop | None = None, *, skew: float = 0.0) -> None:
        self._loop = loop or asyncio.get_running_loop()
        self._suspended = self._slept = 0.0
        self._rate, self._since, self._base = 1.0, 0.0, 0.0
        self.skew = skew

    def monotonic(self) -> float:
        return self._elapsed() - self._slept

    def boottime(self) -> float:
        return self._elapsed() + self._suspended

    def wall(self) -> float:
        return self.EPOCH + self.boottime() + self.skew

    @property
    def rate(self) -> float:
        """How many seconds of this clock pass in each second."""
        return self._rate

    @rate.setter
    def rate(self, rate: float) -> None:
        self._base, self._since = self._elapsed(), self._loop.time()
        self._rate = rate

    def sleep(self, seconds: float) -> None:
        """Simulates that the machine was suspended for so long until now: only monotonic time stood still."""
        self._slept += seconds

    def _elapsed(self) -> float:
        return self._base + (self._loop.time() - self._since) * self._rate

    def suspend(self, seconds: float) -> None:
        """Simulates a suspended machine: boot time and wall clock advance, timers do not."""
        self._suspended += seconds


def run_virtual(main: Coroutine[Any, Any, T], *, limit: float = ONE_DAY) -> T:
    """On a new virtual loop, to its end. Raises SleepsForever, OutOfTime; cancels the tasks left behind."""
    with asyncio.Runner(loop_factory=lambda: VirtualTimeLoop(limit)) as runner:
        return runner.run(main)


def virtual_time(test: Callable[P, Coroutine[Any, Any, T]]) -> Callable[P, T]:
    """Decorator for async tests that makes a plain function which runs the test with `run_virtual`. Fixtures work as
    usual, except that async fixtures live on another loop: set up such objects inside the test.
    """

    @functools.wraps(test)
    def run(*args: P.args, **kwargs: P.kwargs) -> T:
        return run_virtual(test(*args, **kwargs))

    return run


async def settle() -> None:
    """`VirtualTimeLoop.settle` of the running loop: lets all other tasks run until they wait."""
    await virtual_loop().settle()


def virtual_loop() -> VirtualTimeLoop:
    """Returns the running loop. Raises TypeError if time is real there."""
    loop = asyncio.get_running_loop()
    if not isinstance(loop, VirtualTimeLoop):
        raise TypeError("this only works on a VirtualTimeLoop: use @virtual_time or run_virtual()")
    return loop


class _IdleSelector(selectors.DefaultSelector):
    """Where a selector would block, nothing can run. The kernel is asked only now and then."""

    def __init__(self, idle: Callable[[float | None], None]) -> None:
        super().__init__()
        self._idle = idle
        self._turns = itertools.cycle(range(TURNS_BETWEEN_POLLS))

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        nothing_comes = timeout == 0 or len(self.get_map()) == 1  # that one is the loop's own
        ready = [] if nothing_comes and next(self._turns) else super().select(0)
        if not ready and (timeout is None or timeout > 0):
            self._idle(timeout)
        return ready


class _NumberedTask(asyncio.Task[Any]):
    """Hashed by its number in the loop: the order of asyncio's sets of tasks is repeatable."""

    def __init__(self, number: int, coroutine: Any, **options: Any) -> None:
        self._number = number
        super().__init__(coroutine, **options)

    def __hash__(self) -> int:
        return self._number


def _describe(task: asyncio.Task[Any]) -> str:
    """The task and the innermost coroutine in which it waits."""
    coroutine: Any = task.get_coro()
    while getattr(getattr(coroutine, "cr_await", None), "cr_frame", None) is not None:
        coroutine = coroutine.cr_await
    frame = getattr(coroutine, "cr_frame", None)
    if frame is None:
        return task.get_name()
    return f"{task.get_name()} in {coroutine.__qualname__} ({frame.f_code.co_filename}:{frame.f_lineno})"
