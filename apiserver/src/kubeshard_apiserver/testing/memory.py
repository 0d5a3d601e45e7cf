"""An API server of one test, without a socket and without a thread: for unit tests of controllers.

    async def test_something(kube_memory):
        async with kube_memory.client() as client:
            await client.create(...)

Guaranteed: clients are production clients, and what they send and get are the bytes that would go over a
connection. Everything runs in the event loop of the test, also on virtual time.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kubeshard.client.client import Client
from kubeshard.client.config import ClusterConfig
from kubeshard.client.installing import install
from kubeshard_apiserver.front.memory import InMemoryTransport
from kubeshard_apiserver.server import ApiServer


class MemoryApi:
    """`server` is the embedded API server itself. No controllers run beside it unless a test runs them
    (`kubeshard_apiserver.controllers`).
    """

    def __init__(self, server: ApiServer | None = None) -> None:
        self.server = server or ApiServer()
        self._transports: list[InMemoryTransport] = []

    def transport(self) -> InMemoryTransport:
        """A new connection, for what takes a `kubeshard.runtime.transport.Transport`."""
        made = InMemoryTransport(self.server)
        self._transports.append(made)
        return made

    def client(self) -> Client:
        """A new one, for `async with`."""
        return Client(ClusterConfig("http://in-memory"), transport=self.transport(), world=self.server.world)

    async def install(self, *manifests: Mapping[str, Any]) -> None:
        """Applies manifests, CustomResourceDefinitions first."""
        async with self.client() as client:
            async for _ in install(client, manifests):
                pass

    def forget(self) -> None:
        """Forgets the past: who resumes a watch or a list from there is answered 410 Gone."""
        self.server.store.compact()

    def cut(self) -> None:
        """Cuts every watch, as a broken connection would."""
        for transport in self._transports:
            transport.abort()
