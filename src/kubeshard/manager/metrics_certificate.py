"""HTTPS for the metrics page with a certificate of the process's own: it hides what is sent, but proves nothing.

Who scrapes does not verify it (the usual ServiceMonitor says `insecureSkipVerify`); who may read is another
question (`metrics_auth`).

It is made when the first client comes: cryptography takes 12 MiB and 30 ms, and the package of webhooks 8 ms, which a
process that nobody scrapes does without.
"""

from __future__ import annotations

import ssl
from typing import TYPE_CHECKING

from kubeshard.runtime.tls import server_context
from kubeshard.runtime.world import World

if TYPE_CHECKING:
    from kubeshard.webhook.certificates import ServingCertificate


def self_signed(world: World) -> ssl.SSLContext:
    """A server's context, with a certificate for this host."""
    serving: ServingCertificate | None = None

    def greeted(connection: ssl.SSLSocket | ssl.SSLObject, _name: str | None, _: ssl.SSLContext) -> None:
        # Called for every connection, whether its client names a server or not.
        nonlocal serving
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
