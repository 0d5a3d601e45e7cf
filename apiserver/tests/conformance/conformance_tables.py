"""Objects of many kinds and their rows in a table. `AGE` stands for an age in seconds."""

from __future__ import annotations

from typing import Any, NamedTuple

AGE = "AGE"
LONG_AGO = "2001-02-03T04:05:06Z"
YEARS = "YEARS"
"""An age of many years."""


class Row(NamedTuple):
    """An object and its expected row. `path` contains `{}` for the namespace; `status`, if any, is patched in."""

    path: str
    body: dict[str, Any]
    status: dict[str, Any] | None
    cells: list[Any]


CORE = "/api/v1/namespaces/{}"
LABELS = {"app": "x"}
POD_SPEC = {"containers": [{"name": "c", "image": "i"}, {"name": "d", "image": "j"}]}
TEMPLATE = {"metadata": {"labels": LABELS}, "spec": POD_SPEC}
SELECTOR = {"matchLabels": LABELS}


def pod(spec: dict[str, Any], status: dict[str, Any] | None, *cells: Any) -> Row:
    """Returns a pod's row: Ready, Status, Restarts, and then the wide cells."""
    ready, said, restarts, *wide = cells
    return Row(
        f"{CORE}/pods",
        {"spec": {"automountServiceAccountToken": False, **POD_SPEC, **spec}},
        status,
        ["a", ready, said, restarts, AGE, *(wide or ["<none>"] * 4)],
    )


def container(name: str, ready: bool = False, restarts: int = 0, **state: Any) -> dict[str, Any]:
    last = {"lastState": state.pop("last")} if "last" in state else {}
    return {
        "name": name,
        "image": "i",
        "imageID": "",
        "ready": ready,
        "restartCount": restarts,
        "state": state,
        **last,
    }


RUNNING = {"startedAt": LONG_AGO}
READY = {"type": "Ready", "status": "True"}
INITIALIZED = {"type": "Initialized", "status": "True"}
INIT = {"initContainers": [{"name": "i1", "image": "i"}, {"name": "i2", "image": "i"}]}
SIDECAR = {"initContainers": [{"name": "side", "image": "i", "restartPolicy": "Always"}]}


def ended(code: int, reason: str = "", **fields: Any) -> dict[str, Any]:
    return {"exitCode": code, "finishedAt": LONG_AGO, "startedAt": LONG_AGO, "reason": reason, **fields}


