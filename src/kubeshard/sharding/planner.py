"""Decides what to do with one object: the only decision of sharding.

Guaranteed: the decision depends only on the arguments; resync, settle passes, the watch on
unassigned objects and the webhook call the same function, so they agree if their views do.
See A3, A4, A8, A9 and A18 in docs/defects.md.

| key | available shards | current shard | object | action |
|---|---|---|---|---|
| rejected | | | | REFUSED with the protocol's message |
| empty, or foreign controller | | | | NOTHING |
| any | none | | | NOTHING |
| any | some | none or `""` | | ASSIGN |
| any | some | = target | | NOTHING (a leftover drain label too) |
| any | some | not available | | MOVE |
| any | some | available | main, without drain label | DRAIN |
| any | some | available | main, with drain label | WAIT |
| any | some | available | controlled, owner's drain pending | WAIT |
| any | some | available | controlled | MOVE |

In a ring that is being cleaned up (`RingView.releasing`) no object has a target, wherever it is: MOVE takes the labels
away.

| current shard | object | action |
|---|---|---|
| no label | | NOTHING |
| `""`, or not available | | MOVE |
| available | main, without drain label | DRAIN |
| available | main, with drain label | WAIT |
| available | controlled, owner's drain pending | WAIT |
| available | controlled | MOVE |
"""

from __future__ import annotations

from collections.abc import Container, Mapping
from dataclasses import dataclass, field
from enum import Enum, auto
from functools import cached_property
from typing import NamedTuple

from kubeshard.core.kinds import GroupKind, GroupResource, TypeMeta
from kubeshard.core.objects import ObjectMeta
from kubeshard.core.owners import controller_of, group_kind_of
from kubeshard.core.selectors import Selector
from kubeshard.sharding.hash_ring import HashRing
from kubeshard.sharding.keys import KeyRefused, controlled_key, main_key
from kubeshard.sharding.names import drain_label, shard_label
from kubeshard.sharding.ring_resources import RingEntry, RingResources

MAX_SELECTOR = 4000
"""Characters; a longer selector is not sent."""

ALREADY_ASSIGNED = "object is already assigned"
NOT_ASSIGNABLE = "object should not be assigned"
NO_SHARD = "there is no available shard"
ASSIGNING = "assigning object"
NOT_SELECTED = "namespace is not selected"
DRAIN_PENDING = "drain is pending"
OWNER_DRAIN_PENDING = "drain of the owner is pending"
RING_DELETED = "the ring is being deleted"


class Action(Enum):
    NOTHING = auto()
    ASSIGN = auto()
    """The object has no shard: set the label."""
    MOVE = auto()
    """The object's shard is not available, or the object is controlled: replace the label, or remove it if there is no
    target.
    """
    DRAIN = auto()
    """The object's shard works on it: ask it to release the object."""
    WAIT = auto()
    """Something else must happen first; a later pass will see it."""
    REFUSED = auto()
    """The object cannot be keyed."""


class Decision(NamedTuple):
    """`target` is the shard that should own the object (`""` if none), `source` the one in its
    label.
    """

    action: Action
    target: str = ""
    source: str = ""
    reason: str = ""
    key: str = ""


