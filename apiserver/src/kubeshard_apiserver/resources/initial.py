"""The objects that every new cluster has, in addition to namespaces, roles and bindings.

Source: k8s.io/kubernetes `pkg/registry/scheduling/rest`, `pkg/controlplane/controller/kubernetesservice`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from kubeshard.core.kinds import GroupResource
from kubeshard_apiserver.resources.pod_defaults import SYSTEM_PRIORITIES
from kubeshard_apiserver.resources.priority_and_disruption import PRIORITY_CLASSES
from kubeshard_apiserver.resources.service_addresses import RANGE
from kubeshard_apiserver.resources.services import SERVICES

_PORT = 6443
_USED = {
    "system-cluster-critical": "Used for system critical pods that must run in the cluster, but can be moved to "
    "another node if necessary.",
    "system-node-critical": "Used for system critical pods that must not be moved from their current node.",
}


class Initial(NamedTuple):
    resource: GroupResource
    namespace: str
    body: Mapping[str, Any]


INITIAL_OBJECTS = (
    *(
        Initial(
            PRIORITY_CLASSES, "", {"metadata": {"name": name}, "value": value, "description": _USED[name]}
        )
        for name, value in SYSTEM_PRIORITIES.items()
    ),
    Initial(
        SERVICES,
        "default",
        {
            "metadata": {
                "name": "kubernetes",
                "labels": {"component": "apiserver", "provider": "kubernetes"},
            },
            "spec": {
                "clusterIP": str(RANGE[1]),
                "ports": [{"name": "https", "port": 443, "targetPort": _PORT}],
            },
        },
    ),
)
