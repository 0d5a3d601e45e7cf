"""Classes of apps/v1 in Kubernetes 1.37, written by `make types`. The descriptions are those of the
Kubernetes authors (Apache License 2.0).
"""

from __future__ import annotations

from typing import Any

from kubeshard.core.objects import KubeObject, Struct, field
from kubeshard.core.selectors import LabelSelector
from kubeshard.kinds.generated.core_v1_pod_templates import PersistentVolumeClaim, PodTemplateSpec


class ControllerRevision(KubeObject, group="apps", version="v1"):
    """ControllerRevision implements an immutable snapshot of state data."""

    data: Any
    """Data is the serialized representation of the state."""
    revision: int | None = None
    """Revision indicates the revision of the state represented by Data."""


class RollingUpdateDaemonSet(Struct):
    """Spec to control the desired behavior of daemon set rolling update."""

    max_surge: int | str | None = None
    """The maximum number of nodes with an existing available DaemonSet pod that can have an updated DaemonSet
    pod during during an update.
    """
    max_unavailable: int | str | None = None
    """The maximum number of DaemonSet pods that can be unavailable during the update."""


class DaemonSetUpdateStrategy(Struct):
    """DaemonSetUpdateStrategy is a struct used to control the update strategy for a DaemonSet."""

    rolling_update: RollingUpdateDaemonSet | None = None
    """Rolling update config params."""
    type: str | None = None
    """Type of daemon set update. One of OnDelete, RollingUpdate."""


class DaemonSetSpec(Struct):
    """DaemonSetSpec is the specification of a daemon set."""

    selector: LabelSelector
    """A label query over pods that are managed by the daemon set."""
    template: PodTemplateSpec
    """An object that describes the pod that will be created."""
    min_ready_seconds: int | None = None
    """The minimum number of seconds for which a newly created DaemonSet pod should be ready without any of
    its container crashing, for it to be considered available.
    """
    revision_history_limit: int | None = None
    """The number of old history to retain to allow rollback."""
    update_strategy: DaemonSetUpdateStrategy | None = None
    """An update strategy to replace existing DaemonSet pods with new pods."""


class DaemonSetCondition(Struct):
    """DaemonSetCondition describes the state of a DaemonSet at a certain point."""

    last_transition_time: str | None = None
    """Last time the condition transitioned from one status to another."""
    message: str | None = None
    """A human readable message indicating details about the transition."""
    reason: str | None = None
    """The reason for the condition's last transition."""
    status: str | None = None
    """Status of the condition, one of True, False, Unknown."""
    type: str | None = None
    """Type of DaemonSet condition."""


class DaemonSetStatus(Struct):
    """DaemonSetStatus represents the current status of a daemon set."""

    collision_count: int | None = None
    """Count of hash collisions for the DaemonSet."""
    conditions: tuple[DaemonSetCondition, ...] | None = None
    """Represents the latest available observations of a DaemonSet's current state."""
    current_number_scheduled: int = 0
    """The number of nodes that are running at least 1 daemon pod and are supposed to run the daemon pod."""
    desired_number_scheduled: int = 0
    """The total number of nodes that should be running the daemon pod (including nodes correctly running the
    daemon pod).
    """
    number_available: int | None = None
    """The number of nodes that should be running the daemon pod and have one or more of the daemon pod
    running and available (ready for at least spec.minReadySeconds)
    """
    number_misscheduled: int = 0
    """The number of nodes that are running the daemon pod, but are not supposed to run the daemon pod."""
    number_ready: int = 0
    """numberReady is the number of nodes that should be running the daemon pod and have one or more of the
    daemon pod running with a Ready Condition.
    """
    number_unavailable: int | None = None
    """The number of nodes that should be running the daemon pod and have none of the daemon pod running and
    available (ready for at least spec.minReadySeconds)
    """
    observed_generation: int | None = None
    """The most recent generation observed by the daemon set controller."""
    updated_number_scheduled: int | None = None
    """The total number of nodes that are running updated daemon pod"""


