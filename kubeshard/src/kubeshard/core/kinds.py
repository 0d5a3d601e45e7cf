"""Identifiers of a kind of object at the API server.

A `Kind` is plain data: group, version, kind, plural resource name and scope. Nothing here calls a server;
classes of `kubeshard.core.objects` have their `Kind`, and discovery (`kubeshard.client`) creates one for kinds
known by name only.

They are tuples because every read, write and event uses them as dict keys.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import NamedTuple
from urllib.parse import quote

import msgspec


class GroupResource(NamedTuple):
    """A resource without its version, as ControllerRings and RBAC rules name it."""

    group: str
    resource: str

    def __str__(self) -> str:
        return f"{self.resource}.{self.group}" if self.group else self.resource


class GroupKind(NamedTuple):
    """A kind without its version, used to compare owner references."""

    group: str
    kind: str

    def __str__(self) -> str:
        return f"{self.kind}.{self.group}" if self.group else self.kind


class TypeMeta(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    """`apiVersion` and `kind` of an object. Items of metadata lists lack them: the request determines them."""

    api_version: str = ""
    kind: str = ""


class Kind(NamedTuple):
    """Group, version, kind, plural resource name and scope of a kind of object."""

    group: str
    version: str
    kind: str
    plural: str
    namespaced: bool = True

    @property
    def api_version(self) -> str:
        return f"{self.group}/{self.version}" if self.group else self.version

    @property
    def group_kind(self) -> GroupKind:
        return GroupKind(self.group, self.kind)

    @property
    def group_resource(self) -> GroupResource:
        return GroupResource(self.group, self.plural)

    def path(
        self, namespace: str | None = None, name: str | None = None, subresource: str | None = None
    ) -> str:
        """The URL path of the collection, of one object, or of its subresource. Without a namespace it is that of all
        namespaces, which can only be listed and watched.
        """
        path = _collection(self, namespace)
        if name is not None:
            path += f"/{_quoted(name)}"
        if subresource is not None:
            path += f"/{subresource}"
        return path

    def __str__(self) -> str:
        return f"{self.kind}.{self.version}.{self.group}" if self.group else f"{self.kind}.{self.version}"


@lru_cache(maxsize=1024)
def _collection(kind: Kind, namespace: str | None) -> str:
    base = f"/apis/{kind.group}/{kind.version}" if kind.group else f"/api/{kind.version}"
    if namespace and kind.namespaced:
        base += f"/namespaces/{_quoted(namespace)}"
    return f"{base}/{kind.plural}"


_PLAIN = re.compile("[A-Za-z0-9_.~-]*")


def _quoted(part: str) -> str:
    return part if _PLAIN.fullmatch(part) else quote(part, safe="")


def split_api_version(api_version: str) -> tuple[str, str]:
    """`apps/v1` -> (`apps`, `v1`), `v1` -> (``, `v1`). Raises ValueError for anything else."""
    parts = api_version.split("/")
    if len(parts) == 1 and parts[0]:
        return "", parts[0]
    if len(parts) == 2 and parts[0] and parts[1]:
        return parts[0], parts[1]
    raise ValueError(f"unexpected GroupVersion string: {api_version}")


def default_plural(kind: str) -> str:
    """The usual plural: `Ingress` -> `ingresses`, `NetworkPolicy` -> `networkpolicies`."""
    lower = kind.lower()
    if lower.endswith(("s", "x", "z", "ch", "sh")):
        return lower + "es"
    if lower.endswith("y") and lower[-2:-1] not in "aeiou":
        return lower[:-1] + "ies"
    return lower + "s"
