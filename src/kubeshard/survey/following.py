"""Follows a kind without a cache: reports all existing objects, then every change.

Lists are read page by page and nothing is kept, so memory does not grow with the number of objects. Guaranteed: events
are reported in the server's order; after a gap, all objects are reported again between `begin` and `end`; failures are
reported and retried. RBAC: list and watch; without watch, everything is listed again once a minute.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import NoReturn, Protocol, TypeVar

from kubeshard.cache.backoff import Backoff, BackoffPolicy
from kubeshard.cache.pace import Pace
from kubeshard.client.client import Client
from kubeshard.client.watching import Bookmark, Changed
from kubeshard.core.errors import ApiError, Forbidden, Gone
from kubeshard.core.namespaces import ALL
from kubeshard.core.objects import Form, KubeObject
from kubeshard.core.selectors import Selector

T = TypeVar("T", bound=KubeObject)
T_contra = TypeVar("T_contra", bound=KubeObject, contravariant=True)

FORBIDDEN_PAUSE = 60.0
SHORT_WATCH = 1.0
"""Seconds. A watch that ends sooner without any event counts as failed."""


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
    """Follows a kind in all namespaces until cancelled."""
    clock, at = client.world.clock, _Position()
    backoff = Backoff(BackoffPolicy(), client.world.rng)
    while True:
        pause = 0.0
        try:
            if not at.version:
                at.version = await _read(client, form, listener, labels)
            opened, version = clock.monotonic(), at.version
            await _watch(client, form, listener, labels, at)
            if at.version != version or clock.monotonic() - opened >= SHORT_WATCH:
                continue
        except Gone:
            at.version = ""
        except ApiError as error:
            listener.failed(error)
            if isinstance(error, Forbidden):
                at.version, pause = "", FORBIDDEN_PAUSE
            pause = max(pause, error.retry_after or 0.0)
        await asyncio.sleep(max(pause, backoff.failed(clock.monotonic())))


@dataclass(slots=True)
class _Position:
    """The resourceVersion up to which all events were reported, "" at first. After a failure, they are not repeated."""

    version: str = ""


async def _read(client: Client, form: Form[T], listener: Listener[T], labels: Selector | None) -> str:
    pace = Pace(client.world.clock)
    listener.begin()
    stream = client.list(form, ALL, label_selector=labels, on_restart=listener.begin)
    async for obj in stream:
        listener.put(obj)
        await pace.step()
    listener.end()
    return stream.resource_version


async def _watch(
    client: Client, form: Form[T], listener: Listener[T], labels: Selector | None, at: _Position
) -> None:
    """Watches until the watch ends by itself."""
    async with client.watch(form, ALL, label_selector=labels, resource_version=at.version) as events:
        listener.failed(None)
        async for event in events:
            match event:
                case Bookmark(version):
                    at.version = version
                case Changed(change, obj):
                    at.version = obj.metadata.resource_version
                    (listener.drop if change == "DELETED" else listener.put)(obj)
