"""Classes of v1 in Kubernetes 1.37, written by `make types`. The descriptions are those of the Kubernetes
authors (Apache License 2.0).
"""

from __future__ import annotations

from collections.abc import Mapping

from kubeshard.core.objects import KubeObject, Struct, field
from kubeshard.kinds.generated.core_v1_pod_templates import (
    PodSpec,
    PodTemplateSpec,
    ResourceRequirements,
    VolumeHealthCondition,
)


class PodCondition(Struct):
    """PodCondition contains details for the current condition of this pod."""

    status: str
    """Status is the status of the condition."""
    type: str
    """Type is the type of the condition."""
    last_probe_time: str | None = None
    """Last time we probed the condition."""
    last_transition_time: str | None = None
    """Last time the condition transitioned from one status to another."""
    message: str | None = None
    """Human-readable message indicating details about last transition."""
    observed_generation: int | None = None
    """If set, this represents the .metadata.generation that the pod condition was set based upon."""
    reason: str | None = None
    """Unique, one-word, CamelCase reason for the condition's last transition."""


class ResourceHealth(Struct):
    """ResourceHealth represents the health of a resource."""

    resource_id: str = field(name="resourceID")
    """ResourceID is the unique identifier of the resource."""
    health: str | None = None
    """Health of the resource. can be one of: - Healthy: operates as normal - Unhealthy: reported
    unhealthy.
    """
    message: str | None = None
    """Message provides human-readable context for Health (e.g. "ECC error count exceeded threshold")."""


class ResourceStatus(Struct):
    """ResourceStatus represents the status of a single resource allocated to a Pod."""

    name: str
    """Name of the resource."""
    resources: tuple[ResourceHealth, ...] | None = None
    """List of unique resources health."""


class ContainerStateRunning(Struct):
    """ContainerStateRunning is a running state of a container."""

    started_at: str | None = None
    """Time at which the container was last (re-)started"""


class ContainerStateTerminated(Struct):
    """ContainerStateTerminated is a terminated state of a container."""

    exit_code: int
    """Exit status from the last termination of the container"""
    container_id: str | None = field(default=None, name="containerID")
    """Container's ID in the format '<type>://<container_id>'"""
    finished_at: str | None = None
    """Time at which the container last terminated"""
    message: str | None = None
    """Message regarding the last termination of the container"""
    reason: str | None = None
    """(brief) reason from the last termination of the container"""
    signal: int | None = None
    """Signal from the last termination of the container"""
    started_at: str | None = None
    """Time at which previous execution of the container started"""


class ContainerStateWaiting(Struct):
    """ContainerStateWaiting is a waiting state of a container."""

    message: str | None = None
    """Message regarding why the container is not yet running."""
    reason: str | None = None
    """(brief) reason the container is not yet running."""


class ContainerState(Struct):
    """ContainerState holds a possible state of container."""

    running: ContainerStateRunning | None = None
    """Details about a running container"""
    terminated: ContainerStateTerminated | None = None
    """Details about a terminated container"""
    waiting: ContainerStateWaiting | None = None
    """Details about a waiting container"""


class LinuxContainerUser(Struct):
    """LinuxContainerUser represents user identity information in Linux containers"""

    gid: int
    """GID is the primary gid initially attached to the first process in the container"""
    uid: int
    """UID is the primary uid initially attached to the first process in the container"""
    supplemental_groups: tuple[int, ...] | None = None
    """SupplementalGroups are the supplemental groups initially attached to the first process in the
    container
    """


class ContainerUser(Struct):
    """ContainerUser represents user identity information"""

    linux: LinuxContainerUser | None = None
    """Linux holds user identity information initially attached to the first process of the containers in
    Linux.
    """


class ImageVolumeStatus(Struct):
    """ImageVolumeStatus represents the image-based volume status."""

    image_ref: str
    """ImageRef is the digest of the image used for this volume."""


class VolumeStatus(Struct):
    """VolumeStatus represents the status of a mounted volume."""

    image: ImageVolumeStatus | None = None
    """image represents an OCI object (a container image or artifact) pulled and mounted on the kubelet's host
    machine.
    """


