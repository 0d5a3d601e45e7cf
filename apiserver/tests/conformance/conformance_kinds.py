"""The custom resource that the test cases use."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
SITES = "/apis/conformance.example.com/v1/namespaces/{}/sites"

_SPEC: dict[str, Any] = {
    "type": "object",
    "required": ["theme"],
    "properties": {
        "theme": {"type": "string", "minLength": 1, "maxLength": 5, "pattern": "^[a-z]+$"},
        "replicas": {"type": "integer", "minimum": 1, "maximum": 10, "default": 1},
        "color": {"type": "string", "enum": ["red", "blue"]},
        "on": {"type": "boolean"},
        "ratio": {"type": "number"},
        "tags": {
            "type": "array",
            "maxItems": 2,
            "minItems": 1,
            "x-kubernetes-list-type": "set",
            "items": {"type": "string"},
        },
        "ports": {
            "type": "array",
            "x-kubernetes-list-type": "map",
            "x-kubernetes-list-map-keys": ["name"],
            "items": {
                "type": "object",
                "required": ["name"],
                "properties": {"name": {"type": "string"}, "port": {"type": "integer"}},
            },
        },
        "free": {"type": "object", "x-kubernetes-preserve-unknown-fields": True},
        "nested": {"type": "object", "properties": {"a": {"type": "string", "default": "x"}}},
        "list": {"type": "array", "items": {"type": "string"}},
        "map": {"type": "object", "additionalProperties": {"type": "string"}},
        "maybe": {"type": "string", "nullable": True},
        "either": {"x-kubernetes-int-or-string": True},
    },
}


def definition(
    group: str, plural: str = "sites", kind: str = "Site", *, status: bool = True
) -> dict[str, Any]:
    """Returns a CustomResourceDefinition that uses all supported features of schemas."""
    schema = {
        "type": "object",
        "required": ["spec"],
        "properties": {
            "spec": deepcopy(_SPEC),
            "status": {"type": "object", "properties": {"phase": {"type": "string"}}},
        },
    }
    version = {"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": schema}}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{plural}.{group}"},
        "spec": {
            "group": group,
            "scope": "Namespaced",
            "names": {"plural": plural, "kind": kind},
            "versions": [{**version, "subresources": {"status": {}}} if status else version],
        },
    }


SITE_DEFINITION = definition("conformance.example.com")


def site(name: str = "a", spec: Any = None, **fields: Any) -> dict[str, Any]:
    return {
        "apiVersion": "conformance.example.com/v1",
        "kind": "Site",
        "metadata": {"name": name, **fields.pop("metadata", {})},
        "spec": {"theme": "dark"} if spec is None else spec,
        **fields,
    }


def config_map(name: str = "a", data: dict[str, str] | None = None, **metadata: Any) -> dict[str, Any]:
    body: dict[str, Any] = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, **metadata}}
    return body if data is None else {**body, "data": data}
