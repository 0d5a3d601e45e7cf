"""Classes of v1 in Kubernetes 1.37, written by `make types`. The descriptions are those of the Kubernetes
authors (Apache License 2.0).
"""

from __future__ import annotations

from collections.abc import Mapping

from kubeshard.core.objects import KubeObject, ObjectMeta, Struct, field
from kubeshard.core.selectors import LabelSelector
from kubeshard.kinds.generated.core_v1_references import (
    LocalObjectReference,
    NodeSelector,
    NodeSelectorTerm,
    Toleration,
    TypedLocalObjectReference,
)


class TypedObjectReference(Struct):
    """TypedObjectReference contains enough information to let you locate the typed referenced object"""

    kind: str
    """Kind is the type of resource being referenced"""
    name: str
    """Name is the name of resource being referenced"""
    api_group: str | None = None
    """APIGroup is the group for the resource being referenced."""
    namespace: str | None = None
    """Namespace is the namespace of resource being referenced Note that when a namespace is specified, a
    gateway.networking.k8s.io/ReferenceGrant object is required in the referent namespace to allow that
    namespace's owner to accept the reference.
    """


class VolumeResourceRequirements(Struct):
    """VolumeResourceRequirements describes the storage resource requirements for a volume."""

    limits: Mapping[str, str] | None = None
    """Limits describes the maximum amount of compute resources allowed."""
    requests: Mapping[str, str] | None = None
    """Requests describes the minimum amount of compute resources required."""


class PersistentVolumeClaimSpec(Struct):
    """PersistentVolumeClaimSpec describes the common attributes of storage devices and allows a Source for
    provider-specific attributes
    """

    access_modes: tuple[str, ...] | None = None
    """accessModes contains the desired access modes the volume should have."""
    data_source: TypedLocalObjectReference | None = None
    """dataSource field can be used to specify either: * An existing VolumeSnapshot object
    (snapshot.storage.k8s.io/VolumeSnapshot) * An existing PVC (PersistentVolumeClaim) If the provisioner or
    an external controller can support the specified data source, it will create a new volume based on the
    contents of the specified data source. dataSource contents will be copied to dataSourceRef, and
    dataSourceRef contents will be copied to dataSource when dataSourceRef.namespace is not specified.
    """
    data_source_ref: TypedObjectReference | None = None
    """dataSourceRef specifies the object from which to populate the volume with data, if a non-empty volume
    is desired.
    """
    resources: VolumeResourceRequirements | None = None
    """resources represents the minimum resources the volume should have."""
    selector: LabelSelector | None = None
    """selector is a label query over volumes to consider for binding."""
    storage_class_name: str | None = None
    """storageClassName is the name of the StorageClass required by the claim."""
    volume_attributes_class_name: str | None = None
    """volumeAttributesClassName may be used to set the VolumeAttributesClass used by this claim."""
    volume_mode: str | None = None
    """volumeMode defines what type of volume is required by the claim. One of Block, Filesystem."""
    volume_name: str | None = None
    """volumeName is the binding reference to the PersistentVolume backing this claim."""


class PersistentVolumeClaimCondition(Struct):
    """PersistentVolumeClaimCondition contains details about state of pvc"""

    status: str
    """Status is the status of the condition."""
    type: str
    """Type is the type of the condition."""
    last_probe_time: str | None = None
    """lastProbeTime is the time we probed the condition."""
    last_transition_time: str | None = None
    """lastTransitionTime is the time the condition transitioned from one status to another."""
    message: str | None = None
    """message is the human-readable message indicating details about last transition."""
    reason: str | None = None
    """reason is a unique, this should be a short, machine understandable string that gives the reason for
    condition's last transition.
    """


class VolumeHealthCondition(Struct):
    """VolumeHealthCondition represents an adverse health condition reported for a volume."""

    reason: str
    """reason is a brief CamelCase machine-parseable reason."""
    status: str
    """status is the machine-parseable health category. One of DataLoss, Degraded, Inaccessible."""
    message: str | None = None
    """message is a human-readable description."""


class VolumeHealthStatus(Struct):
    """VolumeHealthStatus contains health information for a volume reported by the CSI controller plugin."""

    health_conditions: tuple[VolumeHealthCondition, ...] | None = None
    """conditions is the set of adverse conditions reported by the CSI controller plugin."""
    last_transition_time: str | None = None
    """lastTransitionTime is when the current set of conditions first appeared."""


class ModifyVolumeStatus(Struct):
    """ModifyVolumeStatus represents the status object of ControllerModifyVolume operation"""

    status: str
    """status is the status of the ControllerModifyVolume operation. One of InProgress, Infeasible,
    Pending.
    """
    target_volume_attributes_class_name: str | None = None
    """targetVolumeAttributesClassName is the name of the VolumeAttributesClass the PVC currently being
    reconciled
    """


class PersistentVolumeClaimStatus(Struct):
    """PersistentVolumeClaimStatus is the current status of a persistent volume claim."""

    access_modes: tuple[str, ...] | None = None
    """accessModes contains the actual access modes the volume backing the PVC has."""
    allocated_resource_statuses: Mapping[str, str] | None = None
    """allocatedResourceStatuses stores status of resource being resized for the given PVC."""
    allocated_resources: Mapping[str, str] | None = None
    """allocatedResources tracks the resources allocated to a PVC including its capacity."""
    capacity: Mapping[str, str] | None = None
    """capacity represents the actual resources of the underlying volume."""
    conditions: tuple[PersistentVolumeClaimCondition, ...] | None = None
    """conditions is the current Condition of persistent volume claim."""
    current_volume_attributes_class_name: str | None = None
    """currentVolumeAttributesClassName is the current name of the VolumeAttributesClass the PVC is using."""
    health_status: VolumeHealthStatus | None = None
    """healthStatus contains the latest controller-reported health information for the volume bound to this
    claim.
    """
    modify_volume_status: ModifyVolumeStatus | None = None
    """ModifyVolumeStatus represents the status object of ControllerModifyVolume operation."""
    phase: str | None = None
    """phase represents the current phase of PersistentVolumeClaim. One of Bound, Lost, Pending."""


class PersistentVolumeClaim(KubeObject, version="v1"):
    """PersistentVolumeClaim is a user's request for and claim to a persistent volume"""

    spec: PersistentVolumeClaimSpec = field(default_factory=PersistentVolumeClaimSpec)
    """spec defines the desired characteristics of a volume requested by a pod author."""
    status: PersistentVolumeClaimStatus = field(default_factory=PersistentVolumeClaimStatus)
    """status represents the current information/status of a persistent volume claim."""


class AWSElasticBlockStoreVolumeSource(Struct):
    """Represents a Persistent Disk resource in AWS."""

    volume_id: str = field(name="volumeID")
    """volumeID is unique ID of the persistent disk resource in AWS (Amazon EBS volume)."""
    fs_type: str | None = None
    """fsType is the filesystem type of the volume that you want to mount."""
    partition: int | None = None
    """partition is the partition in the volume that you want to mount."""
    read_only: bool | None = None
    """readOnly value true will force the readOnly setting in VolumeMounts."""


class PreferredSchedulingTerm(Struct):
    """An empty preferred scheduling term matches all objects with implicit weight 0 (i.e. it's a no-op)."""

    preference: NodeSelectorTerm
    """A node selector term, associated with the corresponding weight."""
    weight: int
    """Weight associated with matching the corresponding nodeSelectorTerm, in the range 1-100."""


class NodeAffinity(Struct):
    """Node affinity is a group of node affinity scheduling rules."""

    preferred_during_scheduling_ignored_during_execution: tuple[PreferredSchedulingTerm, ...] | None = None
    """The scheduler will prefer to schedule pods to nodes that satisfy the affinity expressions specified by
    this field, but it may choose a node that violates one or more of the expressions.
    """
    required_during_scheduling_ignored_during_execution: NodeSelector | None = None
    """If the affinity requirements specified by this field are not met at scheduling time, the pod will not
    be scheduled onto the node.
    """


class PodAffinityTerm(Struct):
    """Defines a set of pods (namely those matching the labelSelector relative to the given namespace(s)) that
    this pod should be co-located (affinity) or not co-located (anti-affinity) with, where co-located is
    defined as running on a node whose value of the label with key <topologyKey> matches that of any node on
    which a pod of the set of pods is running
    """

    topology_key: str
    """This pod should be co-located (affinity) or not co-located (anti-affinity) with the pods matching the
    labelSelector in the specified namespaces, where co-located is defined as running on a node whose value of
    the label with key topologyKey matches that of any node on which any of the selected pods is running.
    """
    label_selector: LabelSelector | None = None
    """A label query over a set of resources, in this case pods."""
    match_label_keys: tuple[str, ...] | None = None
    """MatchLabelKeys is a set of pod label keys to select which pods will be taken into consideration."""
    mismatch_label_keys: tuple[str, ...] | None = None
    """MismatchLabelKeys is a set of pod label keys to select which pods will be taken into consideration."""
    namespace_selector: LabelSelector | None = None
    """A label query over the set of namespaces that the term applies to."""
    namespaces: tuple[str, ...] | None = None
    """namespaces specifies a static list of namespace names that the term applies to."""


