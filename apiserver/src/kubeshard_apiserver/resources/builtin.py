"""The built-in kinds: their discovery data, and the class that implements their rules.

A kind without a class in `_RULES` is `Typed`: its names, types, labels, generations, finalizers and subresources are
right, but it has no defaults, and no validation except for its types.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping

from kubeshard.core.kinds import GroupKind
from kubeshard_apiserver.resources.admission_policies import AdmissionPolicies, PolicyBindings
from kubeshard_apiserver.resources.autoscalers import Autoscalers
from kubeshard_apiserver.resources.batch import CronJobs, Jobs
from kubeshard_apiserver.resources.certificates import SigningRequests
from kubeshard_apiserver.resources.claims import Claims
from kubeshard_apiserver.resources.configuration import ConfigMaps, Secrets, ServiceAccounts
from kubeshard_apiserver.resources.definitions import Definitions
from kubeshard_apiserver.resources.endpoints import Endpoints, EndpointSlices
from kubeshard_apiserver.resources.events import Events
from kubeshard_apiserver.resources.leases import Leases
from kubeshard_apiserver.resources.namespaces import Namespaces
from kubeshard_apiserver.resources.networking import IngressClasses, Ingresses, NetworkPolicies
from kubeshard_apiserver.resources.nodes import Nodes, RuntimeClasses
from kubeshard_apiserver.resources.pods import Pods, PodTemplates
from kubeshard_apiserver.resources.priority_and_disruption import Budgets, PriorityClasses
from kubeshard_apiserver.resources.quotas import LimitRanges, Quotas
from kubeshard_apiserver.resources.rbac import Bindings, Roles
from kubeshard_apiserver.resources.registry import Resource
from kubeshard_apiserver.resources.services import Services
from kubeshard_apiserver.resources.storage import (
    Attachments,
    AttributesClasses,
    Capacities,
    DriverNodes,
    Drivers,
    StorageClasses,
    Volumes,
)
from kubeshard_apiserver.resources.strategy import Stored
from kubeshard_apiserver.resources.typed import Typed
from kubeshard_apiserver.resources.webhook_configurations import WebhookConfigurations
from kubeshard_apiserver.resources.workloads import (
    ControllerRevisions,
    DaemonSets,
    Deployments,
    ReplicaSets,
    ReplicationControllers,
    StatefulSets,
)
from kubeshard_apiserver.schema.catalog import served_kinds

_RULES: Mapping[GroupKind, type[Typed]] = {
    GroupKind("", "Namespace"): Namespaces,
    GroupKind("", "ConfigMap"): ConfigMaps,
    GroupKind("", "Secret"): Secrets,
    GroupKind("autoscaling", "HorizontalPodAutoscaler"): Autoscalers,
    GroupKind("", "Event"): Events,
    GroupKind("events.k8s.io", "Event"): Events,
    GroupKind("", "Service"): Services,
    GroupKind("", "Endpoints"): Endpoints,
    GroupKind("", "Node"): Nodes,
    GroupKind("", "PersistentVolume"): Volumes,
    GroupKind("", "ResourceQuota"): Quotas,
    GroupKind("", "LimitRange"): LimitRanges,
    GroupKind("discovery.k8s.io", "EndpointSlice"): EndpointSlices,
    GroupKind("coordination.k8s.io", "Lease"): Leases,
    GroupKind("certificates.k8s.io", "CertificateSigningRequest"): SigningRequests,
    GroupKind("networking.k8s.io", "Ingress"): Ingresses,
    GroupKind("networking.k8s.io", "IngressClass"): IngressClasses,
    GroupKind("networking.k8s.io", "NetworkPolicy"): NetworkPolicies,
    GroupKind("policy", "PodDisruptionBudget"): Budgets,
    GroupKind("node.k8s.io", "RuntimeClass"): RuntimeClasses,
    GroupKind("scheduling.k8s.io", "PriorityClass"): PriorityClasses,
    GroupKind("storage.k8s.io", "StorageClass"): StorageClasses,
    GroupKind("storage.k8s.io", "VolumeAttributesClass"): AttributesClasses,
    GroupKind("storage.k8s.io", "CSIDriver"): Drivers,
    GroupKind("storage.k8s.io", "CSINode"): DriverNodes,
    GroupKind("storage.k8s.io", "CSIStorageCapacity"): Capacities,
    GroupKind("storage.k8s.io", "VolumeAttachment"): Attachments,
    GroupKind("", "Pod"): Pods,
    GroupKind("", "PodTemplate"): PodTemplates,
    GroupKind("", "ReplicationController"): ReplicationControllers,
    GroupKind("", "ServiceAccount"): ServiceAccounts,
    GroupKind("", "PersistentVolumeClaim"): Claims,
    GroupKind("apps", "Deployment"): Deployments,
    GroupKind("apps", "ReplicaSet"): ReplicaSets,
    GroupKind("apps", "StatefulSet"): StatefulSets,
    GroupKind("apps", "DaemonSet"): DaemonSets,
    GroupKind("apps", "ControllerRevision"): ControllerRevisions,
    GroupKind("batch", "Job"): Jobs,
    GroupKind("batch", "CronJob"): CronJobs,
    GroupKind("apiextensions.k8s.io", "CustomResourceDefinition"): Definitions,
    GroupKind("admissionregistration.k8s.io", "MutatingWebhookConfiguration"): WebhookConfigurations,
    GroupKind("admissionregistration.k8s.io", "ValidatingWebhookConfiguration"): WebhookConfigurations,
    GroupKind("admissionregistration.k8s.io", "ValidatingAdmissionPolicy"): AdmissionPolicies,
    GroupKind("admissionregistration.k8s.io", "ValidatingAdmissionPolicyBinding"): PolicyBindings,
    GroupKind("rbac.authorization.k8s.io", "Role"): Roles,
    GroupKind("rbac.authorization.k8s.io", "ClusterRole"): Roles,
    GroupKind("rbac.authorization.k8s.io", "RoleBinding"): Bindings,
    GroupKind("rbac.authorization.k8s.io", "ClusterRoleBinding"): Bindings,
}
"""The class of each kind with rules of its own, for all versions."""
_DEPRECATED: Mapping[GroupKind, str] = {
    GroupKind("", "ComponentStatus"): "v1 ComponentStatus is deprecated in v1.19+",
    GroupKind("", "Endpoints"): "v1 Endpoints is deprecated in v1.33+; use discovery.k8s.io/v1 EndpointSlice",
}
"""The warnings for clients of kinds that are deprecated, in all of their versions."""


def builtin_resources(stored: Stored, plugins: Collection[str]) -> Iterator[Resource]:
    """Yield the resources in the server's discovery order."""
    for served in served_kinds():
        strategy = _RULES.get(served.kind.group_kind, Typed)(served.kind, stored)
        strategy.plugins = plugins
        entry = served.entry
        yield Resource(
            strategy,
            entry.singular_name,
            entry.short_names,
            entry.categories,
            entry.verbs,
            deprecation=_DEPRECATED.get(served.kind.group_kind, ""),
            storage_hash=entry.storage_version_hash,
            parts=served.subresources,
        )
