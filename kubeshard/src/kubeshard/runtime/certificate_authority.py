"""Issues certificates: authorities, and their leaf certificates. Private keys are ECDSA P-256.

Importing this module loads cryptography, which is slow: import it only when it is needed.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Sequence
from datetime import UTC, datetime

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from kubeshard.runtime.tls import CertificatePair

_CLOCK_SKEW = 300.0
"""Certificates are valid from a little before now, for clients with a slow clock, unless `begin` is earlier."""


def new_authority(
    common_name: str, now: float, lifetime: float, *, begin: float | None = None
) -> CertificatePair:
    """An authority that may issue leaf certificates only. Its name ends in a random number: the authorities of one
    bundle must have different names, because clients find the issuer by name.
    """
    key = ec.generate_private_key(ec.SECP256R1())
    name = _subject(f"{common_name[:40]} {x509.random_serial_number() % 2**32:08x}")
    certificate = (
        _builder(key, now, lifetime, begin)
        .subject_name(name)
        .issuer_name(name)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_key_usage(signs_certificates=True), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
    )
    return _signed(certificate, key, key)


def new_server_leaf(
    authority: CertificatePair,
    names: Sequence[str],
    now: float,
    lifetime: float,
    *,
    begin: float | None = None,
) -> CertificatePair:
    """A certificate for a server with these DNS names or IP addresses; the first one is also the common name."""
    alternative = x509.SubjectAlternativeName([general_name(name) for name in names])
    subject = _subject(names[0][:64])
    return _leaf(authority, subject, ExtendedKeyUsageOID.SERVER_AUTH, now, lifetime, (alternative,), begin)


def new_client_leaf(
    authority: CertificatePair, user: str, groups: Sequence[str], now: float, lifetime: float
) -> CertificatePair:
    """A certificate for a client: API servers read the user from the common name and groups from the organizations."""
    return _leaf(authority, _subject(user, groups), ExtendedKeyUsageOID.CLIENT_AUTH, now, lifetime, ())


def new_private_key() -> bytes:
    return _pem(ec.generate_private_key(ec.SECP256R1()))


def general_name(name: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(name))
    except ValueError:
        return x509.DNSName(name)


def _leaf(
    authority: CertificatePair,
    subject: x509.Name,
    usage: x509.ObjectIdentifier,
    now: float,
    lifetime: float,
    extensions: Sequence[x509.ExtensionType],
    begin: float | None = None,
) -> CertificatePair:
    issuer = x509.load_pem_x509_certificate(authority.certificate)
    issuer_key = serialization.load_pem_private_key(authority.private_key, password=None)
    assert isinstance(issuer_key, ec.EllipticCurvePrivateKey)
    key = ec.generate_private_key(ec.SECP256R1())
    certificate = _builder(key, now, lifetime, begin).subject_name(subject).issuer_name(issuer.subject)
    for extension in extensions:
        certificate = certificate.add_extension(extension, critical=False)
    certificate = (
        certificate.add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_key_usage(signs_certificates=False), critical=True)
        .add_extension(x509.ExtendedKeyUsage([usage]), critical=False)
        .add_extension(
            x509.AuthorityKeyIdentifier.from_issuer_public_key(issuer_key.public_key()), critical=False
        )
    )
    return _signed(certificate, key, issuer_key)


def _builder(
    key: ec.EllipticCurvePrivateKey, now: float, lifetime: float, begin: float | None
) -> x509.CertificateBuilder:
    begin = now - _CLOCK_SKEW if begin is None else begin
    return (
        x509.CertificateBuilder()
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(datetime.fromtimestamp(begin, UTC))
        .not_valid_after(datetime.fromtimestamp(now + lifetime, UTC))
    )


def _subject(common_name: str, organizations: Sequence[str] = ()) -> x509.Name:
    names = [x509.NameAttribute(NameOID.ORGANIZATION_NAME, name) for name in organizations]
    return x509.Name([*names, x509.NameAttribute(NameOID.COMMON_NAME, common_name)])


def _key_usage(*, signs_certificates: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not signs_certificates,
        key_cert_sign=signs_certificates,
        crl_sign=signs_certificates,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )


def _signed(
    builder: x509.CertificateBuilder, key: ec.EllipticCurvePrivateKey, issuer_key: ec.EllipticCurvePrivateKey
) -> CertificatePair:
    certificate = builder.sign(issuer_key, hashes.SHA256())
    return CertificatePair(certificate.public_bytes(serialization.Encoding.PEM), _pem(key))


def _pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
