"""A handler's registration with an informer.

A plain function is called inline: it maps and enqueues, it does not wait, and there is no buffer. The exception is one
that is added to a filled store: it is called with the existing objects in slices of a few milliseconds, and changes
queue up behind them, so the handler sees the same sequence as if it had been called with everything at once: each
object's initial `Added` first, then its changes, without duplicates or gaps.

An `async def` function is called in its own task, one call at a time. It may take as long as it likes: nothing waits
for it, and its pending deltas are collapsed for each object (`backlog`), so a handler that never returns costs a
bounded amount of memory. `busy_since` and `waiting` show it.
"""

from __future__ import annotations

import asyncio
import inspect
from collections import deque
from collections.abc import Awaitable, Callable, Collection, Iterator
from itertools import chain
from types import TracebackType
from typing import Any, Generic, Self, TypeVar, cast

from kubeshard.cache.backlog import Backlog
from kubeshard.cache.deltas import Added, Delta, narrowed
from kubeshard.cache.pace import Pace
from kubeshard.core.encoding import UndecodableObject
from kubeshard.core.objects import KubeObject
from kubeshard.runtime.clock import Clock

T = TypeVar("T", bound=KubeObject)

Handler = Callable[[Delta[T]], None]
AsyncHandler = Callable[[Delta[T]], Awaitable[None]]

UndecodableHandler = Callable[[UndecodableObject], None]

News = Delta[T] | UndecodableObject

Failed = Callable[[str, BaseException], None]
"""Called with the handler's name and what it raised."""


class Registration(Generic[T]):
    """Created by `Informer.add_handler`. As a context manager it removes the handler at the end of the block.

    `name`: the handler's name in logs, in metrics and on the health page.
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
        """Whether the store is filled."""
        self._failed = failed
        self._clock = clock
        self._active = True
        self._existing: Iterator[News[T]] = iter(())
        self._existing_left = 0
        self._caught_up = asyncio.Event()
        self._caught_up.set()

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
        """Whether the store is filled and the handler has been called with all objects that existed then, or when it
        was added.
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

    @property
    def behind(self) -> bool:
        """Whether changes must be queued, because the handler cannot be called at once."""
        return not self._caught_up.is_set()

    def begin_with(self, existing: Collection[T], unreadable: Collection[UndecodableObject]) -> None:
        """Calls the handler with these first."""
        self._existing = chain((Added(obj, initial=True) for obj in existing), unreadable)
        self._existing_left = len(existing) + len(unreadable)
        self._caught_up.clear()

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
    """The registration of a plain function."""

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


class Queued(Registration[T]):
    """The registration of an async function."""

    def __init__(self, handler: AsyncHandler[T], *place: Any) -> None:
        super().__init__(*place)
        self._handler = handler
        self._backlog: Backlog[T] = Backlog()
        self._mark = 0 if self._filled.is_set() else None
        """The end of the backlog that existed when the store was filled."""
        self._news = asyncio.Event()
        self._since: float | None = None
        self._task: asyncio.Task[Any] | None = None
        if self._mark is None:
            self._caught_up.clear()

    def remove(self) -> None:
        super().remove()
        self._backlog.clear()
        self._news.set()
        if self._task is not None and self._task is not asyncio.current_task():
            self._task.cancel()

    @property
    def waiting(self) -> int:
        return self._existing_left + len(self._backlog)

    @property
    def behind(self) -> bool:
        return True

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
            await self._handler(news)
        except (
            asyncio.CancelledError
        ) as error:  # raised by the handler itself, unless the task is being cancelled
            if self._task is None or self._task.cancelling():
                raise
            self._failed(self.name, error)
        except Exception as error:
            self._failed(self.name, error)
        finally:
            self._since = None

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
