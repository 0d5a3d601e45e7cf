"""Discovery of the served kinds, in the plain form (APIGroupList, APIResourceList) and in the aggregated form
(KEP-3352), which takes a client two requests instead of forty.

Custom groups come after the built-in ones and are sorted by name; their versions are sorted by maturity. Not covered:
APIServices of other servers, and deprecation.
"""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Mapping
from typing import Any, NamedTuple

from kubeshard_apiserver.resources.registry import Registry, Resource
from kubeshard_apiserver.schema.catalog import Entry

_CUSTOM_VERBS = ("delete", "deletecollection", "get", "list", "patch", "create", "update", "watch")
_ENDING_VERBS = ("delete", "deletecollection", "get", "list", "watch")
"""While the definition is being deleted. Updates and patches are possible all the same."""
_CUSTOM_SUBRESOURCES = ("status", "scale")
_VERSION = re.compile(r"^v(\d+)(?:(alpha|beta)(\d+))?$")


class Listed(NamedTuple):
    """A resource with its served subresources, as in discovery."""

    entry: Entry
    subresources: Mapping[str, Entry]


def discovery(registry: Registry, path: str) -> dict[str, Any] | None:
    """Returns the plain document at this path, or None."""
    match path.strip("/").split("/"):
        case ["api"]:
            return {"kind": "APIVersions", "versions": ["v1"], "serverAddressByClientCIDRs": []}
        case ["apis"]:
            groups = [_group(registry, group) for group in _groups(registry)]
            return {"kind": "APIGroupList", "apiVersion": "v1", "groups": groups}
        case ["api", version] if registry.serves("", version):
            return _resources(registry, "", version)
        case ["apis", group] if group in registry.groups():
            return {"kind": "APIGroup", "apiVersion": "v1", **_group(registry, group)}
        case ["apis", group, version] if registry.serves(group, version):
            return _resources(registry, group, version)
    return None


def aggregated_discovery(registry: Registry, path: str) -> dict[str, Any] | None:
    """Returns the aggregated document at this path, or None if there is only a plain one."""
    match path.strip("/"):
        case "api":
            groups = [""]
        case "apis":
            groups = _groups(registry)
        case _:
            return None
    items = [
        {
            "metadata": {"name": group} if group else {},
            "versions": [_version(registry, group, version) for version in _versions(registry, group)],
        }
        for group in groups
    ]
    return {
        "kind": "APIGroupDiscoveryList",
        "apiVersion": "apidiscovery.k8s.io/v2",
        "metadata": {},
        "items": items,
    }


def listed(registry: Registry, resource: Resource) -> Listed:
    kind, custom = resource.kind, resource.strategy.is_custom
    entry = Entry(
        kind.plural,
        resource.singular,
        kind.namespaced,
        kind.kind,
        (_ENDING_VERBS if resource.is_ending else _CUSTOM_VERBS) if custom else resource.verbs,
        short_names=resource.short_names,
        categories=resource.categories,
        storage_version_hash=resource.storage_hash or _storage_version_hash(registry, resource),
    )
    if custom:
        names = (name for name in _CUSTOM_SUBRESOURCES if name in resource.subresources)
        return Listed(entry, {name: _custom_subresource(resource, name) for name in names})
    return Listed(entry, {name: one for name, one in resource.parts.items() if name in resource.subresources})


def _custom_subresource(resource: Resource, name: str) -> Entry:
    kind = resource.kind
    is_scale = name == "scale"
    return Entry(
        f"{kind.plural}/{name}",
        "",
        kind.namespaced,
        "Scale" if is_scale else kind.kind,
        ("get", "patch", "update"),
        group="autoscaling" if is_scale else "",
        version="v1" if is_scale else "",
    )


def _storage_version_hash(registry: Registry, resource: Resource) -> str:
    """Returns the hash of a custom resource, whose storage version comes first in the registry. A built-in resource
    without a hash of its own is not stored and gets an empty string.
    """
    if not resource.strategy.is_custom:
        return ""
    stored = next(one.kind for one in registry if one.group_resource == resource.group_resource)
    text = f"{stored.group}/{stored.version}/{stored.kind}"
    return base64.b64encode(hashlib.sha256(text.encode()).digest()[:8]).decode()


def _groups(registry: Registry) -> list[str]:
    """All groups but the core group."""
    groups = [group for group in registry.groups() if group]
    return sorted(groups, key=lambda group: ("", group)[not registry.is_builtin(group)])


def _versions(registry: Registry, group: str) -> list[str]:
    return sorted(registry.versions(group), key=_maturity)


def _maturity(version: str) -> tuple[Any, ...]:
    """The sort key of a version: stable before beta before alpha, newest first, and names of any other form last."""
    found = _VERSION.match(version)
    if found is None:
        return (3, version)
    major, stage, minor = found.groups()
    return ({None: 0, "beta": 1, "alpha": 2}[stage], -int(major), -int(minor or 0))


def _group(registry: Registry, group: str) -> dict[str, Any]:
    versions = [
        {"groupVersion": f"{group}/{version}", "version": version} for version in _versions(registry, group)
    ]
    return {"name": group, "versions": versions, "preferredVersion": versions[0]}


def _resources(registry: Registry, group: str, version: str) -> dict[str, Any]:
    entries = []
    for entry, subresources in _listed(registry, group, version):
        entries += [_plain(one) for one in (entry, *subresources.values())]
    if not group:  # for clients older than the field
        return {"kind": "APIResourceList", "groupVersion": version, "resources": entries}
    return {
        "kind": "APIResourceList",
        "apiVersion": "v1",
        "groupVersion": f"{group}/{version}",
        "resources": entries,
    }


def _listed(registry: Registry, group: str, version: str) -> list[Listed]:
    found = sorted(registry.of(group, version), key=lambda resource: resource.kind.plural)
    return [listed(registry, resource) for resource in found]


def _plain(entry: Entry) -> dict[str, Any]:
    optional = {
        "group": entry.group,
        "version": entry.version,
        "shortNames": list(entry.short_names),
        "categories": list(entry.categories),
        "storageVersionHash": entry.storage_version_hash,
    }
    return {
        "name": entry.name,
        "singularName": entry.singular_name,
        "namespaced": entry.namespaced,
        "kind": entry.kind,
        "verbs": list(entry.verbs),
        **{name: value for name, value in optional.items() if value},
    }


def _version(registry: Registry, group: str, version: str) -> dict[str, Any]:
    # Built-in kinds omit the group and version if they are those of the list.
    own = ("", "") if registry.is_builtin(group) else (group, version)
    return {
        "version": version,
        "resources": [_aggregated(found, own) for found in _listed(registry, group, version)],
        "freshness": "Current",
    }


def _aggregated(found: Listed, own: tuple[str, str]) -> dict[str, Any]:
    entry = found.entry
    optional = {
        "shortNames": list(entry.short_names),
        "categories": list(entry.categories),
        "subresources": [
            {"subresource": name, "responseKind": _response_kind(sub, own), "verbs": list(sub.verbs)}
            for name, sub in found.subresources.items()
        ],
    }
    return {
        "resource": entry.name,
        "responseKind": _response_kind(entry, own),
        "scope": "Namespaced" if entry.namespaced else "Cluster",
        "singularResource": entry.singular_name,
        "verbs": list(entry.verbs),
        **{name: value for name, value in optional.items() if value},
    }


def _response_kind(entry: Entry, own: tuple[str, str]) -> dict[str, str]:
    group, version = (entry.group, entry.version) if entry.version else own
    return {"group": group, "version": version, "kind": entry.kind}
