"""Tracks everything in this process that may still act for an object, across all controllers.

An object may be handed to another shard only when nothing here acts for it any more, and a Lease may be released only
when nothing acts for any object. Four things act:

| activity | until |
|---|---|
| a run of a reconciler | it has ended |
| a write that a run, or a task of it, has sent | its outcome is known, or it can no longer take effect |
| a thread that a run started | the thread has ended, even if the run that waited for it ended earlier |
| a task that outlives runs (`daemons`) | it has ended; it is asked to end when someone waits for it |

A write without a known outcome (cancelled, no response, a 5xx) may still take effect for as long as the kernel delivers
it and the server then processes it; the client states that time (`WriteLedger`).

Guaranteed: `idle` and `ended` return in an iteration of the event loop in which nothing acts, which stays true until
the next await. Not guaranteed: that it stays true afterwards. The caller must first make sure that no further run
starts; `Activities.sealing` ensures this, provided that whoever starts a run checks `sealed` first. Not tracked: writes
with clients of the author's own, threads started in other ways than `Context.run_blocking` and the loop's default
executor (see `follow_thread`), and processes. For one event loop's thread.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterator, Sequence
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from typing import Any, TypeVar

from kubeshard.core.errors import NotOurs
from kubeshard.core.kinds import GroupKind
from kubeshard.core.objects import Key
from kubeshard.runtime.blocking_calls import Call, call_in_loop, wait_in_thread

T = TypeVar("T")

Object = tuple[GroupKind, Key]


class Activity:
    """Something that acts for an object, from when it is created until `end`, or the end of a `with` block. `seals`: no
    run may start meanwhile. `stop` asks it to end; without `stop`, it ends by itself.
    """

    __slots__ = ("_in_flight", "object", "owner", "seals", "stop")

    def __init__(
        self,
        in_flight: InFlight,
        owner: str,
        object: Object,
        *,
        seals: bool = False,
        stop: Callable[[], object] | None = None,
    ) -> None:
        self._in_flight = in_flight
        self.owner = owner
        self.object = object
        self.seals = seals
        self.stop = stop
        in_flight._activities.setdefault(object, []).append(self)
        if in_flight._waiters and (object in in_flight._waiters or owner in in_flight._waiters):
            _stop([self])

    def end(self) -> None:
        in_flight, object = self._in_flight, self.object
        activities = in_flight._activities[object]
        activities.remove(self)
        if not activities:
            del in_flight._activities[object]
        if in_flight._waiters:
            in_flight._ended(self)

    def __enter__(self) -> Activity:
        return self

    def __exit__(self, *_: object) -> None:
        self.end()


class InFlight:
    """The activities of one process."""

    def __init__(self) -> None:
        self._activities: dict[Object, list[Activity]] = {}
        """The activities by object, without empty lists."""
        self._waiters: dict[Object | str, dict[asyncio.Future[None], None]] = {}

    def count(self, kind: GroupKind, key: Key) -> int:
        return len(self._activities.get((kind, key), ()))

    def sealed(self, kind: GroupKind, key: Key) -> bool:
        """Whether no run may start at the moment."""
        for activity in self._activities.get((kind, key), ()):  # noqa: SIM110 - called for each write
            if activity.seals:
                return True
        return False

    def objects(self, owner: str) -> list[Object]:
        """The objects for which something acts on behalf of the controller."""
        return [
            which for which, some in self._activities.items() if any(each.owner == owner for each in some)
        ]

    async def idle(self, kind: GroupKind, key: Key) -> None:
        """Asks activities to end, and returns as soon as nothing acts for the object. A run must not wait for
        itself.
        """
        which = (kind, key)
        while which in self._activities:
            _stop(self._activities[which])
            await self._change(which)

    async def ended(self, owner: str) -> None:
        """Asks activities to end, and returns as soon as nothing acts for any object on behalf of the controller."""
        while acting := [each for each in self._all() if each.owner == owner]:
            _stop(acting)
            await self._change(owner)

    def _all(self) -> Iterator[Activity]:
        return (each for some in self._activities.values() for each in some)

    def _ended(self, activity: Activity) -> None:
        """Called while somebody waits."""
        if activity.object not in self._activities:
            self._wake(activity.object)
        owner = activity.owner
        if owner in self._waiters and not any(each.owner == owner for each in self._all()):
            self._wake(owner)

    async def _change(self, what: Object | str) -> None:
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiters.setdefault(what, {})[waiter] = None
        try:
            await waiter
        finally:
            waiting = self._waiters.get(what, {})
            waiting.pop(waiter, None)
            if not waiting:
                self._waiters.pop(what, None)

    def _wake(self, what: Object | str) -> None:
        for waiter in self._waiters.pop(what, ()):
            if not waiter.done():
                waiter.set_result(None)


class Activities:
    """What one run of a controller's reconciler has in flight: itself, and what it started.

    Inside `with activities` they are those of the current run: writes and threads of this task, and of tasks started
    inside, belong to it; those of tasks that outlive the block still do afterwards.
    """

    over = False
    out_of_time = 0
    """How many requests to cancel its task it had when its deadline cancelled it (`deadlines`); before that 0."""
    forgotten: Sequence[str] = ()
    """The coroutines that it has created so far and not awaited (`forgotten_awaits`)."""
    timeout = 0.0
    """Seconds until its deadline."""
    _writes = 0
    """Those under way."""
    _threads_ended: asyncio.Future[None] | None = None
    _seals = False

    def __init__(self, in_flight: InFlight, owner: str, kind: GroupKind, key: Key) -> None:
        self.in_flight = in_flight
        self.owner = owner
        self.object = kind, key
        self._loop = asyncio.get_running_loop()
        self.threads: set[Call[Any]] = set()
        """Those that have not ended."""
        self._waits: set[asyncio.Task[Any]] = set()
        self._refusal: Callable[[], str | None] | None = None

    def __enter__(self) -> Activities:
        self._reset = _current.set(self)
        return self

    def __exit__(self, *_: object) -> None:
        _current.reset(self._reset)
        self.over = True
        for task in self._waits:
            task.cancel()

    def working(self) -> Activity:
        """Counts the run as acting for its object until the block ends."""
        return Activity(self.in_flight, self.owner, self.object)

    def another(self) -> Activities:
        """Those of a task that acts for the object after this run."""
        return Activities(self.in_flight, self.owner, *self.object)

    @contextmanager
    def sealing(self) -> Iterator[None]:
        """Keeps other runs of the object from starting until the block, and each write sent in it, is over."""
        with Activity(self.in_flight, self.owner, self.object, seals=True):
            self._seals = True
            try:
                yield
            finally:
                self._seals = False

    def left(self, refusal: Callable[[], str | None]) -> None:
        """Called when the run has ended. What it left behind may still write while `refusal` returns None."""
        self._refusal = refusal

    def sending(self, late: float) -> Callable[[bool], None]:
        """See `WriteLedger.sending`. Raises NotOurs for a task that outlived the right to write for the object."""
        problem = None if self._refusal is None else self._refusal()
        if problem is None and not self._seals and self.in_flight.sealed(*self.object):
            problem = "it is being handed over"
        if problem is not None:
            raise NotOurs(f"{self.object[0]} {self.object[1]}: {problem}: not written for it")
        activity = Activity(self.in_flight, self.owner, self.object, seals=self._seals)
        self._writes += 1

        def done(known: bool) -> None:
            self._writes -= 1
            if known:
                activity.end()
            else:
                self._loop.call_later(late, activity.end)

        return done

    def is_writing(self) -> bool:
        return self._writes > 0

    def follow(self, thread: Call[Any]) -> None:
        """Registers a thread that the run started, which acts until the future is done."""
        activity = self.working()
        self.threads.add(thread)

        def end() -> None:
            activity.end()
            self.threads.discard(thread)
            if not self.threads and self._threads_ended is not None and not self._threads_ended.done():
                self._threads_ended.set_result(None)

        def ended(_: Call[Any]) -> None:
            with suppress(RuntimeError):  # the loop is closed: nobody is waiting
                self._loop.call_soon_threadsafe(end)

        thread.add_done_callback(ended)

    def wait(self, work: Coroutine[Any, Any, T]) -> T:
        """Called from a thread: runs `work` in the event loop, and returns its result. Raises CancelledError once the
        run is over.
        """

        async def worked() -> T:
            task = asyncio.current_task()
            assert task is not None
            task.set_name(f"{self.owner} for a thread")
            if self.over:
                work.close()
                raise asyncio.CancelledError
            self._waits.add(task)
            try:
                return await work
            finally:
                self._waits.discard(task)

        return wait_in_thread(worked(), self._loop)

    def in_loop(self, callback: Callable[[], object]) -> None:
        """Calls it in the event loop's thread: at once if this is that thread, otherwise soon."""
        call_in_loop(callback, self._loop)

    async def threads_ended(self) -> None:
        """Returns when all threads of the run have ended, however long that takes."""
        while self.threads:
            self._threads_ended = self._loop.create_future()
            await self._threads_ended


_current: ContextVar[Activities | None] = ContextVar("kubeshard.controller.run", default=None)


def current_run() -> Activities | None:
    """That to which the current task belongs, until it is over."""
    run = _current.get()
    return None if run is None or run.over else run


def current_owner() -> str:
    """The controller to whose run the current task belongs, until the run is over; else `""`."""
    return "" if (run := current_run()) is None else run.owner


def current_object() -> Object | None:
    """The object for which the current task acts, as a run or since one."""
    run = _current.get()
    return None if run is None else run.object


class CurrentRun:
    """The `WriteLedger` of the run that the writing task belongs to; records nothing outside runs."""

    def sending(self, late: float) -> Callable[[bool], None]:
        run = _current.get()
        return _nothing if run is None else run.sending(late)


def follow_thread(thread: Call[Any]) -> None:
    """Called when a thread was started, which belongs to the run of the current task, if there is one. For
    `kubeshard.runtime.blocking_calls.FollowedExecutor`.
    """
    run = _current.get()
    if run is not None:
        run.follow(thread)


def _stop(activities: Sequence[Activity]) -> None:
    for activity in activities:
        if activity.stop is not None:
            activity.stop()


def _nothing(_: bool) -> None:
    pass