class VolumeMountStatus(Struct):
    """VolumeMountStatus shows status of volume mounts."""

    mount_path: str
    """MountPath corresponds to the original VolumeMount."""
    name: str
    """Name corresponds to the name of the original VolumeMount."""
    read_only: bool | None = None
    """ReadOnly corresponds to the original VolumeMount."""
    recursive_read_only: str | None = None
    """RecursiveReadOnly must be set to Disabled, Enabled, or unspecified (for non-readonly mounts)."""
    volume_status: VolumeStatus | None = None
    """volumeStatus represents volume-type-specific status about the mounted volume."""


class ContainerStatus(Struct):
    """ContainerStatus contains details for the current status of this container."""

    image: str
    """Image is the name of container image that the container is running."""
    image_id: str = field(name="imageID")
    """ImageID is the image ID of the container's image."""
    name: str
    """Name is a DNS_LABEL representing the unique name of the container."""
    ready: bool
    """Ready specifies whether the container is currently passing its readiness check."""
    restart_count: int
    """RestartCount holds the number of times the container has been restarted."""
    allocated_resources: Mapping[str, str] | None = None
    """AllocatedResources represents the compute resources allocated for this container by the node."""
    allocated_resources_status: tuple[ResourceStatus, ...] | None = None
    """AllocatedResourcesStatus represents the status of various resources allocated for this Pod."""
    container_id: str | None = field(default=None, name="containerID")
    """ContainerID is the ID of the container in the format '<type>://<container_id>'."""
    last_state: ContainerState | None = None
    """LastTerminationState holds the last termination state of the container to help debug container crashes
    and restarts.
    """
    resources: ResourceRequirements | None = None
    """Resources represents the compute resource requests and limits that have been successfully enacted on
    the running container after it has been started or has been successfully resized.
    """
    started: bool | None = None
    """Started indicates whether the container has finished its postStart lifecycle hook and passed its
    startup probe.
    """
    state: ContainerState | None = None
    """State holds details about the container's current condition."""
    stop_signal: str | None = None
    """StopSignal reports the effective stop signal for this container Possible enum values: - `"SIGABRT"` -
    `"SIGALRM"` - `"SIGBUS"` - `"SIGCHLD"` - `"SIGCLD"` - `"SIGCONT"` - `"SIGFPE"` - `"SIGHUP"` - `"SIGILL"` -
    `"SIGINT"` - `"SIGIO"` - `"SIGIOT"` - `"SIGKILL"` - `"SIGPIPE"` - `"SIGPOLL"` - `"SIGPROF"` - `"SIGPWR"` -
    `"SIGQUIT"` - `"SIGRTMAX"` - `"SIGRTMAX-1"` - `"SIGRTMAX-10"` - `"SIGRTMAX-11"` - `"SIGRTMAX-12"` -
    `"SIGRTMAX-13"` - `"SIGRTMAX-14"` - `"SIGRTMAX-2"` - `"SIGRTMAX-3"` - `"SIGRTMAX-4"` - `"SIGRTMAX-5"` -
    `"SIGRTMAX-6"` - `"SIGRTMAX-7"` - `"SIGRTMAX-8"` - `"SIGRTMAX-9"` - `"SIGRTMIN"` - `"SIGRTMIN+1"` -
    `"SIGRTMIN+10"` - `"SIGRTMIN+11"` - `"SIGRTMIN+12"` - `"SIGRTMIN+13"` - `"SIGRTMIN+14"` - `"SIGRTMIN+15"`
    - `"SIGRTMIN+2"` - `"SIGRTMIN+3"` - `"SIGRTMIN+4"` - `"SIGRTMIN+5"` - `"SIGRTMIN+6"` - `"SIGRTMIN+7"` -
    `"SIGRTMIN+8"` - `"SIGRTMIN+9"` - `"SIGSEGV"` - `"SIGSTKFLT"` - `"SIGSTOP"` - `"SIGSYS"` - `"SIGTERM"` -
    `"SIGTRAP"` - `"SIGTSTP"` - `"SIGTTIN"` - `"SIGTTOU"` - `"SIGURG"` - `"SIGUSR1"` - `"SIGUSR2"` -
    `"SIGVTALRM"` - `"SIGWINCH"` - `"SIGXCPU"` - `"SIGXFSZ"` One of SIGABRT, SIGALRM, SIGBUS, SIGCHLD, SIGCLD,
    SIGCONT, SIGFPE, SIGHUP, SIGILL, SIGINT, SIGIO, SIGIOT, SIGKILL, SIGPIPE, SIGPOLL, SIGPROF, SIGPWR,
    SIGQUIT, SIGRTMAX, SIGRTMAX-1, SIGRTMAX-10, SIGRTMAX-11, SIGRTMAX-12, SIGRTMAX-13, SIGRTMAX-14,
    SIGRTMAX-2, SIGRTMAX-3, SIGRTMAX-4, SIGRTMAX-5, SIGRTMAX-6, SIGRTMAX-7, SIGRTMAX-8, SIGRTMAX-9, SIGRTMIN,
    SIGRTMIN+1, SIGRTMIN+10, SIGRTMIN+11, SIGRTMIN+12, SIGRTMIN+13, SIGRTMIN+14, SIGRTMIN+15, SIGRTMIN+2,
    SIGRTMIN+3, SIGRTMIN+4, SIGRTMIN+5, SIGRTMIN+6, SIGRTMIN+7, SIGRTMIN+8, SIGRTMIN+9, SIGSEGV, SIGSTKFLT,
    SIGSTOP, SIGSYS, SIGTERM, SIGTRAP, SIGTSTP, SIGTTIN, SIGTTOU, SIGURG, SIGUSR1, SIGUSR2, SIGVTALRM,
    SIGWINCH, SIGXCPU, SIGXFSZ.
    """
    user: ContainerUser | None = None
    """User represents user identity information initially attached to the first process of the container"""
    volume_mounts: tuple[VolumeMountStatus, ...] | None = None
    """Status of volume mounts."""


