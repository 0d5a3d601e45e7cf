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

Needs `pip install 'kubeshard[certificates]'`; without it importing this module raises ConfigurationError.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from kubeshard.core.errors import ConfigurationError
from kubeshard.webhook.certificates import Identity

try:
    from cryptography import x509
    from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
    from cryptography.hazmat.primitives import serialization

    from kubeshard.runtime.issuing import general_name, new_authority, new_server_leaf
except ImportError as error:
    raise ConfigurationError(
        f"self-made webhook certificates need cryptography: pip install 'kubeshard[certificates]' ({error})"
    ) from error

DAY = 86400.0
LEAF_LIFETIME = 90 * DAY
AUTHORITY_LIFETIME = 365 * DAY
RENEW_AT = 2 / 3
"""Of a certificate's life."""


def renewed(identity: Identity | None, names: Sequence[str], now: float) -> Identity:
    """What `identity` has to be at `now` (seconds since the epoch) to serve `names`; the same object if
    nothing is due.

    `names` are DNS names or IP addresses, the first one also becomes the common name. An identity that cannot
    be parsed is replaced.
    """
    current = _parse(identity) if identity is not None else None
    if identity is None or current is None:
        authority = new_authority(names[0], now, AUTHORITY_LIFETIME)
        return Identity((authority,), new_server_leaf(authority, names, now, LEAF_LIFETIME))
    newest = identity.authorities[-1]
    if _due(current.leaf, now) or _names(current.leaf) != _wanted(names):
        kept = identity.authorities[current.issuer :]
        if _end(current.authorities[-1]) < now + LEAF_LIFETIME:
            newest = new_authority(names[0], now, AUTHORITY_LIFETIME)
            kept = (*kept, newest)
        return Identity(kept, new_server_leaf(newest, names, now, LEAF_LIFETIME))
    if _due(current.authorities[-1], now):
        return Identity(
            (*identity.authorities, new_authority(names[0], now, AUTHORITY_LIFETIME)), identity.serving
        )
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
    return frozenset(str(general_name(name).value) for name in names)
