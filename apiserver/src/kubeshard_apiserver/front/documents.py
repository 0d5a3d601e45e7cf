"""The documents that surround objects: lists, PartialObjectMetadata, version, and the Tables of `kubectl get`.

Guaranteed: cells are as kube-apiserver prints them at the time of the response; each row contains as much of its
object as `includeObject` requests; a response contains column definitions once, and a watch contains them only in its
first event.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import msgspec

from kubeshard.core.kinds import Kind
from kubeshard_apiserver.objects import Object, beginning
from kubeshard_apiserver.printing import Printer
from kubeshard_apiserver.resources.registry import Resource
from kubeshard_apiserver.schema.catalog import RELEASE
from kubeshard_apiserver.states import Items
from kubeshard_apiserver.status import bad_request
from kubeshard_apiserver.verbs.reading import Page
from kubeshard_apiserver.verbs.watching import INITIAL_EVENTS_END

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


class _RawMetadata(msgspec.Struct):
    """An object of which only the metadata matters, and not even what is in it."""

    metadata: msgspec.Raw


_raw_metadata = msgspec.json.Decoder(_RawMetadata).decode


def raw_partial(text: bytes, version: str) -> dict[str, Any]:
    """Like `partial`, from the object's JSON, for an answer in JSON: neither decodes nor encodes the metadata."""
    return {
        "kind": "PartialObjectMetadata",
        "apiVersion": f"meta.k8s.io/{version}",
        "metadata": _raw_metadata(text).metadata,
    }


def partial_list(page: Page, version: str, *, encoded: bool = False) -> dict[str, Any]:
    """Returns the document of a list of metadata. With `encoded`, metadata may already be encoded as JSON."""
    return {
        "kind": "PartialObjectMetadataList",
        "apiVersion": f"meta.k8s.io/{version}",
        "metadata": _list_metadata(page),
        "items": [raw_partial(text, version) for text in page.items.texts()]
        if encoded
        else [partial(obj, version) for obj in page.items],
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
        "metadata": _list_metadata(page) | _shard_info(resource, page),
        "items": items,
    }


def _shard_info(resource: Resource, page: Page) -> dict[str, Any]:
    """The server's lists of custom resources have no such field."""
    if page.ranges is None or resource.strategy.typed_items:
        return {}
    return {"shardInfo": {"selector": str(page.ranges)}}


def _list_metadata(page: Page) -> dict[str, Any]:
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


_INCLUDES = ("", "Metadata", "Object", "None")


class Tables:
    """Creates the Tables of one request. `version` is the version of the Table: v1 or v1beta1."""

    def __init__(self, printer: Printer, clock: Callable[[], float], version: str, include: str) -> None:
        self._printer = printer
        self._clock = clock
        self._api_version = f"meta.k8s.io/{version}"
        self._version = version
        self._include = include
        self._definitions: list[dict[str, Any]] | None = printer.definitions

    def of_object(self, obj: Object) -> dict[str, Any]:
        """Returns the Table of an object. All methods raise ApiError (400) for an unknown `includeObject`."""
        return self._table({"resourceVersion": obj["metadata"].get("resourceVersion", "")}, (obj,))

    def of_page(self, page: Page) -> dict[str, Any]:
        return self._table(_list_metadata(page), page.items)

    def of_event(self, obj: Object) -> dict[str, Any]:
        table = self.of_object(obj)
        self._definitions = None
        return table

    def _table(self, metadata: dict[str, Any], objects: Iterable[Object]) -> dict[str, Any]:
        if self._include not in _INCLUDES:
            problem = f"""Invalid value: "{self._include}": must be 'Metadata', 'Object', 'None', or empty"""
            raise bad_request(f"Unable to convert to Table as requested: includeObject: {problem}")
        now = self._clock()
        rows = [{**self._printer.row(obj, now), "object": self._included(obj)} for obj in objects]
        return {
            "kind": "Table",
            "apiVersion": self._api_version,
            "metadata": metadata,
            "columnDefinitions": self._definitions,
            "rows": rows,
        }

    def _included(self, obj: Object) -> Object | None:
        if self._include == "Object":
            return obj
        annotations = obj["metadata"].get("annotations") or ()
        if self._include == "None" and INITIAL_EVENTS_END not in annotations:
            return None
        return partial(obj, self._version)
