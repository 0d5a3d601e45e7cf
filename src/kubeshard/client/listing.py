"""Lists, object by object.

Guaranteed: all objects are from one snapshot, that of `resource_version` after the end; memory is bounded by a page
(`page_size`), or by a batch if one response of any length is requested (`page_size=None`); a response that is not a
list of the kind is an error, never an empty list; an object that does not fit its class is put into `undecodable`,
and the others are returned.

A page is read completely before its first object is returned: a page is small, and a slow consumer keeps no
connection open and does not run into the server's request timeout. Without pages objects are returned as the bytes
arrive.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import aclosing
from typing import Generic, TypeVar

from kubeshard.client.connection import Connection, broken
from kubeshard.client.requests import accept_list, query, selectors
from kubeshard.client.splitting import ListSplitter
from kubeshard.core.encoding import UndecodableObject
from kubeshard.core.errors import Gone
from kubeshard.core.objects import Form, KubeObject
from kubeshard.core.selectors import FieldSelector, Selector
from kubeshard.runtime.logs import get_logger
from kubeshard.runtime.transport import HttpRequest, TransportError

log = get_logger("kubeshard.client")

T = TypeVar("T", bound=KubeObject)


class ListStream(Generic[T]):
    """An asynchronous iterator over the objects of a list; iterate once.

    If the snapshot expires between two pages (they took longer than the compaction interval), the objects so far
    are invalid: `on_restart`, if given, is called and everything is listed again as one response; without it
    iteration raises Gone.
    """

    def __init__(
        self,
        connection: Connection,
        form: Form[T],
        path: str,
        headers: dict[str, str],
        *,
        label_selector: Selector | None,
        field_selector: FieldSelector | None,
        page_size: int | None,
        resource_version: str,
        timeout: float,
        on_restart: Callable[[], None] | None,
    ) -> None:
        self._connection = connection
        self._form = form
        self._path = path
        self._headers = {**headers, "Accept": accept_list(form)}
        self._selectors = selectors(label_selector, field_selector)
        self._page_size = page_size
        self._from_version = resource_version
        self._timeout = timeout
        self._on_restart = on_restart
        self.resource_version = ""
        """The version of the snapshot, known after the end: where a watch continues."""
        self.read_at = 0.0
        """When (monotonic) the objects currently returned had arrived."""
        self.undecodable: list[UndecodableObject] = []
        """Objects that did not fit the class, with their metadata only."""

    async def __aiter__(self) -> AsyncIterator[T]:
        token = ""
        while True:
            splitter = ListSplitter(self._form)
            try:
                body = await self._connection.send(self._request(token)) if self._page_size else None
            except Gone:
                if not token or self._on_restart is None:
                    raise
                log.info("The snapshot of a paged list expired: reading it as one response", kind=self._form)
                self._on_restart()
                self.undecodable.clear()
                self._page_size, self._from_version, token = None, "", ""
                continue
            self.read_at = self._connection.clock.monotonic()
            if body is None:
                async with aclosing(self._streamed(splitter)) as objects:
                    async for obj in objects:
                        yield obj
            else:
                for obj in self._sound([*splitter.feed(body), *splitter.finish()]):
                    yield obj
            token = splitter.metadata.continue_
            if not token:
                self.resource_version = splitter.metadata.resource_version
                return

    async def first_page(self) -> str:
        """Reads one page, and returns only the version of the snapshot. Use it instead of iterating."""
        splitter = ListSplitter(self._form)
        splitter.feed(await self._connection.send(self._request("")))
        splitter.finish()
        return splitter.metadata.resource_version

    async def _streamed(self, splitter: ListSplitter[T]) -> AsyncGenerator[T, None]:
        request = self._request("")
        async with self._connection.stream(request) as stream:
            try:
                async for chunk in stream.chunks():
                    self.read_at = self._connection.clock.monotonic()
                    for obj in self._sound(splitter.feed(chunk)):
                        yield obj
            except TransportError as error:
                raise broken(request, error) from error
        for obj in self._sound(splitter.finish()):
            yield obj

    def _sound(self, objects: list[T | UndecodableObject]) -> list[T]:
        sound = [obj for obj in objects if not isinstance(obj, UndecodableObject)]
        if len(sound) != len(objects):
            self.undecodable.extend(obj for obj in objects if isinstance(obj, UndecodableObject))
        return sound

    def _request(self, token: str) -> HttpRequest:
        # A continue token includes the snapshot: a version in addition to it is refused.
        position = {"continue": token} if token else {"resourceVersion": self._from_version}
        target = self._path + query({**self._selectors, "limit": self._page_size, **position})
        return HttpRequest("GET", target, self._headers, None, self._timeout, self._timeout)