class ContainerExtendedResourceRequest(Struct):
    """ContainerExtendedResourceRequest has the mapping of container name, extended resource name to the
    device request name.
    """

    container_name: str
    """The name of the container requesting resources."""
    request_name: str
    """The name of the request in the special ResourceClaim which corresponds to the extended resource."""
    resource_name: str
    """The name of the extended resource in that container which gets backed by DRA."""


class PodExtendedResourceClaimStatus(Struct):
    """PodExtendedResourceClaimStatus is stored in the PodStatus for the extended resource requests backed by
    DRA.
    """

    request_mappings: tuple[ContainerExtendedResourceRequest, ...]
    """RequestMappings identifies the mapping of <container, extended resource backed by DRA> to device
    request in the generated ResourceClaim.
    """
    resource_claim_name: str
    """ResourceClaimName is the name of the ResourceClaim that was generated for the Pod in the namespace of
    the Pod.
    """


class HostIP(Struct):
    """HostIP represents a single IP address allocated to the host."""

    ip: str
    """IP is the IP address assigned to the host"""


class NodeAllocatableMappedResources(Struct):
    """NodeAllocatableMappedResources describes mapped node allocatable resource allocations."""

    name: str
    """Name is the name of the resource (e.g., cpu, memory)."""
    quantity: str
    """Quantity is the total node allocatable resource capacity allocated for the claim."""


class NodeAllocatableOverheadResources(Struct):
    """NodeAllocatableOverheadResources describes auxiliary overhead resource allocations."""

    name: str
    """Name is the name of the resource (e.g., cpu, memory)."""
    per_container: str | None = None
    """PerContainer is the variable overhead quantity applied for each container referencing the claim."""
    per_pod: str | None = None
    """PerPod is the flat overhead quantity allocated per pod."""


