from __future__ import annotations

import asyncio
import contextlib
import os
import ssl
from collections.abc import Callable
from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry

from kubeshard.core.errors import ConfigurationError
from kubeshard.runtime.certificate_authority import new_authority, new_server_leaf
from kubeshard.runtime.clock import SystemClock
from kubeshard.runtime.tls import CertificatePair
from kubeshard.webhook.certificates import (
    CertificateFiles,
    ServingCertificate,
    UnusableCertificate,
)
from kubeshard.webhook.selfsigned import DAY, renewed
from kubeshard_lab.virtual_time import virtual_time

NAME = "sharder.sharding-system.svc"
NOW = SystemClock().wall()


def pair(name: str = NAME, at: float = NOW) -> CertificatePair:
    return renewed(None, (name,), at).serving


def beginning(at: float) -> CertificatePair:
    """Returns a pair that is not valid before a given time."""
    authority = new_authority("test", at, DAY)
    return new_server_leaf(authority, (NAME,), at, DAY)


GOOD = pair()
OTHER = pair()

UNUSABLE = {
    "expired": (pair(at=NOW - 91 * DAY), "expired"),
    "not yet valid": (beginning(NOW + 2 * DAY), "not yet valid"),
    "other name": (pair("other.svc"), "[Hh]ostname mismatch"),
    "key of another": (CertificatePair(GOOD.certificate, OTHER.private_key), "(?i)key.values.mismatch"),
    "half a certificate": (CertificatePair(GOOD.certificate[:300], GOOD.private_key), "."),
    "half a key": (CertificatePair(GOOD.certificate, GOOD.private_key[:100]), "."),
    "empty": (CertificatePair(b"", b""), "."),
    "swapped": (CertificatePair(GOOD.private_key, GOOD.private_key), "."),
    "garbage": (CertificatePair(b"\xff\x00", b"\xfe"), "."),
}


@pytest.mark.parametrize(("bad", "reason"), UNUSABLE.values(), ids=UNUSABLE)
def test_an_unusable_pair_is_refused_with_a_reason_and_the_last_good_one_stays(
    bad: CertificatePair, reason: str
) -> None:
    serving = ServingCertificate(NAME, clock=SystemClock())
    assert not serving.ready()
    serving.install(GOOD)
    with pytest.raises(UnusableCertificate, match=reason):
        serving.install(bad)
    assert serving.ready()
    assert handshake(serving, GOOD) == "TLSv1.3"


def test_a_new_pair_is_served_in_place_of_the_old_one() -> None:
    serving = ServingCertificate(NAME, clock=SystemClock())
    assert serving.install(GOOD) is True
    assert serving.install(GOOD) is False
    assert serving.install(OTHER) is True
    assert handshake(serving, OTHER) == "TLSv1.3"
    with pytest.raises(ssl.SSLCertVerificationError):
        handshake(serving, GOOD)


def test_readiness_is_lost_only_when_the_served_certificate_expires() -> None:
    class Later(SystemClock):
        offset = 0.0

        def wall(self) -> float:
            return NOW + self.offset

    clock = Later()
    registry = CollectorRegistry()
    serving = ServingCertificate(NAME, clock=clock, registry=registry)
    assert not serving.ready()
    serving.install(GOOD)
    assert registry.get_sample_value("cert_not_after") == pytest.approx(NOW + 90 * DAY, abs=2)
    clock.offset = 89 * DAY
    assert serving.ready()
    clock.offset = 91 * DAY
    assert not serving.ready()


@pytest.mark.parametrize(("allow", "outcome"), [(False, None), (True, "TLSv1.2")])
def test_tls_1_2_is_spoken_only_where_it_is_allowed(allow: bool, outcome: str | None) -> None:
    serving = ServingCertificate(NAME, clock=SystemClock(), allow_tls_1_2=allow)
    serving.install(GOOD)
    if outcome is None:
        with pytest.raises(ssl.SSLError):
            handshake(serving, GOOD, maximum=ssl.TLSVersion.TLSv1_2)
    else:
        assert handshake(serving, GOOD, maximum=ssl.TLSVersion.TLSv1_2) == outcome


def test_only_http_1_1_is_negotiated() -> None:
    serving = ServingCertificate(NAME, clock=SystemClock())
    serving.install(GOOD)
    handshake(serving, GOOD, alpn=["h2", "http/1.1"], negotiated="http/1.1")


