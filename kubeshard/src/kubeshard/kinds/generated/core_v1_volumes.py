"""Classes of v1 in Kubernetes 1.37, written by `make types`. The descriptions are those of the Kubernetes
authors (Apache License 2.0).
"""

from __future__ import annotations

from collections.abc import Mapping

from kubeshard.core.objects import KubeObject, Struct, field
from kubeshard.kinds.generated.core_v1_pod_templates import (
    AWSElasticBlockStoreVolumeSource,
    AzureDiskVolumeSource,
    FCVolumeSource,
    FlockerVolumeSource,
    GCEPersistentDiskVolumeSource,
    HostPathVolumeSource,
    NFSVolumeSource,
    PhotonPersistentDiskVolumeSource,
    PortworxVolumeSource,
    QuobyteVolumeSource,
    VsphereVirtualDiskVolumeSource,
)
from kubeshard.kinds.generated.core_v1_references import NodeSelector, ObjectReference


class AzureFilePersistentVolumeSource(Struct):
    """AzureFile represents an Azure File Service mount on the host and bind mount to the pod."""

    secret_name: str
    """secretName is the name of secret that contains Azure Storage Account Name and Key"""
    share_name: str
    """shareName is the azure Share Name"""
    read_only: bool | None = None
    """readOnly defaults to false (read/write)."""
    secret_namespace: str | None = None
    """secretNamespace is the namespace of the secret that contains Azure Storage Account Name and Key default
    is the same as the Pod
    """


class SecretReference(Struct):
    """SecretReference represents a Secret Reference."""

    name: str | None = None
    """name is unique within a namespace to reference a secret resource."""
    namespace: str | None = None
    """namespace defines the space within which the secret name must be unique."""


class CephFSPersistentVolumeSource(Struct):
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
    secret_ref: SecretReference | None = None
    """secretRef is Optional: SecretRef is reference to the authentication secret for User, default is
    empty.
    """
    user: str | None = None
    """user is Optional: User is the rados user name, default is admin More info:
    https://examples.k8s.io/volumes/cephfs/README.md#how-to-use-it
    """


class CinderPersistentVolumeSource(Struct):
    """Represents a cinder volume resource in Openstack."""

    volume_id: str = field(name="volumeID")
    """volumeID used to identify the volume in cinder."""
    fs_type: str | None = None
    """fsType Filesystem type to mount."""
    read_only: bool | None = None
    """readOnly is Optional: Defaults to false (read/write)."""
    secret_ref: SecretReference | None = None
    """secretRef is Optional: points to a secret object containing parameters used to connect to OpenStack."""


class CSIPersistentVolumeSource(Struct):
    """Represents storage that is managed by an external CSI volume driver"""

    driver: str
    """driver is the name of the driver to use for this volume."""
    volume_handle: str
    """volumeHandle is the unique volume name returned by the CSI volume plugin’s CreateVolume to refer to the
    volume on all subsequent calls.
    """
    controller_expand_secret_ref: SecretReference | None = None
    """controllerExpandSecretRef is a reference to the secret object containing sensitive information to pass
    to the CSI driver to complete the CSI ControllerExpandVolume call.
    """
    controller_publish_secret_ref: SecretReference | None = None
    """controllerPublishSecretRef is a reference to the secret object containing sensitive information to pass
    to the CSI driver to complete the CSI ControllerPublishVolume and ControllerUnpublishVolume calls.
    """
    fs_type: str | None = None
    """fsType to mount."""
    node_expand_secret_ref: SecretReference | None = None
    """nodeExpandSecretRef is a reference to the secret object containing sensitive information to pass to the
    CSI driver to complete the CSI NodeExpandVolume call.
    """
    node_publish_secret_ref: SecretReference | None = None
    """nodePublishSecretRef is a reference to the secret object containing sensitive information to pass to
    the CSI driver to complete the CSI NodePublishVolume and NodeUnpublishVolume calls.
    """
    node_stage_secret_ref: SecretReference | None = None
    """nodeStageSecretRef is a reference to the secret object containing sensitive information to pass to the
    CSI driver to complete the CSI NodeStageVolume and NodeStageVolume and NodeUnstageVolume calls.
    """
    read_only: bool | None = None
    """readOnly value to pass to ControllerPublishVolumeRequest."""
    volume_attributes: Mapping[str, str] | None = None
    """volumeAttributes of the volume to publish."""


