"""A new object shares with the stored one what a write leaves alone, and nothing changes that in place."""

import contextlib
import json

import msgspec
import pytest

from kubeshard.core import ApiError, Key
from kubeshard.core.patches import JsonPatch, MergePatch
from kubeshard_apiserver import ApiServer
from kubeshard_apiserver.model import Target
from kubeshard_apiserver.patching import StrategicPatch

PROBE = {"httpGet": {"port": 80}, "grpc": {"port": 1}}
REFERENCES = {
    "fieldRef": {"fieldPath": "a"},
    "fileKeyRef": {"key": "a"},
    "resourceFieldRef": {"resource": "cpu"},
}
PROJECTED = [
    {"downwardAPI": {"items": [REFERENCES]}},
    {"serviceAccountToken": {"path": "a"}},
]
POD = {
    "containers": [
        {
            "name": "a",
            "image": "a",
            "ports": [{"containerPort": 80}],
            "env": [{"name": "A", "valueFrom": REFERENCES}],
            "resources": {"limits": {"cpu": "1"}},
            "lifecycle": {"preStop": {"httpGet": {"port": 80}}},
            **dict.fromkeys(("livenessProbe", "readinessProbe", "startupProbe"), PROBE),
        }
    ],
    "volumes": [
        {"name": "a"},
        {"name": "b", "hostPath": {"path": "/"}},
        {"name": "c", "secret": {"secretName": "c"}},
        {"name": "d", "projected": {"sources": PROJECTED}},
        {"name": "e", "ephemeral": {"volumeClaimTemplate": {"spec": {}}}},
        {"name": "f", "iscsi": {"lun": 1}},
        {"name": "g", "image": {"reference": "a"}},
        {"name": "h", "downwardAPI": {"items": [REFERENCES]}},
    ],
}
LABELS = {"a": "b"}
TEMPLATE = {"metadata": {"labels": LABELS}, "spec": POD}
WORKLOAD = {"selector": {"matchLabels": LABELS}, "template": TEMPLATE}
FAILURES = {"rules": [{"action": "Ignore", "onPodConditions": [{"type": "a"}]}]}
RULES = [{"apiGroups": [""], "apiVersions": ["v1"], "operations": ["*"], "resources": ["*"]}]
HOOK = {"name": "a.b.c", "rules": RULES, "clientConfig": {"service": {"namespace": "a", "name": "b"}}}
OLD = {
    "v1 Pod": {"spec": POD},
    "v1 PodTemplate": {"template": TEMPLATE},
    "v1 ReplicationController": {"spec": {"selector": LABELS, "template": TEMPLATE}},
    "apps/v1 Deployment": {"spec": {**WORKLOAD, "strategy": {"rollingUpdate": {"maxSurge": 1}}}},
    "apps/v1 ReplicaSet": {"spec": WORKLOAD},
    "apps/v1 DaemonSet": {"spec": {**WORKLOAD, "updateStrategy": {"rollingUpdate": {"maxSurge": 0}}}},
    "apps/v1 StatefulSet": {
        "spec": {
            **WORKLOAD,
            "serviceName": "a",
            "updateStrategy": {"type": "RollingUpdate", "rollingUpdate": {}},
            "persistentVolumeClaimRetentionPolicy": {"whenDeleted": "Delete"},
            "volumeClaimTemplates": [{"metadata": {"name": "z"}, "spec": {}, "status": {}}],
        }
    },
    "batch/v1 Job": {"spec": {"template": TEMPLATE, "podFailurePolicy": FAILURES}},
    "batch/v1 CronJob": {"spec": {"schedule": "* * * * *", "jobTemplate": {"spec": {"template": TEMPLATE}}}},
    "v1 Service": {
        "spec": {
            "ports": [{"port": 80, "nodePort": 30000}, {"port": 81, "name": "b"}],
            "type": "LoadBalancer",
        },
        "status": {"loadBalancer": {"ingress": [{"ip": "1.1.1.1"}]}},
    },
    "v1 Endpoints": {"subsets": [{"addresses": [{"ip": "1.1.1.1"}], "ports": [{"port": 80}]}]},
    "discovery.k8s.io/v1 EndpointSlice": {
        "addressType": "IPv4",
        "endpoints": [{"addresses": ["1.1.1.1"], "deprecatedTopology": {"a": "b"}}],
        "ports": [{"port": 80}],
    },
    "v1 LimitRange": {"spec": {"limits": [{"type": "Container", "max": {"cpu": "1"}}]}},
    "v1 PersistentVolume": {
        "spec": {
            "hostPath": {"path": "/"},
            "capacity": {"storage": "1"},
            "accessModes": ["ReadWriteOnce"],
            "volumeMode": "Block",
        },
        "status": {"phase": "Pending"},
    },
    "v1 PersistentVolumeClaim": {
        "spec": {"dataSource": {"kind": "PersistentVolumeClaim", "name": "a"}, "volumeMode": "Block"}
    },
    "networking.k8s.io/v1 NetworkPolicy": {
        "spec": {"podSelector": {}, "ingress": [{"ports": [{"port": 80}]}]}
    },
    "networking.k8s.io/v1 IngressClass": {
        "spec": {"controller": "a/b", "parameters": {"kind": "A", "name": "b"}}
    },
    "rbac.authorization.k8s.io/v1 ClusterRoleBinding": {
        "roleRef": {"kind": "ClusterRole", "name": "a"},
        "subjects": [{"kind": "User", "name": "a"}],
    },
    "autoscaling/v2 HorizontalPodAutoscaler": {
        "spec": {"scaleTargetRef": {"kind": "A", "name": "b"}, "maxReplicas": 2, "behavior": {"scaleUp": {}}}
    },
    "admissionregistration.k8s.io/v1 MutatingWebhookConfiguration": {"webhooks": [HOOK]},
    "admissionregistration.k8s.io/v1 ValidatingAdmissionPolicy": {
        "spec": {"matchConstraints": {"resourceRules": RULES}, "validations": [{"expression": "true"}]}
    },
    "admissionregistration.k8s.io/v1 ValidatingAdmissionPolicyBinding": {
        "spec": {"policyName": "a", "matchResources": {"excludeResourceRules": RULES}}
    },
    "certificates.k8s.io/v1 CertificateSigningRequest": {
        "spec": {"request": "", "signerName": "a/b", "usages": ["any"]},
        "status": {"conditions": [{"type": "Approved", "status": "True"}]},
    },
}
"""Objects that lack all that their kinds set, as if an earlier release had stored them."""
PATCHES = {
    "labels": MergePatch({"metadata": {"labels": {"c": "d"}}}),
    "nothing": MergePatch({}),
    "host network": MergePatch({"spec": {"hostNetwork": True}, "template": {"spec": {"hostNetwork": True}}}),
    "replicas": MergePatch({"spec": {"replicas": 2, "minReadySeconds": 1, "externalTrafficPolicy": "Local"}}),
    "type": MergePatch({"spec": {"type": "ClusterIP"}}),
    "JSON": JsonPatch([{"op": "add", "path": "/spec/suspend", "value": True}]),
    "JSON, moved": JsonPatch(
        [
            {"op": "move", "from": "/spec", "path": "/more"},
            {"op": "add", "path": "/more/a", "value": 1},
            {"op": "move", "from": "/more", "path": "/spec"},
        ]
    ),
    "strategic": StrategicPatch(
        {"spec": {"template": {"spec": {"containers": [{"name": "a", "image": "b"}]}}}}
    ),
}


@pytest.mark.parametrize("kind", OLD)
@pytest.mark.parametrize("how", PATCHES)
def test_a_patch_changes_nothing_of_what_is_stored(kind, how):
    version, _, name = kind.partition(" ")
    group, _, number = version.rpartition("/")
    server = ApiServer()
    resource = next(found for found in server.registry.of(group, number) if found.kind.kind == name)
    namespace = "default" if resource.kind.namespaced else ""
    meta = {"name": "a", "namespace": namespace, "uid": "u", "creationTimestamp": "2026-01-01T00:00:00Z"}
    body = {"apiVersion": version, "kind": name, "metadata": meta, **resource.strategy.zero, **OLD[kind]}
    server.store.put(resource.group_resource, Key(namespace, "a"), json.loads(json.dumps(body)))
    for subresource in ("", "status"):
        with contextlib.suppress(ApiError):
            server.patch(Target(resource, namespace, "a", subresource), PATCHES[how])
    for state in server.store.decoded:
        assert json.loads(state.data) == json.loads(msgspec.json.encode(state.value))
