"""The client: typed and metadata-only access to one API server.

Every method takes a class, or a `Form` of it (`metadata_only(Website)`), and returns that form. Errors are
classes by cause (`kubeshard.core.errors`), raised only after a retry with renewed credentials for 401, and after
waiting as the server requested for 429 and 503.

Guaranteed: a request ends within its deadline, and the server gives a write up when the client does; an
unexpected response (HTML, a redirect, an empty body, another kind) is UnexpectedResponse; nothing is written
twice. Not guaranteed: that a write that raised Timeout or Unavailable did not take effect. Read before you repeat
it.

`with_*`, `fenced`, `on_write` and `entered_in` return views: cheap copies that share connections and do not change
the original client. A client and its views belong to one event loop. RBAC: each method needs the verb of its name on
the resource (`apply` and patches: `patch`; an apply that creates: also `create`).
"""

from __future__ import annotations

import builtins
import dataclasses
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from types import TracebackType
from typing import TypedDict, TypeVar, Unpack

from kubeshard.client.config import ClusterConfig
from kubeshard.client.connection import Connection, where
from kubeshard.client.kubeconfig import load_config
from kubeshard.client.limiter import Limiter
from kubeshard.client.listing import ListStream
from kubeshard.client.requests import (
    JSON,
    accept,
    accept_list,
    collection_path,
    object_path,
    query,
    selectors,
)
from kubeshard.client.retry import RetryPolicy
from kubeshard.client.status import error_of
from kubeshard.client.view import View
from kubeshard.client.watching import WatchStream
from kubeshard.client.write_records import SERVERS_PATIENCE, entered
from kubeshard.client.writing import Writes
from kubeshard.core.encoding import encode
from kubeshard.core.hash_ranges import HashRanges
from kubeshard.core.namespaces import ALL, AllNamespaces
from kubeshard.core.objects import Form, KubeObject, Struct, field, form_of
from kubeshard.core.selectors import FieldSelector, Selector
from kubeshard.runtime.logs import get_logger
from kubeshard.runtime.loop_thread import SameLoop
from kubeshard.runtime.tls import Tls
from kubeshard.runtime.transport import HttpRequest, HttpResponse, HttpStream, Transport
from kubeshard.runtime.world import REAL_WORLD, World

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
    shard_selector: HashRanges | None
    page_size: int | None
    resource_version: str
    timeout: float


class Reads(View):
    """The reading verbs. RBAC: each method needs the verb of its name on the resource; `list_all` needs `list`."""

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
        shard_selector: HashRanges | None = None,
        page_size: int | None = 500,
        resource_version: str = "",
        timeout: float = LIST_TIMEOUT,
        on_restart: Callable[[], object] | None = None,
    ) -> ListStream[T]:
        """The objects of a namespace, or of `ALL`: `async for obj in client.list(Website, ALL)`. See `ListStream`.
        `shard_selector`: only those with one of these hashes, whether the server filters or not. Raises WrongNamespace,
        and ValueError for ranges without hashes.
        """
        form = form_of(target)
        return ListStream(
            self._connection,
            form,
            collection_path(form.kind, namespace),
            self._headers(accept_list(form)),
            label_selector=label_selector,
            field_selector=field_selector,
            shard_selector=shard_selector,
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
        """The objects of `list`, all in memory. Those that do not fit their class are logged and left out."""
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
        shard_selector: HashRanges | None = None,
        resource_version: str = "",
        send_initial_events: bool = False,
        timeout_seconds: float | None = None,
        idle_timeout: float | None = WATCH_IDLE_TIMEOUT,
    ) -> WatchStream[T]:
        """Events after `resource_version`: `async with client.watch(Website, ALL) as events: async for event
        in events`.

        See `kubeshard.client.watching` for the types of events. `""` starts with the existing objects.
        `send_initial_events` requests these followed by a `Bookmark` with `ends_initial_events`; it raises Invalid if
        the server does not support it. `shard_selector` is that of `list`. Opening has the deadline of a list, or
        `idle_timeout` if that is longer: a proxy may hold the head of the response back until the first event.
        """
        form = form_of(target)
        seconds = self._connection.rng.uniform(*WATCH_SECONDS) if timeout_seconds is None else timeout_seconds
        target_path = collection_path(form.kind, namespace) + query(
            {
                "watch": True,
                "allowWatchBookmarks": True,
                "resourceVersion": resource_version,
                **selectors(label_selector, field_selector, shard_selector),
                "timeoutSeconds": max(1, int(seconds)),
                "sendInitialEvents": send_initial_events,
                "resourceVersionMatch": "NotOlderThan" if send_initial_events else None,
            }
        )
        headers = self._headers(accept(form))
        opening = max(LIST_TIMEOUT, idle_timeout or 0.0)
        request = HttpRequest("GET", target_path, headers, None, opening, idle_timeout)
        return WatchStream(self._connection, form, request, shard_selector)


