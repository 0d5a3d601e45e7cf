"""HTTPS for the metrics page with a certificate of the process's own: it hides what is sent, but proves nothing.

Who scrapes does not verify it (protocol 8, ServiceMonitor: `insecureSkipVerify`); who may read is another
question (`metrics_auth`).
"""

from __future__ import annotations

import ssl

from kubeshard.runtime.world import World
from kubeshard.webhook.certificates import ServingCertificate


def self_signed(world: World) -> ssl.SSLContext:
    """A server's context, with a certificate for this host."""
    from kubeshard.webhook.selfsigned import renewed  # loads cryptography

    serving = ServingCertificate(clock=world.clock)
    serving.install(renewed(None, (world.host.name(),), world.clock.wall()).serving)
    return serving.context
