"""A FlowSchema: the requests about Leases of an account have the priority of the control plane's own elections.

Without it, the renewals of shards queue with all other requests of service accounts when an API server is overloaded.
If they wait for longer than a Lease lasts, the shards end, one ring after the other, at the worst time.

The priority level `leader-election` is among those that every API server creates. Needs Kubernetes 1.29 or newer.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kubeshard.core.builtin import Lease

Manifest = dict[str, Any]

PRECEDENCE = 900
"""Before the schema of service accounts (9000), and after those of the control plane's own elections (100, 200)."""
LEVEL = "leader-election"


def flow_schema(name: Any, namespace: Any, account: Any, labels: Mapping[str, Any]) -> Manifest:
    """For one account. Every user of it has a queue of its own there."""
    subject = {"kind": "ServiceAccount", "serviceAccount": {"namespace": namespace, "name": account}}
    kind = Lease.KIND
    requests = {
        "apiGroups": [kind.group],
        "resources": [kind.plural],
        "verbs": ["get", "create", "update", "patch"],
        "namespaces": ["*"],
    }
    return {
        "apiVersion": "flowcontrol.apiserver.k8s.io/v1",
        "kind": "FlowSchema",
        "metadata": {"name": name, "labels": labels},
        "spec": {
            "priorityLevelConfiguration": {"name": LEVEL},
            "matchingPrecedence": PRECEDENCE,
            "distinguisherMethod": {"type": "ByUser"},
            "rules": [{"subjects": [subject], "resourceRules": [requests]}],
        },
    }