class ResourceAttributes(Struct, omit_defaults=True):
    verb: str = ""
    group: str = ""
    resource: str = ""
    subresource: str = ""
    namespace: str = ""
    name: str = ""


class AccessReviewSpec(Struct):
    resource_attributes: ResourceAttributes | None = None


class AccessReviewStatus(Struct, omit_defaults=True):
    allowed: bool = False
    reason: str = ""


class SelfSubjectAccessReview(KubeObject, group="authorization.k8s.io", version="v1", namespaced=False):
    """Whether the sender may do something. RBAC: none, allowed for every authenticated user."""

    spec: AccessReviewSpec = field(default_factory=AccessReviewSpec)
    status: AccessReviewStatus = field(default_factory=AccessReviewStatus)


_READS = ("GET", "HEAD", "OPTIONS")


class Client(Reads, Writes):
    """Access to one API server as one user. Close it, or use it as an async context manager."""

    def __init__(
        self,
        config: ClusterConfig,
        *,
        transport: Transport | None = None,
        limiter: Limiter | None = None,
        retry: RetryPolicy | None = None,
        world: World = REAL_WORLD,
    ) -> None:
        """Raises ConfigurationError for unusable certificates. `limiter` bounds the request rate (default: no
        limit). `transport` replaces the connections that the world makes, for every client of its world. It
        belongs to one event loop, so in that world nothing has a thread with a connection of its own: a blocked loop
        also delays the renewal of a Lease. Closing this client closes it.
        """
        if transport is not None:
            world = dataclasses.replace(world, connect=_Given(transport), thread=lambda _: SameLoop())
        super().__init__(Connection(config, world=world, limiter=limiter, retry=retry or RetryPolicy()))

    @classmethod
    async def connect(
        cls,
        kubeconfig: str | Path | None = None,
        context: str | None = None,
        *,
        world: World = REAL_WORLD,
    ) -> Client:
        """A client of the configuration that `load_config` finds. Nothing is sent yet."""
        return cls(await load_config(kubeconfig, context), world=world)

    @property
    def world(self) -> World:
        """The client's world. Another client in it has its own connections, unless a `transport` was given."""
        return self._connection.world

    @property
    def namespace(self) -> str:
        """The namespace of the pod this process runs in, or of the kubeconfig's context; otherwise `default`."""
        return self._connection.config.namespace

    async def __aenter__(self) -> Client:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Closes the connections, which views share; requests in flight fail."""
        await self._connection.close()

    async def can_i(
        self,
        verb: str,
        group: str,
        resource: str,
        namespace: str | AllNamespaces = ALL,
        *,
        name: str = "",
        subresource: str = "",
    ) -> bool:
        """Whether RBAC, or another authorizer, allows it now: in all namespaces, unless one is given. Raises ApiError.
        Every authenticated user may ask.
        """
        attributes = ResourceAttributes(
            verb=verb,
            group=group,
            resource=resource,
            namespace="" if namespace is ALL else namespace,
            name=name,
            subresource=subresource,
        )
        review = SelfSubjectAccessReview(spec=AccessReviewSpec(resource_attributes=attributes))
        form = form_of(SelfSubjectAccessReview)
        request = self._request("POST", collection_path(form.kind, ""), JSON, encode(review))
        return self._decoded(form, request, await self._connection.send(request), None).status.allowed

    async def raw(
        self,
        method: str,
        target: str,
        body: bytes | None = None,
        *,
        accept: str = JSON,
        content_type: str = JSON,
    ) -> HttpResponse:
        """Any request, for paths without a kind (`/version`, `/readyz`). A write is `checked`, but never fenced. Raises
        ApiError.
        """
        request = self._request(method, target, accept, body, content_type)
        ledgers, checks = ((), ()) if method in _READS else (self._ledgers, self._checks)
        with entered(ledgers, SERVERS_PATIENCE):
            answer = await self._connection.exchange(request, checks)
            if answer.status >= 500:
                raise error_of(where(request), answer.status, answer.headers, answer.body)
        if not 200 <= answer.status < 300:
            raise error_of(where(request), answer.status, answer.headers, answer.body)
        return answer


class _Given:
    """Connects each client to the same transport, which belongs to the first one."""

    def __init__(self, transport: Transport) -> None:
        self._next = transport

    def __call__(self, server: str, tls: Tls, /, *, proxy: str | None = None) -> Transport:
        transport = self._next
        if not isinstance(transport, _Lent):
            self._next = _Lent(transport)
        return transport


class _Lent:
    """A transport that its users cannot close."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    async def request(self, request: HttpRequest) -> HttpResponse:
        return await self._transport.request(request)

    def stream(self, request: HttpRequest) -> AbstractAsyncContextManager[HttpStream]:
        return self._transport.stream(request)

    def renew(self, tls: Tls) -> None:
        self._transport.renew(tls)

    def abort(self) -> None:
        self._transport.abort()

    async def close(self) -> None: ...
