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

import dataclasses
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from types import TracebackType

from kubeshard.client.access import AccessReviewSpec, ResourceAttributes, SelfSubjectAccessReview
from kubeshard.client.config import ClusterConfig
from kubeshard.client.connection import Connection, where
from kubeshard.client.limiter import Limiter
from kubeshard.client.loading import load_config
from kubeshard.client.reading import Reads
from kubeshard.client.requests import JSON, collection_path
from kubeshard.client.retry import RetryPolicy
from kubeshard.client.status import error_of
from kubeshard.client.writes import SERVERS_PATIENCE, entered
from kubeshard.client.writing import Writes
from kubeshard.core.encoding import encode
from kubeshard.core.namespaces import ALL, AllNamespaces
from kubeshard.core.objects import form_of
from kubeshard.runtime.thread import SameLoop
from kubeshard.runtime.tls import Tls
from kubeshard.runtime.transport import HttpRequest, HttpResponse, HttpStream, Transport
from kubeshard.runtime.world import REAL_WORLD, World

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
        also delays the keeper of a Lease. Closing this client closes it.
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
        """Whether RBAC, or another authorizer, allows it now: in all namespaces, unless one is given."""
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
        """Any request to the server, for paths without a kind (`/version`, `/readyz`). Never fenced. Raises
        ApiError.
        """
        request = self._request(method, target, accept, body, content_type)
        with entered(self._ledger if method not in _READS else None, SERVERS_PATIENCE):
            answer = await self._connection.exchange(request)
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
