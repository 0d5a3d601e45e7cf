"""Classes of networking.k8s.io/v1 in Kubernetes 1.37, written by `make types`. The descriptions are those of
the Kubernetes authors (Apache License 2.0).
"""

from __future__ import annotations

from kubeshard.core.conditions import Condition
from kubeshard.core.objects import KubeObject, Struct, field
from kubeshard.core.selectors import LabelSelector
from kubeshard.kinds.generated.core_v1_references import TypedLocalObjectReference


class IngressClassParametersReference(Struct):
    """IngressClassParametersReference identifies an API object."""

    kind: str
    """kind is the type of resource being referenced."""
    name: str
    """name is the name of resource being referenced."""
    api_group: str | None = None
    """apiGroup is the group for the resource being referenced."""
    namespace: str | None = None
    """namespace is the namespace of the resource being referenced."""
    scope: str | None = None
    """scope represents if this refers to a cluster or namespace scoped resource."""


class IngressClassSpec(Struct):
    """IngressClassSpec provides information about the class of an Ingress."""

    controller: str | None = None
    """controller refers to the name of the controller that should handle this class."""
    parameters: IngressClassParametersReference | None = None
    """parameters is a link to a custom resource containing additional configuration for the controller."""


class IngressClass(KubeObject, group="networking.k8s.io", version="v1", namespaced=False):
    """IngressClass represents the class of the Ingress, referenced by the Ingress Spec."""

    spec: IngressClassSpec = field(default_factory=IngressClassSpec)
    """spec is the desired state of the IngressClass."""


class ServiceBackendPort(Struct):
    """ServiceBackendPort is the service port being referenced."""

    name: str | None = None
    """name is the name of the port on the Service."""
    number: int | None = None
    """number is the numerical port number (e.g. 80) on the Service."""


class IngressServiceBackend(Struct):
    """IngressServiceBackend references a Kubernetes Service as a Backend."""

    name: str
    """name is the referenced service."""
    port: ServiceBackendPort | None = None
    """port of the referenced service."""


class IngressBackend(Struct):
    """IngressBackend describes all endpoints for a given service and port."""

    resource: TypedLocalObjectReference | None = None
    """resource is an ObjectRef to another Kubernetes resource in the namespace of the Ingress object."""
    service: IngressServiceBackend | None = None
    """service references a service as a backend."""


class HTTPIngressPath(Struct):
    """HTTPIngressPath associates a path with a backend."""

    backend: IngressBackend
    """backend defines the referenced service endpoint to which the traffic will be forwarded to."""
    path_type: str
    """pathType determines the interpretation of the path matching. One of Exact, ImplementationSpecific,
    Prefix.
    """
    path: str | None = None
    """path is matched against the path of an incoming request."""


class HTTPIngressRuleValue(Struct):
    """HTTPIngressRuleValue is a list of http selectors pointing to backends."""

    paths: tuple[HTTPIngressPath, ...]
    """paths is a collection of paths that map requests to backends."""


class IngressRule(Struct):
    """IngressRule represents the rules mapping the paths under a specified host to the related backend
    services.
    """

    host: str | None = None
    """host is the fully qualified domain name of a network host, as defined by RFC 3986."""
    http: HTTPIngressRuleValue | None = None
    """http is a HTTP IngressRuleValue, which contains a list of http selectors"""


class IngressTLS(Struct):
    """IngressTLS describes the transport layer security associated with an ingress."""

    hosts: tuple[str, ...] | None = None
    """hosts is a list of hosts included in the TLS certificate."""
    secret_name: str | None = None
    """secretName is the name of the secret used to terminate TLS traffic on port 443."""


class IngressSpec(Struct):
    """IngressSpec describes the Ingress the user wishes to exist."""

    default_backend: IngressBackend | None = None
    """defaultBackend is the backend that should handle requests that don't match any rule."""
    ingress_class_name: str | None = None
    """ingressClassName is the name of an IngressClass cluster resource."""
    rules: tuple[IngressRule, ...] | None = None
    """rules is a list of host rules used to configure the Ingress."""
    tls: tuple[IngressTLS, ...] | None = None
    """tls represents the TLS configuration."""


class IngressPortStatus(Struct):
    """IngressPortStatus represents the error condition of a service port"""

    port: int
    """port is the port number of the ingress port."""
    protocol: str
    """protocol is the protocol of the ingress port. One of SCTP, TCP, UDP."""
    error: str | None = None
    """error is to record the problem with the service port The format of the error shall comply with the
    following rules: - built-in error values shall be specified in this file and those shall use CamelCase
    names - cloud provider specific error values must have names that comply with the format
    foo.example.com/CamelCase.
    """


class IngressLoadBalancerIngress(Struct):
    """IngressLoadBalancerIngress represents the status of a load-balancer ingress point."""

    hostname: str | None = None
    """hostname is set for load-balancer ingress points that are DNS based."""
    ip: str | None = None
    """ip is set for load-balancer ingress points that are IP based."""
    ports: tuple[IngressPortStatus, ...] | None = None
    """ports provides information about the ports exposed by this LoadBalancer."""


class IngressLoadBalancerStatus(Struct):
    """IngressLoadBalancerStatus represents the status of a load-balancer."""

    ingress: tuple[IngressLoadBalancerIngress, ...] | None = None
    """ingress is a list containing ingress points for the load-balancer."""


class IngressStatus(Struct):
    """IngressStatus describe the current state of the Ingress."""

    load_balancer: IngressLoadBalancerStatus | None = None
    """loadBalancer contains the current status of the load-balancer."""


