"""Classes of discovery.k8s.io/v1 in Kubernetes 1.37, written by `make types`. The descriptions are those of
the Kubernetes authors (Apache License 2.0).
"""

from __future__ import annotations

from collections.abc import Mapping

from kubeshard.core.objects import KubeObject, Struct
from kubeshard.kinds.generated.core_v1_references import ObjectReference


class EndpointConditions(Struct):
    """EndpointConditions represents the current condition of an endpoint."""

    ready: bool | None = None
    """ready indicates that this endpoint is ready to receive traffic, according to whatever system is
    managing the endpoint.
    """
    serving: bool | None = None
    """serving indicates that this endpoint is able to receive traffic, according to whatever system is
    managing the endpoint.
    """
    terminating: bool | None = None
    """terminating indicates that this endpoint is terminating."""


class ForNode(Struct):
    """ForNode provides information about which nodes should consume this endpoint."""

    name: str
    """name represents the name of the node."""


class ForZone(Struct):
    """ForZone provides information about which zones should consume this endpoint."""

    name: str
    """name represents the name of the zone."""


class EndpointHints(Struct):
    """EndpointHints provides hints describing how an endpoint should be consumed."""

    for_nodes: tuple[ForNode, ...] | None = None
    """forNodes indicates the node(s) this endpoint should be consumed by when using topology aware
    routing.
    """
    for_zones: tuple[ForZone, ...] | None = None
    """forZones indicates the zone(s) this endpoint should be consumed by when using topology aware
    routing.
    """


class Endpoint(Struct):
    """Endpoint represents a single logical "backend" implementing a service."""

    addresses: tuple[str, ...]
    """addresses of this endpoint."""
    conditions: EndpointConditions | None = None
    """conditions contains information about the current status of the endpoint."""
    deprecated_topology: Mapping[str, str] | None = None
    """deprecatedTopology contains topology information part of the v1beta1 API."""
    hints: EndpointHints | None = None
    """hints contains information associated with how an endpoint should be consumed."""
    hostname: str | None = None
    """hostname of this endpoint."""
    node_name: str | None = None
    """nodeName represents the name of the Node hosting this endpoint."""
    target_ref: ObjectReference | None = None
    """targetRef is a reference to a Kubernetes object that represents this endpoint."""
    zone: str | None = None
    """zone is the name of the Zone this endpoint exists in."""


class EndpointPort(Struct):
    """EndpointPort represents a Port used by an EndpointSlice"""

    app_protocol: str | None = None
    """The application protocol for this port."""
    name: str | None = None
    """name represents the name of this port."""
    port: int | None = None
    """port represents the port number of the endpoint."""
    protocol: str | None = None
    """protocol represents the IP protocol for this port. One of SCTP, TCP, UDP."""


class EndpointSlice(KubeObject, group="discovery.k8s.io", version="v1"):
    """EndpointSlice represents a set of service endpoints."""

    address_type: str
    """addressType specifies the type of address carried by this EndpointSlice. One of FQDN, IPv4, IPv6."""
    endpoints: tuple[Endpoint, ...] | None = None
    """endpoints is a list of unique endpoints in this slice."""
    ports: tuple[EndpointPort, ...] | None = None
    """ports specifies the list of network ports exposed by each endpoint in this slice."""