class WeightedPodAffinityTerm(Struct):
    """The weights of all of the matched WeightedPodAffinityTerm fields are added per-node to find the most
    preferred node(s)
    """

    pod_affinity_term: PodAffinityTerm
    """Required."""
    weight: int
    """weight associated with matching the corresponding podAffinityTerm, in the range 1-100."""


class PodAffinity(Struct):
    """Pod affinity is a group of inter pod affinity scheduling rules."""

    preferred_during_scheduling_ignored_during_execution: tuple[WeightedPodAffinityTerm, ...] | None = None
    """The scheduler will prefer to schedule pods to nodes that satisfy the affinity expressions specified by
    this field, but it may choose a node that violates one or more of the expressions.
    """
    required_during_scheduling_ignored_during_execution: tuple[PodAffinityTerm, ...] | None = None
    """If the affinity requirements specified by this field are not met at scheduling time, the pod will not
    be scheduled onto the node.
    """


class PodAntiAffinity(Struct):
    """Pod anti affinity is a group of inter pod anti affinity scheduling rules."""

    preferred_during_scheduling_ignored_during_execution: tuple[WeightedPodAffinityTerm, ...] | None = None
    """The scheduler will prefer to schedule pods to nodes that satisfy the anti-affinity expressions
    specified by this field, but it may choose a node that violates one or more of the expressions.
    """
    required_during_scheduling_ignored_during_execution: tuple[PodAffinityTerm, ...] | None = None
    """If the anti-affinity requirements specified by this field are not met at scheduling time, the pod will
    not be scheduled onto the node.
    """


class Affinity(Struct):
    """Affinity is a group of affinity scheduling rules."""

    node_affinity: NodeAffinity | None = None
    """Describes node affinity scheduling rules for the pod."""
    pod_affinity: PodAffinity | None = None
    """Describes pod affinity scheduling rules (e.g. co-locate this pod in the same node, zone, etc. as some
    other pod(s)).
    """
    pod_anti_affinity: PodAntiAffinity | None = None
    """Describes pod anti-affinity scheduling rules (e.g. avoid putting this pod in the same node, zone, etc.
    as some other pod(s)).
    """


class AppArmorProfile(Struct):
    """AppArmorProfile defines a pod or container's AppArmor settings."""

    type: str
    """type indicates which kind of AppArmor profile will be applied. One of Localhost, RuntimeDefault,
    Unconfined.
    """
    localhost_profile: str | None = None
    """localhostProfile indicates a profile loaded on the node that should be used."""


class AzureDiskVolumeSource(Struct):
    """AzureDisk represents an Azure Data Disk mount on the host and bind mount to the pod."""

    disk_name: str
    """diskName is the Name of the data disk in the blob storage"""
    disk_uri: str = field(name="diskURI")
    """diskURI is the URI of data disk in the blob storage"""
    caching_mode: str | None = None
    """cachingMode is the Host Caching mode: None, Read Only, Read Write. One of None, ReadOnly, ReadWrite."""
    fs_type: str | None = None
    """fsType is Filesystem type to mount."""
    kind: str | None = None
    """kind expected values are Shared: multiple blob disks per storage account Dedicated: single blob disk
    per storage account Managed: azure managed data disk (only in managed availability set). defaults to
    shared Possible enum values: - `"Dedicated"` - `"Managed"` - `"Shared"` One of Dedicated, Managed, Shared.
    """
    read_only: bool | None = None
    """readOnly Defaults to false (read/write)."""


class AzureFileVolumeSource(Struct):
    """AzureFile represents an Azure File Service mount on the host and bind mount to the pod."""

    secret_name: str
    """secretName is the name of secret that contains Azure Storage Account Name and Key"""
    share_name: str
    """shareName is the azure share Name"""
    read_only: bool | None = None
    """readOnly defaults to false (read/write)."""


class CSIVolumeSource(Struct):
    """Represents a source location of a volume to mount, managed by an external CSI driver"""

    driver: str
    """driver is the name of the CSI driver that handles this volume."""
    fs_type: str | None = None
    """fsType to mount."""
    node_publish_secret_ref: LocalObjectReference | None = None
    """nodePublishSecretRef is a reference to the secret object containing sensitive information to pass to
    the CSI driver to complete the CSI NodePublishVolume and NodeUnpublishVolume calls.
    """
    read_only: bool | None = None
    """readOnly specifies a read-only configuration for the volume."""
    volume_attributes: Mapping[str, str] | None = None
    """volumeAttributes stores driver-specific properties that are passed to the CSI driver."""


class Capabilities(Struct):
    """Adds and removes POSIX capabilities from running containers."""

    add: tuple[str, ...] | None = None
    """Added capabilities"""
    drop: tuple[str, ...] | None = None
    """Removed capabilities"""


class CephFSVolumeSource(Struct):
    """Represents a Ceph Filesystem mount that lasts the lifetime of a pod Cephfs volumes do not support
    ownership management or SELinux relabeling.
    """

    monitors: tuple[str, ...]
    """monitors is Required: Monitors is a collection of Ceph monitors More info:
    https://examples.k8s.io/volumes/cephfs/README.md#how-to-use-it
    """
    path: str | None = None
    """path is Optional: Used as the mounted root, rather than the full Ceph tree, default is /"""
    read_only: bool | None = None
    """readOnly is Optional: Defaults to false (read/write)."""
    secret_file: str | None = None
    """secretFile is Optional: SecretFile is the path to key ring for User, default is /etc/ceph/user.secret
    More info: https://examples.k8s.io/volumes/cephfs/README.md#how-to-use-it
    """
    secret_ref: LocalObjectReference | None = None
    """secretRef is Optional: SecretRef is reference to the authentication secret for User, default is
    empty.
    """
    user: str | None = None
    """user is optional: User is the rados user name, default is admin More info:
    https://examples.k8s.io/volumes/cephfs/README.md#how-to-use-it
    """


class CinderVolumeSource(Struct):
    """Represents a cinder volume resource in Openstack."""

    volume_id: str = field(name="volumeID")
    """volumeID used to identify the volume in cinder."""
    fs_type: str | None = None
    """fsType is the filesystem type to mount."""
    read_only: bool | None = None
    """readOnly defaults to false (read/write)."""
    secret_ref: LocalObjectReference | None = None
    """secretRef is optional: points to a secret object containing parameters used to connect to OpenStack."""


class ClusterTrustBundleProjection(Struct):
    """ClusterTrustBundleProjection describes how to select a set of ClusterTrustBundle objects and project
    their contents into the pod filesystem.
    """

    path: str
    """Relative path from the volume root to write the bundle."""
    label_selector: LabelSelector | None = None
    """Select all ClusterTrustBundles that match this label selector."""
    name: str | None = None
    """Select a single ClusterTrustBundle by object name."""
    optional: bool | None = None
    """If true, don't block pod startup if the referenced ClusterTrustBundle(s) aren't available."""
    signer_name: str | None = None
    """Select all ClusterTrustBundles that match this signer name."""
    user: int | None = None
    """user is Optional: The owner UID of the created file."""


class ConfigMapEnvSource(Struct):
    """ConfigMapEnvSource selects a ConfigMap to populate the environment variables with."""

    name: str | None = None
    """Name of the referent."""
    optional: bool | None = None
    """Specify whether the ConfigMap must be defined"""


class ConfigMapKeySelector(Struct):
    """Selects a key from a ConfigMap."""

    key: str
    """The key to select from the ConfigMap's Data field."""
    name: str | None = None
    """Name of the referent."""
    optional: bool | None = None
    """Specify whether the ConfigMap or its key must be defined"""


class KeyToPath(Struct):
    """Maps a string key to a path within a volume."""

    key: str
    """key is the key to project."""
    path: str
    """path is the relative path of the file to map the key to."""
    mode: int | None = None
    """mode is Optional: mode bits used to set permissions on this file."""
    user: int | None = None
    """user is Optional: The owner UID of the created file."""


class ConfigMapProjection(Struct):
    """Adapts a ConfigMap into a projected volume."""

    items: tuple[KeyToPath, ...] | None = None
    """items if unspecified, each key-value pair in the Data field of the referenced ConfigMap will be
    projected into the volume as a file whose name is the key and content is the value.
    """
    name: str | None = None
    """Name of the referent."""
    optional: bool | None = None
    """optional specify whether the ConfigMap or its keys must be defined"""