class NodeAllocatableResourceClaimStatus(Struct):
    """NodeAllocatableResourceClaimStatus describes the status of node allocatable resources allocated via
    DRA.
    """

    resource_claim_name: str
    """ResourceClaimName is the resource claim referenced by the pod that resulted in this node allocatable
    resource allocation.
    """
    containers: tuple[str, ...] | None = None
    """Containers lists the names of all containers in this pod that reference the claim."""
    mapping: tuple[NodeAllocatableMappedResources, ...] | None = None
    """Mapping contains allocations through devices mapped in the device spec's
    `nodeAllocatableResources[...].mapping` field.
    """
    overhead: tuple[NodeAllocatableOverheadResources, ...] | None = None
    """Overhead contains allocations through devices mapped in the device spec's
    `nodeAllocatableResources[...].overhead` field.
    """


class PodIP(Struct):
    """PodIP represents a single IP address allocated to the pod."""

    ip: str
    """IP is the IP address assigned to the pod"""


class PodResourceClaimStatus(Struct):
    """PodResourceClaimStatus is stored in the PodStatus for each PodResourceClaim which references a
    ResourceClaimTemplate.
    """

    name: str
    """Name uniquely identifies this resource claim inside the pod."""
    resource_claim_name: str | None = None
    """ResourceClaimName is the name of the ResourceClaim that was generated for the Pod in the namespace of
    the Pod.
    """


class PodVolumeHealth(Struct):
    """PodVolumeHealth contains health information for a volume used by a pod, reported by the CSI node plugin
    via the kubelet.
    """

    name: str
    """name matches an entry in pod.spec.volumes."""
    health_conditions: tuple[VolumeHealthCondition, ...] | None = None
    """conditions is the set of adverse conditions reported by the CSI node plugin for this volume on this
    node.
    """
    last_transition_time: str | None = None
    """lastTransitionTime is when the current set of conditions first appeared."""


class PodStatus(Struct):
    """PodStatus represents information about the status of a pod."""

    allocated_resources: Mapping[str, str] | None = None
    """AllocatedResources is the total requests allocated for this pod by the node."""
    conditions: tuple[PodCondition, ...] | None = None
    """Current service state of pod."""
    container_statuses: tuple[ContainerStatus, ...] | None = None
    """Statuses of containers in this pod."""
    ephemeral_container_statuses: tuple[ContainerStatus, ...] | None = None
    """Statuses for any ephemeral containers that have run in this pod."""
    extended_resource_claim_status: PodExtendedResourceClaimStatus | None = None
    """Status of extended resource claim backed by DRA."""
    host_ip: str | None = field(default=None, name="hostIP")
    """hostIP holds the IP address of the host to which the pod is assigned."""
    host_ips: tuple[HostIP, ...] | None = field(default=None, name="hostIPs")
    """hostIPs holds the IP addresses allocated to the host."""
    init_container_statuses: tuple[ContainerStatus, ...] | None = None
    """Statuses of init containers in this pod."""
    message: str | None = None
    """A human readable message indicating details about why the pod is in this condition."""
    node_allocatable_resource_claim_statuses: tuple[NodeAllocatableResourceClaimStatus, ...] | None = None
    """NodeAllocatableResourceClaimStatuses contains the status of node-allocatable resources that were
    allocated for this pod through DRA claims.
    """
    nominated_node_name: str | None = None
    """nominatedNodeName is set only when this pod preempts other pods on the node, but it cannot be scheduled
    right away as preemption victims receive their graceful termination periods.
    """
    observed_generation: int | None = None
    """If set, this represents the .metadata.generation that the pod status was set based upon."""
    phase: str | None = None
    """The phase of a Pod is a simple, high-level summary of where the Pod is in its lifecycle. One of Failed,
    Pending, Running, Succeeded, Unknown.
    """
    pod_ip: str | None = field(default=None, name="podIP")
    """podIP address allocated to the pod."""
    pod_ips: tuple[PodIP, ...] | None = field(default=None, name="podIPs")
    """podIPs holds the IP addresses allocated to the pod."""
    qos_class: str | None = None
    """The Quality of Service (QOS) classification assigned to the pod based on resource requirements See
    PodQOSClass type for available QOS classes More info:
    https://kubernetes.io/docs/concepts/workloads/pods/pod-qos/#quality-of-service-classes Possible enum
    values: - `"BestEffort"` is the BestEffort qos class. - `"Burstable"` is the Burstable qos class. -
    `"Guaranteed"` is the Guaranteed qos class. One of BestEffort, Burstable, Guaranteed.
    """
    reason: str | None = None
    """A brief CamelCase message indicating details about why the pod is in this state. e.g. 'Evicted'"""
    resize: str | None = None
    """Status of resources resize desired for pod's containers."""
    resource_claim_statuses: tuple[PodResourceClaimStatus, ...] | None = None
    """Status of resource claims."""
    resources: ResourceRequirements | None = None
    """Resources represents the compute resource requests and limits that have been applied at the pod level
    if pod-level requests or limits are set in PodSpec.Resources
    """
    start_time: str | None = None
    """RFC 3339 date and time at which the object was acknowledged by the Kubelet."""
    volume_health: tuple[PodVolumeHealth, ...] | None = None
    """volumeHealth contains node-reported health for each volume the pod is using."""


