"""The embedded API server over HTTPS, in this event loop or in its own thread.

    async with EmbeddedServer() as served:
        served.write_kubeconfig(Path("kubeconfig"))   # kubectl --kubeconfig kubeconfig get namespaces

Guaranteed: inside the block the port is open and known; on exit watches end as if they had timed out, requests in
flight have `Limits.stop_grace` seconds to finish, and no task is left behind. It listens on the loopback interface by
default. Requests with invalid credentials get a 401. So do requests without credentials, unless RBAC is on and decides
what `system:anonymous` may do.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection
from contextlib import AbstractContextManager, AsyncExitStack
from pathlib import Path

from kubeshard.core.errors import ConfigurationError
from kubeshard.runtime.asgi import Limits
from kubeshard.runtime.background import in_background
from kubeshard.runtime.blocking_calls import Worker
from kubeshard.runtime.http_server import AsgiServer, ListenError
from kubeshard_apiserver.access import ADMINISTRATOR
from kubeshard_apiserver.admission.caller import HttpCaller
from kubeshard_apiserver.front.app import ApiServerApp
from kubeshard_apiserver.front.gate import Gate, Identity
from kubeshard_apiserver.front.handlers import Front
from kubeshard_apiserver.front.latency import DelayedFront
from kubeshard_apiserver.persistence import DatabaseJournal
from kubeshard_apiserver.resources.admission_plugins import ADMISSION_PLUGINS
from kubeshard_apiserver.server import ApiServer
from kubeshard_apiserver.serving.credentials import Credentials, write_private
from kubeshard_apiserver.steps import WebhookCaller

_CREDENTIALS = "credentials"

LOOPBACK = "127.0.0.1"
LIMITS = Limits(
    keep_alive=90.0, max_header_bytes=1024 * 1024, max_connections=4096, max_pipelined=1024, stop_grace=2.0
)
"""The same header size and idle timeout as the real server's."""


class EmbeddedServer:
    """`server` is the server to serve; by default a new one. `data` is a folder in which a new server keeps its
    objects and credentials beyond this process. `host` is an address of this machine, or `""` for all addresses;
    `port` 0 picks a free port. `rbac` says whether RBAC is enforced; without it anyone with credentials may do
    everything. `gate` replaces the default gate (`Identity`). `caller` calls admission webhooks (by default over
    HTTPS, and only those with a `clientConfig.url`). `latency` is the number of seconds that a round trip of a client
    takes in addition, as if the server were on another machine. `admission_plugins` and `feature_gates` are those of a
    new server (`ApiServer`).

    Raises ConfigurationError if the folder cannot be used, and on entry if it cannot listen on the address.
    """

    def __init__(
        self,
        server: ApiServer | None = None,
        *,
        data: Path | None = None,
        host: str = LOOPBACK,
        port: int = 0,
        credentials: Credentials | None = None,
        rbac: bool = True,
        gate: Gate | None = None,
        caller: WebhookCaller | None = None,
        limits: Limits = LIMITS,
        latency: float = 0.0,
        admission_plugins: Collection[str] = ADMISSION_PLUGINS,
        feature_gates: Collection[str] = (),
    ) -> None:
        if server is not None and data is not None:
            raise ValueError("an existing server already has its store; pass either `server` or `data`")
        self._journal = None if data is None else DatabaseJournal(data)
        self.server = server or ApiServer(
            journal=self._journal, admission_plugins=admission_plugins, feature_gates=feature_gates
        )
        self.credentials = credentials or self._credentials((host,) if host else ())
        gate = gate or Identity(
            self.server,
            tokens={self.credentials.token: ADMINISTRATOR},
            rbac=rbac,
            signing_key=self.credentials.signing_key,
        )
        self._own_caller = HttpCaller(self.server.world.connect)
        self.caller = caller or self._own_caller
        self._worker = Worker("kubeshard-bodies")
        self.front = Front(self.server, gate=gate, caller=self.caller, offload=self._worker.call)
        self._host = host
        self._app = ApiServerApp(DelayedFront(self.front, latency) if latency else self.front)
        self._http = AsgiServer(self._app, host, port, self.credentials.context(), limits)

    @property
    def port(self) -> int:
        return self._http.port

    @property
    def url(self) -> str:
        """The URL for clients on this machine."""
        host = LOOPBACK if self._host in ("", "0.0.0.0", "::") else self._host  # noqa: S104 - not listened on
        return f"https://{f'[{host}]' if ':' in host else host}:{self.port}"

    @property
    def token(self) -> str:
        return self.credentials.token

    @property
    def kubeconfig(self) -> str:
        """The administrator's kubeconfig, as YAML."""
        return self.credentials.kubeconfig(self.url)

    def write_kubeconfig(self, path: Path) -> None:
        """Writes the administrator's kubeconfig to a file that only its owner can read. Raises ConfigurationError."""
        write_private(path, self.kubeconfig)

    async def __aenter__(self) -> EmbeddedServer:
        async with AsyncExitStack() as stack:
            if self._journal is not None:
                await stack.enter_async_context(self._journal)
            stack.callback(self._worker.close)
            stack.push_async_callback(self._own_caller.close)
            try:
                await stack.enter_async_context(self._http)
            except ListenError as error:
                raise ConfigurationError(error.strerror) from error
            stack.callback(self._app.stop)
            self._stack = stack.pop_all()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._stack.aclose()

    async def failed(self) -> str:
        """Waits until the server can no longer persist writes, and returns the reason."""
        if self._journal is None:
            await asyncio.Event().wait()
            raise AssertionError("never set")
        await self._journal.failed.wait()
        return self._journal.problem

    def _credentials(self, names: tuple[str, ...]) -> Credentials:
        now = self.server.clock.wall()
        if self._journal is None:
            return Credentials.made(now, names)
        saved = self._journal.setting(_CREDENTIALS)
        made = Credentials.made(now, names, saved)
        if saved is None:
            self._journal.keep(_CREDENTIALS, made.saved())
        return made


def embedded_in_thread(
    server: ApiServer | None = None, *, port: int = 0
) -> AbstractContextManager[EmbeddedServer]:
    """Runs an embedded server in a thread, for code without an event loop. The block may use `url`, `token` and the
    kubeconfig; the objects belong to the thread.
    """
    return in_background(lambda: EmbeddedServer(server, port=port), "kubeshard-apiserver")
