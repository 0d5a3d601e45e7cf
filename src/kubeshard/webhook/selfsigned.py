"""Webhook certificates without cert-manager: an authority, a leaf, and the rule by which both are renewed.

An `Identity` is what is kept: one or two certificate authorities with their keys, and the serving pair that
one of them issued. `renewed` is a function of it and the time:

| situation | what changes |
|---|---|
| nothing there, or unreadable | new authority, new leaf |
| leaf past 2/3 of its life, or for other names | new leaf by the newest authority |
| ... and the newest authority would end before the new leaf | a new authority issues it |
| else: newest authority past 2/3 of its life | a new authority beside it, which issues the *next* leaf |
| else | nothing |

With a new leaf, authorities older than the one that issued the previous leaf are dropped.

Guaranteed: the authority of a routinely renewed leaf has been in the `bundle` since long before (at least
since the previous look), and that of the previous leaf stays in it until the next one, so clients that know
the bundle of either time trust the leaf of either time: no call fails over a renewal (reliability 5.3, C13).
Private keys are ECDSA P-256.

Needs `pip install 'kubeshard[certificates]'`; without it importing this module raises ConfigurationError.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from kubeshard.core.errors import ConfigurationError
from kubeshard.webhook.certificates import CertificatePair, Identity

try:
    from cryptography import x509
    from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID
except ImportError as error:
    raise ConfigurationError(
        f"self-made webhook certificates need cryptography: pip install 'kubeshard[certificates]' ({error})"
    ) from error

DAY = 86400.0
LEAF_LIFETIME = 90 * DAY
AUTHORITY_LIFETIME = 365 * DAY
RENEW_AT = 2 / 3
"""Of a certificate's life."""

_CLOCK_SKEW = 300.0
"""Certificates are valid from a little before now, for clients whose clock is behind."""


def renewed(identity: Identity | None, names: Sequence[str], now: float) -> Identity:
    """What `identity` has to be at `now` (seconds since the epoch) to serve `names`; the same object if
    nothing is due.

    `names` are DNS names or IP addresses, the first one also becomes the common name. An identity that cannot
    be parsed is replaced.
    """
    current = _parse(identity) if identity is not None else None
    if identity is None or current is None:
        authority = _new_authority(names[0], now)
        return Identity((authority,), _new_leaf(authority, names, now))
    newest = identity.authorities[-1]
    if _due(current.leaf, now) or _names(current.leaf) != _wanted(names):
        kept = identity.authorities[current.issuer :]
        if _end(current.authorities[-1]) < now + LEAF_LIFETIME:
            newest = _new_authority(names[0], now)
            kept = (*kept, newest)
        return Identity(kept, _new_leaf(newest, names, now))
    if _due(current.authorities[-1], now):
        return Identity((*identity.authorities, _new_authority(names[0], now)), identity.serving)
    return identity


@dataclass(frozen=True, slots=True)
class _Parsed:
    authorities: tuple[x509.Certificate, ...]
    leaf: x509.Certificate
    issuer: int
    """Index of the authority that issued the leaf."""


def _parse(identity: Identity) -> _Parsed | None:
    """None for what is no identity: unreadable, keys that do not belong, a leaf that no authority here
    issued."""
    try:
        pairs = (*identity.authorities, identity.serving)
        certificates = [x509.load_pem_x509_certificate(pair.certificate) for pair in pairs]
        for pair, certificate in zip(pairs, certificates, strict=True):
            key = serialization.load_pem_private_key(pair.private_key, password=None)
            if key.public_key() != certificate.public_key():
                return None
    except (ValueError, TypeError, UnsupportedAlgorithm):
        return None
    *authorities, leaf = certificates
    for index, authority in enumerate(authorities):
        if _issued(authority, leaf):
            return _Parsed(tuple(authorities), leaf, index)
    return None


def _issued(authority: x509.Certificate, leaf: x509.Certificate) -> bool:
    try:
        leaf.verify_directly_issued_by(authority)
    except (InvalidSignature, ValueError, TypeError):
        return False
    return True


def _due(certificate: x509.Certificate, now: float) -> bool:
    begin = certificate.not_valid_before_utc.timestamp()
    return now >= begin + (_end(certificate) - begin) * RENEW_AT or now < begin


def _end(certificate: x509.Certificate) -> float:
    return certificate.not_valid_after_utc.timestamp()


def _names(certificate: x509.Certificate) -> frozenset[str]:
    try:
        names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except (x509.ExtensionNotFound, ValueError):
        return frozenset()
    return frozenset(str(name.value) for name in names)


def _wanted(names: Sequence[str]) -> frozenset[str]:
    return frozenset(str(_general_name(name).value) for name in names)


def _general_name(name: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(name))
    except ValueError:
        return x509.DNSName(name)


def _new_authority(common_name: str, now: float) -> CertificatePair:
    key = ec.generate_private_key(ec.SECP256R1())
    # Two authorities of one bundle must differ in their names: that is how clients find the issuer.
    name = _subject(f"{common_name[:40]} {x509.random_serial_number() % 2**32:08x}")
    certificate = (
        _builder(key, now, AUTHORITY_LIFETIME)
        .subject_name(name)
        .issuer_name(name)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_key_usage(signs_certificates=True), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
    )
    return _signed(certificate, key, key)


def _new_leaf(authority: CertificatePair, names: Sequence[str], now: float) -> CertificatePair:
    issuer = x509.load_pem_x509_certificate(authority.certificate)
    issuer_key = serialization.load_pem_private_key(authority.private_key, password=None)
    assert isinstance(issuer_key, ec.EllipticCurvePrivateKey)
    key = ec.generate_private_key(ec.SECP256R1())
    certificate = (
        _builder(key, now, LEAF_LIFETIME)
        .subject_name(_subject(names[0][:64]))
        .issuer_name(issuer.subject)
        .add_extension(x509.SubjectAlternativeName([_general_name(name) for name in names]), critical=False)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_key_usage(signs_certificates=False), critical=True)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .add_extension(
            x509.AuthorityKeyIdentifier.from_issuer_public_key(issuer_key.public_key()), critical=False
        )
    )
    return _signed(certificate, key, issuer_key)


def _builder(key: ec.EllipticCurvePrivateKey, now: float, lifetime: float) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(datetime.fromtimestamp(now - _CLOCK_SKEW, UTC))
        .not_valid_after(datetime.fromtimestamp(now + lifetime, UTC))
    )


def _subject(common_name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common_name)])


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
    return CertificatePair(
        builder.sign(issuer_key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM),
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        ),
    )
