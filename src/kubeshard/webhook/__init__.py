"""Admission webhooks: an HTTPS server that answers the API server's AdmissionReviews (reliability 4.3).

Guaranteed: what is no AdmissionReview, too large or too slow is refused without harm to others; a handler
that raises lets the user's request pass, with a warning; certificates change without a lost connection. Not
guaranteed: that an API server calls at all - its webhook configuration decides, and its failure policy.

`server` listens, `app` answers, `review` is the wire, `certificates` and `selfsigned` are where TLS comes
from.
"""

from kubeshard.runtime.tls import CertificatePair
from kubeshard.webhook.app import AdmissionApp
from kubeshard.webhook.certificates import (
    CertificateFiles,
    CertificateSource,
    Identity,
    ServingCertificate,
    UnusableCertificate,
)
from kubeshard.webhook.metrics import WebhookMetrics
from kubeshard.webhook.review import AdmissionAnswer, AdmissionHandler, AdmissionRequest, UserInfo
from kubeshard.webhook.server import WebhookServer

__all__ = [
    "AdmissionAnswer",
    "AdmissionApp",
    "AdmissionHandler",
    "AdmissionRequest",
    "CertificateFiles",
    "CertificatePair",
    "CertificateSource",
    "Identity",
    "ServingCertificate",
    "UnusableCertificate",
    "UserInfo",
    "WebhookMetrics",
    "WebhookServer",
]
