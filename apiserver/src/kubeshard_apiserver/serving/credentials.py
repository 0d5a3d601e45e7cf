"""The credentials of the server and of its administrator.

Guaranteed: the token and all keys are random and new each time they are made. Whoever has the kubeconfig is the
administrator.
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
import yaml

from kubeshard.core.errors import ConfigurationError
from kubeshard.runtime.rng import secret_token
from kubeshard.runtime.tls import CertificatePair, load_pair, server_context

NAMES = ("localhost", "127.0.0.1", "::1", "kubernetes", "kubernetes.default", "kubernetes.default.svc")
"""For which the serving certificate is always valid."""

CLUSTER = "kubeshard"
"""Its name in a kubeconfig."""

_LIFETIME = 10 * 365 * 86400.0


@dataclass(frozen=True)
class Credentials:
    """`authority` signs the serving certificate and certificates of clients; `token` is the administrator's;
    `signing_key` signs tokens of ServiceAccounts (PEM).
    """

    authority: CertificatePair
    serving: CertificatePair = field(repr=False)
    token: str = field(repr=False)
    signing_key: bytes = field(repr=False)

    @classmethod
    def made(cls, now: float, names: Sequence[str] = (), saved: bytes | None = None) -> Credentials:
        """For `NAMES` and `names`; `now` in seconds since the epoch. With what an earlier start has `saved`, all
        that it gave away counts on. Raises ConfigurationError for what was never saved.
        """
        from kubeshard.runtime.issuing import new_authority, new_private_key, new_server_leaf

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
        """For a later start. Whoever has it is the administrator."""
        kept = _Kept(*_texts(self.authority), self.token, self.signing_key.decode())
        return msgspec.json.encode(kept)

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
        name = CLUSTER
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


class _Kept(msgspec.Struct):
    ca: str
    ca_key: str
    token: str
    signing_key: str


def _texts(pair: CertificatePair) -> tuple[str, str]:
    return pair.certificate.decode(), pair.private_key.decode()


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
