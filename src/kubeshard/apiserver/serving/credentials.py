"""What the server shows its clients, and what they show it.

Guaranteed: the token and all keys are random and new each time they are made; whoever has the kubeconfig is
the administrator. Needs `pip install 'kubeshard[certificates]'`.
"""

from __future__ import annotations

import base64
import os
import ssl
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import yaml

from kubeshard.core.errors import ConfigurationError
from kubeshard.runtime.rng import secret_token
from kubeshard.runtime.tls import CertificatePair, load_pair, server_context

NAMES = ("localhost", "127.0.0.1", "::1", "kubernetes", "kubernetes.default", "kubernetes.default.svc")
"""For which the serving certificate is always valid."""

_LIFETIME = 10 * 365 * 86400.0


@dataclass(frozen=True)
class Credentials:
    """`authority` signs the serving certificate and certificates of clients; `token` is the administrator's."""

    authority: CertificatePair
    serving: CertificatePair = field(repr=False)
    token: str = field(repr=False)

    @classmethod
    def made(cls, now: float, names: Sequence[str] = ()) -> Credentials:
        """For `NAMES` and `names`; `now` in seconds since the epoch. Raises ConfigurationError without the
        extra.
        """
        try:
            from kubeshard.runtime.issuing import new_authority, new_server_leaf
        except ImportError as error:
            raise ConfigurationError(str(error)) from error
        authority = new_authority("kubeshard", now, _LIFETIME)
        serving = new_server_leaf(authority, list(dict.fromkeys((*NAMES, *names))), now, _LIFETIME)
        return cls(authority, serving, secret_token())

    @property
    def ca(self) -> str:
        """PEM of what clients must trust."""
        return self.authority.certificate.decode()

    def context(self) -> ssl.SSLContext:
        """Asks clients for a certificate; one that the authority did not sign ends the handshake."""
        context = server_context(ssl.TLSVersion.TLSv1_2)
        load_pair(context, self.serving)
        context.verify_mode = ssl.CERT_OPTIONAL
        context.load_verify_locations(cadata=self.ca)
        return context

    def kubeconfig(self, url: str) -> str:
        """For the administrator, with everything inline."""
        name = "kubeshard"
        ca = base64.b64encode(self.authority.certificate).decode()
        return yaml.safe_dump(
            {
                "apiVersion": "v1",
                "kind": "Config",
                "clusters": [{"name": name, "cluster": {"server": url, "certificate-authority-data": ca}}],
                "users": [{"name": name, "user": {"token": self.token}}],
                "contexts": [
                    {"name": name, "context": {"cluster": name, "user": name, "namespace": "default"}}
                ],
                "current-context": name,
            },
            sort_keys=False,
        )


def write_private(path: Path, text: str) -> None:
    """A file only its owner may read, there as a whole or not at all. Raises ConfigurationError."""
    try:
        handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")  # mode 0600
        try:
            with open(handle, "w") as file:
                file.write(text)
            os.replace(temporary, path)
        except BaseException:
            os.unlink(temporary)
            raise
    except OSError as error:
        raise ConfigurationError(f"cannot write {path}: {error.strerror}") from error