@dataclass(frozen=True)
class RingView:
    """A snapshot of one ring as seen by this process. `available` are the names in `hashring`."""

    name: str
    resources: RingResources
    hashring: HashRing
    namespaces: Container[str] | None = None
    """Selected namespaces; None selects all. Cluster-scoped objects are always selected (A4 in docs/defects.md)."""
    owner_kinds: Mapping[GroupResource, frozenset[GroupKind]] = field(default_factory=dict)
    """For each controlled resource the kinds that may control it; a resource without an entry may be
    controlled by any kind.
    """
    shard_label: str = ""
    drain_label: str = ""
    available: frozenset[str] = frozenset()
    releasing: bool = False
    """Whether the ring is being deleted, and its labels are to be removed from all objects."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "shard_label", shard_label(self.name))
        object.__setattr__(self, "drain_label", drain_label(self.name))
        object.__setattr__(self, "available", frozenset(self.hashring.shards))

    @cached_property
    def unplaced(self) -> Selector | None:
        """Selects the objects without an available shard; None if it would be too long for a URL."""
        selector = Selector.not_in(self.shard_label, self.hashring.shards)
        return selector if len(str(selector)) <= MAX_SELECTOR else None

    def selects(self, namespace: str) -> bool:
        return not namespace or self.namespaces is None or namespace in self.namespaces


def plan(
    view: RingView,
    entry: RingEntry,
    type_: TypeMeta,
    meta: ObjectMeta,
    *,
    namespace: str = "",
    draining: Container[str] = (),
) -> Decision:
    """The decision according to the table above. Never raises.

    `namespace` is used if the metadata has none (see `keys`); `draining` are the keys of main objects
    with a pending drain, as seen by the same pass.
    """
    source = meta.label(view.shard_label)
    if view.releasing:
        return _released(view, entry, type_, meta, namespace, draining)
    if not view.selects(meta.namespace or namespace):
        return Decision(Action.NOTHING, source=source, reason=NOT_SELECTED)
    try:
        key = hash_key(view, entry, type_, meta, namespace)
    except KeyRefused as refused:
        return Decision(Action.REFUSED, source=source, reason=str(refused))
    if not key:
        return Decision(Action.NOTHING, source=source, reason=NOT_ASSIGNABLE)
    target = view.hashring.owner(key)
    if not target:
        return Decision(Action.NOTHING, source=source, reason=NO_SHARD, key=key)
    if source == target:
        return Decision(Action.NOTHING, target, source, ALREADY_ASSIGNED, key)
    if not source:
        return Decision(Action.ASSIGN, target, source, ASSIGNING, key)
    if source not in view.available:
        return Decision(Action.MOVE, target, source, key=key)
    if not entry.main:
        if key in draining:
            return Decision(Action.WAIT, target, source, OWNER_DRAIN_PENDING, key)
        return Decision(Action.MOVE, target, source, key=key)
    if meta.has_label(view.drain_label):
        return Decision(Action.WAIT, target, source, DRAIN_PENDING, key)
    return Decision(Action.DRAIN, target, source, key=key)


def _released(
    view: RingView,
    entry: RingEntry,
    type_: TypeMeta,
    meta: ObjectMeta,
    namespace: str,
    draining: Container[str],
) -> Decision:
    """The decision in a ring that is being cleaned up. An object without a key, which would not be assigned, is
    released like the others.
    """
    source = meta.label(view.shard_label)
    if not meta.has_label(view.shard_label):
        return Decision(Action.NOTHING, reason=RING_DELETED)
    try:
        key = hash_key(view, entry, type_, meta, namespace)
    except KeyRefused:
        key = ""
    if source not in view.available:
        return Decision(Action.MOVE, "", source, RING_DELETED, key)
    if entry.main:
        asked = meta.has_label(view.drain_label)
        return Decision(Action.WAIT if asked else Action.DRAIN, "", source, RING_DELETED, key)
    if key and key in draining:
        return Decision(Action.WAIT, "", source, OWNER_DRAIN_PENDING, key)
    return Decision(Action.MOVE, "", source, RING_DELETED, key)


def hash_key(view: RingView, entry: RingEntry, type_: TypeMeta, meta: ObjectMeta, namespace: str = "") -> str:
    """The object's key in this ring; `""` if it is not to be assigned. Raises KeyRefused (GeneratedName)."""
    if entry.main:
        return main_key(type_.api_version, type_.kind, meta, namespace)
    key = controlled_key(meta, namespace)
    if key and (kinds := view.owner_kinds.get(entry.resource)) is not None:
        reference = controller_of(meta)
        if reference is not None and group_kind_of(reference) not in kinds:
            return ""
    return key
