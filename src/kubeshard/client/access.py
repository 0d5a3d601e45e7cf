"""Checking with the server which requests are allowed."""

from __future__ import annotations

from kubeshard.core.objects import KubeObject, Struct, field


class ResourceAttributes(Struct, omit_defaults=True):
    verb: str = ""
    group: str = ""
    resource: str = ""
    subresource: str = ""
    namespace: str = ""
    name: str = ""


class AccessReviewSpec(Struct):
    resource_attributes: ResourceAttributes | None = None


class AccessReviewStatus(Struct, omit_defaults=True):
    allowed: bool = False
    reason: str = ""


class SelfSubjectAccessReview(KubeObject, group="authorization.k8s.io", version="v1", namespaced=False):
    """Whether the sender may do something. RBAC: none, allowed for every authenticated user."""

    spec: AccessReviewSpec = field(default_factory=AccessReviewSpec)
    status: AccessReviewStatus = field(default_factory=AccessReviewStatus)