class ConfigMapVolumeSource(Struct):
    """Adapts a ConfigMap into a volume."""

    default_mode: int | None = None
    """defaultMode is optional: mode bits used to set permissions on created files by default."""
    default_user: int | None = None
    """defaultUser is Optional: The owner UID of the created files by default."""
    items: tuple[KeyToPath, ...] | None = None
    """items if unspecified, each key-value pair in the Data field of the referenced ConfigMap will be
    projected into the volume as a file whose name is the key and content is the value.
    """
    name: str | None = None
    """Name of the referent."""
    optional: bool | None = None
    """optional specify whether the ConfigMap or its keys must be defined"""


class ObjectFieldSelector(Struct):
    """ObjectFieldSelector selects an APIVersioned field of an object."""

    field_path: str
    """Path of the field to select in the specified API version."""
    api_version: str | None = None
    """Version of the schema the FieldPath is written in terms of, defaults to "v1"."""


class FileKeySelector(Struct):
    """FileKeySelector selects a key of the env file."""

    key: str
    """The key within the env file."""
    path: str
    """The path within the volume from which to select the file."""
    volume_name: str
    """The name of the volume mount containing the env file."""
    optional: bool | None = None
    """Specify whether the file or its key must be defined."""


class ResourceFieldSelector(Struct):
    """ResourceFieldSelector represents container resources (cpu, memory) and their output format"""

    resource: str
    """Required: resource to select"""
    container_name: str | None = None
    """Container name: required for volumes, optional for env vars"""
    divisor: str | None = None
    """Specifies the output format of the exposed resources, defaults to "1" """


class SecretKeySelector(Struct):
    """SecretKeySelector selects a key of a Secret."""

    key: str
    """The key of the secret to select from."""
    name: str | None = None
    """Name of the referent."""
    optional: bool | None = None
    """Specify whether the Secret or its key must be defined"""


class EnvVarSource(Struct):
    """EnvVarSource represents a source for the value of an EnvVar."""

    config_map_key_ref: ConfigMapKeySelector | None = None
    """Selects a key of a ConfigMap."""
    field_ref: ObjectFieldSelector | None = None
    """Selects a field of the pod: supports metadata.name, metadata.namespace, `metadata.labels['<KEY>']`,
    `metadata.annotations['<KEY>']`, spec.nodeName, spec.serviceAccountName, status.hostIP, status.podIP,
    status.podIPs.
    """
    file_key_ref: FileKeySelector | None = None
    """FileKeyRef selects a key of the env file."""
    resource_field_ref: ResourceFieldSelector | None = None
    """Selects a resource of the container: only resources limits and requests (limits.cpu, limits.memory,
    limits.ephemeral-storage, requests.cpu, requests.memory and requests.ephemeral-storage) are currently
    supported.
    """
    secret_key_ref: SecretKeySelector | None = None
    """Selects a key of a secret in the pod's namespace"""


class EnvVar(Struct):
    """EnvVar represents an environment variable present in a Container."""

    name: str
    """Name of the environment variable."""
    value: str | None = None
    """Variable references $(VAR_NAME) are expanded using the previously defined environment variables in the
    container and any service environment variables.
    """
    value_from: EnvVarSource | None = None
    """Source for the environment variable's value."""


class SecretEnvSource(Struct):
    """SecretEnvSource selects a Secret to populate the environment variables with."""

    name: str | None = None
    """Name of the referent."""
    optional: bool | None = None
    """Specify whether the Secret must be defined"""


class EnvFromSource(Struct):
    """EnvFromSource represents the source of a set of ConfigMaps or Secrets"""

    config_map_ref: ConfigMapEnvSource | None = None
    """The ConfigMap to select from"""
    prefix: str | None = None
    """Optional text to prepend to the name of each environment variable."""
    secret_ref: SecretEnvSource | None = None
    """The Secret to select from"""


class ExecAction(Struct):
    """ExecAction describes a "run in container" action."""

    command: tuple[str, ...] | None = None
    """Command is the command line to execute inside the container, the working directory for the command is
    root ('/') in the container's filesystem.
    """


class HTTPHeader(Struct):
    """HTTPHeader describes a custom header to be used in HTTP probes"""

    name: str
    """The header field name."""
    value: str
    """The header field value"""


class HTTPGetAction(Struct):
    """HTTPGetAction describes an action based on HTTP Get requests."""

    port: int | str
    """Name or number of the port to access on the container."""
    host: str | None = None
    """Host name to connect to, defaults to the pod IP."""
    http_headers: tuple[HTTPHeader, ...] | None = None
    """Custom headers to set in the request."""
    path: str | None = None
    """Path to access on the HTTP server."""
    protocol: str | None = None
    """Protocol selects the wire protocol for the probe connection. One of HTTP1, HTTP2."""
    scheme: str | None = None
    """Scheme to use for connecting to the host. One of HTTP, HTTPS."""


class SleepAction(Struct):
    """SleepAction describes a "sleep" action."""

    seconds: int
    """Seconds is the number of seconds to sleep."""


class TCPSocketAction(Struct):
    """TCPSocketAction describes an action based on opening a socket"""

    port: int | str
    """Number or name of the port to access on the container."""
    host: str | None = None
    """Optional: Host name to connect to, defaults to the pod IP."""


class LifecycleHandler(Struct):
    """LifecycleHandler defines a specific action that should be taken in a lifecycle hook."""

    exec: ExecAction | None = None
    """Exec specifies a command to execute in the container."""
    http_get: HTTPGetAction | None = None
    """HTTPGet specifies an HTTP GET request to perform."""
    sleep: SleepAction | None = None
    """Sleep represents a duration that the container should sleep."""
    tcp_socket: TCPSocketAction | None = None
    """Deprecated."""


class Lifecycle(Struct):
    """Lifecycle describes actions that the management system should take in response to container lifecycle
    events.
    """

    post_start: LifecycleHandler | None = None
    """PostStart is called immediately after a container is created."""
    pre_stop: LifecycleHandler | None = None
    """PreStop is called immediately before a container is terminated due to an API request or management
    event such as liveness/startup probe failure, preemption, resource contention, etc.
    """
    stop_signal: str | None = None
    """StopSignal defines which signal will be sent to a container when it is being stopped. One of SIGABRT,
    SIGALRM, SIGBUS, SIGCHLD, SIGCLD, SIGCONT, SIGFPE, SIGHUP, SIGILL, SIGINT, SIGIO, SIGIOT, SIGKILL,
    SIGPIPE, SIGPOLL, SIGPROF, SIGPWR, SIGQUIT, SIGRTMAX, SIGRTMAX-1, SIGRTMAX-10, SIGRTMAX-11, SIGRTMAX-12,
    SIGRTMAX-13, SIGRTMAX-14, SIGRTMAX-2, SIGRTMAX-3, SIGRTMAX-4, SIGRTMAX-5, SIGRTMAX-6, SIGRTMAX-7,
    SIGRTMAX-8, SIGRTMAX-9, SIGRTMIN, SIGRTMIN+1, SIGRTMIN+10, SIGRTMIN+11, SIGRTMIN+12, SIGRTMIN+13,
    SIGRTMIN+14, SIGRTMIN+15, SIGRTMIN+2, SIGRTMIN+3, SIGRTMIN+4, SIGRTMIN+5, SIGRTMIN+6, SIGRTMIN+7,
    SIGRTMIN+8, SIGRTMIN+9, SIGSEGV, SIGSTKFLT, SIGSTOP, SIGSYS, SIGTERM, SIGTRAP, SIGTSTP, SIGTTIN, SIGTTOU,
    SIGURG, SIGUSR1, SIGUSR2, SIGVTALRM, SIGWINCH, SIGXCPU, SIGXFSZ.
    """


class GRPCAction(Struct):
    """GRPCAction specifies an action involving a GRPC service."""

    port: int
    """Port number of the gRPC service."""
    mode: str | None = None
    """mode specifies the connection mode for the gRPC health probe. One of Plaintext, TLS."""
    service: str | None = None
    """Service is the name of the service to place in the gRPC HealthCheckRequest (see
    https://github.com/grpc/grpc/blob/master/doc/health-checking.md).
    """


class Probe(Struct):
    """Probe describes a health check to be performed against a container to determine whether it is alive or
    ready to receive traffic.
    """

    exec: ExecAction | None = None
    """Exec specifies a command to execute in the container."""
    failure_threshold: int | None = None
    """Minimum consecutive failures for the probe to be considered failed after having succeeded."""
    grpc: GRPCAction | None = None
    """GRPC specifies a GRPC HealthCheckRequest."""
    http_get: HTTPGetAction | None = None
    """HTTPGet specifies an HTTP GET request to perform."""
    initial_delay_seconds: int | None = None
    """Number of seconds after the container has started before liveness probes are initiated."""
    period_seconds: int | None = None
    """How often (in seconds) to perform the probe."""
    success_threshold: int | None = None
    """Minimum consecutive successes for the probe to be considered successful after having failed."""
    tcp_socket: TCPSocketAction | None = None
    """TCPSocket specifies a connection to a TCP port."""
    termination_grace_period_seconds: int | None = None
    """Optional duration in seconds the pod needs to terminate gracefully upon probe failure."""
    timeout_seconds: int | None = None
    """Number of seconds after which the probe times out."""


