"""Webhook certificates without cert-manager: an authority, a leaf, and the rules for renewing them.

The stored state is an `Identity`: certificate authorities with their keys, and the serving pair that one of them
issued. `renewed` is a function of it and the time. A certificate only counts while it is valid:

| situation | what changes |
|---|---|
| missing or unreadable | new authority, new leaf |
| leaf or its issuer not valid, leaf in its last third or for other names | newest valid authority: a new leaf |
| ... and no valid authority lasts as long as the new leaf | a new authority issues it |
| else: newest valid authority in its last third | a new authority beside it, which issues the *next* leaf |
| else | nothing |

With a new leaf, authorities that are not valid are dropped, and those older than the issuer of a leaf that was
valid.

Guaranteed: the authority of a routinely renewed leaf has been in the `bundle` for a long time (at least since the
previous check), and that of the previous leaf stays in it until the next renewal. Clients that know the bundle of
either time trust the leaf of either time, so no call fails because of a renewal. The `bundle` always contains the
leaf's issuer. A wrong clock only harms its own process: certificates end at a set time but begin at the epoch, so those
of a replica whose clock is ahead are valid for all others. Several replicas whose clocks differ write a bounded number
of times, at most once per clock, until the one furthest ahead finds nothing due.

Not guaranteed: a short lifetime of keys that were created with a clock that is ahead: they last correspondingly longer.

Importing this module loads cryptography, which takes a while, so other modules import it only when they need it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from cryptography import x509
from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives import serialization

from kubeshard.runtime.certificate_authority import general_name, new_authority, new_server_leaf
from kubeshard.runtime.tls import CertificatePair
from kubeshard.webhook.certificates import Identity

DAY = 86400.0
LEAF_LIFETIME = 90 * DAY
AUTHORITY_LIFETIME = 365 * DAY
_EPOCH = 0.0
"""The start of validity of every certificate: no client should distrust one because of its creator's clock."""
_LAST = 1 / 3
"""The fraction of a certificate's lifetime before its end in which it is replaced."""


def renewed(identity: Identity | None, names: Sequence[str], now: float) -> Identity:
    """The identity that should serve `names` at `now` (seconds since the epoch); the same object if nothing is
    due.

    `names` are DNS names or IP addresses, the first one also becomes the common name. An identity that cannot
    be parsed is replaced.
    """
    current = _parse(identity) if identity is not None else None
    if identity is None or current is None:
        return _issued_by_newest((), names, now)
    valid = [
        (pair, certificate)
        for pair, certificate in zip(identity.authorities, current.authorities, strict=True)
        if _valid(certificate, now)
    ]
    usable = _valid(current.leaf, now) and _valid(current.authorities[current.issuer], now)
    if not usable:
        return _issued_by_newest(valid, names, now)
    wanted = frozenset(str(general_name(name).value) for name in names)
    if _ends_within(current.leaf, now, LEAF_LIFETIME * _LAST) or _names(current.leaf) != wanted:
        forgotten = set(identity.authorities[: current.issuer])
        return _issued_by_newest([each for each in valid if each[0] not in forgotten], names, now)
    if _ends_within(valid[-1][1], now, AUTHORITY_LIFETIME * _LAST):
        return Identity((*identity.authorities, _authority(names, now)), identity.serving)
    return identity


def _issued_by_newest(
    authorities: Sequence[tuple[CertificatePair, x509.Certificate]], names: Sequence[str], now: float
) -> Identity:
    pairs = tuple(pair for pair, _ in authorities)
    lasting = [pair for pair, certificate in authorities if not _ends_within(certificate, now, LEAF_LIFETIME)]
    if not lasting:
        lasting = [_authority(names, now)]
        pairs += (lasting[0],)
    return Identity(pairs, new_server_leaf(lasting[-1], names, now, LEAF_LIFETIME, begin=_EPOCH))


def _authority(names: Sequence[str], now: float) -> CertificatePair:
    return new_authority(names[0], now, AUTHORITY_LIFETIME, begin=_EPOCH)


@dataclass(frozen=True, slots=True)
class _Parsed:
    authorities: tuple[x509.Certificate, ...]
    leaf: x509.Certificate
    issuer: int
    """The index of the authority that issued the leaf."""


def _parse(identity: Identity) -> _Parsed | None:
    """None if it is unreadable, keys do not match, or no authority here issued the leaf."""
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
        if is_issued_by(authority, leaf):
            return _Parsed(tuple(authorities), leaf, index)
    return None


def is_issued_by(authority: x509.Certificate, leaf: x509.Certificate) -> bool:
    try:
        leaf.verify_directly_issued_by(authority)
    except (InvalidSignature, ValueError, TypeError):
        return False
    return True


def _valid(certificate: x509.Certificate, now: float) -> bool:
    return certificate.not_valid_before_utc.timestamp() <= now < certificate.not_valid_after_utc.timestamp()


def _ends_within(certificate: x509.Certificate, now: float, seconds: float) -> bool:
    return certificate.not_valid_after_utc.timestamp() < now + seconds


def _names(certificate: x509.Certificate) -> frozenset[str]:
    try:
        names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except (x509.ExtensionNotFound, ValueError):
        return frozenset()
    return frozenset(str(name.value) for name in names)