class DaemonSet(KubeObject, group="apps", version="v1"):
    """DaemonSet represents the configuration of a daemon set."""

    spec: DaemonSetSpec
    """The desired behavior of this daemon set."""
    status: DaemonSetStatus = field(default_factory=DaemonSetStatus)
    """The current status of this daemon set."""


class RollingUpdateDeployment(Struct):
    """Spec to control the desired behavior of rolling update."""

    max_surge: int | str | None = None
    """The maximum number of pods that can be scheduled above the desired number of pods."""
    max_unavailable: int | str | None = None
    """The maximum number of pods that can be unavailable during the update."""


class DeploymentStrategy(Struct):
    """DeploymentStrategy describes how to replace existing pods with new ones."""

    rolling_update: RollingUpdateDeployment | None = None
    """Rolling update config params."""
    type: str | None = None
    """Type of deployment. One of Recreate, RollingUpdate."""


class DeploymentSpec(Struct):
    """DeploymentSpec is the specification of the desired behavior of the Deployment."""

    selector: LabelSelector
    """Label selector for pods."""
    template: PodTemplateSpec
    """Template describes the pods that will be created."""
    min_ready_seconds: int | None = None
    """Minimum number of seconds for which a newly created pod should be ready without any of its container
    crashing, for it to be considered available.
    """
    paused: bool | None = None
    """Indicates that the deployment is paused."""
    progress_deadline_seconds: int | None = None
    """The maximum time in seconds for a deployment to make progress before it is considered to be failed."""
    replicas: int | None = None
    """Number of desired pods."""
    revision_history_limit: int | None = None
    """The number of old ReplicaSets to retain to allow rollback."""
    strategy: DeploymentStrategy | None = None
    """The deployment strategy to use to replace existing pods with new ones."""


class DeploymentCondition(Struct):
    """DeploymentCondition describes the state of a deployment at a certain point."""

    last_transition_time: str | None = None
    """Last time the condition transitioned from one status to another."""
    last_update_time: str | None = None
    """The last time this condition was updated."""
    message: str | None = None
    """A human readable message indicating details about the transition."""
    reason: str | None = None
    """The reason for the condition's last transition."""
    status: str | None = None
    """Status of the condition, one of True, False, Unknown."""
    type: str | None = None
    """Type of deployment condition."""


class DeploymentStatus(Struct):
    """DeploymentStatus is the most recently observed status of the Deployment."""

    available_replicas: int | None = None
    """Total number of available non-terminating pods (ready for at least minReadySeconds) targeted by this
    deployment.
    """
    collision_count: int | None = None
    """Count of hash collisions for the Deployment."""
    conditions: tuple[DeploymentCondition, ...] | None = None
    """Represents the latest available observations of a deployment's current state."""
    observed_generation: int | None = None
    """The generation observed by the deployment controller."""
    ready_replicas: int | None = None
    """Total number of non-terminating pods targeted by this Deployment with a Ready Condition."""
    replicas: int | None = None
    """Total number of non-terminating pods targeted by this deployment (their labels match the selector)."""
    terminating_replicas: int | None = None
    """Total number of terminating pods targeted by this deployment."""
    unavailable_replicas: int | None = None
    """Total number of unavailable pods targeted by this deployment."""
    updated_replicas: int | None = None
    """Total number of non-terminating pods targeted by this deployment that have the desired template
    spec.
    """


class Deployment(KubeObject, group="apps", version="v1"):
    """Deployment enables declarative updates for Pods and ReplicaSets."""

    spec: DeploymentSpec
    """Specification of the desired behavior of the Deployment."""
    status: DeploymentStatus = field(default_factory=DeploymentStatus)
    """Most recently observed status of the Deployment."""


