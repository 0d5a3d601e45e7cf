"""The role of a resource in a ring - main, controlled, or not part of it - and to whom its objects belong.

Guaranteed: webhook, resync and watch use the same object, so they always agree: a resource that is both main and
controlled is main, or it would be moved forever, and each resource is processed once. Resources that must not be
sharded are left out and reported; the rest of the ring works.

There is one rule for who stamps it, who fences it, and who moves it.

| object | belongs to | a shard that creates it sets the label | a shard's write is proven by |
|---|---|---|---|
| of a main resource | itself | no: the sharder chooses the shard | the label |
| of a controlled one, whose controller is an object of a main resource that lists it, in its namespace | that OWNER | \
yes | the label |
| of a controlled one that has such an owner elsewhere (FAR, below) | that owner | yes | the version, and takes the \
label over |
| any other of a controlled resource | NOBODY | no, and a label on it means nothing | the version |

An owner is FAR if it is cluster-scoped and the object is not; if it controls the object through others, which the ring
lists as controlled, too; or if it is in another namespace and the object names it by an annotation
(`kubeshard.core.owners.NOTED_OWNER`). A sharder places these with their owner where it can: the ring may not select
their namespace, the Go sharder computes other keys, and an object in between may be gone. Whoever reconciles the owner
may write them nevertheless. So no object that a sharder cannot move is ever closed to its owner's shard.

Guaranteed: what belongs to itself or to an OWNER has a hash key that its metadata alone determine, and a ring selects
it if it selects the owner. What belongs to NOBODY has none.

In a ring that is sharded by ranges, each object is in a bucket (`RingBuckets`).

| by | object | bucket | what shows it |
|---|---|---|---|
| namespace | any | that of its namespace | its namespace |
| uid | of a main resource | that of its uid | its uid |
| uid | a controlled one whose controller, cluster-scoped or not, is an object of a main resource that lists it | that \
of the controller's uid | the label `bucket_label` |
| uid | a controlled one that has such an owner elsewhere: the controller of its controller, and so on, or the object \
that an annotation names | that of this owner's uid | the label |
| uid | any other of a controlled resource | none | it has no label |

The label is written with the object, by the shard that works on the owner (`kubeshard.client.version_fence`). It says
nothing about shards, so it stays as it is when the bucket changes hands; it changes with the owner only. What is not
labelled like that is found by the coordinator (`kubeshard.sharder.bucket_labels`). Until then no shard's cache shows
it, and the shard of the owner reads and writes it as what it takes over.

To whom an object belongs that has its owner elsewhere, its metadata do not say: whoever reconciles the owner may write
it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import Enum, auto
from functools import lru_cache
from typing import NamedTuple

from kubeshard.core.hash_ranges import HashRanges, LabelledHash
from kubeshard.core.kinds import GroupKind, GroupResource, Kind
from kubeshard.core.names import is_dns_subdomain
from kubeshard.core.namespaces import NAMESPACE_NAME_LABEL
from kubeshard.core.objects import Key, ObjectMeta, OwnerReference
from kubeshard.core.owners import controller_of, group_kind_of, noted
from kubeshard.core.selectors import LabelSelector
from kubeshard.sharding.api import RingResource
from kubeshard.sharding.buckets import Buckets
from kubeshard.sharding.names import bucket_label

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

REMEMBERED = 256
"""Controllers whose bucket is known: a write of what they control asks for it four times."""


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
    """A mistake in a ring's resources. `conflict`: a main resource is also controlled, which is ignored; otherwise
    it is left out.
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


class OwnerKind(NamedTuple):
    """A kind whose objects may control those of a resource. `main`: it is a main resource of the ring."""

    resource: GroupResource
    main: bool
    namespaced: bool


PossibleOwners = Mapping[GroupKind, OwnerKind]
"""Of one controlled resource. Where it is not known, any controller counts as a main object in the same namespace."""


def owner_kinds(
    resources: RingResources, kinds: Mapping[GroupResource, Kind]
) -> dict[GroupResource, PossibleOwners]:
    """By controlled resource; without those for which not all main resources that list them are known."""
    found: dict[GroupResource, PossibleOwners] = {}
    for entry in resources.entries:
        if entry.main or not entry.owners <= kinds.keys():
            continue
        above = [each for each in resources.entries if each.resource in entry.owners]
        beside = [each for each in resources.entries if not each.main and each.owners & entry.owners]
        found[entry.resource] = {
            kinds[each.resource].group_kind: OwnerKind(
                each.resource, each.main, kinds[each.resource].namespaced
            )
            for each in (*above, *beside)
            if each.resource in kinds
        }
    return found


class Belongs(Enum):
    """See the module."""

    ITSELF = auto()
    OWNER = auto()
    FAR = auto()
    NOBODY = auto()

    @property
    def by_label(self) -> bool:
        """Whether the label says which shard may write the object."""
        return self is Belongs.ITSELF or self is Belongs.OWNER


def belongs(entry: RingEntry, kinds: PossibleOwners | None, meta: ObjectMeta) -> Belongs:
    """Decided by the object's metadata alone."""
    if entry.main:
        return Belongs.ITSELF
    reference = controller_of(meta)
    if reference is None:
        return Belongs.NOBODY if noted_main(kinds, meta) is None else Belongs.FAR
    if kinds is None:
        return Belongs.OWNER
    owner = kinds.get(group_kind_of(reference))
    if owner is None:
        return Belongs.NOBODY
    near = owner.main and (owner.namespaced or not meta.namespace)
    return Belongs.OWNER if near else Belongs.FAR


