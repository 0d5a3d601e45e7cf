"""The admission webhook server: an `AdmissionApp` over HTTPS with a replaceable certificate.

Guaranteed: the port only opens after `after` has returned (caches are synced) and there is a certificate, and it is
closed before `running` is left; requests in flight are answered. With a `client_authority`, who has no certificate of
it sends no request: its connection ends with the handshake. The limits: 5 s for headers and TLS handshake, 10 s
for a body, 120 s idle, 7 MiB, 1024 connections, 256 requests at a time, 16 of one connection, 32 MiB for the bodies of
all of them (`bodies`). Clients that complete no request keep nobody out.

RBAC: none.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

from prometheus_client import CollectorRegistry

from kubeshard.core.errors import ConfigurationError
from kubeshard.runtime.asgi import Limits
from kubeshard.runtime.http_server import AsgiServer, ListenError
from kubeshard.runtime.logs import get_logger
from kubeshard.runtime.loop import apart
from kubeshard.runtime.world import World
from kubeshard.webhook.app import AdmissionApp, Routes, check_routes
from kubeshard.webhook.certificates import CertificateSource, ClientAuthority, ServingCertificate
from kubeshard.webhook.metrics import WebhookMetrics

DEFAULT_PORT = 9443

_LOG = get_logger("kubeshard.webhook")


class WebhookServer:
    """The HTTPS server of a process's webhooks. `routes` are webhooks by path prefix; for the other parameters see
    `ServingCertificate`, `AsgiServer` and `Limits`. `client_authority`: a file with the authorities, in PEM, one of
    which must have issued the certificate of every client (`ClientAuthority`). API servers present a certificate only
    if their admission configuration says so. With a `registry`, which accepts its metrics only once, it can only run
    once; without one, it counts in a registry of its own, which the manager that runs it shows on its page.
    """

    def __init__(
        self,
        routes: Routes,
        certificates: CertificateSource,
        *,
        host: str = "",
        port: int = DEFAULT_PORT,
        reuse_port: bool = False,
        server_name: str = "",
        allow_tls_1_2: bool = False,
        client_authority: str | Path = "",
        after: Callable[[], Awaitable[object]] | None = None,
        registry: CollectorRegistry | None = None,
        limits: Limits | None = None,
    ) -> None:
        check_routes(routes)
        self._routes = routes
        self._certificates = [certificates]
        self._server_name = server_name
        self._allow_tls_1_2 = allow_tls_1_2
        if client_authority:
            self._certificates.insert(0, ClientAuthority(client_authority))
        self._registry = registry
        self.registry = registry
        """Where it counts; None before it runs, unless one was given."""
        self._place = host, port
        self._limits = limits
        self._reuse_port = reuse_port
        self._after = after
        self._listening: tuple[AsgiServer, ServingCertificate] | None = None

    @property
    def port(self) -> int:
        """The actual port; 0 while the server does not listen."""
        return self._listening[0].port if self._listening else 0

    @property
    def context(self) -> ssl.SSLContext | None:
        """TLS with the served certificate, for other servers of the process; None while this one does not listen."""
        return self._listening[1].context if self._listening else None

    def ready(self) -> bool:
        """Whether API servers can call: the port is open and the served certificate has not expired."""
        return self._listening is not None and self._listening[1].ready()

    async def run(self, world: World) -> None:
        """Serves until cancelled. Raises ConfigurationError if the port cannot be opened, or if there is no usable
        certificate at the start.
        """
        async with self.running(world):
            await asyncio.Event().wait()

    @asynccontextmanager
    async def running(self, world: World) -> AsyncIterator[WebhookServer]:
        """Serves while the block runs. Raises like `run`."""
        self.registry = registry = self._registry or CollectorRegistry()
        serving = ServingCertificate(
            self._server_name, clock=world.clock, allow_tls_1_2=self._allow_tls_1_2, registry=registry
        )
        for source in self._certificates:
            await source.load(serving)
        if self._after is not None:
            await self._after()
        app = AdmissionApp(self._routes, clock=world.clock, metrics=WebhookMetrics(registry))
        http = AsgiServer(app, *self._place, serving.context, self._limits, reuse_port=self._reuse_port)
        async with _configuration_errors(), http, asyncio.TaskGroup() as tasks:
            renewals = [
                tasks.create_task(apart(source.run, serving), name="webhook certificates")
                for source in self._certificates
            ]
            self._listening = http, serving
            _LOG.info("Webhook server is listening", port=self.port)
            try:
                yield self
            finally:
                self._listening = None
                for renewal in renewals:
                    renewal.cancel()


@asynccontextmanager
async def _configuration_errors() -> AsyncIterator[None]:
    try:
        yield
    except ListenError as error:
        raise ConfigurationError(f"webhook server: {error.strerror}; choose another address") from error