class Pod(KubeObject, version="v1"):
    """Pod is a collection of containers that can run on a host."""

    spec: PodSpec | None = None
    """Specification of the desired behavior of the pod."""
    status: PodStatus = field(default_factory=PodStatus)
    """Most recently observed status of the pod."""


class PodTemplate(KubeObject, version="v1"):
    """PodTemplate describes a template for creating copies of a predefined pod."""

    template: PodTemplateSpec | None = None
    """Template defines the pods that will be created from this pod template.
    https://git.k8s.io/community/contributors/devel/sig-architecture/api-conventions.md#spec-and-status
    """


class ReplicationControllerSpec(Struct):
    """ReplicationControllerSpec is the specification of a replication controller."""

    min_ready_seconds: int | None = None
    """Minimum number of seconds for which a newly created pod should be ready without any of its container
    crashing, for it to be considered available.
    """
    replicas: int | None = None
    """Replicas is the number of desired replicas."""
    selector: Mapping[str, str] | None = None
    """Selector is a label query over pods that should match the Replicas count."""
    template: PodTemplateSpec | None = None
    """Template is the object that describes the pod that will be created if insufficient replicas are
    detected.
    """


class ReplicationControllerCondition(Struct):
    """ReplicationControllerCondition describes the state of a replication controller at a certain point."""

    status: str
    """Status of the condition, one of True, False, Unknown."""
    type: str
    """Type of replication controller condition."""
    last_transition_time: str | None = None
    """The last time the condition transitioned from one status to another."""
    message: str | None = None
    """A human readable message indicating details about the transition."""
    reason: str | None = None
    """The reason for the condition's last transition."""


class ReplicationControllerStatus(Struct):
    """ReplicationControllerStatus represents the current status of a replication controller."""

    available_replicas: int | None = None
    """The number of available replicas (ready for at least minReadySeconds) for this replication
    controller.
    """
    conditions: tuple[ReplicationControllerCondition, ...] | None = None
    """Represents the latest available observations of a replication controller's current state."""
    fully_labeled_replicas: int | None = None
    """The number of pods that have labels matching the labels of the pod template of the replication
    controller.
    """
    observed_generation: int | None = None
    """ObservedGeneration reflects the generation of the most recently observed replication controller."""
    ready_replicas: int | None = None
    """The number of ready replicas for this replication controller."""
    replicas: int = 0
    """Replicas is the most recently observed number of replicas."""


class ReplicationController(KubeObject, version="v1"):
    """ReplicationController represents the configuration of a replication controller."""

    spec: ReplicationControllerSpec = field(default_factory=ReplicationControllerSpec)
    """Spec defines the specification of the desired behavior of the replication controller."""
    status: ReplicationControllerStatus = field(default_factory=ReplicationControllerStatus)
    """Status is the most recently observed status of the replication controller."""
