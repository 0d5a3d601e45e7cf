"""The bodies of requests that a webhook server holds in memory, whoever sends them.

Guaranteed: together they have at most `limit` bytes, or one body that is alone has more (its own limit is the
application's). What does not fit is made room for by giving up the bodies that are not complete, those first that began
first: an API server sends a body within milliseconds, so what waits for the rest of one is a client that means harm, or
a network that fails. So unfinished bodies, however many, take neither memory nor places from complete ones.

Not guaranteed: memory of the sockets themselves, which the limits of connections bound. Sans-IO.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager

MAX_BYTES = 32 * 1024 * 1024

_number = itertools.count().__next__


class NoRoom(Exception):
    """The body does not fit beside the complete ones."""


class Bodies:
    """See the module."""

    def __init__(self, limit: int = MAX_BYTES) -> None:
        self._limit = limit
        self._used = 0
        self._unfinished: dict[Body, None] = {}

    @contextmanager
    def body(self, give_up: Callable[[], object]) -> Iterator[Body]:
        """`give_up` is called at most once, never after it is complete: the block must then end soon."""
        body = Body(self, give_up)
        self._unfinished[body] = None
        try:
            yield body
        finally:
            self._unfinished.pop(body, None)
            self._used -= body.size
            body.size = 0

    def oldest(self) -> Body | None:
        """The body to give up first, if any is not complete."""
        return next(iter(self._unfinished), None)

    def give_up(self, body: Body) -> None:
        del self._unfinished[body]
        self._used -= body.size
        body.size = 0
        body.on_given_up()

    def grow(self, body: Body, size: int) -> None:
        if body not in self._unfinished:
            raise NoRoom  # it was given up, and has not ended yet
        if self._too_much(body, size):
            for other in [each for each in self._unfinished if each is not body]:
                self.give_up(other)
                if not self._too_much(body, size):
                    break
            else:
                raise NoRoom
        self._used += size - body.size
        body.size = size

    def complete(self, body: Body) -> None:
        self._unfinished.pop(body, None)

    def _too_much(self, body: Body, size: int) -> bool:
        others = self._used - body.size
        return others > 0 and others + size > self._limit


class Body:
    """One body. It has `size` bytes so far."""

    def __init__(self, bodies: Bodies, on_given_up: Callable[[], object]) -> None:
        self.bodies = bodies
        self.on_given_up = on_given_up
        self.number = _number()
        self.size = 0

    def grow(self, size: int) -> None:
        """It has this many bytes now. Raises NoRoom."""
        self.bodies.grow(self, size)

    def complete(self) -> None:
        """It is no longer given up for others."""
        self.bodies.complete(self)


def give_up_oldest(several: Iterable[Bodies]) -> bool:
    """Gives up the body that began first among all of these that are not complete. False if there is none."""
    oldest = min(
        filter(None, (bodies.oldest() for bodies in several)), key=lambda body: body.number, default=None
    )
    if oldest is not None:
        oldest.bodies.give_up(oldest)
    return oldest is not None
