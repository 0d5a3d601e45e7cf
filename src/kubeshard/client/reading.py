"""The reading verbs: get, list, watch."""

from __future__ import annotations

import builtins
from collections.abc import Callable
from typing import TypedDict, TypeVar, Unpack

from kubeshard.client.listing import ListStream
from kubeshard.client.requests import accept, collection_path, object_path, query, selectors
from kubeshard.client.view import View
from kubeshard.client.watching import WatchStream
from kubeshard.core.namespaces import AllNamespaces
from kubeshard.core.objects import Form, KubeObject, form_of
from kubeshard.core.selectors import FieldSelector, Selector
from kubeshard.runtime.logs import get_logger
from kubeshard.runtime.transport import HttpRequest

log = get_logger("kubeshard.client")

T = TypeVar("T", bound=KubeObject)

LIST_TIMEOUT = 60.0
"""A list may take long; the server's own limit for requests is a minute."""
WATCH_SECONDS = (240.0, 480.0)
"""How long a watch lasts by default, drawn at random so that watches opened together do not end together.
"""
WATCH_IDLE_TIMEOUT = 90.0
"""The server sends a bookmark about every minute; more silence than this is a dead connection.
"""


class ListOptions(TypedDict, total=False):
    """The options of `list`, for callers that pass them on."""

    label_selector: Selector | None
    field_selector: FieldSelector | None
    page_size: int | None
    resource_version: str
    timeout: float


class Reads(View):
    """RBAC: each method needs the verb of its name on the resource; `list_all` needs `list`."""

    async def get(
        self,
        target: type[T] | Form[T],
        name: str,
        namespace: str | None = None,
        *,
        subresource: str | None = None,
    ) -> T:
        """One object, as it is now. Raises NotFound, UndecodableObject, WrongNamespace."""
        form = form_of(target)
        request = self._request("GET", object_path(form.kind, name, namespace, subresource), accept(form))
        return self._decoded(form, request, await self._connection.send(request), subresource)

    def list(
        self,
        target: type[T] | Form[T],
        namespace: str | AllNamespaces | None = None,
        *,
        label_selector: Selector | None = None,
        field_selector: FieldSelector | None = None,
        page_size: int | None = 500,
        resource_version: str = "",
        timeout: float = LIST_TIMEOUT,
        on_restart: Callable[[], None] | None = None,
    ) -> ListStream[T]:
        """The objects of a namespace, or of `ALL`: `async for obj in client.list(Website, ALL)`. See `ListStream`.
        Raises WrongNamespace.
        """
        form = form_of(target)
        return ListStream(
            self._connection,
            form,
            collection_path(form.kind, namespace),
            self._headers(),
            label_selector=label_selector,
            field_selector=field_selector,
            page_size=page_size,
            resource_version=resource_version,
            timeout=timeout,
            on_restart=on_restart,
        )

    async def current_version(
        self,
        target: type[T] | Form[T],
        namespace: str | AllNamespaces | None = None,
        *,
        label_selector: Selector | None = None,
        field_selector: FieldSelector | None = None,
    ) -> str:
        """The current resourceVersion of the kind, from a consistent list of one object at most."""
        stream = self.list(
            target, namespace, label_selector=label_selector, field_selector=field_selector, page_size=1
        )
        return await stream.first_page()

    async def list_all(
        self,
        target: type[T] | Form[T],
        namespace: str | AllNamespaces | None = None,
        **options: Unpack[ListOptions],
    ) -> builtins.list[T]:
        """All objects at once; for options see `list`. Objects that do not fit their class are logged and left out:
        use `list` if you need to know about them.
        """
        objects: builtins.list[T] = []
        stream = self.list(target, namespace, on_restart=objects.clear, **options)
        async for obj in stream:
            objects.append(obj)  # noqa: PERF401 - a restart clears the objects so far
        for problem in stream.undecodable:
            log.warning("Left an object out of a list", error=problem)
        return objects

    def watch(
        self,
        target: type[T] | Form[T],
        namespace: str | AllNamespaces | None = None,
        *,
        label_selector: Selector | None = None,
        field_selector: FieldSelector | None = None,
        resource_version: str = "",
        send_initial_events: bool = False,
        timeout_seconds: float | None = None,
        idle_timeout: float | None = WATCH_IDLE_TIMEOUT,
    ) -> WatchStream[T]:
        """Events after `resource_version`: `async with client.watch(Website, ALL) as events: async for event
        in events`.

        See `kubeshard.client.watching` for the types of events. `""` starts with the existing objects.
        `send_initial_events` requests these followed by a `Bookmark` with `ends_initial_events`; it raises Invalid if
        the server does not support it. Opening has the deadline of a list.
        """
        form = form_of(target)
        seconds = self._connection.rng.uniform(*WATCH_SECONDS) if timeout_seconds is None else timeout_seconds
        target_path = collection_path(form.kind, namespace) + query(
            {
                "watch": True,
                "allowWatchBookmarks": True,
                "resourceVersion": resource_version,
                **selectors(label_selector, field_selector),
                "timeoutSeconds": max(1, int(seconds)),
                "sendInitialEvents": send_initial_events,
                "resourceVersionMatch": "NotOlderThan" if send_initial_events else None,
            }
        )
        headers = {**self._headers(), "Accept": accept(form)}
        request = HttpRequest("GET", target_path, headers, None, LIST_TIMEOUT, idle_timeout)
        return WatchStream(self._connection, form, request)
