"""An API server for a test session, with the same interface whether it is embedded or real: `EmbeddedApi` runs in a
thread that lives as long as the session, `RealApi` is a kube-apiserver with etcd and the rest of a control plane.

Guaranteed: it listens only on the loopback interface; `kubeconfig` is a complete kubeconfig; `stop` leaves nothing
behind. The methods block, and may be called from tests with or without an event loop. All of them act with the rights
of a cluster administrator.

Not guaranteed: that `forget` makes a real server expire earlier versions. It compacts etcd, but kube-apiserver may
still serve them from its watch cache.
"""

from __future__ import annotations

import asyncio
import dataclasses
import json
import urllib.request
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Coroutine, Mapping
from contextlib import AsyncExitStack, ExitStack, asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeVar

from kubeshard.client.client import Client
from kubeshard.client.config import ClusterConfig
from kubeshard.client.installing import install
from kubeshard.core.builtin import Namespace
from kubeshard.core.objects import ObjectMeta
from kubeshard.runtime.background import in_background
from kubeshard.runtime.watchdog import NoWatchdog
from kubeshard.runtime.world import REAL_WORLD
from kubeshard_apiserver.controllers.controllers import Controllers
from kubeshard_apiserver.serving.embedded import LIMITS, EmbeddedServer
from kubeshard_apiserver.testing.folders import TemporaryFolder

if TYPE_CHECKING:
    from kubeshard_apiserver.testing.control_plane import ControlPlane

T = TypeVar("T")
Manifest = Mapping[str, Any]


class BackgroundLoop:
    """An event loop that runs from its creation until `stop`, in a thread called `name`; `stop` cancels tasks that are
    still running.
    """

    def __init__(self, name: str) -> None:
        self._stack = ExitStack()
        self._loop = self._stack.enter_context(in_background(_here, name))

    def call(self, work: Coroutine[Any, Any, T]) -> T:
        """Runs a coroutine to completion in the loop and raises what it raises. May be called from any other thread."""
        future = asyncio.run_coroutine_threadsafe(work, self._loop)
        try:
            return future.result()
        except BaseException:
            future.cancel()  # Ctrl-C while waiting
            raise

    def stop(self) -> None:
        self._stack.close()


@asynccontextmanager
async def _here() -> AsyncIterator[asyncio.AbstractEventLoop]:
    yield asyncio.get_running_loop()


class KubeApi(ABC):
    """A running API server. `target` says of which kind."""

    target: Literal["embedded", "real"]
    kubeconfig: Path
    """The path of a cluster administrator's kubeconfig."""

    def __init__(self) -> None:
        self._background = BackgroundLoop("kube-api")
        self._client: Client | None = None

    @property
    def url(self) -> str:
        return self.config.server

    @property
    def config(self) -> ClusterConfig:
        """The configuration for a kubeshard Client."""
        return self._administrator.config

    def client(self) -> Client:
        """Returns a new client, for use with `async with`. Managers that it is given to run in the process of the test,
        which no watchdog of a leader or shard may end.
        """
        return Client(self.config, world=dataclasses.replace(REAL_WORLD, watchdog=NoWatchdog))

    def call(self, work: Callable[[Client], Awaitable[T]]) -> T:
        """Runs `work` with a client in a background event loop and returns its result, so that the test needs no event
        loop: `kube_api.call(lambda client: client.get(ConfigMap, "a", "b"))`.
        """

        administrator = self._administrator

        async def run() -> T:
            return await work(administrator)

        return self._background.call(run())

    def install(self, *manifests: Manifest) -> None:
        """Applies manifests, CustomResourceDefinitions first, and waits until the new resources are served."""

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
        """Requests the deletion of a namespace without waiting for its end."""
        self.call(lambda client: client.delete(Namespace, name))

    @abstractmethod
    def forget(self) -> None:
        """Expires all earlier resource versions: resuming a watch or a list from one of them gets 410 Gone."""

    def stop(self) -> None:
        if self._client is not None:
            self._background.call(self._client.close())
        self._background.stop()

    @property
    def _administrator(self) -> Client:
        if self._client is None:
            self._client = self._background.call(Client.connect(self.kubeconfig))
        return self._client


class EmbeddedApi(KubeApi):
    """Serves as soon as it is created. `controllers` runs garbage collection, namespace deletion and Event expiry;
    with `pods`, workloads get pods that become ready immediately. `feature_gates` are those of an `ApiServer`. Raises
    ConfigurationError, which names the extra to install, if packages are missing.
    """

    target = "embedded"

    def __init__(
        self, *, controllers: bool = True, pods: bool = True, feature_gates: Collection[str] = ()
    ) -> None:
        self._folder = TemporaryFolder("kubeshard-api-")
        super().__init__()
        self._controllers = controllers or pods
        self._pods = pods
        self._feature_gates = feature_gates
        self._stack = AsyncExitStack()
        self.kubeconfig = self._folder.path / "kubeconfig"
        try:
            self._background.call(self._start())
        except BaseException:
            self.stop()
            raise

    async def _start(self) -> None:
        self._served = EmbeddedServer(
            limits=dataclasses.replace(LIMITS, stop_grace=0), feature_gates=self._feature_gates
        )
        await self._stack.enter_async_context(self._served)
        if self._controllers:
            await self._stack.enter_async_context(
                Controllers(
                    self._served.server,
                    pods=self._pods,
                    root_ca=self._served.credentials.ca,
                    caller=self._served.caller,
                    rights=self._served.front.gate.rights,
                )
            )
        self._served.write_kubeconfig(self.kubeconfig)

    def forget(self) -> None:
        async def work() -> None:
            self._served.server.store.compact()

        self._background.call(work())

    def stop(self) -> None:
        self._background.call(self._stack.aclose())
        self._folder.remove()
        super().stop()


class RealApi(KubeApi):
    """Uses a running control plane, which the caller has to stop."""

    target = "real"

    def __init__(self, control_plane: ControlPlane) -> None:
        super().__init__()
        self.control_plane = control_plane
        self.kubeconfig = control_plane.kubeconfig

    def forget(self) -> None:
        answer = self.call(lambda client: client.raw("GET", "/api/v1/namespaces?limit=1"))
        compact(self.control_plane, int(json.loads(answer.body)["metadata"]["resourceVersion"]))


def compact(control_plane: ControlPlane, revision: int) -> None:
    """Compacts etcd at a revision, through etcd's gateway for clients without gRPC; its address is on etcd's command
    line.
    """
    etcd = control_plane.children[0].pid
    arguments = Path(f"/proc/{etcd}/cmdline").read_text().split("\0")
    flag = "--listen-client-urls="
    url = next(argument.removeprefix(flag) for argument in arguments if argument.startswith(flag))
    body = json.dumps({"revision": revision, "physical": True}).encode()
    request = urllib.request.Request(f"{url}/v3/kv/compaction", body, method="POST")  # noqa: S310 - etcd's
    urllib.request.urlopen(request).close()  # noqa: S310