class FlexPersistentVolumeSource(Struct):
    """FlexPersistentVolumeSource represents a generic persistent volume resource that is provisioned/attached
    using an exec based plugin.
    """

    driver: str
    """driver is the name of the driver to use for this volume."""
    fs_type: str | None = None
    """fsType is the Filesystem type to mount."""
    options: Mapping[str, str] | None = None
    """options is Optional: this field holds extra command options if any."""
    read_only: bool | None = None
    """readOnly is Optional: defaults to false (read/write)."""
    secret_ref: SecretReference | None = None
    """secretRef is Optional: SecretRef is reference to the secret object containing sensitive information to
    pass to the plugin scripts.
    """


class GlusterfsPersistentVolumeSource(Struct):
    """Represents a Glusterfs mount that lasts the lifetime of a pod."""

    endpoints: str
    """endpoints is the endpoint name that details Glusterfs topology."""
    path: str
    """path is the Glusterfs volume path."""
    endpoints_namespace: str | None = None
    """endpointsNamespace is the namespace that contains Glusterfs endpoint."""
    read_only: bool | None = None
    """readOnly here will force the Glusterfs volume to be mounted with read-only permissions."""


class ISCSIPersistentVolumeSource(Struct):
    """ISCSIPersistentVolumeSource represents an ISCSI disk."""

    iqn: str
    """iqn is Target iSCSI Qualified Name."""
    lun: int
    """lun is iSCSI Target Lun number."""
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
    secret_ref: SecretReference | None = None
    """secretRef is the CHAP Secret for iSCSI target and initiator authentication"""


class LocalVolumeSource(Struct):
    """Local represents directly-attached storage with node affinity"""

    path: str
    """path of the full path to the volume on the node."""
    fs_type: str | None = None
    """fsType is the filesystem type to mount."""


class VolumeNodeAffinity(Struct):
    """VolumeNodeAffinity defines constraints that limit what nodes this volume can be accessed from."""

    required: NodeSelector | None = None
    """required specifies hard node constraints that must be met."""


class RBDPersistentVolumeSource(Struct):
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
    secret_ref: SecretReference | None = None
    """secretRef is name of the authentication secret for RBDUser."""
    user: str | None = None
    """user is the rados user name."""


class ScaleIOPersistentVolumeSource(Struct):
    """ScaleIOPersistentVolumeSource represents a persistent ScaleIO volume"""

    gateway: str
    """gateway is the host address of the ScaleIO API Gateway."""
    secret_ref: SecretReference
    """secretRef references to the secret for ScaleIO user and other sensitive information."""
    system: str
    """system is the name of the storage system as configured in ScaleIO."""
    fs_type: str | None = None
    """fsType is the filesystem type to mount."""
    protection_domain: str | None = None
    """protectionDomain is the name of the ScaleIO Protection Domain for the configured storage."""
    read_only: bool | None = None
    """readOnly defaults to false (read/write)."""
    ssl_enabled: bool | None = None
    """sslEnabled is the flag to enable/disable SSL communication with Gateway, default false"""
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


class StorageOSPersistentVolumeSource(Struct):
    """Represents a StorageOS persistent volume resource."""

    fs_type: str | None = None
    """fsType is the filesystem type to mount."""
    read_only: bool | None = None
    """readOnly defaults to false (read/write)."""
    secret_ref: ObjectReference | None = None
    """secretRef specifies the secret to use for obtaining the StorageOS API credentials."""
    volume_name: str | None = None
    """volumeName is the human-readable name of the StorageOS volume."""
    volume_namespace: str | None = None
    """volumeNamespace specifies the scope of the volume within StorageOS."""


