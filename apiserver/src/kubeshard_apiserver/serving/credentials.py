"""The credentials of the server and of its administrator.

Guaranteed: the token and all keys are random and newly generated each time. Anyone with the kubeconfig has
administrator rights.
"""

from __future__ import annotations

import base64
import os
import ssl
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from kubeshard.core.errors import ConfigurationError
from kubeshard.core.yaml_output import as_yaml
from kubeshard.runtime.rng import secret_token
from kubeshard.runtime.tls import CertificatePair, load_pair, server_context

NAMES = ("localhost", "127.0.0.1", "::1", "kubernetes", "kubernetes.default", "kubernetes.default.svc")
"""The names for which the serving certificate is always valid."""

CLUSTER = "kubeshard"
"""The name of the cluster in a kubeconfig."""

_LIFETIME = 10 * 365 * 86400.0


@dataclass(frozen=True)
class Credentials:
    """`authority` signs the serving certificate and client certificates; `token` is the administrator's; `signing_key`
    (PEM) signs ServiceAccount tokens.
    """

    authority: CertificatePair
    serving: CertificatePair = field(repr=False)
    token: str = field(repr=False)
    signing_key: bytes = field(repr=False)

    @classmethod
    def made(cls, now: float, names: Sequence[str] = (), saved: bytes | None = None) -> Credentials:
        """Creates credentials for `NAMES` and `names`; `now` is in seconds since the epoch. With the credentials
        `saved` by an earlier start, everything issued then remains valid. Raises ConfigurationError if `saved` is
        invalid.
        """
        from kubeshard.runtime.certificate_authority import new_authority, new_private_key, new_server_leaf

        if saved is None:
            authority = new_authority("kubeshard", now, _LIFETIME)
            kept = _Kept(*_texts(authority), secret_token(), new_private_key().decode())
        else:
            try:
                kept = msgspec.json.decode(saved, type=_Kept)
            except msgspec.MsgspecError as error:
                raise ConfigurationError(f"the saved credentials are damaged ({error})") from error
        authority = CertificatePair(kept.ca.encode(), kept.ca_key.encode())
        serving = new_server_leaf(authority, list(dict.fromkeys((*NAMES, *names))), now, _LIFETIME)
        return cls(authority, serving, kept.token, kept.signing_key.encode())

    def saved(self) -> bytes:
        """Returns the credentials in a form that a later start can load. Anyone who has them is an administrator."""
        kept = _Kept(*_texts(self.authority), self.token, self.signing_key.decode())
        return msgspec.json.encode(kept)

    @property
    def ca(self) -> str:
        """The CA certificate that clients must trust, in PEM."""
        return self.authority.certificate.decode()

    def context(self) -> ssl.SSLContext:
        """Returns a TLS context that requests a client certificate; one that the authority did not sign fails the
        handshake.
        """
        context = server_context(ssl.TLSVersion.TLSv1_2)
        load_pair(context, self.serving)
        context.verify_mode = ssl.CERT_OPTIONAL
        context.load_verify_locations(cadata=self.ca)
        return context

    def kubeconfig(self, url: str) -> str:
        """Returns the administrator's kubeconfig, with everything inline."""
        name = CLUSTER
        ca = base64.b64encode(self.authority.certificate).decode()
        return as_yaml(
            {
                "apiVersion": "v1",
                "kind": "Config",
                "clusters": [{"name": name, "cluster": {"server": url, "certificate-authority-data": ca}}],
                "users": [{"name": name, "user": {"token": self.token}}],
                "contexts": [
                    {"name": name, "context": {"cluster": name, "user": name, "namespace": "default"}}
                ],
                "current-context": name,
            }
        )


class _Kept(msgspec.Struct):
    ca: str
    ca_key: str
    token: str
    signing_key: str


def _texts(pair: CertificatePair) -> tuple[str, str]:
    return pair.certificate.decode(), pair.private_key.decode()


def write_private(path: Path, text: str) -> None:
    """Writes a file that only its owner can read, atomically. Raises ConfigurationError."""
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