class ContainerPort(Struct):
    """ContainerPort represents a network port in a single container."""

    container_port: int
    """Number of port to expose on the pod's IP address."""
    host_ip: str | None = field(default=None, name="hostIP")
    """What host IP to bind the external port to."""
    host_port: int | None = None
    """Number of port to expose on the host."""
    name: str | None = None
    """If specified, this must be an IANA_SVC_NAME and unique within the pod."""
    protocol: str | None = None
    """Protocol for port. One of SCTP, TCP, UDP."""


class ContainerResizePolicy(Struct):
    """ContainerResizePolicy represents resource resize policy for the container."""

    resource_name: str
    """Name of the resource to which this resource resize policy applies."""
    restart_policy: str
    """Restart policy to apply when specified resource is resized."""


class ResourceClaim(Struct):
    """ResourceClaim references one entry in PodSpec.ResourceClaims."""

    name: str
    """Name must match the name of one entry in pod.spec.resourceClaims of the Pod where this field is
    used.
    """
    request: str | None = None
    """Request is the name chosen for a request in the referenced claim."""


class ResourceRequirements(Struct):
    """ResourceRequirements describes the compute resource requirements."""

    claims: tuple[ResourceClaim, ...] | None = None
    """Claims lists the names of resources, defined in spec.resourceClaims, that are used by this
    container.
    """
    limits: Mapping[str, str] | None = None
    """Limits describes the maximum amount of compute resources allowed."""
    requests: Mapping[str, str] | None = None
    """Requests describes the minimum amount of compute resources required."""


class ContainerRestartRuleOnExitCodes(Struct):
    """ContainerRestartRuleOnExitCodes describes the condition for handling an exited container based on its
    exit codes.
    """

    operator: str
    """Represents the relationship between the container exit code(s) and the specified values."""
    values: tuple[int, ...] | None = None
    """Specifies the set of values to check for container exit codes."""


class ContainerRestartRule(Struct):
    """ContainerRestartRule describes how a container exit is handled."""

    action: str
    """Specifies the action taken on a container exit if the requirements are satisfied."""
    exit_codes: ContainerRestartRuleOnExitCodes | None = None
    """Represents the exit codes to check on container exits."""


class SELinuxOptions(Struct):
    """SELinuxOptions are the labels to be applied to the container"""

    level: str | None = None
    """Level is SELinux level label that applies to the container."""
    role: str | None = None
    """Role is a SELinux role label that applies to the container."""
    type: str | None = None
    """Type is a SELinux type label that applies to the container."""
    user: str | None = None
    """User is a SELinux user label that applies to the container."""


class SeccompProfile(Struct):
    """SeccompProfile defines a pod/container's seccomp profile settings."""

    type: str
    """type indicates which kind of seccomp profile will be applied. One of Localhost, RuntimeDefault,
    Unconfined.
    """
    localhost_profile: str | None = None
    """localhostProfile indicates a profile defined in a file on the node should be used."""


class WindowsSecurityContextOptions(Struct):
    """WindowsSecurityContextOptions contain Windows-specific options and credentials."""

    gmsa_credential_spec: str | None = None
    """GMSACredentialSpec is where the GMSA admission webhook
    (https://github.com/kubernetes-sigs/windows-gmsa) inlines the contents of the GMSA credential spec named
    by the GMSACredentialSpecName field.
    """
    gmsa_credential_spec_name: str | None = None
    """GMSACredentialSpecName is the name of the GMSA credential spec to use."""
    host_process: bool | None = None
    """HostProcess determines if a container should be run as a 'Host Process' container."""
    run_as_user_name: str | None = None
    """The UserName in Windows to run the entrypoint of the container process."""


class SecurityContext(Struct):
    """SecurityContext holds security configuration that will be applied to a container."""

    allow_privilege_escalation: bool | None = None
    """AllowPrivilegeEscalation controls whether a process can gain more privileges than its parent
    process.
    """
    app_armor_profile: AppArmorProfile | None = None
    """appArmorProfile is the AppArmor options to use by this container."""
    capabilities: Capabilities | None = None
    """The capabilities to add/drop when running containers."""
    privileged: bool | None = None
    """Run container in privileged mode."""
    proc_mount: str | None = None
    """procMount denotes the type of proc mount to use for the containers. One of Default, Unmasked."""
    read_only_root_filesystem: bool | None = None
    """Whether this container has a read-only root filesystem."""
    run_as_group: int | None = None
    """The GID to run the entrypoint of the container process."""
    run_as_non_root: bool | None = None
    """Indicates that the container must run as a non-root user."""
    run_as_user: int | None = None
    """The UID to run the entrypoint of the container process."""
    se_linux_options: SELinuxOptions | None = None
    """The SELinux context to be applied to the container."""
    seccomp_profile: SeccompProfile | None = None
    """The seccomp options to use by this container."""
    windows_options: WindowsSecurityContextOptions | None = None
    """The Windows specific settings applied to all containers."""


class VolumeDevice(Struct):
    """volumeDevice describes a mapping of a raw block device within a container."""

    device_path: str
    """devicePath is the path inside of the container that the device will be mapped to."""
    name: str
    """name must match the name of a persistentVolumeClaim in the pod"""


class VolumeMount(Struct):
    """VolumeMount describes a mounting of a Volume within a container."""

    mount_path: str
    """Path within the container at which the volume should be mounted."""
    name: str
    """This must match the Name of a Volume."""
    bind_mount_options: tuple[str, ...] | None = None
    """bindMountOptions is the list of additional bind mount options to apply when mounting this volume into
    the container.
    """
    mount_propagation: str | None = None
    """mountPropagation determines how mounts are propagated from the host to container and the other way
    around. One of Bidirectional, HostToContainer, None.
    """
    read_only: bool | None = None
    """Mounted read-only if true, read-write otherwise (false or unspecified)."""
    recursive_read_only: str | None = None
    """RecursiveReadOnly specifies whether read-only mounts should be handled recursively."""
    sub_path: str | None = None
    """Path within the volume from which the container's volume should be mounted."""
    sub_path_expr: str | None = None
    """Expanded path within the volume from which the container's volume should be mounted."""


class Container(Struct):
    """A single application container that you want to run within a pod."""

    name: str
    """Name of the container specified as a DNS_LABEL."""
    args: tuple[str, ...] | None = None
    """Arguments to the entrypoint."""
    command: tuple[str, ...] | None = None
    """Entrypoint array."""
    env: tuple[EnvVar, ...] | None = None
    """List of environment variables to set in the container."""
    env_from: tuple[EnvFromSource, ...] | None = None
    """List of sources to populate environment variables in the container."""
    image: str | None = None
    """Container image name."""
    image_pull_policy: str | None = None
    """Image pull policy. One of Always, IfNotPresent, Never."""
    lifecycle: Lifecycle | None = None
    """Actions that the management system should take in response to container lifecycle events."""
    liveness_probe: Probe | None = None
    """Periodic probe of container liveness."""
    ports: tuple[ContainerPort, ...] | None = None
    """List of ports to expose from the container."""
    readiness_probe: Probe | None = None
    """Periodic probe of container service readiness."""
    resize_policy: tuple[ContainerResizePolicy, ...] | None = None
    """Resources resize policy for the container."""
    resources: ResourceRequirements | None = None
    """Compute Resources required by this container."""
    restart_policy: str | None = None
    """RestartPolicy defines the restart behavior of individual containers in a pod."""
    restart_policy_rules: tuple[ContainerRestartRule, ...] | None = None
    """Represents a list of rules to be checked to determine if the container should be restarted on exit."""
    security_context: SecurityContext | None = None
    """SecurityContext defines the security options the container should be run with."""
    startup_probe: Probe | None = None
    """StartupProbe indicates that the Pod has successfully initialized."""
    stdin: bool | None = None
    """Whether this container should allocate a buffer for stdin in the container runtime."""
    stdin_once: bool | None = None
    """Whether the container runtime should close the stdin channel after it has been opened by a single
    attach.
    """
    termination_message_path: str | None = None
    """Optional: Path at which the file to which the container's termination message will be written is
    mounted into the container's filesystem.
    """
    termination_message_policy: str | None = None
    """Indicate how the termination message should be populated. One of FallbackToLogsOnError, File."""
    tty: bool | None = None
    """Whether this container should allocate a TTY for itself, also requires 'stdin' to be true."""
    volume_devices: tuple[VolumeDevice, ...] | None = None
    """volumeDevices is the list of block devices to be used by the container."""
    volume_mounts: tuple[VolumeMount, ...] | None = None
    """Pod volumes to mount into the container's filesystem."""
    working_dir: str | None = None
    """Container's working directory."""


