"""Small facts about built-in kinds, each observed on the real server.

Source: the strategies in k8s.io/kubernetes `pkg/registry`.
"""

from __future__ import annotations

from kubeshard.core.kinds import GroupKind


def _kinds(text: str) -> frozenset[GroupKind]:
    found = set()
    for line in text.split("\n"):
        if line:
            group, *kinds = line.split()
            found |= {GroupKind("" if group == "core" else group, kind) for kind in kinds}
    return frozenset(found)


CREATED_BY_REPLACE = _kinds("""
core Endpoints Event LimitRange Service
events.k8s.io Event
rbac.authorization.k8s.io Role RoleBinding ClusterRole ClusterRoleBinding
coordination.k8s.io Lease
node.k8s.io RuntimeClass
""")
"""A PUT creates a missing object."""

VERSION_NEEDED = _kinds("""
policy PodDisruptionBudget
storage.k8s.io CSIDriver CSINode CSIStorageCapacity VolumeAttachment
admissionregistration.k8s.io ValidatingAdmissionPolicy ValidatingAdmissionPolicyBinding
admissionregistration.k8s.io MutatingAdmissionPolicy MutatingAdmissionPolicyBinding
admissionregistration.k8s.io ValidatingWebhookConfiguration MutatingWebhookConfiguration
node.k8s.io RuntimeClass
coordination.k8s.io Lease
apiextensions.k8s.io CustomResourceDefinition
""")
"""A PUT must specify the resourceVersion that it replaces."""

COUNTED = _kinds("""
core Pod PodTemplate ReplicationController
apps Deployment ReplicaSet DaemonSet StatefulSet
batch Job CronJob
policy PodDisruptionBudget
discovery.k8s.io EndpointSlice
networking.k8s.io Ingress NetworkPolicy IngressClass
admissionregistration.k8s.io ValidatingAdmissionPolicy ValidatingAdmissionPolicyBinding
admissionregistration.k8s.io MutatingAdmissionPolicy MutatingAdmissionPolicyBinding
admissionregistration.k8s.io ValidatingWebhookConfiguration MutatingWebhookConfiguration
scheduling.k8s.io PriorityClass
apiextensions.k8s.io CustomResourceDefinition
""")
"""Kinds with a generation."""

FREE_FINALIZERS = _kinds("""
coordination.k8s.io Lease
policy PodDisruptionBudget
""")
"""Finalizers need no domain."""

SHOWN_WHEN_DELETED = _kinds("""
core Pod Service ServiceAccount ResourceQuota PersistentVolumeClaim PersistentVolume PodTemplate
storage.k8s.io StorageClass CSIDriver CSINode VolumeAttachment VolumeAttributesClass
""")
"""A DELETE that removes the object returns it instead of a Status."""

DEFAULT_PROPAGATION: dict[GroupKind, str | None] = {
    **dict.fromkeys(_kinds("batch Job\ncore ReplicationController"), "Orphan"),
    **dict.fromkeys(_kinds("core Event\nevents.k8s.io Event")),
}
"""The default of all other kinds is Background. None: the kind takes no part in garbage collection."""