class Ingress(KubeObject, group="networking.k8s.io", version="v1"):
    """Ingress is a collection of rules that allow inbound connections to reach the endpoints defined by a
    backend.
    """

    spec: IngressSpec = field(default_factory=IngressSpec)
    """spec is the desired state of the Ingress."""
    status: IngressStatus = field(default_factory=IngressStatus)
    """status is the current state of the Ingress."""


class ParentReference(Struct):
    """ParentReference describes a reference to a parent object."""

    name: str
    """name is the name of the object being referenced."""
    resource: str
    """resource is the resource of the object being referenced."""
    group: str | None = None
    """group is the group of the object being referenced."""
    namespace: str | None = None
    """namespace is the namespace of the object being referenced."""


class IPAddressSpec(Struct):
    """IPAddressSpec describe the attributes in an IP Address."""

    parent_ref: ParentReference
    """parentRef references the resource that an IPAddress is attached to."""


class IPAddress(KubeObject, group="networking.k8s.io", version="v1", namespaced=False):
    """IPAddress represents a single IP of a single IP Family."""

    spec: IPAddressSpec
    """spec is the desired state of the IPAddress."""


class NetworkPolicyPort(Struct):
    """NetworkPolicyPort describes a port to allow traffic on"""

    end_port: int | None = None
    """endPort indicates that the range of ports from port to endPort if set, inclusive, should be allowed by
    the policy.
    """
    port: int | str | None = None
    """port represents the port on the given protocol."""
    protocol: str | None = None
    """protocol represents the protocol (TCP, UDP, or SCTP) which traffic must match. One of SCTP, TCP,
    UDP.
    """


class IPBlock(Struct):
    """IPBlock describes a particular CIDR (Ex. "192.168.1.0/24","2001:db8::/64") that is allowed to the pods
    matched by a NetworkPolicySpec's podSelector.
    """

    cidr: str
    """cidr is a string representing the IPBlock Valid examples are "192.168.1.0/24" or "2001:db8::/64" """
    except_: tuple[str, ...] | None = None
    """except is a slice of CIDRs that should not be included within an IPBlock Valid examples are
    "192.168.1.0/24" or "2001:db8::/64" Except values will be rejected if they are outside the cidr range
    """


class NetworkPolicyPeer(Struct):
    """NetworkPolicyPeer describes a peer to allow traffic to/from."""

    ip_block: IPBlock | None = None
    """ipBlock defines policy on a particular IPBlock."""
    namespace_selector: LabelSelector | None = None
    """namespaceSelector selects namespaces using cluster-scoped labels."""
    pod_selector: LabelSelector | None = None
    """podSelector is a label selector which selects pods."""


class NetworkPolicyEgressRule(Struct):
    """NetworkPolicyEgressRule describes a particular set of traffic that is allowed out of pods matched by a
    NetworkPolicySpec's podSelector.
    """

    ports: tuple[NetworkPolicyPort, ...] | None = None
    """ports is a list of destination ports for outgoing traffic."""
    to: tuple[NetworkPolicyPeer, ...] | None = None
    """to is a list of destinations for outgoing traffic of pods selected for this rule."""


class NetworkPolicyIngressRule(Struct):
    """NetworkPolicyIngressRule describes a particular set of traffic that is allowed to the pods matched by a
    NetworkPolicySpec's podSelector.
    """

    from_: tuple[NetworkPolicyPeer, ...] | None = None
    """from is a list of sources which should be able to access the pods selected for this rule."""
    ports: tuple[NetworkPolicyPort, ...] | None = None
    """ports is a list of ports which should be made accessible on the pods selected for this rule."""


class NetworkPolicySpec(Struct):
    """NetworkPolicySpec provides the specification of a NetworkPolicy"""

    egress: tuple[NetworkPolicyEgressRule, ...] | None = None
    """egress is a list of egress rules to be applied to the selected pods."""
    ingress: tuple[NetworkPolicyIngressRule, ...] | None = None
    """ingress is a list of ingress rules to be applied to the selected pods."""
    pod_selector: LabelSelector | None = None
    """podSelector selects the pods to which this NetworkPolicy object applies."""
    policy_types: tuple[str, ...] | None = None
    """policyTypes is a list of rule types that the NetworkPolicy relates to."""


class NetworkPolicy(KubeObject, group="networking.k8s.io", version="v1"):
    """NetworkPolicy describes what network traffic is allowed for a set of Pods"""

    spec: NetworkPolicySpec = field(default_factory=NetworkPolicySpec)
    """spec represents the specification of the desired behavior for this NetworkPolicy."""


class ServiceCIDRSpec(Struct):
    """ServiceCIDRSpec define the CIDRs the user wants to use for allocating ClusterIPs for Services."""

    cidrs: tuple[str, ...] | None = None
    """cidrs defines the IP blocks in CIDR notation (e.g. "192.168.0.0/24" or "2001:db8::/64") from which to
    assign service cluster IPs.
    """


class ServiceCIDRStatus(Struct):
    """ServiceCIDRStatus describes the current state of the ServiceCIDR."""

    conditions: tuple[Condition, ...] | None = None
    """conditions holds an array of metav1.Condition that describe the state of the ServiceCIDR."""


class ServiceCIDR(KubeObject, group="networking.k8s.io", version="v1", namespaced=False):
    """ServiceCIDR defines a range of IP addresses using CIDR format (e.g. 192.168.0.0/24 or
    2001:db2::/64).
    """

    spec: ServiceCIDRSpec = field(default_factory=ServiceCIDRSpec)
    """spec is the desired state of the ServiceCIDR."""
    status: ServiceCIDRStatus = field(default_factory=ServiceCIDRStatus)
    """status represents the current state of the ServiceCIDR."""
