"""Admission webhooks: an HTTPS server that answers the API server's AdmissionReviews.

    @validates(Website)
    def has_a_theme(website: Website) -> None:
        if not website.spec.theme:
            raise Denied("a website needs a theme")

    Manager(servers=[Webhooks("websites", [has_a_theme])])

`Webhooks` serves and registers such functions, with its own certificate. On a lower level, a `WebhookServer` serves
handlers of `AdmissionRequest`s, which contain the metadata of the object under review; the whole object, old and new,
is decoded on demand (`AdmissionRequest.whole`, `whole_old`).

Guaranteed: requests that are invalid, too large or too slow are refused without affecting others; when a handler fails,
the registration's failurePolicy decides, or the request is allowed with a warning (`Webhook`); certificates change
without a lost connection. Not guaranteed: that an API server calls at all; its webhook configuration decides that.

Operators use `typed` and `webhooks`; `server` listens, `app` handles requests, `review` and `conversion` implement the
wire format, `certificates`, `selfsigned` and `shared_certificate` provide TLS.
"""

from kubeshard.webhook.app import AdmissionApp, Webhook
from kubeshard.webhook.certificates import CertificateFiles, CertificateSource, Identity, UnusableCertificate
from kubeshard.webhook.review import AdmissionAnswer, AdmissionRequest, UnexpectedObject, UserInfo
from kubeshard.webhook.server import WebhookServer
from kubeshard.webhook.shared_certificate import SharedCertificate
from kubeshard.webhook.subresources import (
    Binding,
    Eviction,
    NodeProxyOptions,
    PodAttachOptions,
    PodExecOptions,
    PodPortForwardOptions,
    PodProxyOptions,
    Scale,
    ServiceProxyOptions,
    TokenRequest,
)
from kubeshard.webhook.typed import Denied, converts, defaults, validates
from kubeshard.webhook.webhooks import Webhooks

__all__ = [
    "AdmissionAnswer",
    "AdmissionApp",
    "AdmissionRequest",
    "Binding",
    "CertificateFiles",
    "CertificateSource",
    "Denied",
    "Eviction",
    "Identity",
    "NodeProxyOptions",
    "PodAttachOptions",
    "PodExecOptions",
    "PodPortForwardOptions",
    "PodProxyOptions",
    "Scale",
    "ServiceProxyOptions",
    "SharedCertificate",
    "TokenRequest",
    "UnexpectedObject",
    "UnusableCertificate",
    "UserInfo",
    "Webhook",
    "WebhookServer",
    "Webhooks",
    "converts",
    "defaults",
    "validates",
]
