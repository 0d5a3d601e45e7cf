"""The documents that surround objects: lists, PartialObjectMetadata, version."""

from __future__ import annotations

from typing import Any

import msgspec

from kubeshard.core.kinds import Kind
from kubeshard_apiserver.objects import Object, beginning
from kubeshard_apiserver.resources.registry import Resource
from kubeshard_apiserver.schema.catalog import RELEASE
from kubeshard_apiserver.states import Items
from kubeshard_apiserver.verbs.reading import Page

_MAJOR, _MINOR, _ = RELEASE.removeprefix("v").split(".")
VERSION = {
    "major": _MAJOR,
    "minor": _MINOR,
    "emulationMajor": _MAJOR,
    "emulationMinor": _MINOR,
    "minCompatibilityMajor": _MAJOR,
    "minCompatibilityMinor": str(int(_MINOR) - 1),
    "gitVersion": RELEASE,
    "gitCommit": "",
    "gitTreeState": "",
    "buildDate": "1970-01-01T00:00:00Z",
    "goVersion": "",
    "compiler": "",
    "platform": "",
}
"""The Kubernetes release whose behaviour the server implements."""


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


def list_document(resource: Resource, page: Page, *, encoded: bool = False) -> dict[str, Any]:
    """Returns the document of a list. With `encoded`, items may already be encoded as JSON. This saves a copy of each
    item, and thus passes of Python's garbage collector over all stored objects.
    """
    kind = resource.kind
    if resource.strategy.typed_items:
        items: list[Any] = [*page.items]
    else:
        items = _raw_untyped(kind, page.items) if encoded else [_untyped(obj) for obj in page.items]
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


def _raw_untyped(kind: Kind, objects: Items) -> list[Any]:
    first = beginning(kind.kind, kind.api_version)
    return [
        msgspec.Raw(b"{" + text[len(first) :]) if text.startswith(first) else _untyped(objects[index])
        for index, text in enumerate(objects.texts())
    ]


def _untyped(obj: Object) -> Object:
    return {name: value for name, value in obj.items() if name not in ("apiVersion", "kind")}
