"""All handlers of one informer.

Guaranteed: each handler gets, for each object, the same deltas in the order in which they were applied to the store.
Handlers are independent: none waits for another, and an exception of one does not affect the others (`registration`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Iterable, Iterator
from itertools import chain
from typing import Generic, TypeVar

from kubeshard.cache.deltas import Delta
from kubeshard.cache.pace import Pace
from kubeshard.cache.registration import (
    AsyncHandler,
    Failed,
    Handler,
    Inline,
    News,
    Registration,
    UndecodableHandler,
    placed,
)
from kubeshard.core.encoding import UndecodableObject
from kubeshard.core.objects import KubeObject
from kubeshard.runtime.clock import Clock

T = TypeVar("T", bound=KubeObject)

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