class DownwardAPIVolumeFile(Struct):
    """DownwardAPIVolumeFile represents information to create the file containing the pod field"""

    path: str
    """Required: Path is the relative path name of the file to be created."""
    field_ref: ObjectFieldSelector | None = None
    """Required: Selects a field of the pod: only annotations, labels, name, namespace and uid are
    supported.
    """
    mode: int | None = None
    """Optional: mode bits used to set permissions on this file, must be an octal value between 0000 and 0777
    or a decimal value between 0 and 511.
    """
    resource_field_ref: ResourceFieldSelector | None = None
    """Selects a resource of the container: only resources limits and requests (limits.cpu, limits.memory,
    requests.cpu and requests.memory) are currently supported.
    """
    user: int | None = None
    """user is Optional: The owner UID of the created file."""


class DownwardAPIProjection(Struct):
    """Represents downward API info for projecting into a projected volume."""

    items: tuple[DownwardAPIVolumeFile, ...] | None = None
    """Items is a list of DownwardAPIVolume file"""


class DownwardAPIVolumeSource(Struct):
    """DownwardAPIVolumeSource represents a volume containing downward API info."""

    default_mode: int | None = None
    """Optional: mode bits to use on created files by default."""
    default_user: int | None = None
    """defaultUser is Optional: The owner UID of the created files by default."""
    items: tuple[DownwardAPIVolumeFile, ...] | None = None
    """Items is a list of downward API volume file"""


class EmptyDirVolumeSource(Struct):
    """Represents an empty directory for a pod."""

    medium: str | None = None
    """medium represents what type of storage medium should back this directory."""
    mode: int | None = None
    """mode specifies the permission bits for the emptyDir directory, in numeric notation (e.g., 0755,
    01777).
    """
    size_limit: str | None = None
    """sizeLimit is the total amount of local storage required for this EmptyDir volume."""


class EphemeralContainer(Struct):
    """An EphemeralContainer is a temporary container that you may add to an existing Pod for user-initiated
    activities such as debugging.
    """

    name: str
    """Name of the ephemeral container specified as a DNS_LABEL."""
    args: tuple[str, ...] | None = None
    """Arguments to the entrypoint."""
    command: tuple[str, ...] | None = None
    """Entrypoint array."""
    env: tuple[EnvVar, ...] | None = None
    """List of environment variables to set in the container."""
    env_from: tuple[EnvFromSource, ...] | None = None
    """List of sources to populate environment variables in the container."""
    image: str | None = None
    """Container image name."""
    image_pull_policy: str | None = None
    """Image pull policy. One of Always, IfNotPresent, Never."""
    lifecycle: Lifecycle | None = None
    """Lifecycle is not allowed for ephemeral containers."""
    liveness_probe: Probe | None = None
    """Probes are not allowed for ephemeral containers."""
    ports: tuple[ContainerPort, ...] | None = None
    """Ports are not allowed for ephemeral containers."""
    readiness_probe: Probe | None = None
    """Probes are not allowed for ephemeral containers."""
    resize_policy: tuple[ContainerResizePolicy, ...] | None = None
    """Resources resize policy for the container."""
    resources: ResourceRequirements | None = None
    """Resources are not allowed for ephemeral containers."""
    restart_policy: str | None = None
    """Restart policy for the container to manage the restart behavior of each container within a pod."""
    restart_policy_rules: tuple[ContainerRestartRule, ...] | None = None
    """Represents a list of rules to be checked to determine if the container should be restarted on exit."""
    security_context: SecurityContext | None = None
    """Optional: SecurityContext defines the security options the ephemeral container should be run with."""
    startup_probe: Probe | None = None
    """Probes are not allowed for ephemeral containers."""
    stdin: bool | None = None
    """Whether this container should allocate a buffer for stdin in the container runtime."""
    stdin_once: bool | None = None
    """Whether the container runtime should close the stdin channel after it has been opened by a single
    attach.
    """
    target_container_name: str | None = None
    """If set, the name of the container from PodSpec that this ephemeral container targets."""
    termination_message_path: str | None = None
    """Optional: Path at which the file to which the container's termination message will be written is
    mounted into the container's filesystem.
    """
    termination_message_policy: str | None = None
    """Indicate how the termination message should be populated. One of FallbackToLogsOnError, File."""
    tty: bool | None = None
    """Whether this container should allocate a TTY for itself, also requires 'stdin' to be true."""
    volume_devices: tuple[VolumeDevice, ...] | None = None
    """volumeDevices is the list of block devices to be used by the container."""
    volume_mounts: tuple[VolumeMount, ...] | None = None
    """Pod volumes to mount into the container's filesystem."""
    working_dir: str | None = None
    """Container's working directory."""


class PersistentVolumeClaimTemplate(Struct):
    """PersistentVolumeClaimTemplate is used to produce PersistentVolumeClaim objects as part of an
    EphemeralVolumeSource.
    """

    spec: PersistentVolumeClaimSpec
    """The specification for the PersistentVolumeClaim."""
    metadata: ObjectMeta | None = None
    """May contain labels and annotations that will be copied into the PVC when creating it."""


class EphemeralVolumeSource(Struct):
    """Represents an ephemeral volume that is handled by a normal storage driver."""

    volume_claim_template: PersistentVolumeClaimTemplate | None = None
    """Will be used to create a stand-alone PVC to provision the volume."""


class EvictionResponder(Struct):
    """EvictionResponder allows you to specify the responder reacting to an Eviction."""

    name: str
    """name allows you to identify the responder responding to the Eviction."""
    priority: int
    """priority for this responder."""


class FCVolumeSource(Struct):
    """Represents a Fibre Channel volume."""

    fs_type: str | None = None
    """fsType is the filesystem type to mount."""
    lun: int | None = None
    """lun is Optional: FC target lun number"""
    read_only: bool | None = None
    """readOnly is Optional: Defaults to false (read/write)."""
    target_wwns: tuple[str, ...] | None = field(default=None, name="targetWWNs")
    """targetWWNs is Optional: FC target worldwide names (WWNs)"""
    wwids: tuple[str, ...] | None = None
    """wwids Optional: FC volume world wide identifiers (wwids) Either wwids or combination of targetWWNs and
    lun must be set, but not both simultaneously.
    """


class FlexVolumeSource(Struct):
    """FlexVolume represents a generic volume resource that is provisioned/attached using an exec based
    plugin.
    """

    driver: str
    """driver is the name of the driver to use for this volume."""
    fs_type: str | None = None
    """fsType is the filesystem type to mount."""
    options: Mapping[str, str] | None = None
    """options is Optional: this field holds extra command options if any."""
    read_only: bool | None = None
    """readOnly is Optional: defaults to false (read/write)."""
    secret_ref: LocalObjectReference | None = None
    """secretRef is Optional: secretRef is reference to the secret object containing sensitive information to
    pass to the plugin scripts.
    """


class FlockerVolumeSource(Struct):
    """Represents a Flocker volume mounted by the Flocker agent."""

    dataset_name: str | None = None
    """datasetName is Name of the dataset stored as metadata -> name on the dataset for Flocker should be
    considered as deprecated
    """
    dataset_uuid: str | None = field(default=None, name="datasetUUID")
    """datasetUUID is the UUID of the dataset."""


class GCEPersistentDiskVolumeSource(Struct):
    """Represents a Persistent Disk resource in Google Compute Engine."""

    pd_name: str
    """pdName is unique name of the PD resource in GCE."""
    fs_type: str | None = None
    """fsType is filesystem type of the volume that you want to mount."""
    partition: int | None = None
    """partition is the partition in the volume that you want to mount."""
    read_only: bool | None = None
    """readOnly here will force the ReadOnly setting in VolumeMounts."""


class GitRepoVolumeSource(Struct):
    """Represents a volume that is populated with the contents of a git repository."""

    repository: str
    """repository is the URL"""
    directory: str | None = None
    """directory is the target directory name."""
    revision: str | None = None
    """revision is the commit hash for the specified revision."""


class GlusterfsVolumeSource(Struct):
    """Represents a Glusterfs mount that lasts the lifetime of a pod."""

    endpoints: str
    """endpoints is the endpoint name that details Glusterfs topology."""
    path: str
    """path is the Glusterfs volume path."""
    read_only: bool | None = None
    """readOnly here will force the Glusterfs volume to be mounted with read-only permissions."""


class HostAlias(Struct):
    """HostAlias holds the mapping between IP and hostnames that will be injected as an entry in the pod's
    hosts file.
    """

    ip: str
    """IP address of the host file entry."""
    hostnames: tuple[str, ...] | None = None
    """Hostnames for the above IP address."""


