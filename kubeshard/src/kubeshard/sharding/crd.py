"""The CustomResourceDefinition of ControllerRing, built in code.

Guaranteed: it accepts exactly what the reference's CRD accepts, prints the same columns and prunes the same
fields.
"""

from __future__ import annotations

from typing import Any

from kubeshard.crd.metav1 import CONDITION
from kubeshard.sharding.api import GROUP, VERSION, ControllerRing
from kubeshard.sharding.names import MAX_RING_NAME, SYSTEM_NAMESPACE

Schema = dict[str, Any]

NAME = f"controllerrings.{GROUP}"


def controller_ring_crd() -> dict[str, Any]:
    """The manifest, to be applied."""
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": NAME},
        "spec": {
            "group": GROUP,
            "names": {
                "kind": ControllerRing.KIND.kind,
                "listKind": "ControllerRingList",
                "plural": ControllerRing.KIND.plural,
                "singular": "controllerring",
            },
            "scope": "Cluster",
            "versions": [
                {
                    "name": VERSION,
                    "served": True,
                    "storage": True,
                    "subresources": {"status": {}},
                    "additionalPrinterColumns": [
                        _column("Ready", "string", '.status.conditions[?(@.type == "Ready")].status'),
                        _column("Available", "string", ".status.availableShards"),
                        _column("Shards", "string", ".status.shards"),
                        _column("Age", "date", ".metadata.creationTimestamp"),
                    ],
                    "schema": {"openAPIV3Schema": _ring()},
                }
            ],
        },
    }


def sharder_prerequisites() -> tuple[dict[str, Any], dict[str, Any]]:
    """The manifests of what a sharder needs in an empty cluster: the CustomResourceDefinition, and its namespace."""
    return (
        controller_ring_crd(),
        {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": SYSTEM_NAMESPACE}},
    )


def _column(name: str, type_: str, path: str) -> dict[str, str]:
    return {"name": name, "type": type_, "jsonPath": path}


def _ring() -> Schema:
    return {
        "description": "A ring of controller instances (shards) and the resources whose objects are spread"
        " over them.",
        "type": "object",
        "properties": {
            "apiVersion": _string("Versioned schema of this representation of the object."),
            "kind": _string("The REST resource that this object represents."),
            "metadata": {"type": "object"},
            "spec": _spec(),
            "status": _status(),
        },
        "x-kubernetes-validations": [
            {
                "rule": f"size(self.metadata.name) <= {MAX_RING_NAME}",
                "message": f"ControllerRing name must not be longer than {MAX_RING_NAME} characters",
            }
        ],
    }


def _spec() -> Schema:
    controlled = _list_map(
        "Resources that the controller creates for objects of the main resource: they have an owner reference"
        " with controller=true to it and land on the same shard.",
        _group_resource(),
        ["group", "resource"],
    )
    main = _group_resource()
    main["properties"]["controlledResources"] = controlled
    return {
        "description": "Desired behaviour of the ring.",
        "type": "object",
        "properties": {
            "resources": _list_map(
                "Main resources whose objects are spread over the shards.", main, ["group", "resource"]
            ),
            "namespaceSelector": _label_selector(
                "Replaces the sharder's default selector of namespaces. It should exclude kube-system and"
                " the sharder's own. Changing it never removes labels from objects that were selected before."
            ),
        },
    }


def _group_resource() -> Schema:
    return {
        "type": "object",
        "required": ["group", "resource"],
        "properties": {
            "group": _string('API group; "" is the core group.'),
            "resource": _string("Plural name in lower case."),
        },
    }


def _label_selector(description: str) -> Schema:
    expression = {
        "type": "object",
        "required": ["key", "operator"],
        "properties": {
            "key": _string("Label key."),
            "operator": _string("In, NotIn, Exists or DoesNotExist."),
            "values": {"type": "array", "items": {"type": "string"}, "x-kubernetes-list-type": "atomic"},
        },
    }
    return {
        "description": description,
        "type": "object",
        "properties": {
            "matchExpressions": {"type": "array", "items": expression, "x-kubernetes-list-type": "atomic"},
            "matchLabels": {"type": "object", "additionalProperties": {"type": "string"}},
        },
        "x-kubernetes-map-type": "atomic",
    }


def _status() -> Schema:
    return {
        "description": "What the sharder last observed.",
        "type": "object",
        "required": ["availableShards", "shards"],
        "properties": {
            "observedGeneration": {"type": "integer", "format": "int64"},
            "shards": {"description": "Number of Leases.", "type": "integer", "format": "int32"},
            "availableShards": {
                "description": "Number of shards that objects are assigned to.",
                "type": "integer",
                "format": "int32",
            },
            "conditions": _list_map("Observations of the ring.", CONDITION, ["type"]),
        },
    }


def _list_map(description: str, items: Schema, keys: list[str]) -> Schema:
    return {
        "description": description,
        "type": "array",
        "items": items,
        "x-kubernetes-list-type": "map",
        "x-kubernetes-list-map-keys": keys,
    }


def _string(description: str) -> Schema:
    return {"description": description, "type": "string"}
