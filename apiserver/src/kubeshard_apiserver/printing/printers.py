"""The columns of each built-in kind. A kind not listed here shows its name and creation time."""

from __future__ import annotations

from collections.abc import Mapping

from kubeshard.core.kinds import GroupResource
from kubeshard_apiserver.printing import cluster, network, pods, policies, storage, workloads
from kubeshard_apiserver.printing.columns import CREATED, NAME, Printer

_DEFAULT = Printer((NAME, CREATED))
_PRINTERS: Mapping[str, Printer] = {
    "componentstatuses": cluster.COMPONENT_STATUSES,
    "configmaps": cluster.CONFIG_MAPS,
    "endpoints": network.ENDPOINTS,
    "events": cluster.EVENTS,
    "events.events.k8s.io": cluster.EVENTS,
    "namespaces": cluster.NAMESPACES,
    "nodes": cluster.NODES,
    "persistentvolumeclaims": storage.PERSISTENT_VOLUME_CLAIMS,
    "persistentvolumes": storage.PERSISTENT_VOLUMES,
    "pods": pods.PODS,
    "podtemplates": workloads.POD_TEMPLATES,
    "replicationcontrollers": workloads.REPLICATION_CONTROLLERS,
    "resourcequotas": cluster.RESOURCE_QUOTAS,
    "secrets": cluster.SECRETS,
    "serviceaccounts": cluster.PLAIN,
    "services": network.SERVICES,
    "mutatingadmissionpolicies.admissionregistration.k8s.io": policies.MUTATING_POLICIES,
    "mutatingadmissionpolicybindings.admissionregistration.k8s.io": policies.POLICY_BINDINGS,
    "mutatingwebhookconfigurations.admissionregistration.k8s.io": policies.WEBHOOK_CONFIGURATIONS,
    "validatingadmissionpolicies.admissionregistration.k8s.io": policies.VALIDATING_POLICIES,
    "validatingadmissionpolicybindings.admissionregistration.k8s.io": policies.POLICY_BINDINGS,
    "validatingwebhookconfigurations.admissionregistration.k8s.io": policies.WEBHOOK_CONFIGURATIONS,
    "controllerrevisions.apps": workloads.CONTROLLER_REVISIONS,
    "daemonsets.apps": workloads.DAEMON_SETS,
    "deployments.apps": workloads.DEPLOYMENTS,
    "replicasets.apps": workloads.REPLICA_SETS,
    "statefulsets.apps": workloads.STATEFUL_SETS,
    "horizontalpodautoscalers.autoscaling": workloads.HORIZONTAL_POD_AUTOSCALERS,
    "cronjobs.batch": workloads.CRON_JOBS,
    "jobs.batch": workloads.JOBS,
    "clustertrustbundles.certificates.k8s.io": policies.TRUST_BUNDLES,
    "podcertificaterequests.certificates.k8s.io": policies.CERTIFICATE_REQUESTS,
    "customresourcedefinitions.apiextensions.k8s.io": policies.DEFINITIONS,
    "certificatesigningrequests.certificates.k8s.io": policies.SIGNING_REQUESTS,
    "leases.coordination.k8s.io": cluster.LEASES,
    "endpointslices.discovery.k8s.io": network.ENDPOINT_SLICES,
    "ingressclasses.networking.k8s.io": network.INGRESS_CLASSES,
    "ingresses.networking.k8s.io": network.INGRESSES,
    "ipaddresses.networking.k8s.io": network.IP_ADDRESSES,
    "networkpolicies.networking.k8s.io": network.NETWORK_POLICIES,
    "servicecidrs.networking.k8s.io": network.SERVICE_CIDRS,
    "runtimeclasses.node.k8s.io": cluster.RUNTIME_CLASSES,
    "poddisruptionbudgets.policy": workloads.POD_DISRUPTION_BUDGETS,
    "clusterrolebindings.rbac.authorization.k8s.io": policies.ROLE_BINDINGS,
    "rolebindings.rbac.authorization.k8s.io": policies.ROLE_BINDINGS,
    "priorityclasses.scheduling.k8s.io": cluster.PRIORITY_CLASSES,
    "csidrivers.storage.k8s.io": storage.CSI_DRIVERS,
    "csinodes.storage.k8s.io": storage.CSI_NODES,
    "storageclasses.storage.k8s.io": storage.STORAGE_CLASSES,
    "volumeattachments.storage.k8s.io": storage.VOLUME_ATTACHMENTS,
    "volumeattributesclasses.storage.k8s.io": storage.VOLUME_ATTRIBUTES_CLASSES,
}


def printer_of(resource: GroupResource, subresource: str = "", own: Printer | None = None) -> Printer:
    """Return the printer of a kind; `own` is that of a custom resource."""
    if subresource == "scale":
        return workloads.SCALES if own is None else workloads.CUSTOM_SCALES
    return own or _PRINTERS.get(str(resource), _DEFAULT)
