"""A handler's place at an informer.

A handler that is added to a filled store first hears of what is there, a few milliseconds' worth at a time.
What happens meanwhile waits in line behind it, so the handler hears the same sequence as if it had been told at
one stroke: each object's initial `Added` first, then its changes, nothing twice and nothing left out.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Iterator
from typing import Generic, TypeVar

from kubeshard.cache.deltas import Delta
from kubeshard.core.encoding import UndecodableObject
from kubeshard.core.objects import KubeObject

T = TypeVar("T", bound=KubeObject)

Handler = Callable[[Delta[T]], None]

UndecodableHandler = Callable[[UndecodableObject], None]

News = Delta[T] | UndecodableObject


class Registration(Generic[T]):
    """Made by `Informer.add_handler`. `filled` waits until the informer's store is."""

    def __init__(
        self, handler: Handler[T], undecodable: UndecodableHandler, filled: Callable[[], Awaitable[None]]
    ) -> None:
        self._handler = handler
        self._undecodable = undecodable
        self._filled = filled
        self._active = True
        self._initial: Iterator[News[T]] = iter(())
        self._later: deque[News[T]] = deque()
        self._caught_up = asyncio.Event()
        self._caught_up.set()

    def remove(self) -> None:
        """The handler is not called any more, not even with the rest of a change that is being told right
        now.
        """
        self._active = False
        self._later.clear()
        self._caught_up.set()

    @property
    def active(self) -> bool:
        return self._active

    @property
    def behind(self) -> bool:
        """Whether the handler has still to hear of objects that were there when it was added."""
        return not self._caught_up.is_set()

    async def synced(self) -> None:
        """Waits until the store is filled and the handler has heard of all that was there when it was added."""
        await self._filled()
        await self._caught_up.wait()

    # From the informer

    def begin_with(self, existing: Iterable[News[T]]) -> None:
        """The handler hears of these first."""
        self._initial = iter(existing)
        self._caught_up.clear()

    def queue(self, news: News[T]) -> None:
        """In line behind what the handler has still to hear."""
        if self._active:
            self._later.append(news)

    def waiting(self) -> Iterator[News[T]]:
        """What the handler has still to hear; at its end the handler has caught up. To be gone on with after a
        break.
        """
        for news in self._initial:
            if not self._active:
                return
            yield news
        while self._later:
            yield self._later.popleft()
        self._caught_up.set()

    def tell(self, news: News[T]) -> None:
        if not self._active:
            return
        if isinstance(news, UndecodableObject):
            self._undecodable(news)
        else:
            self._handler(news)