class ReplicaSetSpec(Struct):
    """ReplicaSetSpec is the specification of a ReplicaSet."""

    selector: LabelSelector
    """Selector is a label query over pods that should match the replica count."""
    min_ready_seconds: int | None = None
    """Minimum number of seconds for which a newly created pod should be ready without any of its container
    crashing, for it to be considered available.
    """
    replicas: int | None = None
    """Replicas is the number of desired pods."""
    template: PodTemplateSpec | None = None
    """Template is the object that describes the pod that will be created if insufficient replicas are
    detected.
    """


class ReplicaSetCondition(Struct):
    """ReplicaSetCondition describes the state of a replica set at a certain point."""

    last_transition_time: str | None = None
    """The last time the condition transitioned from one status to another."""
    message: str | None = None
    """A human readable message indicating details about the transition."""
    reason: str | None = None
    """The reason for the condition's last transition."""
    status: str | None = None
    """Status of the condition, one of True, False, Unknown."""
    type: str | None = None
    """Type of replica set condition."""


class ReplicaSetStatus(Struct):
    """ReplicaSetStatus represents the current status of a ReplicaSet."""

    available_replicas: int | None = None
    """The number of available non-terminating pods (ready for at least minReadySeconds) for this replica
    set.
    """
    conditions: tuple[ReplicaSetCondition, ...] | None = None
    """Represents the latest available observations of a replica set's current state."""
    fully_labeled_replicas: int | None = None
    """The number of non-terminating pods that have labels matching the labels of the pod template of the
    replicaset.
    """
    observed_generation: int | None = None
    """ObservedGeneration reflects the generation of the most recently observed ReplicaSet."""
    ready_replicas: int | None = None
    """The number of non-terminating pods targeted by this ReplicaSet with a Ready Condition."""
    replicas: int = 0
    """Replicas is the most recently observed number of non-terminating pods."""
    terminating_replicas: int | None = None
    """The number of terminating pods for this replica set."""


class ReplicaSet(KubeObject, group="apps", version="v1"):
    """ReplicaSet ensures that a specified number of pod replicas are running at any given time."""

    spec: ReplicaSetSpec
    """Spec defines the specification of the desired behavior of the ReplicaSet."""
    status: ReplicaSetStatus = field(default_factory=ReplicaSetStatus)
    """Status is the most recently observed status of the ReplicaSet."""


class StatefulSetOrdinals(Struct):
    """StatefulSetOrdinals describes the policy used for replica ordinal assignment in this StatefulSet."""

    start: int | None = None
    """start is the number representing the first replica's index."""


class StatefulSetPersistentVolumeClaimRetentionPolicy(Struct):
    """StatefulSetPersistentVolumeClaimRetentionPolicy describes the policy used for PVCs created from the
    StatefulSet VolumeClaimTemplates.
    """

    when_deleted: str | None = None
    """WhenDeleted specifies what happens to PVCs created from StatefulSet VolumeClaimTemplates when the
    StatefulSet is deleted.
    """
    when_scaled: str | None = None
    """WhenScaled specifies what happens to PVCs created from StatefulSet VolumeClaimTemplates when the
    StatefulSet is scaled down.
    """


class RollingUpdateStatefulSetStrategy(Struct):
    """RollingUpdateStatefulSetStrategy is used to communicate parameter for
    RollingUpdateStatefulSetStrategyType.
    """

    max_unavailable: int | str | None = None
    """The maximum number of pods that can be unavailable during the update."""
    partition: int | None = None
    """Partition indicates the ordinal at which the StatefulSet should be partitioned for updates."""


class StatefulSetUpdateStrategy(Struct):
    """StatefulSetUpdateStrategy indicates the strategy that the StatefulSet controller will use to perform
    updates.
    """

    rolling_update: RollingUpdateStatefulSetStrategy | None = None
    """RollingUpdate is used to communicate parameters when Type is RollingUpdateStatefulSetStrategyType."""
    type: str | None = None
    """Type indicates the type of the StatefulSetUpdateStrategy. One of OnDelete, Recreate, RollingUpdate."""


