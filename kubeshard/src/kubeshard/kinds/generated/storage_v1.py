"""Classes of storage.k8s.io/v1 in Kubernetes 1.37, written by `make types`. The descriptions are those of the
Kubernetes authors (Apache License 2.0).
"""

from __future__ import annotations

from collections.abc import Mapping

from kubeshard.core.objects import KubeObject, Struct, field
from kubeshard.core.selectors import LabelSelector
from kubeshard.kinds.generated.core_v1 import TopologySelectorTerm
from kubeshard.kinds.generated.core_v1_volumes import PersistentVolumeSpec


class TokenRequest(Struct):
    """TokenRequest contains parameters of a service account token."""

    audience: str
    """audience is the intended audience of the token in "TokenRequestSpec"."""
    expiration_seconds: int | None = None
    """expirationSeconds is the duration of validity of the token in "TokenRequestSpec"."""


class CSIDriverSpec(Struct):
    """CSIDriverSpec is the specification of a CSIDriver."""

    attach_required: bool | None = None
    """attachRequired indicates this CSI volume driver requires an attach operation (because it implements the
    CSI ControllerPublishVolume() method), and that the Kubernetes attach detach controller should call the
    attach volume interface which checks the volumeattachment status and waits until the volume is attached
    before proceeding to mounting.
    """
    fs_group_policy: str | None = None
    """fsGroupPolicy defines if the underlying volume supports changing ownership and permission of the volume
    before being mounted.
    """
    node_allocatable_update_period_seconds: int | None = None
    """nodeAllocatableUpdatePeriodSeconds specifies the interval between periodic updates of the CSINode
    allocatable capacity for this driver.
    """
    pod_info_on_mount: bool | None = None
    """podInfoOnMount indicates this CSI volume driver requires additional pod information (like podName,
    podUID, etc.) during mount operations, if set to true.
    """
    prevent_pod_scheduling_if_missing: bool | None = None
    """preventPodSchedulingIfMissing indicates that the CSI driver wants to prevent pod scheduling if the CSI
    driver on the node is missing.
    """
    requires_republish: bool | None = None
    """requiresRepublish indicates the CSI driver wants `NodePublishVolume` being periodically called to
    reflect any possible change in the mounted volume.
    """
    se_linux_mount: bool | None = None
    """seLinuxMount specifies if the CSI driver supports "-o context" mount option."""
    service_account_token_in_secrets: bool | None = None
    """serviceAccountTokenInSecrets is an opt-in for CSI drivers to indicate that service account tokens
    should be passed via the Secrets field in NodePublishVolumeRequest instead of the VolumeContext field.
    """
    storage_capacity: bool | None = None
    """storageCapacity indicates that the CSI volume driver wants pod scheduling to consider the storage
    capacity that the driver deployment will report by creating CSIStorageCapacity objects with capacity
    information, if set to true.
    """
    token_requests: tuple[TokenRequest, ...] | None = None
    """tokenRequests indicates the CSI driver needs pods' service account tokens it is mounting volume for to
    do necessary authentication.
    """
    volume_lifecycle_modes: tuple[str, ...] | None = None
    """volumeLifecycleModes defines what kind of volumes this CSI volume driver supports."""


class CSIDriver(KubeObject, group="storage.k8s.io", version="v1", namespaced=False):
    """CSIDriver captures information about a Container Storage Interface (CSI) volume driver deployed on the
    cluster.
    """

    spec: CSIDriverSpec
    """spec represents the specification of the CSI Driver."""


class VolumeNodeResources(Struct):
    """VolumeNodeResources is a set of resource limits for scheduling of volumes."""

    count: int | None = None
    """count indicates the maximum number of unique volumes managed by the CSI driver that can be used on a
    node.
    """


class CSINodeDriver(Struct):
    """CSINodeDriver holds information about the specification of one CSI driver installed on a node"""

    name: str
    """name represents the name of the CSI driver that this object refers to."""
    node_id: str = field(name="nodeID")
    """nodeID of the node from the driver point of view."""
    allocatable: VolumeNodeResources | None = None
    """allocatable represents the volume resources of a node that are available for scheduling."""
    topology_keys: tuple[str, ...] | None = None
    """topologyKeys is the list of keys supported by the driver."""


class CSINodeSpec(Struct):
    """CSINodeSpec holds information about the specification of all CSI drivers installed on a node"""

    drivers: tuple[CSINodeDriver, ...]
    """drivers is a list of information of all CSI Drivers existing on a node."""


class StorageHealthCondition(Struct):
    """StorageHealthCondition represents an adverse health condition reported by a CSI driver for its storage
    backend on a node.
    """

    reason: str
    """reason is a brief CamelCase machine-parseable reason."""
    status: str
    """status is the health status category. One of StorageDegraded, StorageUnreachable."""
    access_mode: str | None = None
    """accessMode is the access mode affected. One of ReadOnlyMany, ReadWriteMany, ReadWriteOnce,
    ReadWriteOncePod.
    """
    last_transition_time: str | None = None
    """lastTransitionTime is when this condition first appeared at its current state."""
    message: str | None = None
    """message is a human-readable description."""
    volume_mode: str | None = None
    """volumeMode is the volume mode affected. One of Block, Filesystem."""


class StorageHealth(Struct):
    """StorageHealth contains storage backend health reported by a CSI driver on a node."""

    name: str
    """name is the CSI driver name, matching CSINodeDriver.name."""
    health_conditions: tuple[StorageHealthCondition, ...] | None = None
    """healthConditions are the adverse storage backend conditions reported by the CSI driver."""


