"""The embedded API server over HTTPS, in this event loop or in a thread of its own.

    async with EmbeddedServer() as served:
        served.write_kubeconfig(Path("kubeconfig"))   # kubectl --kubeconfig kubeconfig get namespaces

Guaranteed: inside the block the port is open and known; on leaving watches end as if their time were over,
requests in flight may finish for `Limits.stop_grace` seconds, and no task is left. It listens on the loopback
interface unless told otherwise. Who has neither the token nor a certificate of the server's authority gets a 401.

Needs `pip install 'kubeshard[server,certificates]'`.
"""

from __future__ import annotations

from contextlib import AbstractContextManager
from pathlib import Path

from kubeshard.apiserver.front.app import ApiServerApp
from kubeshard.apiserver.front.gate import Gate
from kubeshard.apiserver.front.handlers import Front
from kubeshard.apiserver.server import ApiServer
from kubeshard.apiserver.serving.credentials import Credentials, write_private
from kubeshard.apiserver.serving.gate import TokenGate
from kubeshard.apiserver.steps import WebhookCaller
from kubeshard.core.errors import ConfigurationError
from kubeshard.runtime.asgi import AsgiServer, Limits, ListenError, MissingExtraError
from kubeshard.runtime.background import in_background

LOOPBACK = "127.0.0.1"
LIMITS = Limits(keep_alive=90.0, max_header_bytes=1024 * 1024, max_connections=4096, stop_grace=2.0)
"""Header size and idle time as the real server has them."""


class EmbeddedServer:
    """`server`: what to serve, a new one by default. `host`: an address of this machine, or `""` for all of
    them; `port` 0: a free one. `gate`: who may come in (default: who has the credentials is administrator).
    `caller`: carries calls to admission webhooks out.

    Raises ConfigurationError for a missing extra, and on entry for an address that cannot be listened on.
    """

    def __init__(
        self,
        server: ApiServer | None = None,
        *,
        host: str = LOOPBACK,
        port: int = 0,
        credentials: Credentials | None = None,
        gate: Gate | None = None,
        caller: WebhookCaller | None = None,
        limits: Limits = LIMITS,
    ) -> None:
        self.server = server or ApiServer()
        named = (host,) if host else ()
        self.credentials = credentials or Credentials.made(self.server.clock.wall(), named)
        self.front = Front(self.server, gate=gate or TokenGate(self.credentials.token), caller=caller)
        self._host = host
        self._app = ApiServerApp(self.front)
        self._http = AsgiServer(self._app, host, port, self.credentials.context(), limits)

    @property
    def port(self) -> int:
        return self._http.port

    @property
    def url(self) -> str:
        """Where clients on this machine find it."""
        host = LOOPBACK if self._host in ("", "0.0.0.0", "::") else self._host  # noqa: S104 - not listened on
        return f"https://{f'[{host}]' if ':' in host else host}:{self.port}"

    @property
    def token(self) -> str:
        return self.credentials.token

    @property
    def kubeconfig(self) -> str:
        """The administrator's, as YAML."""
        return self.credentials.kubeconfig(self.url)

    def write_kubeconfig(self, path: Path) -> None:
        """For its owner's eyes only. Raises ConfigurationError."""
        write_private(path, self.kubeconfig)

    async def __aenter__(self) -> EmbeddedServer:
        try:
            await self._http.__aenter__()
        except ListenError as error:
            raise ConfigurationError(error.strerror) from error
        except MissingExtraError as error:
            raise ConfigurationError(str(error)) from error
        return self

    async def __aexit__(self, *_: object) -> None:
        self._app.stop()
        await self._http.__aexit__()


def embedded_in_thread(
    server: ApiServer | None = None, *, port: int = 0
) -> AbstractContextManager[EmbeddedServer]:
    """The same for code without an event loop. The block may use `url`, `token` and the kubeconfig; objects
    are the thread's.
    """
    return in_background(lambda: EmbeddedServer(server, port=port), "kubeshard-apiserver")
