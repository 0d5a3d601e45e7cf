"""Owner references: who controls an object, and which references are legal.

Owners are compared by group, kind and name; the version does not matter. At most one owner is the controller.
A cluster-scoped object cannot have a namespaced owner; a namespaced owner must be in the dependent's
namespace. The API server does not reject an illegal reference: the garbage collector deletes the
dependent instead. So these functions reject it (`IllegalOwner`). If a dependent has to name such an owner
nevertheless, it has an annotation, which the garbage collector ignores.

An object that is being deleted with its dependents in the foreground, or without them (orphaned), is to get no other
ones: the garbage collector would delete what it has just let go of (`check_stays`).
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from kubeshard.core.errors import KubeshardError, Terminal
from kubeshard.core.kinds import GroupKind, Kind
from kubeshard.core.objects import Key, KubeObject, ObjectMeta, OwnerReference

NOTED_OWNER = "kubeshard.dev/owner"

_COLLECTED = frozenset({"orphan", "foregroundDeletion"})
"""The finalizers under which the garbage collector lets go of the dependents, or deletes them."""


class AlreadyControlled(KubeshardError):
    """Another controller owns the object: `owner` is its reference."""

    def __init__(self, meta: ObjectMeta, owner: OwnerReference) -> None:
        super().__init__(f"{meta.namespace}/{meta.name} is already controlled by {owner.kind} {owner.name}")
        self.owner = owner


class IllegalOwner(Terminal, ValueError):
    """The object cannot own the dependent. A retry cannot fix that: a mistake in the program, or in the object."""


class LeavingOwner(IllegalOwner):
    """The garbage collector is letting go of the owner's dependents, or deleting them."""


def group_kind_of(reference: OwnerReference) -> GroupKind:
    return GroupKind(reference.api_version.rpartition("/")[0], reference.kind)


def is_of(reference: OwnerReference, kind: GroupKind | Kind) -> bool:
    """Whether what it refers to is of this kind, in any version: without making another GroupKind."""
    return reference.kind == kind.kind and reference.api_version.rpartition("/")[0] == kind.group


def controller_of(meta: ObjectMeta) -> OwnerReference | None:
    """The owner reference with `controller: true`."""
    for owner in meta.owner_references:
        if owner.controller:
            return owner
    return None


def is_controlled_by(meta: ObjectMeta, owner: KubeObject) -> bool:
    """Whether its controller reference is `controller_reference(owner)`."""
    current, kind = controller_of(meta), getattr(owner, "KIND", None)
    return (  # without creating that reference, for an object that is already as desired
        current is not None
        and kind is not None
        and current.uid == owner.metadata.uid != ""
        and current.name == owner.metadata.name
        and current.block_owner_deletion is True
        and current.kind == kind.kind
        and current.api_version == kind.api_version
    )


def owner_reference(owner: KubeObject) -> OwnerReference:
    """With it, a dependent is deleted once all its owners are gone. Raises IllegalOwner without uid or kind."""
    kind: Kind | None = getattr(owner, "KIND", None)
    if kind is None:
        raise IllegalOwner(
            f"{type(owner).__name__} {owner.key} cannot be an owner, because it does not know its kind: "
            "read it through a Form"
        )
    if not owner.metadata.uid:
        raise IllegalOwner(
            f"{kind.kind} {owner.key} has no uid: only an object read from the server can be an owner"
        )
    return OwnerReference(
        api_version=kind.api_version, kind=kind.kind, name=owner.metadata.name, uid=owner.metadata.uid
    )


def controller_reference(owner: KubeObject) -> OwnerReference:
    """The reference of the one owner that manages the dependent. Its foreground deletion waits for the dependent."""
    return msgspec.structs.replace(owner_reference(owner), controller=True, block_owner_deletion=True)


def with_owner(meta: ObjectMeta, owner: KubeObject, *, controller: bool = False) -> ObjectMeta:
    """The metadata with the owner's reference added or replaced. Raises IllegalOwner and, with `controller`,
    AlreadyControlled if another object controls it.
    """
    reference = controller_reference(owner) if controller else owner_reference(owner)
    if owner.KIND.namespaced and owner.metadata.namespace != meta.namespace:
        where = f"is in namespace {meta.namespace!r}" if meta.namespace else "has no namespace"
        raise IllegalOwner(
            f"{owner.KIND.kind} {owner.key} cannot own {meta.name!r}, which {where}: the garbage collector "
            "would delete it. An owner is cluster-scoped or in the namespace of what it owns; without one, "
            "mark the object with a label and delete it under a finalizer"
        )
    current = controller_of(meta)
    if controller and current is not None and not _same(current, reference):
        raise AlreadyControlled(meta, current)
    others = tuple(other for other in meta.owner_references if not _same(other, reference))
    return msgspec.structs.replace(meta, owner_references=(*others, reference))


def check_stays(owner: KubeObject, meta: ObjectMeta) -> None:
    """Raises LeavingOwner if the object would get an owner that cannot get any more."""
    was = owner.metadata
    if not was.deleting or _COLLECTED.isdisjoint(was.finalizers or ()):
        return
    current = controller_of(meta)
    if current is None or current.uid != was.uid:
        raise LeavingOwner(
            f"{owner.KIND.kind} {owner.key} is being deleted, so it cannot own {meta.name!r} any more: the garbage "
            "collector has let go of it, or deletes it"
        )


def owner_note(owner: KubeObject) -> str:
    """`<Kind>.<group> <namespace>/<name>`."""
    return f"{owner.KIND.group_kind} {owner.key}"


def noted(meta: ObjectMeta) -> tuple[GroupKind, Key] | None:
    """The owner named by the annotation."""
    full_kind, _, place = meta.annotation(NOTED_OWNER).partition(" ")
    kind, _, group = full_kind.partition(".")
    namespace, _, name = place.rpartition("/")
    return (GroupKind(group, kind), Key(namespace, name)) if kind and name else None


def noted_owner(meta: ObjectMeta, kind: GroupKind) -> Iterator[Key]:
    """The owner named by the annotation, if it is of that kind."""
    if (named := noted(meta)) is not None and named[0] == kind:
        yield named[1]


def _same(a: OwnerReference, b: OwnerReference) -> bool:
    return a.name == b.name and group_kind_of(a) == group_kind_of(b)
