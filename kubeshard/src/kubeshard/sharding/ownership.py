"""To whom an object of a ring belongs: the one rule for who stamps it, who fences it, and who moves it.

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
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum, auto
from typing import NamedTuple

from kubeshard.core.kinds import GroupKind, GroupResource, Kind
from kubeshard.core.objects import Key, ObjectMeta, OwnerReference
from kubeshard.core.owners import controller_of, group_kind_of, noted
from kubeshard.sharding.ring_resources import RingEntry, RingResources


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
