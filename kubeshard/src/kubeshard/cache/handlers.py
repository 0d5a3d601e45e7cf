"""All handlers of one informer.

Guaranteed: each handler gets, for each object, the same deltas in the order in which they were applied to the store.
Handlers are independent: none waits for another, and an exception of one does not affect the others.

A plain function is called inline: it maps and enqueues, it does not wait, and there is no buffer. The exception is one
that is added to a filled store: it is called with the existing objects in slices of a few milliseconds, and changes
queue up behind them, so the handler sees the same sequence as if it had been called with everything at once: each
object's initial `Added` first, then its changes, without duplicates or gaps.

An `async def` function is called in its own task, one call at a time. It may take as long as it likes: nothing waits
for it, and its pending deltas are collapsed for each object (`Backlog`), so a handler that never returns costs a
bounded amount of memory. `busy_since` and `waiting` show it.
"""

from __future__ import annotations

import asyncio
import inspect
from collections import deque
from collections.abc import Awaitable, Callable, Collection, Iterable, Iterator
from itertools import chain
from types import TracebackType
from typing import Any, Generic, Self, TypeVar, cast

from kubeshard.cache.deltas import Added, Deleted, Delta, Updated, current, narrowed
from kubeshard.core.encoding import UndecodableObject
from kubeshard.core.objects import Key, KubeObject
from kubeshard.runtime.clock import Clock
from kubeshard.runtime.loop import apart
from kubeshard.runtime.pace import Pace

T = TypeVar("T", bound=KubeObject)

Handler = Callable[[Delta[T]], None]
AsyncHandler = Callable[[Delta[T]], Awaitable[None]]

UndecodableHandler = Callable[[UndecodableObject], None]

News = Delta[T] | UndecodableObject

Failed = Callable[[str, BaseException], None]
"""Called with the handler's name and what it raised."""


