"""HTTPS for the metrics page, with a certificate that the process already serves, or with a self-signed one, which
encrypts, but does not authenticate.

Scrapers cannot verify a self-signed one (the usual ServiceMonitor sets `insecureSkipVerify`); `metrics_auth` controls
who may read.

The self-signed one is created when the first client connects: importing cryptography takes 12 MiB and 30 ms, and the
webhook package 8 ms, which a process that is never scraped does not need.
"""

from __future__ import annotations

import ssl
from collections.abc import Callable
from typing import TYPE_CHECKING

from kubeshard.runtime.tls import server_context
from kubeshard.runtime.world import World

if TYPE_CHECKING:
    from kubeshard.webhook.certificates import ServingCertificate


def self_signed(
    world: World, certified: Callable[[], ssl.SSLContext | None] = lambda: None
) -> ssl.SSLContext:
    """An SSL context for a server, with a certificate for this host. Connections get the one of `certified` instead,
    whenever there is one.
    """
    serving: ServingCertificate | None = None

    def greeted(connection: ssl.SSLSocket | ssl.SSLObject, _name: str | None, _: ssl.SSLContext) -> None:
        # Called for every connection, whether or not the client sends a server name.
        nonlocal serving
        if (given := certified()) is not None:
            connection.context = given
            return
        if serving is None:
            from kubeshard.webhook.certificates import ServingCertificate

            serving = ServingCertificate(clock=world.clock)
        if not serving.ready():
            from kubeshard.webhook.selfsigned import renewed  # loads cryptography

            serving.install(renewed(None, (world.host.name(),), world.clock.wall()).serving)
        connection.context = serving.context

    context = server_context(ssl.TLSVersion.TLSv1_3)
    context.sni_callback = greeted
    return context
