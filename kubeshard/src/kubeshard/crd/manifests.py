"""Reads CustomResourceDefinitions from files, and kinds from an API server's OpenAPI."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from kubeshard.core.kinds import Kind
from kubeshard.crd.schema import Schema

Manifest = Mapping[str, Any]


def definitions_in(documents: Iterable[Any]) -> list[Manifest]:
    """Also those inside a List. Raises ValueError for an invalid one."""
    found: list[Manifest] = []
    for document in documents:
        if not isinstance(document, Mapping):
            continue
        if document.get("kind") == "List":
            found += definitions_in(document.get("items") or ())
        if document.get("kind") == "CustomResourceDefinition":
            if document.get("apiVersion") != "apiextensions.k8s.io/v1":
                raise ValueError(f"{name_of(document)} is not of apiextensions.k8s.io/v1")
            _check(document)
            found.append(document)
    return found


def name_of(definition: Manifest) -> str:
    name = (definition.get("metadata") or {}).get("name")
    return name if isinstance(name, str) else "a CustomResourceDefinition without a name"


def versions_of(definition: Manifest) -> dict[str, Mapping[str, Any]]:
    return {version["name"]: version for version in definition["spec"]["versions"]}


def schema_in(version: Mapping[str, Any]) -> Schema:
    schema: Schema = (version.get("schema") or {}).get("openAPIV3Schema") or {}
    return schema


def kind_in(definition: Manifest, version: str = "") -> tuple[Kind, Schema]:
    """The kind and the schema of a version, by default the storage version. Raises ValueError."""
    spec, versions = definition["spec"], versions_of(definition)
    stored = next((name for name, found in versions.items() if found.get("storage")), "")
    chosen = versions.get(version or stored)
    if chosen is None:
        raise ValueError(
            f"{name_of(definition)} has no version {version or 'that is stored'}; it has {', '.join(versions)}"
        )
    names = spec["names"]
    kind = Kind(spec["group"], chosen["name"], names["kind"], names["plural"], spec["scope"] == "Namespaced")
    return kind, schema_in(chosen)


def described(document: Mapping[str, Any], kind: Kind) -> Schema:
    """A reference to the schema of a kind in the OpenAPI v3 document of its group and version. Raises ValueError."""
    wanted = {"group": kind.group, "version": kind.version, "kind": kind.kind}
    for name, schema in schemas_in(document).items():
        if wanted in schema.get("x-kubernetes-group-version-kind", ()):
            return {"$ref": f"#/components/schemas/{name}"}
    raise ValueError(f"the API server does not describe {kind}")


def schemas_in(document: Mapping[str, Any]) -> Mapping[str, Schema]:
    """The schemas of such a document, by the names that references in it use."""
    schemas: Mapping[str, Schema] = (document.get("components") or {}).get("schemas") or {}
    return schemas


def _check(definition: Manifest) -> None:
    spec = definition.get("spec")
    try:
        assert isinstance(spec, Mapping)
        names, versions = spec["names"], spec["versions"]
        strings = [
            spec["group"],
            spec["scope"],
            names["kind"],
            names["plural"],
            *(each["name"] for each in versions),
        ]
        assert all(isinstance(each, str) for each in strings)
        assert all(isinstance(schema_in(each), Mapping) for each in versions)
    except (KeyError, TypeError, AttributeError, AssertionError):
        raise ValueError(f"{name_of(definition)} lacks group, names, scope or versions") from None