class Registration(Generic[T]):
    """What `Informer.add_handler` returns. As a context manager, it removes the handler at the end of the block.
    `name`: the handler's, in logs and metrics.
    """

    def __init__(
        self,
        name: str,
        undecodable: UndecodableHandler,
        filled: asyncio.Event,
        failed: Failed,
        clock: Clock,
    ) -> None:
        self.name = name
        self._undecodable = undecodable
        self._filled = filled
        self._failed = failed
        self._clock = clock
        self._active = True
        self._existing: Iterator[News[T]] = iter(())
        self._existing_left = 0
        self._caught_up = asyncio.Event()
        self._caught_up.set()
        self.behind = False
        """Whether changes must be queued, because the handler cannot be called at once."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.remove()

    def remove(self) -> None:
        """The handler is not called any more, not even with the rest of a change that is currently being reported; a
        running call of an async handler is cancelled, unless that call is the caller.
        """
        self._active = False
        self._existing, self._existing_left = iter(()), 0
        self._caught_up.set()

    @property
    def active(self) -> bool:
        return self._active

    @property
    def has_synced(self) -> bool:
        """Whether the handler has been called with all objects that existed when the store was filled, or when the
        handler was added.
        """
        return self._filled.is_set() and self._caught_up.is_set()

    async def synced(self) -> None:
        """Waits until `has_synced`; no longer once the handler is removed."""
        await self._filled.wait()
        await self._caught_up.wait()

    @property
    def waiting(self) -> int:
        """The number of objects with pending deltas for the handler."""
        return self._existing_left

    @property
    def busy_since(self) -> float | None:
        """When the running call of an async handler started (monotonic seconds)."""
        return None

    # Called by the informer.

    def begin_with(self, existing: Collection[T], unreadable: Collection[UndecodableObject]) -> None:
        """Calls the handler with these first."""
        self._existing = chain((Added(obj, initial=True) for obj in existing), unreadable)
        self._existing_left = len(existing) + len(unreadable)
        self._caught_up.clear()
        self.behind = True

    def store_filled(self) -> None:
        """Called when everything in the first full list has been reported or queued."""

    def tell(self, news: News[T]) -> None:
        """Calls the handler, and catches whatever it raises."""
        raise NotImplementedError

    def queue(self, news: News[T]) -> None:
        raise NotImplementedError

    async def run(self) -> None:
        """Calls the handler with its pending deltas. May be cancelled and run again."""
        raise NotImplementedError


class Inline(Registration[T]):
    def __init__(self, handler: Handler[T], *place: Any) -> None:
        super().__init__(*place)
        self._handler = handler
        self._later: deque[News[T]] = deque()

    def remove(self) -> None:
        super().remove()
        self._later.clear()

    @property
    def waiting(self) -> int:
        return self._existing_left + len(self._later)

    def tell(self, news: News[T]) -> None:
        if not self._active:
            return
        try:
            if isinstance(news, UndecodableObject):
                self._undecodable(news)
                return
            answer: object = self._handler(news)  # it may violate its type
            if answer is not None and inspect.iscoroutine(answer):
                answer.close()
                raise TypeError("it returned a coroutine that nobody awaits: declare it with `async def`")
        except Exception as error:
            self._failed(self.name, error)

    def queue(self, news: News[T]) -> None:
        if self._active:
            self._later.append(news)

    async def run(self) -> None:
        pace = Pace(self._clock)
        for news in self._left():
            self.tell(news)
            await pace.step()

    def catch_up(self) -> None:
        """`run` without yielding."""
        for news in self._left():
            self.tell(news)

    def _left(self) -> Iterator[News[T]]:
        for news in self._existing:
            self._existing_left -= 1
            yield news
        while self._later:
            yield self._later.popleft()
        self._caught_up.set()
        self.behind = False


class Queued(Registration[T]):
    def __init__(self, handler: AsyncHandler[T], *place: Any) -> None:
        super().__init__(*place)
        self.behind = True
        self._handler = handler
        self._backlog: Backlog[T] = Backlog()
        self._mark = 0 if self._filled.is_set() else None
        """The end of the backlog that existed when the store was filled."""
        self._news = asyncio.Event()
        self._since: float | None = None
        self._task: asyncio.Task[Any] | None = None
        self._called: asyncio.Task[Any] | None = None
        if self._mark is None:
            self._caught_up.clear()

    def remove(self) -> None:
        super().remove()
        self._backlog.clear()
        self._news.set()
        if self._task is not None and asyncio.current_task() not in (self._task, self._called):
            self._task.cancel()

    @property
    def waiting(self) -> int:
        return self._existing_left + len(self._backlog)

    @property
    def busy_since(self) -> float | None:
        return self._since

    def store_filled(self) -> None:
        self._mark = self._backlog.mark
        self._news.set()

    def queue(self, news: News[T]) -> None:
        if not self._active:
            return
        if isinstance(news, UndecodableObject):
            self._tell_undecodable(news)
        else:
            self._backlog.add(news)
            self._news.set()

    async def run(self) -> None:
        self._task = asyncio.current_task()
        pace = Pace(self._clock)
        while self._active:
            for news in self._next():
                await self._call(news)
                await pace.step()
            if not self._existing_left and self._mark is not None and self._backlog.passed(self._mark):
                self._caught_up.set()
            if not self.waiting:
                self._news.clear()
                await self._news.wait()

    def _next(self) -> tuple[News[T], ...]:
        for news in self._existing:
            self._existing_left -= 1
            return (news,)
        return self._backlog.take()

    async def _call(self, news: News[T]) -> None:
        if not self._active:
            return
        if isinstance(news, UndecodableObject):
            self._tell_undecodable(news)
            return
        self._since = self._clock.monotonic()
        try:
            await apart(self._told, news)
        except Exception as error:
            self._failed(self.name, error)
        finally:
            self._since = self._called = None

    async def _told(self, delta: Delta[T]) -> None:
        self._called = asyncio.current_task()
        await self._handler(delta)

    def _tell_undecodable(self, error: UndecodableObject) -> None:
        try:
            self._undecodable(error)
        except Exception as raised:
            self._failed(self.name, raised)


def placed(
    handler: Handler[T] | AsyncHandler[T],
    only: Callable[[T], bool] | None,
    name: str,
    undecodable: UndecodableHandler,
    filled: asyncio.Event,
    failed: Failed,
    clock: Clock,
) -> Registration[T]:
    """The registration of the handler, by its type. `only`: see `narrowed`. `name` `""`: that of the function."""
    call: Any = type(handler).__call__
    place = name or name_of(handler), undecodable, filled, failed, clock
    if inspect.iscoroutinefunction(handler) or inspect.iscoroutinefunction(call):
        waiting = cast("AsyncHandler[T]", handler)
        return Queued(waiting if only is None else _narrowed_later(waiting, only), *place)
    plain = cast("Handler[T]", handler)
    return Inline(plain if only is None else _narrowed(plain, only), *place)


def _narrowed(handler: Handler[T], only: Callable[[T], bool]) -> Handler[T]:
    def tell(delta: Delta[T]) -> None:
        seen = narrowed(delta, only)
        return None if seen is None else handler(seen)

    return tell


def _narrowed_later(handler: AsyncHandler[T], only: Callable[[T], bool]) -> AsyncHandler[T]:
    async def tell(delta: Delta[T]) -> None:
        if (seen := narrowed(delta, only)) is not None:
            await handler(seen)

    return tell


def name_of(handler: Callable[..., object]) -> str:
    inner: Any = getattr(handler, "func", handler)  # of a functools.partial
    return str(getattr(inner, "__qualname__", type(inner).__qualname__))


Registrations = tuple[Registration[T], ...]


class Handlers(Generic[T]):
    """`filled` is set once the store is filled. `of` is the informer's name."""

    def __init__(self, of: str, filled: asyncio.Event, failed: Failed, clock: Clock) -> None:
        self.present: Registrations[T] = ()
        self._of = of
        self._filled = filled
        self._failed = failed
        self._clock = clock
        self._group: asyncio.TaskGroup | None = None

    @property
    def active(self) -> Registrations[T]:
        return tuple(registration for registration in self.present if registration.active)

    def add(
        self,
        handler: Handler[T] | AsyncHandler[T],
        only: Callable[[T], bool] | None,
        undecodable: UndecodableHandler,
        existing: Collection[T],
        unreadable: Collection[UndecodableObject],
        name: str,
    ) -> Registration[T]:
        """The handler is called with `existing` and `unreadable` first."""
        registration = placed(handler, only, name, undecodable, self._filled, self._failed, self._clock)
        self.present = (*self.active, registration)
        if existing or unreadable:
            registration.begin_with(existing, unreadable)
        if registration.behind:
            self._start(registration)
        return registration

    def run_in(self, group: asyncio.TaskGroup | None) -> None:
        """Runs the handlers' tasks in the group from now on; None means no group."""
        self._group = group
        if group is not None:
            for registration in self.active:
                if registration.behind:
                    self._start(registration)

    def store_filled(self) -> None:
        """Called when the handlers have been called for everything in the first full list."""
        self._filled.set()
        for registration in self.present:
            registration.store_filled()

    def tell(self, registrations: Registrations[T], news: News[T]) -> None:
        """`registrations` are those that were `present` when the store changed; others get the news from the store."""
        for registration in registrations:
            if registration.behind:
                registration.queue(news)
            else:
                registration.tell(news)

    async def tell_all(
        self,
        registrations: Registrations[T],
        deltas: Iterable[Delta[T]],
        unreadable: Iterable[UndecodableObject],
    ) -> None:
        """Reports what changed at once, and what could not be decoded. Lets other tasks run meanwhile; if cancelled,
        it reports the rest without yielding, because it is in the store already.
        """
        pace = Pace(self._clock)
        left: Iterator[News[T]] = chain(deltas, unreadable)
        try:
            for news in left:
                self.tell(registrations, news)
                await pace.step()
        finally:
            for news in left:
                self.tell(registrations, news)

    def _start(self, registration: Registration[T]) -> None:
        if self._group is not None:
            self._group.create_task(registration.run(), name=f"handler {registration.name} of {self._of}")
        elif isinstance(registration, Inline):
            registration.catch_up()  # nothing would be blocked


