"""Classes of apiregistration.k8s.io/v1 in Kubernetes 1.37, written by `make types`. The descriptions are
those of the Kubernetes authors (Apache License 2.0).
"""

from __future__ import annotations

from kubeshard.core.objects import KubeObject, Struct, field


class ServiceReference(Struct):
    """ServiceReference holds a reference to Service.legacy.k8s.io"""

    name: str | None = None
    """Name is the name of the service"""
    namespace: str | None = None
    """Namespace is the namespace of the service"""
    port: int | None = None
    """If specified, the port on the service that hosting webhook."""


class APIServiceSpec(Struct):
    """APIServiceSpec contains information for locating and communicating with a server."""

    group_priority_minimum: int
    """GroupPriorityMinimum is the priority this group should have at least."""
    version_priority: int
    """VersionPriority controls the ordering of this API version inside of its group."""
    ca_bundle: str | None = None
    """CABundle is a PEM encoded CA bundle which will be used to validate an API server's serving
    certificate.
    """
    group: str | None = None
    """Group is the API group name this server hosts"""
    insecure_skip_tls_verify: bool | None = field(default=None, name="insecureSkipTLSVerify")
    """InsecureSkipTLSVerify disables TLS certificate verification when communicating with this server."""
    service: ServiceReference | None = None
    """Service is a reference to the service for this API server."""
    version: str | None = None
    """Version is the API version this server hosts."""


class APIServiceCondition(Struct):
    """APIServiceCondition describes the state of an APIService at a particular point"""

    status: str
    """Status is the status of the condition."""
    type: str
    """Type is the type of the condition."""
    last_transition_time: str | None = None
    """Last time the condition transitioned from one status to another."""
    message: str | None = None
    """Human-readable message indicating details about last transition."""
    reason: str | None = None
    """Unique, one-word, CamelCase reason for the condition's last transition."""


class APIServiceStatus(Struct):
    """APIServiceStatus contains derived information about an API server"""

    conditions: tuple[APIServiceCondition, ...] | None = None
    """Current service state of apiService."""


class APIService(KubeObject, group="apiregistration.k8s.io", version="v1", namespaced=False):
    """APIService represents a server for a particular GroupVersion."""

    spec: APIServiceSpec
    """Spec contains information for locating and communicating with a server"""
    status: APIServiceStatus = field(default_factory=APIServiceStatus)
    """Status contains derived information about an API server"""
