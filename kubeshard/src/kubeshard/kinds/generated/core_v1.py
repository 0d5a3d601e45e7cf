"""Classes of v1 in Kubernetes 1.37, written by `make types`. The descriptions are those of the Kubernetes
authors (Apache License 2.0).
"""

from __future__ import annotations

from collections.abc import Mapping

from kubeshard.core.conditions import Condition
from kubeshard.core.objects import KubeObject, Struct, field
from kubeshard.kinds.generated.core_v1_references import EventSource, LocalObjectReference, ObjectReference


class Binding(KubeObject, version="v1"):
    """Binding ties one object to another; for example, a pod is bound to a node by a scheduler."""

    target: ObjectReference
    """The target object that you want to bind to the standard object."""


class ComponentCondition(Struct):
    """Information about the condition of a component."""

    status: str
    """Status of the condition for a component."""
    type: str
    """Type of condition for a component."""
    error: str | None = None
    """Condition error code for a component."""
    message: str | None = None
    """Message about the condition for a component."""


class ComponentStatus(KubeObject, version="v1", namespaced=False):
    """ComponentStatus (and ComponentStatusList) holds the cluster validation info."""

    conditions: tuple[ComponentCondition, ...] | None = None
    """List of component conditions observed"""


class EndpointAddress(Struct):
    """EndpointAddress is a tuple that describes single IP address."""

    ip: str
    """The IP of this endpoint."""
    hostname: str | None = None
    """The Hostname of this endpoint"""
    node_name: str | None = None
    """Optional: Node hosting this endpoint."""
    target_ref: ObjectReference | None = None
    """Reference to object providing the endpoint."""


class EndpointPort(Struct):
    """EndpointPort is a tuple that describes a single port."""

    port: int
    """The port number of the endpoint."""
    app_protocol: str | None = None
    """The application protocol for this port."""
    name: str | None = None
    """The name of this port."""
    protocol: str | None = None
    """The IP protocol for this port. One of SCTP, TCP, UDP."""


class EndpointSubset(Struct):
    """EndpointSubset is a group of addresses with a common set of ports."""

    addresses: tuple[EndpointAddress, ...] | None = None
    """IP addresses which offer the related ports that are marked as ready."""
    not_ready_addresses: tuple[EndpointAddress, ...] | None = None
    """IP addresses which offer the related ports but are not currently marked as ready because they have not
    yet finished starting, have recently failed a readiness check, or have recently failed a liveness check.
    """
    ports: tuple[EndpointPort, ...] | None = None
    """Port numbers available on the related IP addresses."""


class Endpoints(KubeObject, version="v1", plural="endpoints"):
    """Endpoints is a collection of endpoints that implement the actual service."""

    subsets: tuple[EndpointSubset, ...] | None = None
    """The set of all endpoints is the union of all subsets."""


class EventSeries(Struct):
    """EventSeries contain information on series of events, i.e. thing that was/is happening continuously for
    some time.
    """

    count: int | None = None
    """Number of occurrences in this series up to the last heartbeat time"""
    last_observed_time: str | None = None
    """Time of the last occurrence observed"""


class Event(KubeObject, version="v1"):
    """Event is a report of an event somewhere in the cluster."""

    involved_object: ObjectReference
    """The object that this event is about."""
    action: str | None = None
    """What action was taken/failed regarding to the Regarding object."""
    count: int | None = None
    """The number of times this event has occurred."""
    event_time: str | None = None
    """Time when this Event was first observed."""
    first_timestamp: str | None = None
    """The time at which the event was first recorded. (Time of server receipt is in TypeMeta.)"""
    last_timestamp: str | None = None
    """The time at which the most recent occurrence of this event was recorded."""
    message: str | None = None
    """A human-readable description of the status of this operation."""
    reason: str | None = None
    """This should be a short, machine understandable string that gives the reason for the transition into the
    object's current status.
    """
    related: ObjectReference | None = None
    """Optional secondary object for more complex actions."""
    reporting_component: str | None = None
    """Name of the controller that emitted this Event, e.g. `kubernetes.io/kubelet`."""
    reporting_instance: str | None = None
    """ID of the controller instance, e.g. `kubelet-xyzf`."""
    series: EventSeries | None = None
    """Data about the Event series this event represents or nil if it's a singleton Event."""
    source: EventSource | None = None
    """The component reporting this event."""
    type: str | None = None
    """Type of this event (Normal, Warning), new types could be added in the future"""


