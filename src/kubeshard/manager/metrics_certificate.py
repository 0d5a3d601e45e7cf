"""HTTPS for the metrics page with a certificate of the process's own: it hides what is sent, but proves nothing.

Who scrapes does not verify it (protocol 8, ServiceMonitor: `insecureSkipVerify`); who may read is another
question (`metrics_auth`).
"""

from __future__ import annotations

import ssl

from kubeshard.core.errors import ConfigurationError
from kubeshard.runtime.clock import SYSTEM_CLOCK, Clock
from kubeshard.runtime.environ import hostname
from kubeshard.webhook.certificates import ServingCertificate


def self_signed(clock: Clock = SYSTEM_CLOCK) -> ssl.SSLContext:
    """A server's context, with a certificate for this host. Raises ConfigurationError without the
    `certificates` extra.
    """
    try:
        from kubeshard.webhook.selfsigned import renewed
    except ConfigurationError:
        raise ConfigurationError(
            "metrics over HTTPS need the package cryptography: pip install 'kubeshard[certificates]', or configure "
            "insecureMetrics: true"
        ) from None
    serving = ServingCertificate(clock=clock)
    serving.install(renewed(None, (hostname(),), clock.wall()).serving)
    return serving.context
