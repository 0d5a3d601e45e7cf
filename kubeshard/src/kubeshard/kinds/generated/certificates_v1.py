"""Classes of certificates.k8s.io/v1 in Kubernetes 1.36, written by `make types`. The descriptions are those
of the Kubernetes authors (Apache License 2.0).
"""

from __future__ import annotations

from collections.abc import Mapping

from kubeshard.core.objects import KubeObject, Struct, field


class CertificateSigningRequestSpec(Struct):
    """CertificateSigningRequestSpec contains the certificate request."""

    request: str
    """request contains an x509 certificate signing request encoded in a "CERTIFICATE REQUEST" PEM block."""
    signer_name: str
    """signerName indicates the requested signer, and is a qualified name."""
    expiration_seconds: int | None = None
    """expirationSeconds is the requested duration of validity of the issued certificate."""
    extra: Mapping[str, tuple[str, ...]] | None = None
    """extra contains extra attributes of the user that created the CertificateSigningRequest."""
    groups: tuple[str, ...] | None = None
    """groups contains group membership of the user that created the CertificateSigningRequest."""
    uid: str | None = None
    """uid contains the uid of the user that created the CertificateSigningRequest."""
    usages: tuple[str, ...] | None = None
    """usages specifies a set of key usages requested in the issued certificate."""
    username: str | None = None
    """username contains the name of the user that created the CertificateSigningRequest."""


class CertificateSigningRequestCondition(Struct):
    """CertificateSigningRequestCondition describes a condition of a CertificateSigningRequest object"""

    status: str
    """status of the condition, one of True, False, Unknown."""
    type: str
    """type of the condition."""
    last_transition_time: str | None = None
    """lastTransitionTime is the time the condition last transitioned from one status to another."""
    last_update_time: str | None = None
    """lastUpdateTime is the time of the last update to this condition"""
    message: str | None = None
    """message contains a human readable message with details about the request state"""
    reason: str | None = None
    """reason indicates a brief reason for the request state"""


class CertificateSigningRequestStatus(Struct):
    """CertificateSigningRequestStatus contains conditions used to indicate approved/denied/failed status of
    the request, and the issued certificate.
    """

    certificate: str | None = None
    """certificate is populated with an issued certificate by the signer after an Approved condition is
    present.
    """
    conditions: tuple[CertificateSigningRequestCondition, ...] | None = None
    """conditions applied to the request."""


class CertificateSigningRequest(KubeObject, group="certificates.k8s.io", version="v1", namespaced=False):
    """CertificateSigningRequest objects provide a mechanism to obtain x509 certificates by submitting a
    certificate signing request, and having it asynchronously approved and issued.
    """

    spec: CertificateSigningRequestSpec
    """spec contains the certificate request, and is immutable after creation."""
    status: CertificateSigningRequestStatus = field(default_factory=CertificateSigningRequestStatus)
    """status contains information about whether the request is approved or denied, and the certificate issued
    by the signer, or the failure condition indicating signer failure.
    """
