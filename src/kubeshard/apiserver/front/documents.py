"""The documents that surround objects: lists, PartialObjectMetadata, discovery, version."""

from __future__ import annotations

from typing import Any

from kubeshard.apiserver.objects import Object
from kubeshard.apiserver.reading import Page
from kubeshard.apiserver.resources.registry import Registry, Resource

VERSION = {
    "major": "1",
    "minor": "36",
    "gitVersion": "v1.36.3",
    "gitCommit": "",
    "gitTreeState": "",
    "buildDate": "1970-01-01T00:00:00Z",
    "goVersion": "",
    "compiler": "",
    "platform": "",
}
"""The release whose behaviour is claimed."""

_SUBRESOURCE_VERBS = {"finalize": ("update",)}


def partial(obj: Object, version: str = "v1") -> Object:
    return {
        "kind": "PartialObjectMetadata",
        "apiVersion": f"meta.k8s.io/{version}",
        "metadata": obj["metadata"],
    }


def partial_list(page: Page, version: str) -> dict[str, Any]:
    return {
        "kind": "PartialObjectMetadataList",
        "apiVersion": f"meta.k8s.io/{version}",
        "metadata": list_metadata(page),
        "items": [partial(obj, version) for obj in page.items],
    }


def list_document(resource: Resource, page: Page) -> dict[str, Any]:
    kind = resource.kind
    items = [obj if resource.strategy.typed_items else _untyped(obj) for obj in page.items]
    return {
        "kind": resource.list_kind or f"{kind.kind}List",
        "apiVersion": kind.api_version,
        "metadata": list_metadata(page),
        "items": items,
    }


def list_metadata(page: Page) -> dict[str, Any]:
    metadata: dict[str, Any] = {"resourceVersion": page.resource_version}
    if page.continue_:
        metadata["continue"] = page.continue_
    if page.remaining is not None:
        metadata["remainingItemCount"] = page.remaining
    return metadata


def discovery(registry: Registry, path: str) -> dict[str, Any] | None:
    """The document at this path, or None."""
    match path.strip("/").split("/"):
        case ["api"]:
            return {"kind": "APIVersions", "versions": ["v1"], "serverAddressByClientCIDRs": []}
        case ["apis"]:
            groups = [_group(registry, group) for group in registry.groups() if group]
            return {"kind": "APIGroupList", "apiVersion": "v1", "groups": groups}
        case ["api", version] if registry.serves("", version):
            return _resources(registry, "", version)
        case ["apis", group] if group in registry.groups():
            return {"kind": "APIGroup", "apiVersion": "v1", **_group(registry, group)}
        case ["apis", group, version] if registry.serves(group, version):
            return _resources(registry, group, version)
    return None


def _untyped(obj: Object) -> Object:
    return {name: value for name, value in obj.items() if name not in ("apiVersion", "kind")}


def _group(registry: Registry, group: str) -> dict[str, Any]:
    versions = [
        {"groupVersion": f"{group}/{version}", "version": version} for version in registry.versions(group)
    ]
    return {"name": group, "versions": versions, "preferredVersion": versions[0]}


def _resources(registry: Registry, group: str, version: str) -> dict[str, Any]:
    entries: list[dict[str, Any]] = []
    for resource in sorted(registry.of(group, version), key=lambda resource: resource.kind.plural):
        kind = resource.kind
        entry: dict[str, Any] = {
            "name": kind.plural,
            "singularName": resource.singular,
            "namespaced": kind.namespaced,
            "kind": kind.kind,
            "verbs": list(resource.verbs),
        }
        if resource.short_names:
            entry["shortNames"] = list(resource.short_names)
        if resource.categories:
            entry["categories"] = list(resource.categories)
        entries.append(entry)
        for name in sorted(resource.subresources):
            verbs = list(_SUBRESOURCE_VERBS.get(name, ("get", "patch", "update")))
            entries.append(
                {
                    "name": f"{kind.plural}/{name}",
                    "singularName": "",
                    "namespaced": kind.namespaced,
                    "kind": kind.kind,
                    "verbs": verbs,
                }
            )
    group_version = f"{group}/{version}" if group else version
    return {
        "kind": "APIResourceList",
        "apiVersion": "v1",
        "groupVersion": group_version,
        "resources": entries,
    }
