"""Turns declared objects into the ones that are sent.

A member is the desired object with the labels of its set, with a reference to the owner if it may have one, and without
what only the server sets. Its digest covers all of this: an object with that digest was applied from an equal member.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Generic, TypeVar

import msgspec

from kubeshard.controller.desired.applyset import (
    APPLIED,
    ID,
    RESERVED,
    Address,
    ApplySet,
    address_of,
    digest_of,
    mark,
)
from kubeshard.controller.desired.inherited_labels import IN_BOTH, OF_RINGS, without_inner
from kubeshard.controller.desired.order import FIRST, NO_ORDER, Order, recording
from kubeshard.controller.merging import without_status
from kubeshard.core.encoding import to_dict, to_json
from kubeshard.core.kinds import GroupKind
from kubeshard.core.namespaces import namespace_of
from kubeshard.core.objects import Form, KubeObject, ObjectMeta, form_of
from kubeshard.core.owners import NOTED_OWNER, owner_note, with_owner

T = TypeVar("T", bound=KubeObject)


def rank(kind: GroupKind) -> int:
    return FIRST.index(kind) if kind in FIRST else len(FIRST)


@dataclass(frozen=True, slots=True)
class Member(Generic[T]):
    address: Address
    form: Form[T]
    obj: T
    """The object as it is sent, except for its mark."""
    digest: str
    controller: KubeObject | None
    """The owner, if the object refers to it."""
    once: bool = False
    """It is created if it does not exist, and otherwise left as it is."""
    left_out: tuple[str, ...] = ()
    """Where the labels of a ring were in the desired object (`inherited_labels`)."""

    def body(self, operation: str) -> dict[str, Any]:
        body = to_dict(self.obj)
        annotations = {
            **(body["metadata"].get("annotations") or {}),
            APPLIED: mark(operation, self.digest, self.address),
        }
        return {**body, "metadata": {**body["metadata"], "annotations": annotations}}

    def to_create(self) -> T:
        metadata = self.obj.metadata
        annotations = {
            **(metadata.annotations or {}),
            APPLIED: mark("created", self.digest, self.address),
        }
        return msgspec.structs.replace(
            self.obj, metadata=msgspec.structs.replace(metadata, annotations=annotations)
        )


def members_of(
    set_: ApplySet,
    desired: Sequence[KubeObject],
    once: Sequence[KubeObject] = (),
    order: Order = NO_ORDER,
) -> dict[Address, Member[Any]]:
    """The members in the order in which they are applied; `once` are those that are only created. Raises TypeError,
    ValueError and WrongNamespace for objects that cannot be members and for an order that is a circle, and IllegalOwner
    for an owner that was not read from the server.
    """
    found: dict[Address, Member[Any]] = {}
    for place, obj in enumerate((*desired, *once)):
        if isinstance(obj, Iterable):
            raise TypeError(
                f"a {type(obj).__name__} is not an object: give objects one by one, as in apply(*objects)"
            )
        member = _member(set_, obj, order)
        if member.address in found:
            raise ValueError(f"{member.address} is given twice")
        found[member.address] = member if place < len(desired) else replace(member, once=True)
    ranked = dict(sorted(found.items(), key=lambda item: rank(item[0].kind)))
    return {address: ranked[address] for address in order.sorted(ranked)} if order else ranked


def _member(set_: ApplySet, desired: KubeObject, order: Order) -> Member[Any]:
    form = form_of(type(desired))  # raises for what is not a kind
    address = address_of(desired)
    _check(set_, desired, address)
    left_out: list[str] = []
    given, owner = desired.metadata, set_.owner
    own = given.labels or {}
    if any(key == ID or key.startswith(OF_RINGS) for key in own):
        own = {key: value for key, value in own.items() if key != ID and not key.startswith(OF_RINGS)}
    metadata = ObjectMeta(
        name=given.name,
        namespace=given.namespace,
        labels={**own, **set_.labels},
        annotations=given.annotations,
        owner_references=given.owner_references,
        finalizers=given.finalizers,
    )
    refers = set_.can_own(desired.KIND, given.namespace)
    if refers:
        metadata = with_owner(metadata, owner, controller=True)
    else:
        annotations = {**(given.annotations or {}), NOTED_OWNER: owner_note(owner)}
        metadata = msgspec.structs.replace(metadata, annotations=annotations)
    metadata = recording(metadata, order.recorded.get(address, ()))
    obj = msgspec.structs.replace(without_status(desired), metadata=metadata)
    body = to_json(to_dict(obj), type(obj).__name__, in_order=True)
    if IN_BOTH.encode() in body:
        cleaned, left_out = without_inner(obj)
        obj = without_status(cleaned)
        body = to_json(to_dict(obj), type(obj).__name__, in_order=True)
    return Member(address, form, obj, digest_of(body), owner if refers else None, left_out=tuple(left_out))


def _check(set_: ApplySet, desired: KubeObject, address: Address) -> None:
    meta = desired.metadata
    if not meta.name:
        raise ValueError(
            f"a {address.kind.kind} has no name: an object of a desired set is identified by its name"
        )
    namespace_of(desired.KIND, meta.name, meta.namespace)
    if address == address_of(set_.owner):
        raise ValueError(f"{address} cannot be in a set that it owns")
    taken = RESERVED & {*(meta.labels or ()), *(meta.annotations or ())}
    if meta.label(ID) == set_.id:
        taken -= {ID}  # inherited from the owner
    if taken:
        raise ValueError(
            f"{address}: leave {', '.join(sorted(taken))} out, which marks the members of sets; "
            "labels_to_inherit(obj) returns labels without them"
        )
