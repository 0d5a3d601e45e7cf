"""TLS contexts from a `ClusterConfig`'s settings."""

from __future__ import annotations

import ssl
import tempfile
from pathlib import Path

from kubeshard.client.config import ClusterConfig
from kubeshard.core.errors import ConfigurationError


def ssl_context(config: ClusterConfig) -> ssl.SSLContext | None:
    """The context for the server; None for plain HTTP. Raises ConfigurationError for unusable
    certificates.
    """
    if not config.server.startswith("https://"):
        return None
    try:
        context = ssl.create_default_context(cadata=config.tls.ca)
    except ssl.SSLError as error:
        raise ConfigurationError(
            f"{config.server}: certificate-authority: not a PEM certificate: {error}"
        ) from error
    if config.tls.insecure:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    if config.tls.certificate and config.tls.key:
        load_client_certificate(context, config.tls.certificate, config.tls.key)
    return context


def load_client_certificate(context: ssl.SSLContext, certificate: str, key: str) -> None:
    """Presents the certificate on connections made from now on. Raises ConfigurationError when the pair does
    not fit.
    """
    # OpenSSL takes certificates only from files; this one is readable by nobody else and gone before the call
    # returns.
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory) / "client.pem"
        path.touch(mode=0o600)
        path.write_text(f"{certificate}\n{key}\n")
        try:
            context.load_cert_chain(path)
        except ssl.SSLError as error:
            raise ConfigurationError(
                f"client certificate and key do not fit or are no PEM: {error}"
            ) from error
