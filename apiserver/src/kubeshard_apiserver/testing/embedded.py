"""The embedded API server, in a thread that lives as long as the test session."""

from __future__ import annotations

from contextlib import AsyncExitStack
from dataclasses import replace

from kubeshard.testing.folders import TemporaryFolder
from kubeshard_apiserver.controllers.controllers import Controllers
from kubeshard_apiserver.serving.embedded import LIMITS, EmbeddedServer
from kubeshard_apiserver.testing.kube_api import KubeApi


class EmbeddedApi(KubeApi):
    """Serves as soon as it is created. `controllers` runs garbage collection, namespace deletion and Event expiry;
    with `pods`, workloads get pods that become ready immediately. Raises ConfigurationError, which names the extra to
    install, if packages are missing.
    """

    target = "embedded"

    def __init__(self, *, controllers: bool = True, pods: bool = True) -> None:
        self._folder = TemporaryFolder("kubeshard-api-")
        super().__init__()
        self._controllers = controllers or pods
        self._pods = pods
        self._stack = AsyncExitStack()
        self.kubeconfig = self._folder.path / "kubeconfig"
        try:
            self._background.call(self._start())
        except BaseException:
            self.stop()
            raise

    async def _start(self) -> None:
        self._served = EmbeddedServer(limits=replace(LIMITS, stop_grace=0))
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
