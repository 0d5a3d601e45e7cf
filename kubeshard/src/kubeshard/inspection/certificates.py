"""What is wrong with the certificates of a webhook: those that the API server trusts, and the one that is served.

Pure. Importing it loads cryptography, which takes a while.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from cryptography import x509
from cryptography.x509.oid import ExtensionOID

from kubeshard.webhook.selfsigned import is_issued_by

SOON = 7 * 86400.0
"""Seconds before its end by which a certificate should have been renewed; the sharder renews its own a month before."""


def bundle_problem(bundle: bytes, now: float) -> str:
    """Of the certificates that are trusted; "" if one of them is valid."""
    try:
        trusted = x509.load_pem_x509_certificates(bundle)
    except ValueError:
        return "is no certificate"
    if not any(_ends(each) > now for each in trusted):
        return f"has expired {_days(now - max(map(_ends, trusted)))} ago"
    return ""


def trusts(bundle: bytes, serving: bytes) -> bool:
    """Whether one of the certificates in the bundle has issued the one that is served."""
    try:
        leaf = x509.load_pem_x509_certificates(serving)[0]
        return any(is_issued_by(each, leaf) for each in x509.load_pem_x509_certificates(bundle))
    except ValueError:
        return False


def serving_problems(serving: bytes, bundle: bytes, name: str, now: float) -> Iterator[tuple[bool, str]]:
    """Of the certificate that is served under that name: whether it is useless already, and what is wrong."""
    try:
        leaf = x509.load_pem_x509_certificates(serving)[0]
        trusted = x509.load_pem_x509_certificates(bundle) if bundle else []
    except ValueError:
        yield True, "is no certificate"
        return
    left = _ends(leaf) - now
    if left <= 0:
        yield True, f"has expired {_days(-left)} ago"
    elif left < SOON:
        yield False, f"expires in {_days(left)}"
    if name not in _names(leaf):
        yield True, f"is not for {name}, the name that the API server verifies"
    if trusted and not any(is_issued_by(each, leaf) for each in trusted):
        yield True, "was issued by none of the authorities in the webhook's caBundle"


def _ends(certificate: x509.Certificate) -> float:
    return certificate.not_valid_after_utc.timestamp()


def _names(certificate: x509.Certificate) -> Sequence[str]:
    try:
        found = certificate.extensions.get_extension_for_oid(ExtensionOID.SUBJECT_ALTERNATIVE_NAME).value
    except (x509.ExtensionNotFound, ValueError):
        return ()
    assert isinstance(found, x509.SubjectAlternativeName)
    return [str(name.value) for name in found]


def _days(seconds: float) -> str:
    days = seconds / 86400
    return f"{seconds / 3600:.0f} h" if days < 2 else f"{days:.0f} days"
