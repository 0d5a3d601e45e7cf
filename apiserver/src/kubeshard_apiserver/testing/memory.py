"""An API server for a single test, without a socket and without a thread: for unit tests of controllers.

    async def test_something(kube_memory):
        async with kube_memory.client() as client:
            await client.create(...)

Guaranteed: clients are production clients, and they send and receive the same bytes as over a connection. Everything
runs in the event loop of the test, including on virtual time.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from kubeshard.client.client import Client
from kubeshard.client.config import ClusterConfig
from kubeshard.client.installing import install
from kubeshard.runtime.watchdog import NoWatchdog
from kubeshard_apiserver.front.memory import InMemoryTransport
from kubeshard_apiserver.server import ApiServer
from kubeshard_apiserver.testing.faults import Fault, FaultyTransport


class MemoryApi:
    """`server` is the embedded API server itself. No controllers run unless the test starts them
    (`kubeshard_apiserver.controllers`).
    """

    def __init__(self, server: ApiServer | None = None) -> None:
        self.server = server or ApiServer()
        self._transports: list[InMemoryTransport] = []
        self._faults: list[Fault] = []

    def transport(self) -> InMemoryTransport:
        """Returns a new connection, for code that takes a `kubeshard.runtime.transport.Transport`."""
        made = FaultyTransport(self.server, self._faults)
        self._transports.append(made)
        return made

    def client(self) -> Client:
        """Returns a new client, for use with `async with`."""
        # A leader or shard that loses its Lease ends its process, which here is the test's.
        world = dataclasses.replace(self.server.world, watchdog=NoWatchdog)
        return Client(ClusterConfig("http://in-memory"), transport=self.transport(), world=world)

    async def install(self, *manifests: Mapping[str, Any]) -> None:
        """Applies manifests, CustomResourceDefinitions first."""
        async with self.client() as client:
            async for _ in install(client, manifests):
                pass

    def inject(
        self,
        verb: str = "*",
        resource: str = "*",
        name: str = "*",
        *,
        status: int = 0,
        latency: float = 0.0,
        lost: bool = False,
        times: int | None = None,
    ) -> Fault:
        """Makes requests fail or slow from now on: those with this verb (`get`, `list`, `watch`, `create`, `update`,
        `patch`, `delete`, `deletecollection`), resource (`configmaps`, `pods/status`) and name; `*` means any. An apply
        is a `patch`. A request is met by the first fault that is about it.

        `status`: refused with this HTTP status, as in 409 for a conflict, 503, 403. `latency`: seconds until the
        request takes effect or is refused. `lost`: it takes effect, but its response is lost. `times`: how many
        requests are met; None for all, until `stop`.
        """
        fault = Fault(verb, resource, name, status=status, latency=latency, lost=lost, times=times)
        self._faults.append(fault)
        return fault

    def forget(self) -> None:
        """Expires all earlier resource versions: resuming a watch or a list from one of them gets 410 Gone."""
        self.server.store.compact()

    def cut(self) -> None:
        """Breaks every watch, as a lost connection would."""
        for transport in self._transports:
            transport.abort()
