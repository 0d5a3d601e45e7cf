"""The registry of served kinds: built-in ones, and those that definitions add."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property

from kubeshard.core.kinds import GroupResource, Kind
from kubeshard_apiserver.printing import Printer
from kubeshard_apiserver.resources.strategy import Strategy
from kubeshard_apiserver.schema.catalog import Entry

_VERBS = ("create", "delete", "deletecollection", "get", "list", "patch", "update", "watch")


@dataclass(frozen=True)
class Resource:
    """A served kind in one version."""

    strategy: Strategy
    singular: str
    short_names: tuple[str, ...] = ()
    categories: tuple[str, ...] = ()
    verbs: tuple[str, ...] = _VERBS
    list_kind: str = ""
    own_printer: Printer | None = None
    """The printer of a kind whose definition declares its columns."""
    deprecation: str = ""
    """The warning for clients of this version."""
    is_ending: bool = False
    """Whether its definition is being deleted."""
    storage_hash: str = ""
    parts: Mapping[str, Entry] = field(default_factory=dict)
    """The subresources of built-in kinds, as discovery reports them."""

    @cached_property
    def kind(self) -> Kind:
        return self.strategy.kind

    @cached_property
    def api_version(self) -> str:
        return self.kind.api_version

    @cached_property
    def group_resource(self) -> GroupResource:
        return self.kind.group_resource

    @property
    def subresources(self) -> frozenset[str]:
        return self.strategy.subresources


class Registry:
    """The served resources. The versions of a group are kept in the order of addition; the first is preferred."""

    def __init__(self) -> None:
        self._resources: dict[tuple[str, str, str], Resource] = {}
        self._versions: dict[str, list[str]] = {}
        """What `versions` has returned of served groups since the last change."""
        self._of: dict[tuple[str, str], list[Resource]] = {}
        """What `of` has returned of served versions since the last change."""
        self.changes = 0

    def add(self, resource: Resource) -> None:
        kind = resource.kind
        self._resources[kind.group, kind.version, kind.plural] = resource
        self._changed()

    def _changed(self) -> None:
        self.changes += 1
        self._versions.clear()
        self._of.clear()

    def remove(self, resource: GroupResource) -> None:
        """Remove a resource in all versions."""
        for key in [
            key for key in self._resources if (key[0], key[2]) == (resource.group, resource.resource)
        ]:
            del self._resources[key]
        self._changed()

    def find(self, group: str, version: str, plural: str) -> Resource | None:
        return self._resources.get((group, version, plural))

    def serves(self, group: str, version: str) -> bool:
        return any(key[:2] == (group, version) for key in self._resources)

    def is_builtin(self, group: str) -> bool:
        return any(key[0] == group and not found.strategy.is_custom for key, found in self._resources.items())

    def groups(self) -> list[str]:
        return list(dict.fromkeys(group for group, _, _ in self._resources))

    def versions(self, group: str) -> list[str]:
        found = self._versions.get(group)
        if found is None:
            found = list(dict.fromkeys(version for of, version, _ in self._resources if of == group))
            if found:  # anything may be asked for
                self._versions[group] = found
        return list(found)

    def of(self, group: str, version: str) -> list[Resource]:
        found = self._of.get((group, version))
        if found is None:
            found = [resource for key, resource in self._resources.items() if key[:2] == (group, version)]
            if found:
                self._of[group, version] = found
        return list(found)

    def __iter__(self) -> Iterator[Resource]:
        return iter(list(self._resources.values()))