PODS = {
    "of which nothing is known": pod({}, None, "0/2", "Pending", "0"),
    "that runs": pod(
        {"nodeName": "n"},
        {
            "phase": "Running",
            "podIP": "1.2.3.4",
            "podIPs": [{"ip": "1.2.3.4"}],
            "conditions": [READY],
            "containerStatuses": [
                container("c", True, running=RUNNING),
                container("d", True, running=RUNNING),
            ],
        },
        "2/2",
        "Running",
        "0",
        "1.2.3.4",
        "n",
        "<none>",
        "<none>",
    ),
    "that crashes": pod(
        {},
        {
            "phase": "Running",
            "containerStatuses": [
                container("c", True, running=RUNNING),
                container(
                    "d", restarts=3, waiting={"reason": "CrashLoopBackOff"}, last={"terminated": ended(1)}
                ),
            ],
        },
        "1/2",
        "CrashLoopBackOff",
        f"3 ({YEARS} ago)",
    ),
    "that was restarted at a time unknown": pod(
        {},
        {"phase": "Running", "containerStatuses": [container("c", True, 2, running=RUNNING)]},
        "1/2",
        "Running",
        "2",
    ),
    "whose container ended without a reason": pod(
        {},
        {"phase": "Failed", "containerStatuses": [container("c", terminated=ended(3))]},
        "0/2",
        "ExitCode:3",
        "0",
    ),
    "whose container was killed": pod(
        {},
        {"phase": "Failed", "containerStatuses": [container("c", terminated=ended(3, signal=9))]},
        "0/2",
        "Signal:9",
        "0",
    ),
    "that completed": pod(
        {},
        {
            "phase": "Succeeded",
            "containerStatuses": [
                container("c", terminated=ended(0, "Completed")),
                container("d", terminated=ended(0, "Completed")),
            ],
        },
        "0/2",
        "Completed",
        "0",
    ),
    "of which one container completed and one runs": pod(
        {},
        {
            "phase": "Running",
            "conditions": [READY],
            "containerStatuses": [
                container("c", terminated=ended(0, "Completed")),
                container("d", True, running=RUNNING),
            ],
        },
        "1/2",
        "Running",
        "0",
    ),
    "of which one completed and one runs, not ready": pod(
        {},
        {
            "phase": "Running",
            "containerStatuses": [
                container("c", terminated=ended(0, "Completed")),
                container("d", True, running=RUNNING),
            ],
        },
        "1/2",
        "NotReady",
        "0",
    ),
    "of which one completed and one failed": pod(
        {},
        {
            "phase": "Failed",
            "containerStatuses": [
                container("c", terminated=ended(0, "Completed")),
                container("d", terminated=ended(1, "Error")),
            ],
        },
        "0/2",
        "Error",
        "0",
    ),
    "with a reason of its own": pod({}, {"phase": "Failed", "reason": "Evicted"}, "0/2", "Evicted", "0"),
    "that is being initialized": pod(
        INIT,
        {
            "phase": "Pending",
            "initContainerStatuses": [
                container("i1", terminated=ended(0, "Completed")),
                container("i2", restarts=1, running=RUNNING),
            ],
        },
        "0/2",
        "Init:1/2",
        "1",
    ),
    "whose initialization crashes": pod(
        INIT,
        {
            "phase": "Pending",
            "initContainerStatuses": [container("i1", waiting={"reason": "CrashLoopBackOff"})],
        },
        "0/2",
        "Init:CrashLoopBackOff",
        "0",
    ),
    "whose initialization failed": pod(
        INIT,
        {"phase": "Failed", "initContainerStatuses": [container("i1", terminated=ended(7))]},
        "0/2",
        "Init:ExitCode:7",
        "0",
    ),
    "with a sidecar": pod(
        SIDECAR,
        {
            "phase": "Running",
            "conditions": [READY, INITIALIZED],
            "initContainerStatuses": [
                {**container("side", True, 4, running=RUNNING), "started": True},
            ],
            "containerStatuses": [
                container("c", True, 1, running=RUNNING),
                container("d", True, running=RUNNING),
            ],
        },
        "3/3",
        "Running",
        "5",
    ),
    "with readiness gates": pod(
        {"readinessGates": [{"conditionType": "x.y/one"}, {"conditionType": "x.y/two"}]},
        {"phase": "Running", "conditions": [{"type": "x.y/one", "status": "True"}]},
        "0/2",
        "Running",
        "0",
        "<none>",
        "<none>",
        "<none>",
        "1/2",
    ),
    "that waits for a gate": pod(
        {"schedulingGates": [{"name": "x.y/z"}]},
        {
            "phase": "Pending",
            "conditions": [{"type": "PodScheduled", "status": "False", "reason": "SchedulingGated"}],
        },
        "0/2",
        "SchedulingGated",
        "0",
    ),
}