class LimitRangeItem(Struct):
    """LimitRangeItem defines a min/max usage limit for any resource that matches on kind."""

    type: str
    """Type of resource that this limit applies to."""
    default: Mapping[str, str] | None = None
    """Default resource requirement limit value by resource name if resource limit is omitted."""
    default_request: Mapping[str, str] | None = None
    """DefaultRequest is the default resource requirement request value by resource name if resource request
    is omitted.
    """
    max: Mapping[str, str] | None = None
    """Max usage constraints on this kind by resource name."""
    max_limit_request_ratio: Mapping[str, str] | None = None
    """MaxLimitRequestRatio if specified, the named resource must have a request and limit that are both
    non-zero where limit divided by request is less than or equal to the enumerated value; this represents the
    max burst for the named resource.
    """
    min: Mapping[str, str] | None = None
    """Min usage constraints on this kind by resource name."""


class LimitRangeSpec(Struct):
    """LimitRangeSpec defines a min/max usage limit for resources that match on kind."""

    limits: tuple[LimitRangeItem, ...]
    """Limits is the list of LimitRangeItem objects that are enforced."""


class LimitRange(KubeObject, version="v1"):
    """LimitRange sets resource usage limits for each kind of resource in a Namespace."""

    spec: LimitRangeSpec
    """Spec defines the limits enforced."""


class ScopedResourceSelectorRequirement(Struct):
    """A scoped-resource selector requirement is a selector that contains values, a scope name, and an
    operator that relates the scope name and values.
    """

    operator: str
    """Represents a scope's relationship to a set of values. One of DoesNotExist, Exists, In, NotIn."""
    scope_name: str
    """The name of the scope that the selector applies to. One of BestEffort, CrossNamespacePodAffinity,
    NotBestEffort, NotTerminating, PriorityClass, Terminating, VolumeAttributesClass.
    """
    values: tuple[str, ...] | None = None
    """An array of string values."""


class ScopeSelector(Struct):
    """A scope selector represents the AND of the selectors represented by the scoped-resource selector
    requirements.
    """

    match_expressions: tuple[ScopedResourceSelectorRequirement, ...] | None = None
    """A list of scope selector requirements by scope of the resources."""


class ResourceQuotaSpec(Struct):
    """ResourceQuotaSpec defines the desired hard limits to enforce for Quota."""

    hard: Mapping[str, str] | None = None
    """hard is the set of desired hard limits for each named resource."""
    scope_selector: ScopeSelector | None = None
    """scopeSelector is also a collection of filters like scopes that must match each object tracked by a
    quota but expressed using ScopeSelectorOperator in combination with possible values.
    """
    scopes: tuple[str, ...] | None = None
    """A collection of filters that must match each object tracked by a quota."""


class ResourceQuotaStatus(Struct):
    """ResourceQuotaStatus defines the enforced hard limits and observed use."""

    hard: Mapping[str, str] | None = None
    """Hard is the set of enforced hard limits for each named resource."""
    used: Mapping[str, str] | None = None
    """Used is the current observed total usage of the resource in the namespace."""


class ResourceQuota(KubeObject, version="v1"):
    """ResourceQuota sets aggregate quota restrictions enforced per namespace"""

    spec: ResourceQuotaSpec = field(default_factory=ResourceQuotaSpec)
    """Spec defines the desired quota.
    https://git.k8s.io/community/contributors/devel/sig-architecture/api-conventions.md#spec-and-status
    """
    status: ResourceQuotaStatus = field(default_factory=ResourceQuotaStatus)
    """Status defines the actual enforced quota and its current usage.
    https://git.k8s.io/community/contributors/devel/sig-architecture/api-conventions.md#spec-and-status
    """


