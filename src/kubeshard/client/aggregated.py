"""Aggregated discovery: all kinds of the server in one document for `/api` and one for `/apis`.

The API server has collected what extension API servers serve. A version whose server does not answer is marked as
stale; the document's information about it is outdated or missing.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from kubeshard.core.errors import ApiError, Unavailable
from kubeshard.core.kinds import Kind
from kubeshard.core.objects import Struct

KIND = "APIGroupDiscoveryList"
ACCEPT = f"application/json;g=apidiscovery.k8s.io;v=v2;as={KIND},application/json"
"""A server without aggregated discovery responds with the plain document."""


class _Name(Struct):
    name: str = ""


class _ResponseKind(Struct):
    kind: str = ""


class _Resource(Struct):
    resource: str = ""
    response_kind: _ResponseKind | None = None
    """The kind; None for a resource that only has subresources."""
    scope: str = ""
    verbs: tuple[str, ...] = ()


class _Version(Struct):
    version: str = ""
    resources: tuple[_Resource, ...] = ()
    freshness: str = ""


class _Group(Struct):
    metadata: _Name = _Name()
    versions: tuple[_Version, ...] = ()


class Document(Struct):
    kind: str = ""
    items: tuple[_Group, ...] = ()


class Served(NamedTuple):
    """What a version of a group serves: its kinds with their verbs, or why that is not known."""

    group: str
    version: str
    kinds: list[tuple[Kind, tuple[str, ...]]] | ApiError


def served(document: Document) -> Iterator[Served]:
    """The versions of a group come in the order of its preference."""
    for item in document.items:
        group = item.metadata.name
        for version in item.versions:
            yield Served(group, version.version, _stale(group, version) or _kinds(group, version))


def _stale(group: str, version: _Version) -> ApiError | None:
    if version.freshness != "Stale":
        return None
    return Unavailable(f"the API server cannot reach the extension API server of {group}/{version.version}")


def _kinds(group: str, version: _Version) -> list[tuple[Kind, tuple[str, ...]]]:
    return [
        (
            Kind(
                group, version.version, entry.response_kind.kind, entry.resource, entry.scope == "Namespaced"
            ),
            entry.verbs,
        )
        for entry in version.resources
        if entry.response_kind is not None
    ]