APPS = "/apis/apps/v1/namespaces/{}"
BATCH = "/apis/batch/v1/namespaces/{}"
JOB_TEMPLATE = {"spec": {**POD_SPEC, "restartPolicy": "Never"}}
NETWORK = "/apis/networking.k8s.io/v1"
KINDS = {
    "a deployment": Row(
        f"{APPS}/deployments",
        {
            "spec": {
                "replicas": 3,
                "template": TEMPLATE,
                "selector": {
                    "matchLabels": LABELS,
                    "matchExpressions": [
                        {"key": "app", "operator": "In", "values": ["y", "x"]},
                        {"key": "b", "operator": "DoesNotExist"},
                    ],
                },
            }
        },
        {"replicas": 3, "readyReplicas": 2, "updatedReplicas": 1, "availableReplicas": 2},
        ["a", "2/3", 1, 2, AGE, "c,d", "i,j", "app=x,app in (x,y),!b"],
    ),
    "a replica set": Row(
        f"{APPS}/replicasets",
        {"spec": {"replicas": 3, "template": TEMPLATE, "selector": SELECTOR}},
        {"replicas": 2, "readyReplicas": 1},
        ["a", 3, 2, 1, AGE, "c,d", "i,j", "app=x"],
    ),
    "a stateful set": Row(
        f"{APPS}/statefulsets",
        {"spec": {"replicas": 2, "serviceName": "s", "template": TEMPLATE, "selector": SELECTOR}},
        {"replicas": 2, "readyReplicas": 1},
        ["a", "1/2", AGE, "c,d", "i,j"],
    ),
    "a daemon set": Row(
        f"{APPS}/daemonsets",
        {
            "spec": {
                "template": {**TEMPLATE, "spec": {**POD_SPEC, "nodeSelector": {"b": "2", "a": "1"}}},
                "selector": SELECTOR,
            }
        },
        {
            "desiredNumberScheduled": 5,
            "currentNumberScheduled": 4,
            "numberReady": 3,
            "updatedNumberScheduled": 2,
            "numberAvailable": 1,
            "numberMisscheduled": 0,
        },
        ["a", 5, 4, 3, 2, 1, "a=1,b=2", AGE, "c,d", "i,j", "app=x"],
    ),
    "a replication controller": Row(
        f"{CORE}/replicationcontrollers",
        {"spec": {"replicas": 1, "template": TEMPLATE, "selector": LABELS}},
        {"replicas": 1, "readyReplicas": 1},
        ["a", 1, 1, 1, AGE, "c,d", "i,j", "app=x"],
    ),
    "a suspended job": Row(
        f"{BATCH}/jobs",
        {
            "spec": {
                "suspend": True,
                "completions": 4,
                "parallelism": 2,
                "manualSelector": True,
                "selector": SELECTOR,
                "template": {"metadata": {"labels": LABELS}, **JOB_TEMPLATE},
            }
        },
        {"conditions": [{"type": "Suspended", "status": "True"}]},
        ["a", "Suspended", "0/4", "", AGE, "c,d", "i,j", "app=x"],
    ),
    "a cron job": Row(
        f"{BATCH}/cronjobs",
        {
            "spec": {
                "schedule": "*/5 * * * *",
                "timeZone": "Etc/UTC",
                "suspend": True,
                "jobTemplate": {"spec": {"template": JOB_TEMPLATE}},
            }
        },
        {"lastScheduleTime": LONG_AGO},
        ["a", "*/5 * * * *", "Etc/UTC", "True", 0, YEARS, AGE, "c,d", "i,j", "<none>"],
    ),
    "a controller revision": Row(
        f"{APPS}/controllerrevisions",
        {
            "revision": 7,
            "data": {"a": 1},
            "metadata": {
                "ownerReferences": [
                    {
                        "apiVersion": "apps/v1",
                        "kind": "DaemonSet",
                        "name": "o",
                        "uid": "u",
                        "controller": True,
                    }
                ]
            },
        },
        None,
        ["a", "daemonset.apps/o", 7, AGE],
    ),
    "a disruption budget": Row(
        "/apis/policy/v1/namespaces/{}/poddisruptionbudgets",
        {"spec": {"minAvailable": "50%", "selector": SELECTOR}},
        {
            "disruptionsAllowed": 2,
            "currentHealthy": 0,
            "desiredHealthy": 0,
            "expectedPods": 0,
        },
        ["a", "50%", "N/A", 2, AGE],
    ),
    "an autoscaler": Row(
        "/apis/autoscaling/v2/namespaces/{}/horizontalpodautoscalers",
        {
            "spec": {
                "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "d"},
                "minReplicas": 2,
                "maxReplicas": 5,
                "metrics": [
                    {
                        "type": "Resource",
                        "resource": {
                            "name": "cpu",
                            "target": {"type": "Utilization", "averageUtilization": 80},
                        },
                    },
                    {
                        "type": "Resource",
                        "resource": {
                            "name": "memory",
                            "target": {"type": "AverageValue", "averageValue": "1Gi"},
                        },
                    },
                    {
                        "type": "Pods",
                        "pods": {
                            "metric": {"name": "m"},
                            "target": {"type": "AverageValue", "averageValue": "10"},
                        },
                    },
                ],
            }
        },
        {
            "currentReplicas": 3,
            "desiredReplicas": 3,
            "conditions": [],
            "currentMetrics": [
                {
                    "type": "Resource",
                    "resource": {
                        "name": "cpu",
                        "current": {"averageUtilization": 70, "averageValue": "1"},
                    },
                }
            ],
        },
        ["a", "Deployment/d", "cpu: 70%/80%, memory: <unknown>/1Gi + 1 more...", "2", 5, 3, AGE],
    ),
    "a headless service": Row(
        f"{CORE}/services",
        {
            "spec": {
                "type": "ClusterIP",
                "clusterIP": "None",
                "clusterIPs": ["None"],
                "selector": LABELS,
                "ports": [
                    {"name": "a", "port": 80, "protocol": "TCP"},
                    {"name": "b", "port": 53, "protocol": "UDP"},
                ],
            }
        },
        None,
        ["a", "ClusterIP", "None", "<none>", "80/TCP,53/UDP", AGE, "app=x"],
    ),
    "an external service": Row(
        f"{CORE}/services",
        {"spec": {"type": "ExternalName", "externalName": "x.example.com"}},
        None,
        ["a", "ExternalName", "<none>", "x.example.com", "<none>", AGE, "<none>"],
    ),
    "an ingress": Row(
        f"{NETWORK}/namespaces/{{}}/ingresses",
        {
            "spec": {
                "ingressClassName": "k",
                "defaultBackend": {"service": {"name": "s", "port": {"number": 80}}},
                "tls": [{}],
                "rules": [{"host": f"{host}.example.com"} for host in "abcde"],
            }
        },
        {"loadBalancer": {"ingress": [{"hostname": "lb.example.com"}, {"ip": "1.2.3.4"}]}},
        [
            "a",
            "k",
            "a.example.com,b.example.com,c.example.com + 2 more...",
            "1.2.3.4,lb.example.com",
            "80, 443",
            AGE,
        ],
    ),
    "an ingress of everything": Row(
        f"{NETWORK}/namespaces/{{}}/ingresses",
        {"spec": {"defaultBackend": {"service": {"name": "s", "port": {"number": 80}}}}},
        None,
        ["a", "<none>", "*", "", "80", AGE],
    ),
    "a network policy": Row(
        f"{NETWORK}/namespaces/{{}}/networkpolicies",
        {"spec": {"podSelector": SELECTOR}},
        None,
        ["a", "app=x", AGE],
    ),
    "endpoints": Row(
        f"{CORE}/endpoints",
        {
            "subsets": [
                {
                    "addresses": [{"ip": f"10.0.0.{i}"} for i in range(1, 4)],
                    "ports": [{"name": "a", "port": 80}, {"name": "b", "port": 81}],
                }
            ]
        },
        None,
        ["a", "10.0.0.1:80,10.0.0.2:80,10.0.0.3:80 + 3 more...", AGE],
    ),
    "endpoints of nothing": Row(f"{CORE}/endpoints", {}, None, ["a", "<none>", AGE]),
    "an endpoint slice": Row(
        "/apis/discovery.k8s.io/v1/namespaces/{}/endpointslices",
        {
            "addressType": "IPv4",
            "ports": [{"name": "a", "port": 80}, {"name": "b"}],
            "endpoints": [{"addresses": [f"10.0.0.{i}"]} for i in range(1, 6)],
        },
        None,
        ["a", "IPv4", "80,b", "10.0.0.1,10.0.0.2,10.0.0.3 + 2 more...", AGE],
    ),
    "a config map": Row(
        f"{CORE}/configmaps", {"data": {"a": "1", "b": "2"}, "binaryData": {"c": "AA=="}}, None, ["a", 3, AGE]
    ),
    "a secret": Row(f"{CORE}/secrets", {"data": {"a": "AA=="}}, None, ["a", "Opaque", 1, AGE]),
    "a service account": Row(f"{CORE}/serviceaccounts", {}, None, ["a", AGE]),
    "a limit range": Row(f"{CORE}/limitranges", {"spec": {"limits": []}}, None, ["a", "CREATED"]),
    "a resource quota": Row(
        f"{CORE}/resourcequotas",
        {"spec": {"hard": {"pods": "5", "limits.cpu": "2", "requests.cpu": "1"}}},
        {
            "hard": {"pods": "5", "limits.cpu": "2", "requests.cpu": "1"},
            "used": {"pods": "3", "limits.cpu": "100m"},
        },
        ["a", "pods: 3/5, requests.cpu: 0/1", "limits.cpu: 100m/2", AGE],
    ),
    "a pod template": Row(f"{CORE}/podtemplates", {"template": TEMPLATE}, None, ["a", "c,d", "i,j", "app=x"]),
    "a claim": Row(
        f"{CORE}/persistentvolumeclaims",
        {
            "spec": {
                "accessModes": ["ReadWriteOnce"],
                "storageClassName": "fast",
                "volumeName": "v",
                "resources": {"requests": {"storage": "1Gi"}},
            }
        },
        {"phase": "Bound", "accessModes": ["ReadWriteMany", "ReadWriteOnce"], "capacity": {"storage": "2Gi"}},
        ["a", "Bound", "v", "2Gi", "RWO,RWX", "fast", "<unset>", AGE, "Filesystem"],
    ),
    "an event": Row(
        f"{CORE}/events",
        {
            "involvedObject": {
                "kind": "Pod",
                "name": "p",
                "namespace": "{}",
                "fieldPath": "spec.containers{c}",
            },
            "type": "Warning",
            "reason": "Broken",
            "message": "  It broke.\n",
            "source": {"component": "k", "host": "h"},
            "firstTimestamp": LONG_AGO,
            "lastTimestamp": LONG_AGO,
            "count": 3,
        },
        None,
        [
            YEARS,
            "Warning",
            "Broken",
            "pod/p",
            "spec.containers{c}",
            "k, h",
            "It broke.",
            YEARS,
            3,
            "a",
        ],
    ),
    "a lease": Row(
        "/apis/coordination.k8s.io/v1/namespaces/{}/leases",
        {"spec": {"holderIdentity": "me"}},
        None,
        ["a", "me", AGE],
    ),
    "a role": Row(
        "/apis/rbac.authorization.k8s.io/v1/namespaces/{}/roles", {"rules": []}, None, ["a", "CREATED"]
    ),
    "a role binding": Row(
        "/apis/rbac.authorization.k8s.io/v1/namespaces/{}/rolebindings",
        {
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "view"},
            "subjects": [
                {"kind": "User", "name": "u", "apiGroup": "rbac.authorization.k8s.io"},
                {"kind": "User", "name": "v", "apiGroup": "rbac.authorization.k8s.io"},
                {"kind": "Group", "name": "g", "apiGroup": "rbac.authorization.k8s.io"},
                {"kind": "ServiceAccount", "name": "s", "namespace": "n"},
            ],
        },
        None,
        ["a", "ClusterRole/view", AGE, "u, v", "g", "n/s"],
    ),
}