def noted_main(kinds: PossibleOwners | None, meta: ObjectMeta) -> tuple[GroupKind, Key] | None:
    """The main object that the metadata name by the annotation."""
    if not kinds or not meta.annotations or (named := noted(meta)) is None:
        return None
    owner = kinds.get(named[0])
    return (
        named if owner is not None and owner.main and owner.namespaced == bool(named[1].namespace) else None
    )


Controllers = Mapping[str, OwnerReference | None]
"""The controllers of objects that control others, by the UIDs of these objects; None: it has none, or is gone."""


class ControllerUnknown(LookupError):
    """It is not known what controls an object of the resource `owner`, to which `reference` refers."""

    def __init__(self, owner: OwnerKind, reference: OwnerReference) -> None:
        super().__init__(f"what controls {reference.kind} {reference.name} is not known")
        self.owner = owner
        self.reference = reference


def main_owner(
    kinds: Mapping[GroupResource, PossibleOwners],
    own: PossibleOwners,
    reference: OwnerReference,
    known: Controllers,
) -> tuple[OwnerKind, OwnerReference] | None:
    """The main object that controls an object, perhaps through others, which has this controller. `own`: the owner
    kinds of the object. None if there is none that lists it. Raises ControllerUnknown.
    """
    owner = own.get(group_kind_of(reference))
    for _ in range(len(kinds) + 1):
        if owner is None or owner.main:
            break
        if reference.uid not in known:
            raise ControllerUnknown(owner, reference)
        above = known[reference.uid]
        if above is None:
            return None
        reference, owner = above, kinds.get(owner.resource, {}).get(group_kind_of(above))
    if owner is None or not owner.main or group_kind_of(reference) not in own:
        return None
    return owner, reference


class RingBuckets:
    """Of one ring. `kinds` are those of its resources, as far as they are known."""

    def __init__(self, buckets: Buckets, ring: str, resources: RingResources, kinds: Iterable[Kind]) -> None:
        self.buckets = buckets
        self.label = bucket_label(ring)
        self._labelled = LabelledHash(self.label, buckets.count)
        self._resources = resources
        self._owners = owner_kinds(resources, {kind.group_resource: kind for kind in kinds})
        self._labels: dict[Kind, bool] = {}
        """The answers of `by_label`, which each event and each write asks for."""
        self._covered: dict[Kind, bool] = {}
        """Those of `covers`."""
        self._of_controller = lru_cache(REMEMBERED)(self._of_controlled)

    def covers(self, kind: Kind) -> bool:
        """Whether objects of the kind are shared out."""
        covered = self._covered.get(kind)
        if covered is None:
            covered = self._covered[kind] = kind.group_resource in self._resources
        return covered

    def by_label(self, kind: Kind) -> bool:
        """Whether objects of the kind have the label."""
        labelled = self._labels.get(kind)
        if labelled is None:
            main = self._resources.entry(kind.group_resource).main
            labelled = self._labels[kind] = self.buckets.by == "uid" and not main
        return labelled

    def ranges(self, kind: Kind, buckets: Iterable[int]) -> HashRanges:
        """What selects the objects of the kind in these buckets."""
        return self.buckets.ranges(buckets, label=self.label if self.by_label(kind) else "")

    def of(self, kind: Kind, meta: ObjectMeta) -> int | None:
        """The bucket that the object shows, which is the one that caches go by. None if it shows none."""
        return self._labelled.part_of(meta) if self.by_label(kind) else self.buckets.of(meta)

    def of_missing(self, kind: Kind, key: Key) -> int | None:
        """The bucket of an object that the cache does not have. None if its key does not show it."""
        if self.buckets.by == "uid":
            return None
        return self.of(kind, ObjectMeta(name=key.name, namespace=key.namespace))

    def due(self, kind: Kind, meta: ObjectMeta, elsewhere: str = "") -> str | None:
        """What the label of the object should be; "" for none, None if the kind has no such label. `elsewhere`: what it
        is for an object whose owner is elsewhere.
        """
        if not self.by_label(kind):
            return None
        if (bucket := self._of_controller(kind, controller_of(meta))) is not None:
            return str(bucket)
        resource = kind.group_resource
        found = belongs(self._resources.entry(resource), self._owners.get(resource), meta)
        return elsewhere if found is Belongs.FAR else ""

    def of_owner(self, kind: Kind, meta: ObjectMeta) -> int | None:
        """The bucket whose shard may write the object. None if its metadata do not tell."""
        if self.by_label(kind):
            return self._of_controller(kind, controller_of(meta))
        return None if self.buckets.by == "uid" and not meta.uid else self.buckets.of(meta)

    def _of_controlled(self, kind: Kind, reference: OwnerReference | None) -> int | None:
        """The bucket of what this controls, if it is a main object that lists the kind. As for labels of shards, but
        what a cluster-scoped object controls is not far from it: its uid is enough.
        """
        if reference is None:
            return None
        owners = self._owners.get(kind.group_resource)
        if owners is not None:
            owner = owners.get(group_kind_of(reference))
            if owner is None or not owner.main:
                return None
        return self.buckets.of(ObjectMeta(uid=reference.uid))
