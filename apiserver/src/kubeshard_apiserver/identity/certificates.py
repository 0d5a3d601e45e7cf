"""Who a client certificate says its bearer is: the common name is the user, organizations are the groups.

That the certificate is to be trusted is the matter of TLS, not of this module. Source: k8s.io/apiserver
`authentication/request/x509`.
"""

from __future__ import annotations

from hashlib import sha256

from kubeshard_apiserver.access.user import User

_UID = "1.3.6.1.4.1.57683.2"


def user_of_certificate(der: bytes) -> User | None:
    """None for a certificate without a common name."""
    from cryptography import x509
    from cryptography.x509.oid import NameOID

    subject = x509.load_der_x509_certificate(der).subject
    names = subject.get_attributes_for_oid(NameOID.COMMON_NAME)
    if not names or not names[-1].value:
        return None
    groups = tuple(str(part.value) for part in subject.get_attributes_for_oid(NameOID.ORGANIZATION_NAME))
    uids = [str(part.value) for part in subject.get_attributes_for_oid(x509.ObjectIdentifier(_UID))]
    if len(uids) > 1 or "" in uids:
        return None
    fingerprint = f"X509SHA256={sha256(der).hexdigest()}"
    extra = {"authentication.kubernetes.io/credential-id": (fingerprint,)}
    return User(str(names[-1].value), uids[0] if uids else "", groups, extra)