class ServiceAccount(KubeObject, version="v1"):
    """ServiceAccount binds together: * a name, understood by users, and perhaps by peripheral systems, for an
    identity * a principal that can be authenticated and authorized * a set of secrets
    """

    automount_service_account_token: bool | None = None
    """AutomountServiceAccountToken indicates whether pods running as this service account should have an API
    token automatically mounted.
    """
    image_pull_secrets: tuple[LocalObjectReference, ...] | None = None
    """ImagePullSecrets is a list of references to secrets in the same namespace to use for pulling any images
    in pods that reference this ServiceAccount.
    """
    secrets: tuple[ObjectReference, ...] | None = None
    """Secrets is a list of the secrets in the same namespace that pods running using this ServiceAccount are
    allowed to use.
    """


class ServicePort(Struct):
    """ServicePort contains information on service's port."""

    port: int
    """The port that will be exposed by this service."""
    app_protocol: str | None = None
    """The application protocol for this port."""
    name: str | None = None
    """The name of this port within the service."""
    node_port: int | None = None
    """The port on each node on which this service is exposed when type is NodePort or LoadBalancer."""
    protocol: str | None = None
    """The IP protocol for this port. One of SCTP, TCP, UDP."""
    target_port: int | str | None = None
    """Number or name of the port to access on the pods targeted by the service."""


class ClientIPConfig(Struct):
    """ClientIPConfig represents the configurations of Client IP based session affinity."""

    timeout_seconds: int | None = None
    """timeoutSeconds specifies the seconds of ClientIP type session sticky time."""


class SessionAffinityConfig(Struct):
    """SessionAffinityConfig represents the configurations of session affinity."""

    client_ip: ClientIPConfig | None = field(default=None, name="clientIP")
    """clientIP contains the configurations of Client IP based session affinity."""


class ServiceSpec(Struct):
    """ServiceSpec describes the attributes that a user creates on a service."""

    allocate_load_balancer_node_ports: bool | None = None
    """allocateLoadBalancerNodePorts defines if NodePorts will be automatically allocated for services with
    type LoadBalancer.
    """
    cluster_ip: str | None = field(default=None, name="clusterIP")
    """clusterIP is the IP address of the service and is usually assigned randomly."""
    cluster_ips: tuple[str, ...] | None = field(default=None, name="clusterIPs")
    """ClusterIPs is a list of IP addresses assigned to this service, and are usually assigned randomly."""
    external_ips: tuple[str, ...] | None = field(default=None, name="externalIPs")
    """externalIPs is a list of IP addresses for which nodes in the cluster will also accept traffic for this
    service.
    """
    external_name: str | None = None
    """externalName is the external reference that discovery mechanisms will return as an alias for this
    service (e.g. a DNS CNAME record).
    """
    external_traffic_policy: str | None = None
    """externalTrafficPolicy describes how nodes distribute service traffic they receive on one of the
    Service's "externally-facing" addresses (NodePorts, ExternalIPs, and LoadBalancer IPs). One of Cluster,
    Local.
    """
    health_check_node_port: int | None = None
    """healthCheckNodePort specifies the healthcheck nodePort for the service."""
    internal_traffic_policy: str | None = None
    """InternalTrafficPolicy describes how nodes distribute service traffic they receive on the ClusterIP. One
    of Cluster, Local.
    """
    ip_families: tuple[str, ...] | None = None
    """IPFamilies is a list of IP families (e.g."""
    ip_family_policy: str | None = None
    """IPFamilyPolicy represents the dual-stack-ness requested or required by this Service. One of
    PreferDualStack, RequireDualStack, SingleStack.
    """
    load_balancer_class: str | None = None
    """loadBalancerClass is the class of the load balancer implementation this Service belongs to."""
    load_balancer_ip: str | None = field(default=None, name="loadBalancerIP")
    """Only applies to Service Type: LoadBalancer."""
    load_balancer_source_ranges: tuple[str, ...] | None = None
    """If specified and supported by the platform, this will restrict traffic through the cloud-provider
    load-balancer will be restricted to the specified client IPs.
    """
    ports: tuple[ServicePort, ...] | None = None
    """The list of ports that are exposed by this service."""
    publish_not_ready_addresses: bool | None = None
    """publishNotReadyAddresses indicates that any agent which deals with endpoints for this Service should
    disregard any indications of ready/not-ready.
    """
    selector: Mapping[str, str] | None = None
    """Route service traffic to pods with label keys and values matching this selector."""
    session_affinity: str | None = None
    """Supports "ClientIP" and "None". One of ClientIP, None."""
    session_affinity_config: SessionAffinityConfig | None = None
    """sessionAffinityConfig contains the configurations of session affinity."""
    traffic_distribution: str | None = None
    """TrafficDistribution offers a way to express preferences for how traffic is distributed to Service
    endpoints.
    """
    type: str | None = None
    """type determines how the Service is exposed. One of ClusterIP, ExternalName, LoadBalancer, NodePort."""


