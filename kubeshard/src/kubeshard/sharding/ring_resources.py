"""The role of a resource in a ring: main, controlled, or not part of it.

Guaranteed: webhook, resync and watch use the same object, so they always agree: a resource that is both main and
controlled is main, or it would be moved forever, and each resource is processed once. Resources that must not be
sharded are left out and reported; the rest of the ring works.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field

from kubeshard.core.kinds import GroupResource
from kubeshard.core.names import is_dns_subdomain
from kubeshard.core.selectors import LabelSelector
from kubeshard.sharding.api import RingResource
from kubeshard.sharding.names import NAMESPACE_NAME_LABEL

FORBIDDEN = frozenset(
    {
        GroupResource("coordination.k8s.io", "leases"),
        GroupResource("sharding.timebertt.dev", "controllerrings"),
        GroupResource("admissionregistration.k8s.io", "mutatingwebhookconfigurations"),
        GroupResource("admissionregistration.k8s.io", "validatingwebhookconfigurations"),
        GroupResource("", "events"),
        GroupResource("events.k8s.io", "events"),
    }
)
"""Resources that the sharder itself depends on: with its own webhook for these it would lock itself out."""

FEW_NAMESPACES = 5
"""So many namespaces are read one by one, each with a watch of its own."""


class ResourceNotInRing(LookupError):
    """The ring does not list the resource. The message is the protocol's."""

    def __init__(self, resource: GroupResource) -> None:
        super().__init__(f'object\'s resource "{resource}" was not found in ControllerRing')


@dataclass(frozen=True, slots=True)
class RingEntry:
    """A resource of a ring. `owners` are the main resources that list it as controlled; empty for a main
    resource.
    """

    resource: GroupResource
    owners: frozenset[GroupResource] = frozenset()
    main: bool = field(init=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "main", not self.owners)


@dataclass(frozen=True, slots=True)
class Problem:
    """A mistake in a ring's resources. `conflict`: a resource has a second role, which is ignored; otherwise it
    is left out.
    """

    resource: GroupResource
    message: str
    conflict: bool


class RingResources:
    """The resources of a ring, each once, in the order in which a resync processes them: an entry's main
    resource before the resources that it controls. `problems` are the mistakes to report.
    """

    __slots__ = ("_by_resource", "entries", "problems")

    def __init__(self, resources: Iterable[RingResource]) -> None:
        listed = tuple(resources)
        problems: list[Problem] = []
        mains = {main.group_resource for main in listed if _accepted(main.group_resource, problems)}
        owners: dict[GroupResource, set[GroupResource]] = {}
        order: list[GroupResource] = []
        for main in listed:
            owner = main.group_resource
            if owner not in mains:
                continue
            order.append(owner)
            for controlled in main.controlled_resources:
                resource = controlled.group_resource
                if resource in mains:
                    problems.append(
                        Problem(
                            resource,
                            f'"{resource}" is a main resource and controlled by "{owner}": it is treated as main',
                            True,
                        )
                    )
                elif resource in owners:
                    if owner not in owners[resource]:
                        problems.append(
                            Problem(resource, f'"{resource}" is controlled by several main resources', True)
                        )
                    owners[resource].add(owner)
                elif _accepted(resource, problems):
                    owners[resource] = {owner}
                    order.append(resource)
        self.entries = tuple(
            RingEntry(resource, frozenset(owners.get(resource, ()))) for resource in dict.fromkeys(order)
        )
        self.problems = tuple(dict.fromkeys(problems))
        self._by_resource = {entry.resource: entry for entry in self.entries}

    def entry(self, resource: GroupResource) -> RingEntry:
        """The resource's entry. Raises ResourceNotInRing."""
        try:
            return self._by_resource[resource]
        except KeyError:
            raise ResourceNotInRing(resource) from None

    def __contains__(self, resource: object) -> bool:
        return resource in self._by_resource


def named_namespaces(selector: LabelSelector | None) -> tuple[str, ...]:
    """The only namespaces that the selector can select, if it names them; () if it does not."""
    if selector is None:
        return ()
    if name := (selector.match_labels or {}).get(NAMESPACE_NAME_LABEL):
        return (name,)
    for each in selector.match_expressions:
        if each.key == NAMESPACE_NAME_LABEL and each.operator == "In":
            return tuple(sorted(set(each.values)))
    return ()


def few_named_namespaces(selector: LabelSelector | None) -> tuple[str, ...]:
    """Those of `named_namespaces`, if they are few: a ring reads these only, whatever else there is."""
    named = named_namespaces(selector)
    return named if len(named) <= FEW_NAMESPACES else ()


_RESOURCE = re.compile(r"[a-z](?:[-a-z0-9]{0,61}[a-z0-9])?")


def _accepted(resource: GroupResource, problems: list[Problem]) -> bool:
    """Whether a ring may shard the resource; if not, the reason is added to `problems`."""
    if resource in FORBIDDEN:
        problem = f'"{resource}" cannot be sharded: the sharder itself depends on it'
    elif resource.group and not is_dns_subdomain(resource.group):
        problem = f'"{resource}": the group is neither "" nor a DNS name'
    elif _RESOURCE.fullmatch(resource.resource) is None:
        problem = (
            f'"{resource}": the resource must be a plural name in lower case, without wildcard or subresource'
        )
    else:
        return True
    problems.append(Problem(resource, problem, False))
    return False
