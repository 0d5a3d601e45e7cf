"""The manifests of the tests."""

from __future__ import annotations

from typing import Any

GIZMOS: dict[str, Any] = {
    "apiVersion": "apiextensions.k8s.io/v1",
    "kind": "CustomResourceDefinition",
    "metadata": {"name": "gizmos.kubectl.example.com"},
    "spec": {
        "group": "kubectl.example.com",
        "scope": "Namespaced",
        "names": {"plural": "gizmos", "kind": "Gizmo", "shortNames": ["gz"]},
        "versions": [
            {
                "name": "v1",
                "served": True,
                "storage": True,
                "subresources": {
                    "status": {},
                    "scale": {
                        "specReplicasPath": ".spec.replicas",
                        "statusReplicasPath": ".status.replicas",
                    },
                },
                "additionalPrinterColumns": [
                    {"name": "Size", "type": "integer", "jsonPath": ".spec.replicas"},
                    {"name": "Color", "type": "string", "jsonPath": ".spec.color", "priority": 1},
                ],
                "schema": {
                    "openAPIV3Schema": {
                        "type": "object",
                        "description": "A gizmo does things.",
                        "properties": {
                            "spec": {
                                "type": "object",
                                "description": "What is wanted.",
                                "required": ["color"],
                                "properties": {
                                    "color": {"type": "string", "description": "How it looks."},
                                    "replicas": {"type": "integer", "format": "int32"},
                                },
                            },
                            "status": {
                                "type": "object",
                                "x-kubernetes-preserve-unknown-fields": True,
                            },
                        },
                    }
                },
            }
        ],
    },
}


def gizmo(name: str = "a", **spec: Any) -> dict[str, Any]:
    return {
        "apiVersion": "kubectl.example.com/v1",
        "kind": "Gizmo",
        "metadata": {"name": name},
        "spec": {"color": "red", **spec},
    }


def config_map(name: str = "a", data: Any = None, **metadata: Any) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": name, **metadata},
        "data": {"k": "v"} if data is None else data,
    }
