"""kubectl certificate, and how kubectl shows signing requests."""

import base64
import os

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec


@pytest.fixture
def asked(kubectl):
    """Returns the names of two requests."""
    builder = x509.CertificateSigningRequestBuilder().subject_name(x509.Name([]))
    request = builder.sign(ec.generate_private_key(ec.SECP256R1()), hashes.SHA256())
    encoded = base64.b64encode(request.public_bytes(serialization.Encoding.PEM)).decode()
    names = [f"kubectl-{os.getpid()}-{suffix}" for suffix in "ab"]
    for name in names:
        kubectl(
            "create -f -",
            given={
                "apiVersion": "certificates.k8s.io/v1",
                "kind": "CertificateSigningRequest",
                "metadata": {"name": name},
                "spec": {"request": encoded, "signerName": "example.com/x", "usages": ["client auth"]},
            },
        )
    yield names
    kubectl(f"delete csr {' '.join(names)}")


@pytest.mark.regression
def test_requests_are_approved_and_denied(kubectl, asked):
    approved, denied = asked
    assert kubectl(f"certificate approve {approved}").endswith("approved\n")
    assert kubectl(f"certificate deny {denied}").endswith("denied\n")
    assert [[row[0], *row[-2:]] for row in kubectl.rows(f"get csr {approved} {denied}")] == [
        ["NAME", "REQUESTEDDURATION", "CONDITION"],
        [approved, "<none>", "Approved"],
        [denied, "<none>", "Denied"],
    ]
    assert "Approved" in kubectl(f"describe csr {approved}")
    assert kubectl.refused(f"certificate deny {approved}")
