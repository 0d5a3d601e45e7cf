"""Admission webhooks: an HTTPS server that answers the API server's AdmissionReviews.

    def no_empty_theme(request: AdmissionRequest) -> AdmissionAnswer:
        website = request.whole(Website)
        if website is None or website.spec.theme:
            return AdmissionAnswer()
        return AdmissionAnswer(allowed=False, code=403, message="a website needs a theme")

    server = WebhookServer({"/validate": no_empty_theme}, CertificateFiles("tls.crt", "tls.key"))

Handlers are functions, `async` or not; a request brings the metadata of the object under review, and the whole
object, old and new, where it is asked for (`AdmissionRequest.whole`, `whole_old`).

Guaranteed: what is not an AdmissionReview, too large or too slow is refused without harm to others; when a handler
fails, the registration's failurePolicy decides, or the request is let through with a warning (`Webhook`);
certificates change without a lost connection. Not guaranteed: that an API server calls at all - that is decided
by its webhook configuration.

`server` listens, `app` answers, `review` is the wire, `certificates` and `selfsigned` are where TLS comes
from.
"""

from kubeshard.runtime.tls import CertificatePair
from kubeshard.webhook.app import AdmissionApp, Webhook
from kubeshard.webhook.certificates import (
    CertificateFiles,
    CertificateSource,
    Identity,
    ServingCertificate,
    UnusableCertificate,
)
from kubeshard.webhook.metrics import WebhookMetrics
from kubeshard.webhook.review import (
    AdmissionAnswer,
    AdmissionHandler,
    AdmissionRequest,
    UnexpectedObject,
    UserInfo,
)
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
    "UnexpectedObject",
    "UnusableCertificate",
    "UserInfo",
    "Webhook",
    "WebhookMetrics",
    "WebhookServer",
]
