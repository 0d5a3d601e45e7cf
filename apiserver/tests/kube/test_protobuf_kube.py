"""Objects that the real server writes as protobuf are read the same as those that it writes as JSON."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import pytest

from kubeshard.runtime.http import HttpTransport
from kubeshard.runtime.transport import HttpRequest
from kubeshard_apiserver import ApiServer
from kubeshard_apiserver.schema import protobuf

pytestmark = pytest.mark.kube

JSON = "application/json"
PROTOBUF = "application/vnd.kubernetes.protobuf"
OBJECTS: tuple[Mapping[str, Any], ...] = (
    {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "a", "annotations": {"x": "y"}, "finalizers": ["example.com/x"]},
        "spec": {
            "replicas": 0,
            "selector": {"matchLabels": {"a": "b"}},
            "strategy": {"rollingUpdate": {"maxSurge": "10%", "maxUnavailable": 1}},
            "template": {
                "metadata": {"labels": {"a": "b"}},
                "spec": {
                    "securityContext": {"runAsUser": 0, "fsGroup": 7},
                    "tolerations": [
                        {"key": "k", "operator": "Exists", "tolerationSeconds": -1, "effect": "NoExecute"}
                    ],
                    "volumes": [
                        {"name": "v", "emptyDir": {"sizeLimit": "1Gi"}},
                        {"name": "w", "secret": {"secretName": "s"}},
                    ],
                    "containers": [
                        {
                            "name": "c",
                            "image": "i",
                            "env": [{"name": "E", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}],
                            "resources": {"limits": {"cpu": "1500m"}},
                            "livenessProbe": {"httpGet": {"port": "http"}, "periodSeconds": 3},
                            "ports": [{"name": "http", "containerPort": 80}],
                        }
                    ],
                },
            },
        },
    },
    {
        "apiVersion": "apps/v1",
        "kind": "StatefulSet",
        "metadata": {"name": "a"},
        "spec": {
            "selector": {"matchLabels": {"app": "a"}},
            "template": {
                "metadata": {"labels": {"app": "a"}},
                "spec": {"containers": [{"name": "c", "image": "i"}]},
            },
            "volumeClaimTemplates": [
                {
                    "metadata": {"name": "data"},
                    "spec": {
                        "accessModes": ["ReadWriteOnce"],
                        "resources": {"requests": {"storage": "1Gi"}},
                    },
                }
            ],
        },
    },
    {
        "apiVersion": "v1",
        "kind": "PersistentVolume",
        "metadata": {"name": "a"},
        "spec": {
            "capacity": {"storage": "1.5Gi"},
            "accessModes": ["ReadWriteOnce"],
            "nfs": {"server": "s", "path": "/p"},
        },
    },
    {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": "things.protobuf.example.com"},
        "spec": {
            "group": "protobuf.example.com",
            "scope": "Cluster",
            "names": {"plural": "things", "kind": "Thing"},
            "versions": [
                {
                    "name": "v1",
                    "served": True,
                    "storage": True,
                    "schema": {
                        "openAPIV3Schema": {
                            "type": "object",
                            "properties": {
                                "a": {"type": "object", "additionalProperties": {"type": "string"}},
                                "b": {"type": "number", "minimum": 0.5, "default": 1, "enum": [1, 2.5]},
                                "c": {"type": "array", "items": {"type": "integer", "maximum": 3}},
                            },
                        }
                    },
                }
            ],
        },
    },
    {
        "apiVersion": "autoscaling/v2",
        "kind": "HorizontalPodAutoscaler",
        "metadata": {"name": "a"},
        "spec": {
            "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "a"},
            "maxReplicas": 3,
            "metrics": [
                {
                    "type": "Resource",
                    "resource": {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 5}},
                }
            ],
        },
    },
)


def without_nulls(value: Any) -> Any:
    """Removes nulls: a list that was never set is null in JSON, and absent in protobuf."""
    if isinstance(value, dict):
        return {name: without_nulls(inner) for name, inner in value.items() if inner is not None}
    return [without_nulls(item) for item in value] if isinstance(value, list) else value


def without_inner_kinds(obj: Any) -> Any:
    """Removes the kinds of claims in a StatefulSet, which only JSON contains."""
    for claim in (obj.get("spec") or {}).get("volumeClaimTemplates") or ():
        del claim["apiVersion"], claim["kind"]
    return obj


async def test_all_objects_are_read_as_their_json_says(control_plane, kube_client):
    control_plane.kubectl(
        "apply", "-f", "-", input=json.dumps({"kind": "List", "apiVersion": "v1", "items": OBJECTS})
    )
    config = kube_client.config
    transport = HttpTransport(config.server, config.tls)
    read = 0

    async def get(path: str, accept: str) -> bytes:
        headers = {"Accept": accept, "Authorization": f"Bearer {config.auth.token}"}
        return (await transport.request(HttpRequest("GET", path, headers, None, 30))).body

    for resource in ApiServer().registry:
        if "list" not in resource.verbs or "get" not in resource.verbs:
            continue
        kind = resource.kind
        for item in json.loads(await get(kind.path(), JSON))["items"]:
            metadata = item["metadata"]
            path = kind.path(metadata.get("namespace"), metadata["name"])
            written = without_nulls(json.loads(await get(path, JSON)))
            assert without_nulls(protobuf.decode(await get(path, PROTOBUF))) == without_inner_kinds(written)
            read += 1
    await transport.close()
    assert read > 100
