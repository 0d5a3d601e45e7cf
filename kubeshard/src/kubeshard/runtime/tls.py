"""TLS: settings of clients, contexts of servers, and pairs of certificate and key for both.

Guaranteed: TLS 1.2 only with AEAD suites, ALPN offers HTTP/1.1 only; a private key is never
written to a disk on Linux, and an encrypted one is rejected instead of prompting on the terminal.
"""

from __future__ import annotations

import contextlib
import os
import ssl
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NamedTuple


@dataclass(frozen=True, slots=True)
class Tls:
    """TLS settings of a client. Certificates are PEM text. `ca` are the trusted certificates,
    by default the system's; the server's own may be among them, as with Go's clients. `insecure` accepts any server;
    `server_name` is the name that the server's certificate must have (default: the host of the URL).
    """

    ca: str | None = None
    insecure: bool = False
    server_name: str | None = None
    certificate: str | None = None
    key: str | None = field(default=None, repr=False)

    def check(self) -> None:
        """Raises ValueError with the reason for settings that cannot work."""
        if self.ca is not None:
            try:
                ssl.create_default_context(cadata=self.ca)
            except (ssl.SSLError, ValueError) as error:
                raise ValueError(f"certificate-authority: not a PEM certificate: {error}") from error
        if self.certificate and self.key:
            try:
                load_pair(
                    ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT),
                    CertificatePair(self.certificate.encode(), self.key.encode()),
                )
            except (ssl.SSLError, ValueError) as error:
                raise ValueError(
                    f"client certificate and key do not match or are not PEM: {error}"
                ) from error


class CertificatePair(NamedTuple):
    """PEM: the certificate, followed by intermediate ones if there are any, and its private key."""

    certificate: bytes
    private_key: bytes


def server_context(minimum: ssl.TLSVersion) -> ssl.SSLContext:
    """A context without a certificate yet."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = minimum
    context.set_ciphers("ECDHE+AESGCM:ECDHE+CHACHA20")  # for TLS 1.2; those of 1.3 are AEAD anyway
    context.set_alpn_protocols(["http/1.1"])
    return context


def load_pair(context: ssl.SSLContext, pair: CertificatePair) -> None:
    """New connections use this pair. Raises ssl.SSLError, ValueError."""
    with _as_file(pair.certificate + b"\n" + pair.private_key) as path:
        # The callback keeps OpenSSL from prompting for a passphrase on the terminal.
        context.load_cert_chain(path, password=_no_passphrase)


def _no_passphrase() -> str:
    raise ValueError("the private key is encrypted")


@contextlib.contextmanager
def _as_file(content: bytes) -> Iterator[str]:
    """A path to `content`, because OpenSSL's Python interface takes paths only. On Linux in memory: a private
    key from a Secret is never written to a disk, and the root file system may be read-only."""
    if hasattr(os, "memfd_create"):
        with open(os.memfd_create("certificate", os.MFD_CLOEXEC), "wb", buffering=0) as file:
            file.write(content)
            yield f"/proc/self/fd/{file.fileno()}"
    else:
        with tempfile.NamedTemporaryFile() as named:
            named.write(content)
            named.flush()
            yield named.name