class Backlog(Generic[T]):
    """The pending deltas of a slow handler: for each object, the minimum that brings the handler up to date.

        waiting            then comes   waits from now on
        -----------------  -----------  ------------------------------------------------
        nothing            any delta    that delta
        Added              Updated      Added, of the new state
        Added              Deleted      nothing: the handler never knew of the object
        Updated            Updated      Updated, from the state that the handler knows
        Updated            Deleted      Deleted
        Deleted            Added        Deleted, then Added: it may be a different object
        Deleted, Added     Updated      Deleted, then Added of the new state
        Deleted, Added     Deleted      the first Deleted

    Guaranteed per object: the deltas taken keep the guarantees of `deltas`, and end with the newest state. Objects are
    taken in the order in which they started to wait. Bounded: two deltas for each object that the handler knows or will
    know, however slow it is. Not guaranteed: intermediate states, objects that were created and deleted while the
    handler was busy, order between objects.

    Sans-IO. A `mark` is a point in time; `passed` returns whether everything that was waiting then has been taken.
    """

    def __init__(self) -> None:
        self._waiting: dict[Key, tuple[int, tuple[Delta[T], ...]]] = {}
        """The deltas by object, in the order in which the objects started to wait; never empty."""
        self._begun = 0

    def __len__(self) -> int:
        return len(self._waiting)

    def add(self, delta: Delta[T]) -> None:
        key = current(delta).key
        since, deltas = self._waiting.get(key, (self._begun + 1, ()))
        if collapsed := _collapsed(deltas, delta):
            self._waiting[key] = since, collapsed
            self._begun = max(self._begun, since)
        else:
            del self._waiting[key]

    def take(self) -> tuple[Delta[T], ...]:
        """The deltas of the object that has waited longest; empty if none waits."""
        oldest = next(iter(self._waiting), None)
        return () if oldest is None else self._waiting.pop(oldest)[1]

    def clear(self) -> None:
        self._waiting.clear()

    @property
    def mark(self) -> int:
        return self._begun

    def passed(self, mark: int) -> bool:
        since, _ = next(iter(self._waiting.values()), (mark + 1, ()))
        return since > mark


def _collapsed(waiting: tuple[Delta[T], ...], new: Delta[T]) -> tuple[Delta[T], ...]:
    if not waiting:
        return (new,)
    *before, last = waiting
    match last, new:
        case Added(_, initial), Updated(_, obj):
            return (*before, Added(obj, initial))
        case Added(), Deleted():
            return tuple(before)
        case Updated(old, _, relisted), Updated(_, obj, again):
            return (Updated(old, obj, relisted or again),)
        case Updated(), Deleted():
            return (new,)
        case _:  # Deleted, Added
            return (*waiting, new)
