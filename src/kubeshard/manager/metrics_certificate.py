"""HTTPS for the metrics page with a certificate of the process's own: it hides what is sent, but proves nothing.

Who scrapes does not verify it (protocol 8, ServiceMonitor: `insecureSkipVerify`); who may read is another
question (`metrics_auth`).
"""

from __future__ import annotations

import ssl

from kubeshard.runtime.clock import SYSTEM_CLOCK, Clock
from kubeshard.runtime.environ import hostname
from kubeshard.webhook.certificates import ServingCertificate


def self_signed(clock: Clock = SYSTEM_CLOCK) -> ssl.SSLContext:
    """A server's context, with a certificate for this host."""
    from kubeshard.webhook.selfsigned import renewed  # loads cryptography

    serving = ServingCertificate(clock=clock)
    serving.install(renewed(None, (hostname(),), clock.wall()).serving)
    return serving.context