class HostPathVolumeSource(Struct):
    """Represents a host path mapped into a pod."""

    path: str
    """path of the directory on the host."""
    type: str | None = None
    """type for HostPath Volume Defaults to "" More info:
    https://kubernetes.io/docs/concepts/storage/volumes#hostpath Possible enum values: - `""` For backwards
    compatible, leave it empty if unset - `"BlockDevice"` A block device must exist at the given path -
    `"CharDevice"` A character device must exist at the given path - `"Directory"` A directory must exist at
    the given path - `"DirectoryOrCreate"` If nothing exists at the given path, an empty directory will be
    created there as needed with file mode 0755, having the same group and ownership with Kubelet. - `"File"`
    A file must exist at the given path - `"FileOrCreate"` If nothing exists at the given path, an empty file
    will be created there as needed with file mode 0644, having the same group and ownership with Kubelet. -
    `"Socket"` A UNIX socket must exist at the given path One of "", BlockDevice, CharDevice, Directory,
    DirectoryOrCreate, File, FileOrCreate, Socket.
    """


class ISCSIVolumeSource(Struct):
    """Represents an ISCSI disk."""

    iqn: str
    """iqn is the target iSCSI Qualified Name."""
    lun: int
    """lun represents iSCSI Target Lun number."""
    target_portal: str
    """targetPortal is iSCSI Target Portal."""
    chap_auth_discovery: bool | None = None
    """chapAuthDiscovery defines whether support iSCSI Discovery CHAP authentication"""
    chap_auth_session: bool | None = None
    """chapAuthSession defines whether support iSCSI Session CHAP authentication"""
    fs_type: str | None = None
    """fsType is the filesystem type of the volume that you want to mount."""
    initiator_name: str | None = None
    """initiatorName is the custom iSCSI Initiator Name."""
    iscsi_interface: str | None = None
    """iscsiInterface is the interface Name that uses an iSCSI transport."""
    portals: tuple[str, ...] | None = None
    """portals is the iSCSI Target Portal List."""
    read_only: bool | None = None
    """readOnly here will force the ReadOnly setting in VolumeMounts."""
    secret_ref: LocalObjectReference | None = None
    """secretRef is the CHAP Secret for iSCSI target and initiator authentication"""


class ImageVolumeSource(Struct):
    """ImageVolumeSource represents a image volume resource."""

    pull_policy: str | None = None
    """Policy for pulling OCI objects. One of Always, IfNotPresent, Never."""
    reference: str | None = None
    """Required: Image or artifact reference to be used."""


class NFSVolumeSource(Struct):
    """Represents an NFS mount that lasts the lifetime of a pod."""

    path: str
    """path that is exported by the NFS server."""
    server: str
    """server is the hostname or IP address of the NFS server."""
    read_only: bool | None = None
    """readOnly here will force the NFS export to be mounted with read-only permissions."""


class PersistentVolumeClaimVolumeSource(Struct):
    """PersistentVolumeClaimVolumeSource references the user's PVC in the same namespace."""

    claim_name: str
    """claimName is the name of a PersistentVolumeClaim in the same namespace as the pod using this volume."""
    read_only: bool | None = None
    """readOnly Will force the ReadOnly setting in VolumeMounts."""


class PhotonPersistentDiskVolumeSource(Struct):
    """Represents a Photon Controller persistent disk resource."""

    pd_id: str = field(name="pdID")
    """pdID is the ID that identifies Photon Controller persistent disk"""
    fs_type: str | None = None
    """fsType is the filesystem type to mount."""


class PodCertificateProjection(Struct):
    """PodCertificateProjection provides a private key and X.509 certificate in the pod filesystem."""

    key_type: str
    """The type of keypair Kubelet will generate for the pod."""
    signer_name: str
    """Kubelet's generated CSRs will be addressed to this signer."""
    certificate_chain_path: str | None = None
    """Write the certificate chain at this path in the projected volume."""
    credential_bundle_path: str | None = None
    """Write the credential bundle at this path in the projected volume."""
    key_path: str | None = None
    """Write the key at this path in the projected volume."""
    max_expiration_seconds: int | None = None
    """maxExpirationSeconds is the maximum lifetime permitted for the certificate."""
    user: int | None = None
    """user is Optional: The owner UID of the created file."""
    user_annotations: Mapping[str, str] | None = None
    """userAnnotations allow pod authors to pass additional information to the signer implementation."""


class PodDNSConfigOption(Struct):
    """PodDNSConfigOption defines DNS resolver options of a pod."""

    name: str | None = None
    """Name is this DNS resolver option's name."""
    value: str | None = None
    """Value is this DNS resolver option's value."""


class PodDNSConfig(Struct):
    """PodDNSConfig defines the DNS parameters of a pod in addition to those generated from DNSPolicy."""

    nameservers: tuple[str, ...] | None = None
    """A list of DNS name server IP addresses."""
    options: tuple[PodDNSConfigOption, ...] | None = None
    """A list of DNS resolver options."""
    searches: tuple[str, ...] | None = None
    """A list of DNS search domains for host-name lookup."""


class PodOS(Struct):
    """PodOS defines the OS parameters of a pod."""

    name: str
    """Name is the name of the operating system."""


class PodReadinessGate(Struct):
    """PodReadinessGate contains the reference to a pod condition"""

    condition_type: str
    """ConditionType refers to a condition in the pod's condition list with matching type."""


class PodResourceClaim(Struct):
    """PodResourceClaim references exactly one ResourceClaim, either directly or by naming a
    ResourceClaimTemplate which is then turned into a ResourceClaim for the pod.
    """

    name: str
    """Name uniquely identifies this resource claim inside the pod."""
    resource_claim_name: str | None = None
    """ResourceClaimName is the name of a ResourceClaim object in the same namespace as this pod."""
    resource_claim_template_name: str | None = None
    """ResourceClaimTemplateName is the name of a ResourceClaimTemplate object in the same namespace as this
    pod.
    """


class PodSchedulingGate(Struct):
    """PodSchedulingGate is associated to a Pod to guard its scheduling."""

    name: str
    """Name of the scheduling gate."""


class PodSchedulingGroup(Struct):
    """PodSchedulingGroup identifies the runtime scheduling group instance that a Pod belongs to."""

    pod_group_name: str | None = None
    """PodGroupName specifies the name of the standalone PodGroup object that represents the runtime instance
    of this group.
    """


class Sysctl(Struct):
    """Sysctl defines a kernel parameter to be set"""

    name: str
    """Name of a property to set"""
    value: str
    """Value of a property to set"""


class PodSecurityContext(Struct):
    """PodSecurityContext holds pod-level security attributes and common container settings."""

    app_armor_profile: AppArmorProfile | None = None
    """appArmorProfile is the AppArmor options to use by the containers in this pod."""
    fs_group: int | None = None
    """A special supplemental group that applies to all containers in a pod."""
    fs_group_change_policy: str | None = None
    """fsGroupChangePolicy defines behavior of changing ownership and permission of the volume before being
    exposed inside Pod. One of Always, OnRootMismatch.
    """
    run_as_group: int | None = None
    """The GID to run the entrypoint of the container process."""
    run_as_non_root: bool | None = None
    """Indicates that the container must run as a non-root user."""
    run_as_user: int | None = None
    """The UID to run the entrypoint of the container process."""
    se_linux_change_policy: str | None = None
    """seLinuxChangePolicy defines how the container's SELinux label is applied to all volumes used by the
    Pod.
    """
    se_linux_options: SELinuxOptions | None = None
    """The SELinux context to be applied to all containers."""
    seccomp_profile: SeccompProfile | None = None
    """The seccomp options to use by the containers in this pod."""
    supplemental_groups: tuple[int, ...] | None = None
    """A list of groups applied to the first process run in each container, in addition to the container's
    primary GID and fsGroup (if specified).
    """
    supplemental_groups_policy: str | None = None
    """Defines how supplemental groups of the first container processes are calculated. One of Merge,
    Strict.
    """
    sysctls: tuple[Sysctl, ...] | None = None
    """Sysctls hold a list of namespaced sysctls used for the pod."""
    windows_options: WindowsSecurityContextOptions | None = None
    """The Windows specific settings applied to all containers."""


class TopologySpreadConstraint(Struct):
    """TopologySpreadConstraint specifies how to spread matching pods among the given topology."""

    max_skew: int
    """MaxSkew describes the degree to which pods may be unevenly distributed."""
    topology_key: str
    """TopologyKey is the key of node labels."""
    when_unsatisfiable: str
    """WhenUnsatisfiable indicates how to deal with a pod if it doesn't satisfy the spread constraint. -
    DoNotSchedule (default) tells the scheduler not to schedule it. - ScheduleAnyway tells the scheduler to
    schedule the pod in any location, but giving higher precedence to topologies that would help reduce the
    skew. One of DoNotSchedule, ScheduleAnyway.
    """
    label_selector: LabelSelector | None = None
    """LabelSelector is used to find matching pods."""
    match_label_keys: tuple[str, ...] | None = None
    """MatchLabelKeys is a set of pod label keys to select the pods over which spreading will be
    calculated.
    """
    min_domains: int | None = None
    """MinDomains indicates a minimum number of eligible domains."""
    node_affinity_policy: str | None = None
    """NodeAffinityPolicy indicates how we will treat Pod's nodeAffinity/nodeSelector when calculating pod
    topology spread skew. One of Honor, Ignore.
    """
    node_taints_policy: str | None = None
    """NodeTaintsPolicy indicates how we will treat node taints when calculating pod topology spread skew. One
    of Honor, Ignore.
    """