class CSINodeStatus(Struct):
    """CSINodeStatus contains health and status information for storage on a node."""

    storage_health: tuple[StorageHealth, ...] | None = None
    """storageHealth contains backend health reports for CSI drivers registered on the node."""


class CSINode(KubeObject, group="storage.k8s.io", version="v1", namespaced=False):
    """CSINode holds information about all CSI drivers installed on a node."""

    spec: CSINodeSpec
    """spec is the specification of CSINode"""
    status: CSINodeStatus = field(default_factory=CSINodeStatus)
    """status contains health and status information for the node's storage."""


class CSIStorageCapacity(KubeObject, group="storage.k8s.io", version="v1"):
    """CSIStorageCapacity stores the result of one CSI GetCapacity call."""

    storage_class_name: str
    """storageClassName represents the name of the StorageClass that the reported capacity applies to."""
    capacity: str | None = None
    """capacity is the value reported by the CSI driver in its GetCapacityResponse for a GetCapacityRequest
    with topology and parameters that match the previous fields.
    """
    maximum_volume_size: str | None = None
    """maximumVolumeSize is the value reported by the CSI driver in its GetCapacityResponse for a
    GetCapacityRequest with topology and parameters that match the previous fields.
    """
    node_topology: LabelSelector | None = None
    """nodeTopology defines which nodes have access to the storage for which capacity was reported."""


class StorageClass(KubeObject, group="storage.k8s.io", version="v1", namespaced=False):
    """StorageClass describes the parameters for a class of storage for which PersistentVolumes can be
    dynamically provisioned.
    """

    provisioner: str
    """provisioner indicates the type of the provisioner."""
    allow_volume_expansion: bool | None = None
    """allowVolumeExpansion shows whether the storage class allow volume expand."""
    allowed_topologies: tuple[TopologySelectorTerm, ...] | None = None
    """allowedTopologies restrict the node topologies where volumes can be dynamically provisioned."""
    mount_options: tuple[str, ...] | None = None
    """mountOptions controls the mountOptions for dynamically provisioned PersistentVolumes of this storage
    class. e.g. ["ro", "soft"].
    """
    parameters: Mapping[str, str] | None = None
    """parameters holds the parameters for the provisioner that should create volumes of this storage
    class.
    """
    reclaim_policy: str | None = None
    """reclaimPolicy controls the reclaimPolicy for dynamically provisioned PersistentVolumes of this storage
    class. One of Delete, Recycle, Retain.
    """
    volume_binding_mode: str | None = None
    """volumeBindingMode indicates how PersistentVolumeClaims should be provisioned and bound. One of
    Immediate, WaitForFirstConsumer.
    """


class VolumeAttachmentSource(Struct):
    """VolumeAttachmentSource represents a volume that should be attached."""

    inline_volume_spec: PersistentVolumeSpec | None = None
    """inlineVolumeSpec contains all the information necessary to attach a persistent volume defined by a
    pod's inline VolumeSource.
    """
    persistent_volume_name: str | None = None
    """persistentVolumeName represents the name of the persistent volume to attach."""


class VolumeAttachmentSpec(Struct):
    """VolumeAttachmentSpec is the specification of a VolumeAttachment request."""

    attacher: str
    """attacher indicates the name of the volume driver that MUST handle this request."""
    node_name: str
    """nodeName represents the node that the volume should be attached to."""
    source: VolumeAttachmentSource
    """source represents the volume that should be attached."""


class VolumeError(Struct):
    """VolumeError captures an error encountered during a volume operation."""

    error_code: int | None = None
    """errorCode is a numeric gRPC code representing the error encountered during Attach or Detach
    operations.
    """
    message: str | None = None
    """message represents the error encountered during Attach or Detach operation."""
    time: str | None = None
    """time represents the time the error was encountered."""


class VolumeAttachmentStatus(Struct):
    """VolumeAttachmentStatus is the status of a VolumeAttachment request."""

    attach_error: VolumeError | None = None
    """attachError represents the last error encountered during attach operation, if any."""
    attached: bool = False
    """attached indicates the volume is successfully attached."""
    attachment_metadata: Mapping[str, str] | None = None
    """attachmentMetadata is populated with any information returned by the attach operation, upon successful
    attach, that must be passed into subsequent WaitForAttach or Mount calls.
    """
    detach_error: VolumeError | None = None
    """detachError represents the last error encountered during detach operation, if any."""


class VolumeAttachment(KubeObject, group="storage.k8s.io", version="v1", namespaced=False):
    """VolumeAttachment captures the intent to attach or detach the specified volume to/from the specified
    node.
    """

    spec: VolumeAttachmentSpec
    """spec represents specification of the desired attach/detach volume behavior."""
    status: VolumeAttachmentStatus = field(default_factory=VolumeAttachmentStatus)
    """status represents status of the VolumeAttachment request."""


class VolumeAttributesClass(KubeObject, group="storage.k8s.io", version="v1", namespaced=False):
    """VolumeAttributesClass represents a specification of mutable volume attributes defined by the CSI
    driver.
    """

    driver_name: str
    """driverName is the name of the CSI driver This field is immutable."""
    parameters: Mapping[str, str] | None = None
    """parameters hold volume attributes defined by the CSI driver."""