class Mounted:
    """A directory as the kubelet mounts a Secret: the files are links into `..data`, itself a link that is swapped."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.generation = 0
        self.certificate, self.key = root / "tls.crt", root / "tls.key"
        self.certificate.symlink_to(Path("..data", "tls.crt"))
        self.key.symlink_to(Path("..data", "tls.key"))

    def write(self, content: CertificatePair) -> None:
        self.generation += 1
        directory = self.root / f"..{self.generation}"
        directory.mkdir()
        (directory / "tls.crt").write_bytes(content.certificate)
        (directory / "tls.key").write_bytes(content.private_key)
        link = self.root / "..tmp"
        link.symlink_to(directory.name)
        os.replace(link, self.root / "..data")


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(5):
        while not condition():  # noqa: ASYNC110 - a counter has no event
            await asyncio.sleep(0.005)


async def test_changed_files_are_served_and_unusable_ones_are_counted_and_passed_over(tmp_path: Path) -> None:
    mounted = Mounted(tmp_path)
    mounted.write(GOOD)
    registry = CollectorRegistry()
    serving = ServingCertificate(NAME, clock=SystemClock(), registry=registry)
    files = CertificateFiles(mounted.certificate, mounted.key, interval=0.01)
    await files.load(serving)
    assert handshake(serving, GOOD)
    watching = asyncio.ensure_future(files.run(serving))

    mounted.write(CertificatePair(OTHER.certificate, GOOD.private_key))
    await until(lambda: registry.get_sample_value("certwatcher_read_certificate_errors_total") == 1)
    assert handshake(serving, GOOD)

    mounted.write(OTHER)
    await until(lambda: registry.get_sample_value("certwatcher_read_certificate_total") == 3)
    assert handshake(serving, OTHER)

    mounted.certificate.unlink()
    await until(lambda: registry.get_sample_value("certwatcher_read_certificate_errors_total") == 2)
    assert serving.ready()
    watching.cancel()


@pytest.mark.regression
@virtual_time
async def test_files_that_were_refused_are_read_again_without_a_change_and_served_once_they_are_good(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    mounted = Mounted(tmp_path)
    mounted.write(GOOD)
    valid = {GOOD}

    class Serving(ServingCertificate):
        """Rejects certificates that are not in `valid`."""

        def install(self, pair: CertificatePair) -> bool:
            if pair not in valid:
                raise UnusableCertificate("certificate is not yet valid")
            return super().install(pair)

    registry = CollectorRegistry()
    serving = Serving(NAME, clock=SystemClock(), registry=registry)
    files = CertificateFiles(mounted.certificate, mounted.key, interval=10.0)
    await files.load(serving)
    watching = asyncio.ensure_future(files.run(serving))
    mounted.write(OTHER)
    await asyncio.sleep(60.0)
    assert handshake(serving, GOOD)
    assert [record.levelname for record in caplog.records].count("WARNING") == 1
    valid.add(OTHER)
    await asyncio.sleep(10.0)
    assert handshake(serving, OTHER)
    reads = registry.get_sample_value("certwatcher_read_certificate_total")
    await asyncio.sleep(60.0)
    assert registry.get_sample_value("certwatcher_read_certificate_total") == reads
    watching.cancel()


async def test_missing_or_unusable_files_at_the_start_are_a_configuration_error(tmp_path: Path) -> None:
    mounted = Mounted(tmp_path)
    files = CertificateFiles(mounted.certificate, mounted.key)
    with pytest.raises(ConfigurationError, match=r"tls\.crt"):
        await files.load(ServingCertificate(NAME, clock=SystemClock()))
    mounted.write(pair("other.svc"))
    with pytest.raises(ConfigurationError, match="mismatch"):
        await files.load(ServingCertificate(NAME, clock=SystemClock()))


def test_an_encrypted_key_is_refused_and_asks_nobody(tmp_path: Path) -> None:
    from cryptography.hazmat.primitives import serialization

    key = serialization.load_pem_private_key(GOOD.private_key, None)
    encrypted = key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.BestAvailableEncryption(b"x"),
    )
    with pytest.raises(UnusableCertificate, match="encrypted"):
        ServingCertificate(NAME, clock=SystemClock()).install(CertificatePair(GOOD.certificate, encrypted))


def handshake(
    serving: ServingCertificate,
    trusted: CertificatePair,
    *,
    maximum: ssl.TLSVersion | None = None,
    alpn: list[str] | None = None,
    negotiated: str | None = None,
) -> str | None:
    """Returns the TLS version of a client that trusts only this certificate."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    context.load_verify_locations(cadata=trusted.certificate.decode())
    if maximum is not None:
        context.maximum_version = maximum
    if alpn:
        context.set_alpn_protocols(alpn)
    up, down = ssl.MemoryBIO(), ssl.MemoryBIO()
    client = context.wrap_bio(down, up, server_hostname=NAME)
    server = serving.context.wrap_bio(up, down, server_side=True)
    for step in (client, server) * 3:
        with contextlib.suppress(ssl.SSLWantReadError):
            step.do_handshake()
    assert client.selected_alpn_protocol() == negotiated
    return client.version()
