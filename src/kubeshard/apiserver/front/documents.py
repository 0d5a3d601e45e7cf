"""The documents that surround objects: lists, PartialObjectMetadata, version."""

from __future__ import annotations

from typing import Any

from kubeshard.apiserver.objects import Object
from kubeshard.apiserver.reading import Page
from kubeshard.apiserver.resources.registry import Resource

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


def _untyped(obj: Object) -> Object:
    return {name: value for name, value in obj.items() if name not in ("apiVersion", "kind")}