class PortStatus(Struct):
    """PortStatus represents the error condition of a service port"""

    port: int
    """Port is the port number of the service port of which status is recorded here"""
    protocol: str
    """Protocol is the protocol of the service port of which status is recorded here The supported values are:
    "TCP", "UDP", "SCTP" Possible enum values: - `"SCTP"` is the SCTP protocol. - `"TCP"` is the TCP protocol.
    - `"UDP"` is the UDP protocol. One of SCTP, TCP, UDP.
    """
    error: str | None = None
    """Error is to record the problem with the service port The format of the error shall comply with the
    following rules: - built-in error values shall be specified in this file and those shall use CamelCase
    names - cloud provider specific error values must have names that comply with the format
    foo.example.com/CamelCase.
    """


class LoadBalancerIngress(Struct):
    """LoadBalancerIngress represents the status of a load-balancer ingress point: traffic intended for the
    service should be sent to an ingress point.
    """

    hostname: str | None = None
    """Hostname is set for load-balancer ingress points that are DNS based (typically AWS load-balancers)"""
    ip: str | None = None
    """IP is set for load-balancer ingress points that are IP based (typically GCE or OpenStack
    load-balancers)
    """
    ip_mode: str | None = None
    """IPMode specifies how the load-balancer IP behaves, and may only be specified when the ip field is
    specified.
    """
    ports: tuple[PortStatus, ...] | None = None
    """Ports is a list of records of service ports If used, every port defined in the service should have an
    entry in it
    """


class LoadBalancerStatus(Struct):
    """LoadBalancerStatus represents the status of a load-balancer."""

    ingress: tuple[LoadBalancerIngress, ...] | None = None
    """Ingress is a list containing ingress points for the load-balancer."""


class ServiceStatus(Struct):
    """ServiceStatus represents the current status of a service."""

    conditions: tuple[Condition, ...] | None = None
    """Current service state"""
    load_balancer: LoadBalancerStatus | None = None
    """LoadBalancer contains the current status of the load-balancer, if one is present."""


class Service(KubeObject, version="v1"):
    """Service is a named abstraction of software service (for example, mysql) consisting of local port (for
    example 3306) that the proxy listens on, and the selector that determines which pods will answer requests
    sent through the proxy.
    """

    spec: ServiceSpec = field(default_factory=ServiceSpec)
    """Spec defines the behavior of a service.
    https://git.k8s.io/community/contributors/devel/sig-architecture/api-conventions.md#spec-and-status
    """
    status: ServiceStatus = field(default_factory=ServiceStatus)
    """Most recently observed status of the service."""


class TopologySelectorLabelRequirement(Struct):
    """A topology selector requirement is a selector that matches given label."""

    key: str
    """The label key that the selector applies to."""
    values: tuple[str, ...]
    """An array of string values."""


class TopologySelectorTerm(Struct):
    """A topology selector term represents the result of label queries."""

    match_label_expressions: tuple[TopologySelectorLabelRequirement, ...] | None = None
    """A list of topology selector requirements by labels."""
