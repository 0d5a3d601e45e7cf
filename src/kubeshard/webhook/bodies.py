"""The bodies of requests that a webhook server holds in memory, whoever sends them.

Guaranteed: together they have at most `limit` bytes, or one body that is alone has more (its own limit is the
application's). What does not fit is made room for by giving up the bodies that are not complete, those first that began
first: an API server sends a body within milliseconds, so what waits for the rest of one is a client that means harm, or
a network that fails. So unfinished bodies, however many, take neither memory nor places from complete ones.

Not guaranteed: memory of the sockets themselves, which the limits of connections bound. Sans-IO.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

MAX_BYTES = 32 * 1024 * 1024


class NoRoom(Exception):
    """The body does not fit beside the complete ones."""


class Bodies:
    """See the module."""

    def __init__(self, limit: int = MAX_BYTES) -> None:
        self._limit = limit
        self._used = 0
        self._unfinished: dict[Body, None] = {}
        """In the order of their beginnings."""

    @contextmanager
    def body(self, give_up: Callable[[], object]) -> Iterator[Body]:
        """A body from the first byte until its request is answered. `give_up` is called at most once, and never after
        it is complete: the block must then end soon.
        """
        body = Body(self, give_up)
        self._unfinished[body] = None
        try:
            yield body
        finally:
            self._unfinished.pop(body, None)
            self._used -= body.size
            body.size = 0

    def give_up_oldest(self) -> bool:
        """Whether there was a body to give up."""
        for oldest in self._unfinished:
            self._give_up(oldest)
            return True
        return False

    def grow(self, body: Body, size: int) -> None:
        if body not in self._unfinished:
            raise NoRoom  # it was given up, and has not ended yet
        if self._too_much(body, size):
            for other in [each for each in self._unfinished if each is not body]:
                self._give_up(other)
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

    def _give_up(self, body: Body) -> None:
        del self._unfinished[body]
        self._used -= body.size
        body.size = 0
        body.give_up()


class Body:
    """One body. It has `size` bytes so far."""

    def __init__(self, bodies: Bodies, give_up: Callable[[], object]) -> None:
        self._bodies = bodies
        self.give_up = give_up
        self.size = 0

    def grow(self, size: int) -> None:
        """It has this many bytes now. Raises NoRoom."""
        self._bodies.grow(self, size)

    def complete(self) -> None:
        """It is no longer given up for others."""
        self._bodies.complete(self)