class StatefulSetSpec(Struct):
    """A StatefulSetSpec is the specification of a StatefulSet."""

    selector: LabelSelector
    """selector is a label query over pods that should match the replica count."""
    template: PodTemplateSpec
    """template is the object that describes the pod that will be created if insufficient replicas are
    detected.
    """
    min_ready_seconds: int | None = None
    """Minimum number of seconds for which a newly created pod should be ready without any of its container
    crashing for it to be considered available.
    """
    ordinals: StatefulSetOrdinals | None = None
    """ordinals controls the numbering of replica indices in a StatefulSet."""
    persistent_volume_claim_retention_policy: StatefulSetPersistentVolumeClaimRetentionPolicy | None = None
    """persistentVolumeClaimRetentionPolicy describes the lifecycle of persistent volume claims created from
    volumeClaimTemplates.
    """
    pod_management_policy: str | None = None
    """podManagementPolicy controls how pods are created during initial scale up, when replacing pods on
    nodes, or when scaling down. One of OrderedReady, Parallel.
    """
    replicas: int | None = None
    """replicas is the desired number of replicas of the given Template."""
    revision_history_limit: int | None = None
    """revisionHistoryLimit is the maximum number of revisions that will be maintained in the StatefulSet's
    revision history.
    """
    service_name: str | None = None
    """serviceName is the name of the service that governs this StatefulSet."""
    update_strategy: StatefulSetUpdateStrategy | None = None
    """updateStrategy indicates the StatefulSetUpdateStrategy that will be employed to update Pods in the
    StatefulSet when a revision is made to Template.
    """
    volume_claim_templates: tuple[PersistentVolumeClaim, ...] | None = None
    """volumeClaimTemplates is a list of claims that pods are allowed to reference."""


class StatefulSetCondition(Struct):
    """StatefulSetCondition describes the state of a statefulset at a certain point."""

    last_transition_time: str | None = None
    """Last time the condition transitioned from one status to another."""
    message: str | None = None
    """A human readable message indicating details about the transition."""
    reason: str | None = None
    """The reason for the condition's last transition."""
    status: str | None = None
    """Status of the condition, one of True, False, Unknown."""
    type: str | None = None
    """Type of statefulset condition."""


class StatefulSetStatus(Struct):
    """StatefulSetStatus represents the current state of a StatefulSet."""

    available_replicas: int | None = None
    """Total number of available pods (ready for at least minReadySeconds) targeted by this statefulset."""
    collision_count: int | None = None
    """collisionCount is the count of hash collisions for the StatefulSet."""
    conditions: tuple[StatefulSetCondition, ...] | None = None
    """Represents the latest available observations of a statefulset's current state."""
    current_replicas: int | None = None
    """currentReplicas is the number of Pods created by the StatefulSet controller from the StatefulSet
    version indicated by currentRevision.
    """
    current_revision: str | None = None
    """currentRevision, if not empty, indicates the version of the StatefulSet used to generate Pods in the
    sequence [0,currentReplicas).
    """
    observed_generation: int | None = None
    """observedGeneration is the most recent generation observed for this StatefulSet."""
    ready_replicas: int | None = None
    """readyReplicas is the number of pods created for this StatefulSet with a Ready Condition."""
    replicas: int = 0
    """replicas is the number of Pods created by the StatefulSet controller."""
    update_revision: str | None = None
    """updateRevision, if not empty, indicates the version of the StatefulSet used to generate Pods in the
    sequence [replicas-updatedReplicas,replicas)
    """
    updated_replicas: int | None = None
    """updatedReplicas is the number of Pods created by the StatefulSet controller from the StatefulSet
    version indicated by updateRevision.
    """


class StatefulSet(KubeObject, group="apps", version="v1"):
    """StatefulSet represents a set of pods with consistent identities."""

    spec: StatefulSetSpec
    """Spec defines the desired identities of pods in this set."""
    status: StatefulSetStatus = field(default_factory=StatefulSetStatus)
    """Status is the current status of Pods in this StatefulSet."""
