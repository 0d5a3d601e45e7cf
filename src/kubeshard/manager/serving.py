"""Servers in a manager's process, other than its pages.

A `Server` only needs the world. A `ClientServer` also uses the API server, for its certificate and its registration,
and reports whether it can be called.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Iterator, Sequence
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
