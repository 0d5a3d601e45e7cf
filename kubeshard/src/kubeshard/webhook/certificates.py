"""The serving certificate of a webhook server, and its replacement while the server runs.

Guaranteed: only a working pair is ever served. A pair is first tried on a new TLS context, in a handshake with a client
that trusts exactly this certificate: a half-written file, a key of another certificate, or a certificate that is
expired, not yet valid or for other names is rejected, and the last good pair stays in use. New connections use a new
pair, existing ones keep theirs; so with the authorities of clients, if these have to show certificates. TLS 1.3 is the
minimum unless 1.2 is allowed (then with AEAD suites only); ALPN offers HTTP/1.1 only.

Not guaranteed: that clients trust the certificate; that is up to the caBundle.

| metric | |
|---|---|
| `certwatcher_read_certificate_total` | reads of a pair |
| `certwatcher_read_certificate_errors_total` | reads that did not yield a usable pair |
| `cert_not_after` | end of validity of the served certificate, seconds since the epoch; 0 without one |
"""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Protocol

from prometheus_client import CollectorRegistry, Counter, Gauge

from kubeshard.core.errors import ConfigurationError, KubeshardError
from kubeshard.core.times import second_time
from kubeshard.metrics.declared import declared
from kubeshard.runtime.clock import Clock
from kubeshard.runtime.logs import get_logger
from kubeshard.runtime.tls import CertificatePair, load_pair, server_context

_LOG = get_logger("kubeshard.webhook")


@dataclass(frozen=True, slots=True)
class Identity:
    """A server's certificate and what its clients must trust, if both are made here (`selfsigned`). `authorities` are
    ordered from old to new, each with its key; `serving` is the leaf's pair.
    """

    authorities: tuple[CertificatePair, ...]
    serving: CertificatePair

    @property
    def bundle(self) -> bytes:
        """PEM of the certificates that clients must trust: the caBundle."""
        return b"".join(authority.certificate for authority in self.authorities)


class UnusableCertificate(KubeshardError):
    """A pair that does not match, or that no client could use. The message says why."""


class CertificateSource(Protocol):
    """A source of serving certificates and their renewals."""

    async def load(self, serving: ServingCertificate) -> None:
        """Install the first pair, before the server listens. Raises ConfigurationError or Unprepared if there is
        none."""
        ...

    async def run(self, serving: ServingCertificate) -> None:
        """Install every later pair, until cancelled."""
        ...


class ServingCertificate:
    """A live TLS context and the pair in it.

    `server_name` is a DNS name that the certificate must be valid for: the one that the API server uses
    (`<service>.<namespace>.svc`). With `""`, names are not checked.
    """

    def __init__(
        self,
        server_name: str = "",
        *,
        clock: Clock,
        allow_tls_1_2: bool = False,
        registry: CollectorRegistry | None = None,
    ) -> None:
        self._server_name = server_name
        self._minimum = ssl.TLSVersion.TLSv1_2 if allow_tls_1_2 else ssl.TLSVersion.TLSv1_3
        self._clock = clock
        self._pair: CertificatePair | None = None
        self._not_after = 0.0
        self.context = _context(self._minimum)
        """The live context. Give it to the server once; it is changed in place."""
        self._verifying: ssl.SSLContext | None = None
        """Has what clients are verified with: nothing can be taken away from a context."""
        metrics = registry or CollectorRegistry()
        self.reads = Counter(*declared("certwatcher_read_certificate_total"), registry=metrics)
        self.errors = Counter(*declared("certwatcher_read_certificate_errors_total"), registry=metrics)
        Gauge(*declared("cert_not_after"), registry=metrics).set_function(lambda: self._not_after)

    @property
    def not_after(self) -> float:
        """Seconds since the epoch until which the served certificate is valid; 0.0 before the first one."""
        return self._not_after

    def install(self, pair: CertificatePair) -> bool:
        """Serves the pair from now on; False if it is served already. If it raises UnusableCertificate, the previous
        pair is still served.
        """
        if pair == self._pair:
            return False
        fresh = _context(self._minimum)
        try:
            load_pair(fresh, pair)
            not_after = _try_handshake(fresh, pair.certificate, self._server_name)
        except (ssl.SSLError, ValueError) as error:
            raise UnusableCertificate(f"unusable certificate: {_reason(error)}") from None
        for context in (self.context, self._verifying):
            if context is not None:
                load_pair(context, pair)
        self._pair = pair
        self._not_after = not_after
        _LOG.info("Serving certificate installed", not_after=second_time(not_after))
        return True

    def require_clients_of(self, authority: str | Path) -> None:
        """From now on, a client needs a certificate of an authority in this file, as it is now. If it raises OSError or
        UnusableCertificate, the former ones still count.
        """
        fresh = _context(self._minimum)
        try:
            fresh.load_verify_locations(authority)
        except ssl.SSLError as error:
            raise UnusableCertificate(_reason(error)) from None
        if self._pair is not None:
            load_pair(fresh, self._pair)
        self._verifying = fresh
        self.context.verify_mode = ssl.CERT_REQUIRED
        self.context.sni_callback = self._greeted

    def _greeted(
        self, connection: ssl.SSLSocket | ssl.SSLObject, _name: str | None, _: ssl.SSLContext
    ) -> None:
        """Called for every connection, whether or not the client sends a server name."""
        assert self._verifying is not None
        connection.context = self._verifying

    def ready(self) -> bool:
        """Whether clients can be served: there is a certificate and it has not expired. For readiness
        checks."""
        return self._pair is not None and self._clock.wall() < self._not_after


