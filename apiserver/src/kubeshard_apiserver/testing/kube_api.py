"""An API server for a test session, the same to its tests whether it is embedded or a real one.

Guaranteed: it listens on the loopback interface only; everything that a kubeconfig needs is in `kubeconfig`;
after `stop` nothing of it is left. Its methods block, and may be called from tests with and without an event
loop of their own. Everything here acts with the rights of a cluster administrator.

Not guaranteed: that a real server forgets at `forget`: it drops what etcd keeps, and may still answer from
memory.
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Mapping
from contextlib import ExitStack, asynccontextmanager
from pathlib import Path
from typing import Any, Literal, TypeVar

from kubeshard.client.client import Client
from kubeshard.client.config import ClusterConfig
from kubeshard.client.installing import install
from kubeshard.core.builtin import Namespace
from kubeshard.core.objects import ObjectMeta
from kubeshard.runtime.background import in_background

T = TypeVar("T")
Manifest = Mapping[str, Any]


class BackgroundLoop:
    """Runs from its making until `stop`, in a thread called `name`; `stop` cancels what still runs there."""

    def __init__(self, name: str) -> None:
        self._stack = ExitStack()
        self._loop = self._stack.enter_context(in_background(_here, name))

    def call(self, work: Coroutine[Any, Any, T]) -> T:
        """Runs a coroutine to its end there; from any other thread. Raises what it raises."""
        future = asyncio.run_coroutine_threadsafe(work, self._loop)
        try:
            return future.result()
        except BaseException:
            future.cancel()  # Ctrl-C while it waits
            raise

    def stop(self) -> None:
        self._stack.close()


@asynccontextmanager
async def _here() -> AsyncIterator[asyncio.AbstractEventLoop]:
    yield asyncio.get_running_loop()


class KubeApi(ABC):
    """A running API server. `target` says which kind of."""

    target: Literal["embedded", "real"]
    kubeconfig: Path
    """Of a cluster administrator."""

    def __init__(self) -> None:
        self._background = BackgroundLoop("kube-api")
        self._client: Client | None = None

    @property
    def url(self) -> str:
        return self.config.server

    @property
    def config(self) -> ClusterConfig:
        """What a kubeshard Client needs to know."""
        return self._administrator.config

    def client(self) -> Client:
        """A new one, for `async with`."""
        return Client(self.config)

    def call(self, work: Callable[[Client], Awaitable[T]]) -> T:
        """Runs `work` with a client beside the test and returns its result, without an event loop of the
        test: `kube_api.call(lambda client: client.get(ConfigMap, "a", "b"))`.
        """

        administrator = self._administrator

        async def run() -> T:
            return await work(administrator)

        return self._background.call(run())

    def install(self, *manifests: Manifest) -> None:
        """Applies manifests, CustomResourceDefinitions first, and waits until what they define is served."""

        async def work(client: Client) -> None:
            async for _ in install(client, manifests):
                pass

        self.call(work)

    def new_namespace(self) -> str:
        async def work(client: Client) -> str:
            made = await client.create(Namespace(metadata=ObjectMeta(generate_name="test-")))
            return made.metadata.name

        return self.call(work)

    def delete_namespace(self, name: str) -> None:
        """Asks for it and does not wait."""
        self.call(lambda client: client.delete(Namespace, name))

    @abstractmethod
    def forget(self) -> None:
        """Forgets the past: who resumes a watch or a list from there is answered 410 Gone."""

    def stop(self) -> None:
        if self._client is not None:
            self._background.call(self._client.close())
        self._background.stop()

    @property
    def _administrator(self) -> Client:
        if self._client is None:
            self._client = self._background.call(Client.connect(self.kubeconfig))
        return self._client