class PortworxVolumeSource(Struct):
    """PortworxVolumeSource represents a Portworx volume resource."""

    volume_id: str = field(name="volumeID")
    """volumeID uniquely identifies a Portworx volume"""
    fs_type: str | None = None
    """fSType represents the filesystem type to mount Must be a filesystem type supported by the host
    operating system.
    """
    read_only: bool | None = None
    """readOnly defaults to false (read/write)."""


class SecretProjection(Struct):
    """Adapts a secret into a projected volume."""

    items: tuple[KeyToPath, ...] | None = None
    """items if unspecified, each key-value pair in the Data field of the referenced Secret will be projected
    into the volume as a file whose name is the key and content is the value.
    """
    name: str | None = None
    """Name of the referent."""
    optional: bool | None = None
    """optional field specify whether the Secret or its key must be defined"""


class ServiceAccountTokenProjection(Struct):
    """ServiceAccountTokenProjection represents a projected service account token volume."""

    path: str
    """path is the path relative to the mount point of the file to project the token into."""
    audience: str | None = None
    """audience is the intended audience of the token."""
    expiration_seconds: int | None = None
    """expirationSeconds is the requested duration of validity of the service account token."""
    user: int | None = None
    """user is Optional: The owner UID of the created file."""


class VolumeProjection(Struct):
    """Projection that may be projected along with other supported volume types."""

    cluster_trust_bundle: ClusterTrustBundleProjection | None = None
    """ClusterTrustBundle allows a pod to access the `.spec.trustBundle` field of ClusterTrustBundle objects
    in an auto-updating file.
    """
    config_map: ConfigMapProjection | None = None
    """configMap information about the configMap data to project"""
    downward_api: DownwardAPIProjection | None = field(default=None, name="downwardAPI")
    """downwardAPI information about the downwardAPI data to project"""
    pod_certificate: PodCertificateProjection | None = None
    """Projects an auto-rotating credential bundle (private key and certificate chain) that the pod can use
    either as a TLS client or server.
    """
    secret: SecretProjection | None = None
    """secret information about the secret data to project"""
    service_account_token: ServiceAccountTokenProjection | None = None
    """serviceAccountToken is information about the serviceAccountToken data to project"""


class ProjectedVolumeSource(Struct):
    """Represents a projected volume source"""

    default_mode: int | None = None
    """defaultMode are the mode bits used to set permissions on created files by default."""
    default_user: int | None = None
    """defaultUser is Optional: The owner UID of the created files by default."""
    sources: tuple[VolumeProjection, ...] | None = None
    """sources is the list of volume projections."""


class QuobyteVolumeSource(Struct):
    """Represents a Quobyte mount that lasts the lifetime of a pod."""

    registry: str
    """registry represents a single or multiple Quobyte Registry services specified as a string as host:port
    pair (multiple entries are separated with commas) which acts as the central registry for volumes
    """
    volume: str
    """volume is a string that references an already created Quobyte volume by name."""
    group: str | None = None
    """group to map volume access to Default is no group"""
    read_only: bool | None = None
    """readOnly here will force the Quobyte volume to be mounted with read-only permissions."""
    tenant: str | None = None
    """tenant owning the given Quobyte volume in the Backend Used with dynamically provisioned Quobyte
    volumes, value is set by the plugin
    """
    user: str | None = None
    """user to map volume access to Defaults to serivceaccount user"""


class RBDVolumeSource(Struct):
    """Represents a Rados Block Device mount that lasts the lifetime of a pod."""

    image: str
    """image is the rados image name."""
    monitors: tuple[str, ...]
    """monitors is a collection of Ceph monitors."""
    fs_type: str | None = None
    """fsType is the filesystem type of the volume that you want to mount."""
    keyring: str | None = None
    """keyring is the path to key ring for RBDUser."""
    pool: str | None = None
    """pool is the rados pool name."""
    read_only: bool | None = None
    """readOnly here will force the ReadOnly setting in VolumeMounts."""
    secret_ref: LocalObjectReference | None = None
    """secretRef is name of the authentication secret for RBDUser."""
    user: str | None = None
    """user is the rados user name."""


class ScaleIOVolumeSource(Struct):
    """ScaleIOVolumeSource represents a persistent ScaleIO volume"""

    gateway: str
    """gateway is the host address of the ScaleIO API Gateway."""
    secret_ref: LocalObjectReference
    """secretRef references to the secret for ScaleIO user and other sensitive information."""
    system: str
    """system is the name of the storage system as configured in ScaleIO."""
    fs_type: str | None = None
    """fsType is the filesystem type to mount."""
    protection_domain: str | None = None
    """protectionDomain is the name of the ScaleIO Protection Domain for the configured storage."""
    read_only: bool | None = None
    """readOnly Defaults to false (read/write)."""
    ssl_enabled: bool | None = None
    """sslEnabled Flag enable/disable SSL communication with Gateway, default false"""
    storage_mode: str | None = None
    """storageMode indicates whether the storage for a volume should be ThickProvisioned or
    ThinProvisioned.
    """
    storage_pool: str | None = None
    """storagePool is the ScaleIO Storage Pool associated with the protection domain."""
    volume_name: str | None = None
    """volumeName is the name of a volume already created in the ScaleIO system that is associated with this
    volume source.
    """


class SecretVolumeSource(Struct):
    """Adapts a Secret into a volume."""

    default_mode: int | None = None
    """defaultMode is Optional: mode bits used to set permissions on created files by default."""
    default_user: int | None = None
    """defaultUser is Optional: The owner UID of the created files by default."""
    items: tuple[KeyToPath, ...] | None = None
    """items If unspecified, each key-value pair in the Data field of the referenced Secret will be projected
    into the volume as a file whose name is the key and content is the value.
    """
    optional: bool | None = None
    """optional field specify whether the Secret or its keys must be defined"""
    secret_name: str | None = None
    """secretName is the name of the secret in the pod's namespace to use."""


class StorageOSVolumeSource(Struct):
    """Represents a StorageOS persistent volume resource."""

    fs_type: str | None = None
    """fsType is the filesystem type to mount."""
    read_only: bool | None = None
    """readOnly defaults to false (read/write)."""
    secret_ref: LocalObjectReference | None = None
    """secretRef specifies the secret to use for obtaining the StorageOS API credentials."""
    volume_name: str | None = None
    """volumeName is the human-readable name of the StorageOS volume."""
    volume_namespace: str | None = None
    """volumeNamespace specifies the scope of the volume within StorageOS."""


class VsphereVirtualDiskVolumeSource(Struct):
    """Represents a vSphere volume resource."""

    volume_path: str
    """volumePath is the path that identifies vSphere volume vmdk"""
    fs_type: str | None = None
    """fsType is filesystem type to mount."""
    storage_policy_id: str | None = field(default=None, name="storagePolicyID")
    """storagePolicyID is the storage Policy Based Management (SPBM) profile ID associated with the
    StoragePolicyName.
    """
    storage_policy_name: str | None = None
    """storagePolicyName is the storage Policy Based Management (SPBM) profile name."""


