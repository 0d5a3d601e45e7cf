"""Follows a kind without a cache: reports all existing objects, then every change.

Lists are read page by page and nothing is kept, so memory does not grow with the number of objects. Guaranteed: events
are reported in the server's order; after a gap, all objects are reported again between `begin` and `end`; failures are
reported and retried. RBAC: list and watch; without watch, everything is listed again once a minute.
"""

from __future__ import annotations

from typing import Generic, NoReturn, Protocol, TypeVar

from kubeshard.client.client import Client
from kubeshard.core.encoding import UndecodableObject
from kubeshard.core.errors import ApiError, Gone
from kubeshard.core.objects import Form, KubeObject
from kubeshard.core.selectors import Selector
from kubeshard.listwatch.machine import ONCE_A_MINUTE, Listed
from kubeshard.listwatch.reflector import Interrupted, Reflector, Sink, Source

T = TypeVar("T", bound=KubeObject)
T_contra = TypeVar("T_contra", bound=KubeObject, contravariant=True)


class Listener(Protocol[T_contra]):
    """Receives the events."""

    def begin(self) -> None:
        """A list begins: all objects follow."""

    def put(self, obj: T_contra, /) -> None: ...

    def drop(self, obj: T_contra, /) -> None:
        """The object was deleted or no longer matches the selector."""

    def end(self) -> None:
        """The list is complete."""

    def failed(self, error: ApiError | None) -> None:
        """There are no events until the next attempt; None means that it works again."""


async def follow(
    client: Client, form: Form[T], listener: Listener[T], *, labels: Selector | None = None
) -> NoReturn:
    """Follows a kind in all namespaces until cancelled. Objects that do not fit their class are left out."""
    source = Source(client, form, labels=labels)
    await Reflector(source, _Reported(listener), forbidden=ONCE_A_MINUTE, log={"kind": form}).run()


class _Reported(Sink[T], Generic[T]):
    def __init__(self, listener: Listener[T]) -> None:
        self._listener = listener

    def begin(self) -> bool:
        self._listener.begin()
        return True

    def put(self, entry: T | UndecodableObject, /) -> None:
        if not isinstance(entry, UndecodableObject):
            self._listener.put(entry)

    def drop(self, entry: T | UndecodableObject, /) -> None:
        if not isinstance(entry, UndecodableObject):
            self._listener.drop(entry)

    def listed(self, listed: Listed, /) -> None:
        self._listener.end()

    def opened(self) -> None:
        self._listener.failed(None)

    def interrupted(self, interruption: Interrupted, /, *, again: bool) -> None:
        if not isinstance(interruption.error, Gone):  # everything is listed again
            self._listener.failed(interruption.error)