class PersistentVolumeSpec(Struct):
    """PersistentVolumeSpec is the specification of a persistent volume."""

    access_modes: tuple[str, ...] | None = None
    """accessModes contains all ways the volume can be mounted."""
    aws_elastic_block_store: AWSElasticBlockStoreVolumeSource | None = None
    """awsElasticBlockStore represents an AWS Disk resource that is attached to a kubelet's host machine and
    then exposed to the pod.
    """
    azure_disk: AzureDiskVolumeSource | None = None
    """azureDisk represents an Azure Data Disk mount on the host and bind mount to the pod."""
    azure_file: AzureFilePersistentVolumeSource | None = None
    """azureFile represents an Azure File Service mount on the host and bind mount to the pod."""
    capacity: Mapping[str, str] | None = None
    """capacity is the description of the persistent volume's resources and capacity."""
    cephfs: CephFSPersistentVolumeSource | None = None
    """cephFS represents a Ceph FS mount on the host that shares a pod's lifetime."""
    cinder: CinderPersistentVolumeSource | None = None
    """cinder represents a cinder volume attached and mounted on kubelets host machine."""
    claim_ref: ObjectReference | None = None
    """claimRef is part of a bi-directional binding between PersistentVolume and PersistentVolumeClaim."""
    csi: CSIPersistentVolumeSource | None = None
    """csi represents storage that is handled by an external CSI driver."""
    fc: FCVolumeSource | None = None
    """fc represents a Fibre Channel resource that is attached to a kubelet's host machine and then exposed to
    the pod.
    """
    flex_volume: FlexPersistentVolumeSource | None = None
    """flexVolume represents a generic volume resource that is provisioned/attached using an exec based
    plugin.
    """
    flocker: FlockerVolumeSource | None = None
    """flocker represents a Flocker volume attached to a kubelet's host machine and exposed to the pod for its
    usage.
    """
    gce_persistent_disk: GCEPersistentDiskVolumeSource | None = None
    """gcePersistentDisk represents a GCE Disk resource that is attached to a kubelet's host machine and then
    exposed to the pod.
    """
    glusterfs: GlusterfsPersistentVolumeSource | None = None
    """glusterfs represents a Glusterfs volume that is attached to a host and exposed to the pod."""
    host_path: HostPathVolumeSource | None = None
    """hostPath represents a directory on the host."""
    iscsi: ISCSIPersistentVolumeSource | None = None
    """iscsi represents an ISCSI Disk resource that is attached to a kubelet's host machine and then exposed
    to the pod.
    """
    local: LocalVolumeSource | None = None
    """local represents directly-attached storage with node affinity"""
    mount_options: tuple[str, ...] | None = None
    """mountOptions is the list of mount options, e.g. ["ro", "soft"]."""
    nfs: NFSVolumeSource | None = None
    """nfs represents an NFS mount on the host."""
    node_affinity: VolumeNodeAffinity | None = None
    """nodeAffinity defines constraints that limit what nodes this volume can be accessed from."""
    persistent_volume_reclaim_policy: str | None = None
    """persistentVolumeReclaimPolicy defines what happens to a persistent volume when released from its claim.
    One of Delete, Recycle, Retain.
    """
    photon_persistent_disk: PhotonPersistentDiskVolumeSource | None = None
    """photonPersistentDisk represents a PhotonController persistent disk attached and mounted on kubelets
    host machine.
    """
    portworx_volume: PortworxVolumeSource | None = None
    """portworxVolume represents a portworx volume attached and mounted on kubelets host machine."""
    quobyte: QuobyteVolumeSource | None = None
    """quobyte represents a Quobyte mount on the host that shares a pod's lifetime."""
    rbd: RBDPersistentVolumeSource | None = None
    """rbd represents a Rados Block Device mount on the host that shares a pod's lifetime."""
    scale_io: ScaleIOPersistentVolumeSource | None = field(default=None, name="scaleIO")
    """scaleIO represents a ScaleIO persistent volume attached and mounted on Kubernetes nodes."""
    storage_class_name: str | None = None
    """storageClassName is the name of StorageClass to which this persistent volume belongs."""
    storageos: StorageOSPersistentVolumeSource | None = None
    """storageOS represents a StorageOS volume that is attached to the kubelet's host machine and mounted into
    the pod.
    """
    volume_attributes_class_name: str | None = None
    """Name of VolumeAttributesClass to which this persistent volume belongs."""
    volume_mode: str | None = None
    """volumeMode defines if a volume is intended to be used with a formatted filesystem or to remain in raw
    block state. One of Block, Filesystem.
    """
    vsphere_volume: VsphereVirtualDiskVolumeSource | None = None
    """vsphereVolume represents a vSphere volume attached and mounted on kubelets host machine."""


class PersistentVolumeStatus(Struct):
    """PersistentVolumeStatus is the current status of a persistent volume."""

    last_phase_transition_time: str | None = None
    """lastPhaseTransitionTime is the time the phase transitioned from one to another and automatically resets
    to current time everytime a volume phase transitions.
    """
    message: str | None = None
    """message is a human-readable message indicating details about why the volume is in this state."""
    phase: str | None = None
    """phase indicates if a volume is available, bound to a claim, or released by a claim. One of Available,
    Bound, Failed, Pending, Released.
    """
    reason: str | None = None
    """reason is a brief CamelCase string that describes any failure and is meant for machine parsing and tidy
    display in the CLI.
    """


class PersistentVolume(KubeObject, version="v1", namespaced=False):
    """PersistentVolume (PV) is a storage resource provisioned by an administrator."""

    spec: PersistentVolumeSpec = field(default_factory=PersistentVolumeSpec)
    """spec defines a specification of a persistent volume owned by the cluster."""
    status: PersistentVolumeStatus = field(default_factory=PersistentVolumeStatus)
    """status represents the current information/status for the persistent volume."""