class _FollowedFiles:
    """Files that are read again when they change, and while what they contain is not usable.

    They are checked every `interval` seconds. A mounted Secret is replaced by swapping a symbolic link, so the identity
    of the files behind the paths changes as well. What was rejected may become usable without a change, if a
    certificate was not yet valid.
    """

    _what: ClassVar[str]
    _remedy: ClassVar[str]

    def __init__(self, *paths: Path, interval: float) -> None:
        self._paths = paths
        self._interval = interval
        self._seen: tuple[object, ...] = ()

    async def load(self, serving: ServingCertificate) -> None:
        """Raises ConfigurationError if the files are missing, unreadable or not usable."""
        self._seen = self._identity()
        try:
            self._read(serving)
        except (OSError, UnusableCertificate) as error:
            problem = (isinstance(error, OSError) and error.strerror) or error
            raise ConfigurationError(f"{self._what} {self._paths[0]}: {problem}; {self._remedy}") from error

    async def run(self, serving: ServingCertificate) -> None:
        problem = ""
        while True:
            await asyncio.sleep(self._interval)
            seen = self._identity()
            if seen == self._seen and not problem:
                continue
            try:
                self._read(serving)
            except (OSError, UnusableCertificate) as error:
                if seen != self._seen or str(error) != problem:
                    _LOG.warning(
                        "Changed certificate files are unusable; what they contained before still counts",
                        path=self._paths[0],
                        error=error,
                    )
                problem = str(error)
            else:
                problem = ""
            self._seen = seen

    def _read(self, serving: ServingCertificate) -> None:
        """Raises OSError, UnusableCertificate."""
        raise NotImplementedError

    def _identity(self) -> tuple[object, ...]:
        return tuple(_identity_of(path) for path in self._paths)


class CertificateFiles(_FollowedFiles):
    """A certificate from two files, as cert-manager and mounted Secrets provide it."""

    _what, _remedy = "webhook certificate", "put certificate and key there, or configure others"

    def __init__(self, certificate: str | Path, private_key: str | Path, *, interval: float = 10.0) -> None:
        super().__init__(Path(certificate), Path(private_key), interval=interval)

    def _read(self, serving: ServingCertificate) -> None:
        serving.reads.inc()
        try:
            certificate, private_key = (path.read_bytes() for path in self._paths)
            serving.install(CertificatePair(certificate, private_key))
        except (OSError, UnusableCertificate):
            serving.errors.inc()
            raise


class ClientAuthority(_FollowedFiles):
    """A file with the authorities one of which must have issued the certificate of every client."""

    _what = "authority of the webhook's clients"
    _remedy = "put its certificate there, in PEM, or do not ask clients for certificates"

    def __init__(self, authority: str | Path, *, interval: float = 10.0) -> None:
        super().__init__(Path(authority), interval=interval)

    def _read(self, serving: ServingCertificate) -> None:
        serving.require_clients_of(self._paths[0])


def _identity_of(path: Path) -> tuple[int, ...]:
    try:
        stat = path.stat()
    except OSError:
        return ()
    return (stat.st_dev, stat.st_ino, stat.st_mtime_ns, stat.st_size)


def _context(minimum: ssl.TLSVersion) -> ssl.SSLContext:
    """Without tickets: a client that resumes a session is not verified again, whatever authority counts by then. In TLS
    1.2, OpenSSL also remembers sessions itself, for two hours, which Python cannot turn off.
    """
    context = server_context(minimum)
    context.options |= ssl.OP_NO_TICKET
    context.num_tickets = 0
    return context


def _try_handshake(server_context: ssl.SSLContext, certificate: bytes, server_name: str) -> float:
    """With a client that only trusts this certificate. Returns the end of its validity; raises ssl.SSLError."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = bool(server_name)
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    context.load_verify_locations(cadata=_first(certificate))
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    client = context.wrap_bio(to_client, to_server, server_hostname=server_name or None)
    server = server_context.wrap_bio(to_server, to_client, server_side=True)
    _advance(client.do_handshake)
    _advance(server.do_handshake)
    client.do_handshake()
    peer = client.getpeercert()
    assert peer is not None
    return float(ssl.cert_time_to_seconds(str(peer["notAfter"])))


def _advance(step: Callable[[], None]) -> None:
    with contextlib.suppress(ssl.SSLWantReadError):
        step()


def _first(certificate: bytes) -> str:
    """The leaf certificate. Trusting an intermediate that follows it would prove nothing about it."""
    end = b"-----END CERTIFICATE-----"
    head, found, _ = certificate.partition(end)
    if not found:
        raise ValueError("no certificate in PEM form")
    return (head + end).decode("ascii", "replace")


def _reason(error: Exception) -> str:
    if isinstance(error, ssl.SSLCertVerificationError):
        return error.verify_message
    return getattr(error, "reason", None) or str(error)
