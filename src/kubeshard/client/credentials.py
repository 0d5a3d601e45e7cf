"""Credentials that stay valid: the current value of the `Authorization` header.

Guaranteed: a rotated token file is noticed within a minute, and at once after a 401; calls are cheap between
changes; any number of concurrent requests cause one renewal. Not guaranteed: that the server accepts the
credentials: a 401 after a renewal is final. An instance belongs to one event loop; every client creates its own
from the `ClusterConfig`.
"""

from __future__ import annotations

from typing import NamedTuple, Protocol

from kubeshard.client.config import CertificateFiles, TokenFile
from kubeshard.core.errors import ConfigurationError
from kubeshard.runtime.clock import Clock
from kubeshard.runtime.tls import Tls

TOKEN_FILE_AGE = 60.0
"""Seconds after which a token file is read again; the kubelet renews bound tokens long before they expire."""

CERTIFICATE_AGE = 5.0
"""Seconds after which the files of a client certificate are read again. A server may close connections with an expired
certificate without any response that would trigger a renewal, and a leader has 10 s to renew its Lease.
"""


class Credential(NamedTuple):
    """`authorization` is the header's value, `certificate` PEM texts of a client certificate and its key."""

    authorization: str | None = None
    certificate: tuple[str, str] | None = None


ANONYMOUS = Credential()


class Credentials(Protocol):
    async def current(self) -> Credential:
        """What to send now. Raises ConfigurationError if there is none."""
        ...

    async def renew(self, rejected: Credential) -> bool:
        """Called after a 401 for `rejected`. Returns whether there is another credential to try."""
        ...


class FixedCredentials:
    """A token, user name and password, or nothing (anonymous, or the certificate of the TLS settings
    alone).
    """

    def __init__(self, authorization: str | None = None) -> None:
        self._credential = Credential(authorization)

    async def current(self) -> Credential:
        return self._credential

    async def renew(self, rejected: Credential) -> bool:
        return False


class TokenFileCredentials:
    """A token in a file that is rotated externally. If reading it fails, the last good token is used."""

    def __init__(self, source: TokenFile, clock: Clock) -> None:
        self._path = source.path
        self._clock = clock
        self._credential: Credential | None = None
        self._read_at = 0.0

    async def current(self) -> Credential:
        if self._credential is None or self._clock.monotonic() - self._read_at >= TOKEN_FILE_AGE:
            return self._read()
        return self._credential

    async def renew(self, rejected: Credential) -> bool:
        return self._read() != rejected

    def _read(self) -> Credential:
        self._read_at = self._clock.monotonic()
        try:
            token = self._path.read_text().strip()
            if not token:
                raise ConfigurationError(f"{self._path}: the token file is empty")
        except (OSError, UnicodeDecodeError, ConfigurationError) as error:
            if self._credential is not None:
                return self._credential
            problem = f"{self._path}: {error.strerror}" if isinstance(error, OSError) else error
            raise ConfigurationError(f"cannot read the token file: {problem}") from error
        self._credential = Credential(f"Bearer {token}")
        return self._credential


class CertificateFileCredentials:
    """Other credentials, and a client certificate in files that are rotated externally. While the files cannot be
    read or do not match (a rotation replaces them one after the other) the last good pair is used.
    """

    def __init__(self, inner: Credentials, files: CertificateFiles, tls: Tls, clock: Clock) -> None:
        self._inner = inner
        self._files = files
        self._clock = clock
        self._pair = (tls.certificate or "", tls.key or "")
        self._read_at = clock.monotonic()

    async def current(self) -> Credential:
        if self._clock.monotonic() - self._read_at >= CERTIFICATE_AGE:
            self._read()
        return (await self._inner.current())._replace(certificate=self._pair)

    async def renew(self, rejected: Credential) -> bool:
        self._read()
        return await self._inner.renew(rejected) or self._pair != rejected.certificate

    def _read(self) -> None:
        self._read_at = self._clock.monotonic()
        try:
            pair = (self._files.certificate.read_text(), self._files.key.read_text())
            if pair != self._pair:
                Tls(certificate=pair[0], key=pair[1]).check()
        except (OSError, ValueError):
            return
        self._pair = pair