class Volume(Struct):
    """Volume represents a named volume in a pod that may be accessed by any container in the pod."""

    name: str
    """name of the volume."""
    aws_elastic_block_store: AWSElasticBlockStoreVolumeSource | None = None
    """awsElasticBlockStore represents an AWS Disk resource that is attached to a kubelet's host machine and
    then exposed to the pod.
    """
    azure_disk: AzureDiskVolumeSource | None = None
    """azureDisk represents an Azure Data Disk mount on the host and bind mount to the pod."""
    azure_file: AzureFileVolumeSource | None = None
    """azureFile represents an Azure File Service mount on the host and bind mount to the pod."""
    cephfs: CephFSVolumeSource | None = None
    """cephFS represents a Ceph FS mount on the host that shares a pod's lifetime."""
    cinder: CinderVolumeSource | None = None
    """cinder represents a cinder volume attached and mounted on kubelets host machine."""
    config_map: ConfigMapVolumeSource | None = None
    """configMap represents a configMap that should populate this volume"""
    csi: CSIVolumeSource | None = None
    """csi (Container Storage Interface) represents ephemeral storage that is handled by certain external CSI
    drivers.
    """
    downward_api: DownwardAPIVolumeSource | None = field(default=None, name="downwardAPI")
    """downwardAPI represents downward API about the pod that should populate this volume"""
    empty_dir: EmptyDirVolumeSource | None = None
    """emptyDir represents a temporary directory that shares a pod's lifetime."""
    ephemeral: EphemeralVolumeSource | None = None
    """ephemeral represents a volume that is handled by a cluster storage driver."""
    fc: FCVolumeSource | None = None
    """fc represents a Fibre Channel resource that is attached to a kubelet's host machine and then exposed to
    the pod.
    """
    flex_volume: FlexVolumeSource | None = None
    """flexVolume represents a generic volume resource that is provisioned/attached using an exec based
    plugin.
    """
    flocker: FlockerVolumeSource | None = None
    """flocker represents a Flocker volume attached to a kubelet's host machine."""
    gce_persistent_disk: GCEPersistentDiskVolumeSource | None = None
    """gcePersistentDisk represents a GCE Disk resource that is attached to a kubelet's host machine and then
    exposed to the pod.
    """
    git_repo: GitRepoVolumeSource | None = None
    """gitRepo represents a git repository at a particular revision."""
    glusterfs: GlusterfsVolumeSource | None = None
    """glusterfs represents a Glusterfs mount on the host that shares a pod's lifetime."""
    host_path: HostPathVolumeSource | None = None
    """hostPath represents a pre-existing file or directory on the host machine that is directly exposed to
    the container.
    """
    image: ImageVolumeSource | None = None
    """image represents an OCI object (a container image or artifact) pulled and mounted on the kubelet's host
    machine.
    """
    iscsi: ISCSIVolumeSource | None = None
    """iscsi represents an ISCSI Disk resource that is attached to a kubelet's host machine and then exposed
    to the pod.
    """
    nfs: NFSVolumeSource | None = None
    """nfs represents an NFS mount on the host that shares a pod's lifetime More info:
    https://kubernetes.io/docs/concepts/storage/volumes#nfs
    """
    persistent_volume_claim: PersistentVolumeClaimVolumeSource | None = None
    """persistentVolumeClaimVolumeSource represents a reference to a PersistentVolumeClaim in the same
    namespace.
    """
    photon_persistent_disk: PhotonPersistentDiskVolumeSource | None = None
    """photonPersistentDisk represents a PhotonController persistent disk attached and mounted on kubelets
    host machine.
    """
    portworx_volume: PortworxVolumeSource | None = None
    """portworxVolume represents a portworx volume attached and mounted on kubelets host machine."""
    projected: ProjectedVolumeSource | None = None
    """projected items for all in one resources secrets, configmaps, and downward API"""
    quobyte: QuobyteVolumeSource | None = None
    """quobyte represents a Quobyte mount on the host that shares a pod's lifetime."""
    rbd: RBDVolumeSource | None = None
    """rbd represents a Rados Block Device mount on the host that shares a pod's lifetime."""
    scale_io: ScaleIOVolumeSource | None = field(default=None, name="scaleIO")
    """scaleIO represents a ScaleIO persistent volume attached and mounted on Kubernetes nodes."""
    secret: SecretVolumeSource | None = None
    """secret represents a secret that should populate this volume."""
    storageos: StorageOSVolumeSource | None = None
    """storageOS represents a StorageOS volume attached and mounted on Kubernetes nodes."""
    vsphere_volume: VsphereVirtualDiskVolumeSource | None = None
    """vsphereVolume represents a vSphere volume attached and mounted on kubelets host machine."""


class PodSpec(Struct):
    """PodSpec is a description of a pod."""

    containers: tuple[Container, ...]
    """List of containers belonging to the pod."""
    active_deadline_seconds: int | None = None
    """Optional duration in seconds the pod may be active on the node relative to StartTime before the system
    will actively try to mark it failed and kill associated containers.
    """
    affinity: Affinity | None = None
    """If specified, the pod's scheduling constraints"""
    automount_service_account_token: bool | None = None
    """AutomountServiceAccountToken indicates whether a service account token should be automatically
    mounted.
    """
    dns_config: PodDNSConfig | None = None
    """Specifies the DNS parameters of a pod."""
    dns_policy: str | None = None
    """Set DNS policy for the pod. One of ClusterFirst, ClusterFirstWithHostNet, Default, None."""
    enable_service_links: bool | None = None
    """EnableServiceLinks indicates whether information about services should be injected into pod's
    environment variables, matching the syntax of Docker links.
    """
    ephemeral_containers: tuple[EphemeralContainer, ...] | None = None
    """List of ephemeral containers run in this pod."""
    eviction_responders: tuple[EvictionResponder, ...] | None = None
    """evictionResponders reference responders that react to Evictions based on EvictionRequests."""
    host_aliases: tuple[HostAlias, ...] | None = None
    """HostAliases is an optional list of hosts and IPs that will be injected into the pod's hosts file if
    specified.
    """
    host_ipc: bool | None = field(default=None, name="hostIPC")
    """Use the host's ipc namespace."""
    host_network: bool | None = None
    """Host networking requested for this pod."""
    host_pid: bool | None = field(default=None, name="hostPID")
    """Use the host's pid namespace."""
    host_users: bool | None = None
    """Use the host's user namespace."""
    hostname: str | None = None
    """Specifies the hostname of the Pod If not specified, the pod's hostname will be set to a system-defined
    value.
    """
    hostname_override: str | None = None
    """HostnameOverride specifies an explicit override for the pod's hostname as perceived by the pod."""
    image_pull_secrets: tuple[LocalObjectReference, ...] | None = None
    """ImagePullSecrets is an optional list of references to secrets in the same namespace to use for pulling
    any of the images used by this PodSpec.
    """
    init_containers: tuple[Container, ...] | None = None
    """List of initialization containers belonging to the pod."""
    node_name: str | None = None
    """NodeName indicates in which node this pod is scheduled."""
    node_selector: Mapping[str, str] | None = None
    """NodeSelector is a selector which must be true for the pod to fit on a node."""
    os: PodOS | None = None
    """Specifies the OS of the containers in the pod."""
    overhead: Mapping[str, str] | None = None
    """Overhead represents the resource overhead associated with running a pod for a given RuntimeClass."""
    preemption_policy: str | None = None
    """PreemptionPolicy is the Policy for preempting pods with lower priority. One of Never,
    PreemptLowerPriority.
    """
    priority: int | None = None
    """The priority value."""
    priority_class_name: str | None = None
    """If specified, indicates the pod's priority. "system-node-critical" and "system-cluster-critical" are
    two special keywords which indicate the highest priorities with the former being the highest priority.
    """
    readiness_gates: tuple[PodReadinessGate, ...] | None = None
    """If specified, all readiness gates will be evaluated for pod readiness."""
    resource_claims: tuple[PodResourceClaim, ...] | None = None
    """ResourceClaims defines which ResourceClaims must be allocated and reserved before the Pod is allowed to
    start.
    """
    resources: ResourceRequirements | None = None
    """Resources is the total amount of CPU and Memory resources required by all containers in the pod."""
    restart_policy: str | None = None
    """Restart policy for all containers within the pod. One of Always, Never, OnFailure."""
    runtime_class_name: str | None = None
    """RuntimeClassName refers to a RuntimeClass object in the node.k8s.io group, which should be used to run
    this pod.
    """
    scheduler_name: str | None = None
    """If specified, the pod will be dispatched by specified scheduler."""
    scheduling_gates: tuple[PodSchedulingGate, ...] | None = None
    """SchedulingGates is an opaque list of values that if specified will block scheduling the pod."""
    scheduling_group: PodSchedulingGroup | None = None
    """SchedulingGroup provides a reference to the immediate scheduling runtime grouping object that this Pod
    belongs to.
    """
    security_context: PodSecurityContext | None = None
    """SecurityContext holds pod-level security attributes and common container settings."""
    service_account: str | None = None
    """DeprecatedServiceAccount is a deprecated alias for ServiceAccountName."""
    service_account_name: str | None = None
    """ServiceAccountName is the name of the ServiceAccount to use to run this pod."""
    set_hostname_as_fqdn: bool | None = field(default=None, name="setHostnameAsFQDN")
    """If true the pod's hostname will be configured as the pod's FQDN, rather than the leaf name (the
    default).
    """
    share_process_namespace: bool | None = None
    """Share a single process namespace between all of the containers in a pod."""
    subdomain: str | None = None
    """If specified, the fully qualified Pod hostname will be "<hostname>.<subdomain>.<pod
    namespace>.svc.<cluster domain>".
    """
    termination_grace_period_seconds: int | None = None
    """Optional duration in seconds the pod needs to terminate gracefully."""
    tolerations: tuple[Toleration, ...] | None = None
    """If specified, the pod's tolerations."""
    topology_spread_constraints: tuple[TopologySpreadConstraint, ...] | None = None
    """TopologySpreadConstraints describes how a group of pods ought to spread across topology domains."""
    volumes: tuple[Volume, ...] | None = None
    """List of volumes that can be mounted by containers belonging to the pod."""


class PodTemplateSpec(Struct):
    """PodTemplateSpec describes the data a pod should have when created from a template"""

    metadata: ObjectMeta | None = None
    """Standard object's metadata."""
    spec: PodSpec | None = None
    """Specification of the desired behavior of the pod."""
