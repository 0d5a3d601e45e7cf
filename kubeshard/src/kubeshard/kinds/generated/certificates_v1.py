"""Classes of certificates.k8s.io/v1 in Kubernetes 1.37, written by `make types`. The descriptions are those
of the Kubernetes authors (Apache License 2.0).
"""

from __future__ import annotations

from collections.abc import Mapping

from kubeshard.core.conditions import Condition
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


class ClusterTrustBundleSpec(Struct):
    """ClusterTrustBundleSpec contains the signer and trust anchors."""

    trust_bundle: str
    """trustBundle contains the individual X.509 trust anchors for this bundle, as PEM bundle of PEM-wrapped,
    DER-formatted X.509 certificates.
    """
    signer_name: str | None = None
    """signerName indicates the associated signer, if any."""


class ClusterTrustBundle(KubeObject, group="certificates.k8s.io", version="v1", namespaced=False):
    """ClusterTrustBundle is a cluster-scoped container for X.509 trust anchors (root certificates)."""

    spec: ClusterTrustBundleSpec
    """spec contains the signer (if any) and trust anchors."""


class PodCertificateRequestSpec(Struct):
    """PodCertificateRequestSpec describes the certificate request."""

    node_name: str
    """nodeName is the name of the node the pod is assigned to."""
    node_uid: str = field(name="nodeUID")
    """nodeUID is the UID of the node the pod is assigned to."""
    pod_name: str
    """podName is the name of the pod into which the certificate will be mounted."""
    pod_uid: str = field(name="podUID")
    """podUID is the UID of the pod into which the certificate will be mounted."""
    service_account_name: str
    """serviceAccountName is the name of the service account the pod is running as."""
    service_account_uid: str = field(name="serviceAccountUID")
    """serviceAccountUID is the UID of the service account the pod is running as."""
    signer_name: str
    """signerName indicates the requested signer."""
    stub_pkcs_10_request: str = field(name="stubPKCS10Request")
    """A PKCS#10 certificate signing request (DER-serialized) generated by Kubelet using the subject private
    key.
    """
    max_expiration_seconds: int | None = None
    """maxExpirationSeconds is the maximum lifetime permitted for the certificate."""
    unverified_user_annotations: Mapping[str, str] | None = None
    """unverifiedUserAnnotations allow pod authors to pass additional information to the signer
    implementation.
    """


class PodCertificateRequestStatus(Struct):
    """PodCertificateRequestStatus describes the status of the request, and holds the certificate data if the
    request is issued.
    """

    begin_refresh_at: str | None = None
    """beginRefreshAt is the time at which the kubelet should begin trying to refresh the certificate."""
    certificate_chain: str | None = None
    """certificateChain is populated with an issued certificate by the signer."""
    conditions: tuple[Condition, ...] | None = None
    """conditions applied to the request."""
    not_after: str | None = None
    """notAfter is the time at which the certificate expires."""
    not_before: str | None = None
    """notBefore is the time at which the certificate becomes valid."""


class PodCertificateRequest(KubeObject, group="certificates.k8s.io", version="v1"):
    """PodCertificateRequest encodes a pod requesting a certificate from a given signer."""

    spec: PodCertificateRequestSpec
    """spec contains the details about the certificate being requested."""
    status: PodCertificateRequestStatus = field(default_factory=PodCertificateRequestStatus)
    """status contains the issued certificate, and a standard set of conditions."""
