"""The documents that surround objects: lists, PartialObjectMetadata, version."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from kubeshard_apiserver.objects import Object
from kubeshard_apiserver.resources.registry import Resource
from kubeshard_apiserver.schema.catalog import RELEASE
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
    items: Sequence[Any] = page.items
    if not resource.strategy.typed_items:
        items = _raw_untyped(page.items) if encoded else [_untyped(obj) for obj in page.items]
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


def _raw_untyped(objects: Sequence[Object]) -> list[Any]:
    if not objects:
        return []
    first = {"kind": objects[0]["kind"], "apiVersion": objects[0]["apiVersion"]}
    beginning = msgspec.json.encode(first)[:-1] + b","
    items: list[Any] = []
    for obj in objects:
        text = msgspec.json.encode(obj)
        if text.startswith(beginning):
            items.append(msgspec.Raw(b"{" + text[len(beginning) :]))
        else:
            items.append(_untyped(obj))
    return items


def _untyped(obj: Object) -> Object:
    return {name: value for name, value in obj.items() if name not in ("apiVersion", "kind")}
