"""Servers in a manager's process, other than its pages.

A `Server` only needs the world. A `ClientServer` also uses the API server, for its certificate and its registration,
and reports whether it can be called. `BehindService` and `Converting` say what a server needs of the manifests.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Coroutine, Iterator, Mapping, Sequence
from typing import Any, Protocol, runtime_checkable

from prometheus_client import CollectorRegistry

from kubeshard.client.client import Client
from kubeshard.runtime.world import World


class Server(Protocol):
    """A server, such as a webhook server: starts before the caches, and ends after them."""

    async def run(self, world: World) -> None:
        """Serves until cancelled."""
        ...


@runtime_checkable
class ClientServer(Protocol):
    """A server that uses the manager's client."""

    name: str
    """The server's name, also that of its readiness check."""

    async def run_with(self, client: Client) -> None:
        """Serves until cancelled, in the client's world."""
        ...

    def unready(self) -> str | None:
        """The readiness check: why it cannot be called, or None."""
        ...


@runtime_checkable
class BehindService(Protocol):
    """A server that is called through a Service."""

    @property
    def behind(self) -> tuple[str, int, str | None] | None:
        """The Service's name, the port of the process, and the Service's namespace unless it is the pod's; None if it
        is not called through a Service.
        """
        ...


@runtime_checkable
class Converting(Protocol):
    """A server that converts objects between the versions of their kinds."""

    @property
    def converted(self) -> Collection[str]:
        """The names of the kinds' definitions."""
        ...

    def converting(self, definition: str, namespace: str) -> Mapping[str, Any]:
        """What the definition needs: `spec.conversion`, and annotations if something else brings the certificate's
        authority. `namespace` is that of the server's Service, if the server does not say it itself.
        """
        ...


@runtime_checkable
class Called(Protocol):
    """A server of webhooks, which registers itself where it is called."""

    served: bool
    """Whether it serves anything; set before it runs."""

    why_uncalled: str
    """Why the API server does not call a temporary registration, or why that is not known; "" if it does."""

    def listen_on(self, port: int, host: str | None = None) -> None:
        """Serves at this port instead, 0 for a free one, and at this address; before it runs."""
        ...

    def call_at(
        self,
        url: str,
        *,
        certificates: Any = None,
        ca_bundle: str | None = None,
        temporary: bool = True,
        strict: bool = False,
    ) -> None:
        """Has the API server call this process at `url` (`kubeshard.webhook.Webhooks.call_at`)."""
        ...

    def share(self, number: int) -> None:
        """Serves together with other processes of this machine, of which this one has the number; before it runs."""
        ...

    def only_serve(self, certificates: Any) -> None:
        """Registers nothing, and serves with these certificates."""
        ...

    async def registered(self) -> None:
        """Returns once the API server knows where to call."""
        ...


AnyServer = Server | ClientServer


def serving(server: AnyServer, client: Client) -> Coroutine[Any, Any, None]:
    return server.run_with(client) if isinstance(server, ClientServer) else server.run(client.world)


def registries(servers: Sequence[AnyServer]) -> Iterator[CollectorRegistry]:
    """Those in which servers count, while they run."""
    for server in servers:
        registry = getattr(server, "registry", None)
        if isinstance(registry, CollectorRegistry):
            yield registry


def unready_checks(servers: Sequence[AnyServer]) -> dict[str, Callable[[], str | None]]:
    """The readiness checks by the servers' names. Raises ValueError for duplicate names."""
    found: dict[str, Callable[[], str | None]] = {}
    for server in servers:
        if (
            isinstance(server, ClientServer)
            and found.setdefault(server.name, server.unready) != server.unready
        ):
            raise ValueError(
                f"two servers are named {server.name}: the name is also that of the readiness check"
            )
    return found
