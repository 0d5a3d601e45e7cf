"""The settings that all requests of a client share, and the views that change them.

A view is a copy that shares connections, credentials, discovery and counters with the original client, and does not
change it.
"""

from __future__ import annotations

from collections.abc import Awaitable, Mapping
from functools import lru_cache
from typing import Any, Self, TypeVar

from kubeshard.client.config import ClusterConfig
from kubeshard.client.connection import Connection, Guard, Observer, where
from kubeshard.client.discovery import Discovery
from kubeshard.client.fence import Fence
from kubeshard.client.requests import JSON, headers
from kubeshard.client.retry import RetryPolicy
from kubeshard.client.terminating_namespaces import TerminatingNamespaces
from kubeshard.client.write_records import WriteLedger, WriteObserver
from kubeshard.core.encoding import UNREADABLE, decode, decoder
from kubeshard.core.errors import UnexpectedResponse
from kubeshard.core.kinds import TypeMeta
from kubeshard.core.objects import Form, KubeObject, ObjectMeta
from kubeshard.runtime.clock import Clock
from kubeshard.runtime.rng import Rng
from kubeshard.runtime.transport import HttpRequest, Transport
from kubeshard.version import __version__

T = TypeVar("T", bound=KubeObject)

REQUEST_TIMEOUT = 10.0


class View:
    """A connection, and the settings of requests on it."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._user_agent = f"kubeshard/{__version__}"
        self._field_manager = "kubeshard"
        self._timeout = REQUEST_TIMEOUT
        self._fence: Fence | None = None
        self._checks: tuple[Guard, ...] = ()
        self._write_observers: tuple[WriteObserver, ...] = ()
        self._ledgers: tuple[WriteLedger, ...] = ()
        self._terminating = TerminatingNamespaces(connection.clock)
        self._spares = False
        self.discovery = Discovery(self._discover)

    def with_user_agent(self, suffix: str) -> Self:
        """Sends `<user agent>/<suffix>` as user agent."""
        return self._view(_user_agent=f"{self._user_agent}/{suffix}")

    def with_field_manager(self, name: str) -> Self:
        """The default field manager of this view's writes."""
        return self._view(_field_manager=name)

    def with_timeout(self, seconds: float) -> Self:
        """The deadline of each request, except lists and watches: 10 s by default. The server knows that of writes."""
        return self._view(_timeout=seconds)

    def impatient(self) -> Self:
        """Each request is sent at once, and only once: a call neither waits nor retries. Await `turn` before each,
        which applies the rate limit.

        Raises Throttled with the server's `retry_after`, and Unauthorized after the credentials were renewed. For
        writes that are only valid while a condition is true: see `checked`.
        """
        return self._view(_connection=self._connection.impatient())

    def with_retry(self, policy: RetryPolicy) -> Self:
        """Requests that the server turns away are sent again as the policy says."""
        return self._view(_connection=self._connection.with_retry(policy))

    def without_warnings(self) -> Self:
        """The API server's warnings are not logged: for a request whose warning is the answer that is wanted."""
        return self._view(_connection=self._connection.without_warnings())

    def turn(self) -> Awaitable[None]:
        """For an impatient view: waits for the rate limit and credentials. Raises Unauthorized, ConfigurationError."""
        return self._connection.turn()

    def sparing(self) -> Self:
        """A create that can only be refused, as its namespace is being deleted, raises Forbidden and is not sent."""
        return self._view(_spares=True)

    def saw(self, meta: ObjectMeta) -> None:
        """Tells sparing views of an object that exists: things may be created in the namespace of a new one."""
        self._terminating.saw(meta)

    def checked(self, check: Guard) -> Self:
        """`check` is called immediately before each attempt of a write, also of an unfenced one, after those that this
        view has already. What one of them raises is raised, and nothing is sent.
        """
        return self._view(_checks=(*self._checks, check))

    def fenced(self, fence: Fence) -> Self:
        """Each write is preceded by the fence's check, and includes its proof: see `kubeshard.client.fence`."""
        return self._view(_fence=fence)

    def on_write(self, callback: WriteObserver) -> Self:
        """`callback` gets a WriteRecord of each write that succeeded or got no answer, except dry runs, before the
        method returns or raises.
        """
        return self._view(_write_observers=(*self._write_observers, callback))

    def entered_in(self, ledger: WriteLedger) -> Self:
        """`ledger` tracks every write from before it is sent until its outcome is known (not for dry runs), as do those
        of this view.
        """
        return self._view(_ledgers=(*self._ledgers, ledger))

    @property
    def field_manager(self) -> str:
        """The default field manager of this view's writes."""
        return self._field_manager

    @property
    def config(self) -> ClusterConfig:
        return self._connection.config

    @property
    def unverified(self) -> str:
        """Why the API server cannot be verified now; empty if it can, or has not been asked yet."""
        return self._connection.unverified

    @property
    def transport(self) -> Transport:
        return self._connection.transport

    @property
    def clock(self) -> Clock:
        return self._connection.clock

    @property
    def rng(self) -> Rng:
        return self._connection.rng

    @property
    def observers(self) -> list[Observer]:
        """Called with method, host, status (0: no response) and seconds of each attempt. Shared by all views."""
        return self._connection.observers

    def _view(self, **changes: Any) -> Self:
        view = object.__new__(type(self))  # what copy.copy does, at a fifth of its cost
        view.__dict__.update(self.__dict__, **changes)
        return view

    def _headers(self, accept: str, content_type: str | None = None) -> Mapping[str, str]:
        return headers(self._user_agent, self._connection.impersonate, accept, content_type)

    def _request(
        self, method: str, target: str, accept: str, body: bytes | None = None, content_type: str = JSON
    ) -> HttpRequest:
        given = self._headers(accept, None if body is None else content_type)
        return HttpRequest(method, target, given, body, self._timeout)

    def _decoded(self, form: Form[T], request: HttpRequest, body: bytes, subresource: str | None) -> T:
        if not body.startswith(_usual_heads(form)):
            try:
                got: TypeMeta = decoder(TypeMeta).decode(body)
            except UNREADABLE as error:
                raise UnexpectedResponse(
                    f"{where(request)}: the response is not a JSON object: {error}"
                ) from error
            # Subresources other than status return their own kinds (Scale, TokenRequest).
            expected = {form.kind.kind, "PartialObjectMetadata"} if form.metadata_only else {form.kind.kind}
            if subresource in (None, "status") and got.kind not in expected:
                raise UnexpectedResponse(
                    f"{where(request)}: asked for {form.kind}, got {got.kind or 'no kind'}"
                )
        return decode(form, body)

    async def _discover(self, path: str, accept: str) -> bytes:
        return await self._connection.send(self._request("GET", path, accept))


@lru_cache(maxsize=1024)
def _usual_heads(form: Form[Any]) -> tuple[bytes, ...]:
    """How an API server begins an object of the form: its kind need not be looked for in all of it."""
    kinds = (form.kind.kind, "PartialObjectMetadata") if form.metadata_only else (form.kind.kind,)
    versions = ("", *(f'"apiVersion":"{version}",' for version in (form.kind.api_version, "meta.k8s.io/v1")))
    return tuple(f'{{{version}"kind":"{kind}",'.encode() for kind in kinds for version in versions)
