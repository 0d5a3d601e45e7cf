"""Decides what to do with one object: the only decision of sharding.

Guaranteed: the decision depends only on the arguments; resync, settle passes, the watch on
unassigned objects and the webhook call the same function, so they agree if their views do.

| key | available shards | current shard | object | action |
|---|---|---|---|---|
| rejected | | | | REFUSED with the protocol's message |
| empty, or foreign controller | | | | NOTHING |
| unknown: the controller is itself controlled | | | | LOOK_UP, and decide again |
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
from dataclasses import dataclass, field, replace
from enum import Enum, auto
from functools import cached_property
from typing import NamedTuple, Protocol

from kubeshard.core.kinds import GroupResource, TypeMeta
from kubeshard.core.objects import ObjectMeta
from kubeshard.core.owners import controller_of, group_kind_of
from kubeshard.core.selectors import Selector
from kubeshard.sharding.hash_ring import HashRing, KeyRefused, controlled_key, main_key
from kubeshard.sharding.names import drain_label, shard_label
from kubeshard.sharding.ring_resources import (
    Controllers,
    ControllerUnknown,
    PossibleOwners,
    RingEntry,
    RingResources,
    main_owner,
    noted_main,
)

NAMESPACES = GroupResource("", "namespaces")

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
OWNER_UNKNOWN = "its controller is controlled, too: the sharder looks for the owner of both, and assigns it"
NOT_SHARDED = ("no_controller", "foreign_controller", "owner_unknown", "key")
"""Why a ring does not shard an object of its resource in a namespace that it selects (`not_sharded`)."""


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
    LOOK_UP = auto()
    """What controls its controller has to be read first (`RingView.controllers`)."""


class Decision(NamedTuple):
    """`target` is the shard that should own the object (`""` if none), `source` the one in its
    label.
    """

    action: Action
    target: str = ""
    source: str = ""
    reason: str = ""
    key: str = ""


class NamespaceLabels(Protocol):
    """The selection of a ring."""

    def selects(self, namespace: ObjectMeta, /) -> bool: ...


@dataclass(frozen=True)
class RingView:
    """A snapshot of one ring as seen by this process. `available` are the names in `hashring`."""

    name: str
    resources: RingResources
    hashring: HashRing
    namespaces: Container[str] | None = None
    """Selected namespaces; None selects all. A Namespace is selected by its own labels, as in the API server; other
    cluster-scoped objects are always selected.
    """
    by_labels: NamespaceLabels | None = None
    """Which Namespace objects are selected; None: those whose names `namespaces` has."""
    owner_kinds: Mapping[GroupResource, PossibleOwners] = field(default_factory=dict)
    """For each controlled resource the kinds that may control it; a resource without an entry may be
    controlled by any kind.
    """
    controllers: Controllers = field(default_factory=dict, compare=False)
    """What is known of objects that control others and are controlled themselves. Changes while the view does not."""
    shard_label: str = ""
    drain_label: str = ""
    available: frozenset[str] = frozenset()
    releasing: bool = False
    """Whether the ring is being deleted, and its labels are to be removed from all objects."""
    selects_all: bool = False
    """Whether every object is selected."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "shard_label", shard_label(self.name))
        object.__setattr__(self, "drain_label", drain_label(self.name))
        object.__setattr__(self, "available", frozenset(self.hashring.shards))
        object.__setattr__(self, "selects_all", self.namespaces is None and self.by_labels is None)

    @cached_property
    def of_selected(self) -> RingView:
        """The view for objects in a namespace of which is known that it is selected."""
        return replace(self, namespaces=None, by_labels=None)

    @cached_property
    def unplaced(self) -> Selector | None:
        """Selects the objects without an available shard; None if it would be too long for a URL."""
        selector = Selector.not_in(self.shard_label, self.hashring.shards)
        return selector if len(str(selector)) <= MAX_SELECTOR else None

    def selects(self, namespace: str) -> bool:
        """Whether objects in the namespace are selected; "" is for cluster-scoped ones other than Namespaces."""
        return not namespace or self.namespaces is None or namespace in self.namespaces

    def selects_object(self, resource: GroupResource, meta: ObjectMeta) -> bool:
        if meta.namespace:
            return self.namespaces is None or meta.namespace in self.namespaces
        if resource != NAMESPACES:
            return True
        if self.by_labels is not None:
            return self.by_labels.selects(meta)
        return self.selects(meta.name)


def plan(
    view: RingView,
    entry: RingEntry,
    type_: TypeMeta,
    meta: ObjectMeta,
    *,
    draining: Container[str] = (),
) -> Decision:
    """The decision according to the table above. Never raises. `draining` are the keys of main objects with a pending
    drain, as seen by the same pass.
    """
    labels = meta.labels or {}  # what follows is asked for every object of every scan
    source = labels.get(view.shard_label, "")
    if view.releasing:
        return _released(view, entry, type_, meta, draining)
    if not view.selects_all and not view.selects_object(entry.resource, meta):
        return Decision(Action.NOTHING, source=source, reason=NOT_SELECTED)
    try:
        main = entry.main  # for which a call is saved
        key = main_key(type_.api_version, type_.kind, meta) if main else hash_key(view, entry, type_, meta)
    except KeyRefused as refused:
        return Decision(Action.REFUSED, source=source, reason=str(refused))
    except ControllerUnknown:
        return Decision(Action.LOOK_UP, source=source, reason=OWNER_UNKNOWN)
    if not key:
        return Decision(Action.NOTHING, source=source, reason=NOT_ASSIGNABLE)
    target = view.hashring.owner(key)
    asked = False
    if source != target and source in view.available:
        asked = view.drain_label in labels if entry.main else key in draining
    return place(source, target, view.available, main=entry.main, asked=asked, key=key)


def place(
    source: str,
    target: str,
    available: Container[str],
    *,
    main: bool = True,
    asked: bool = False,
    key: str = "",
) -> Decision:
    """The rows of the table that follow the key, for whatever has a shard: an object, or a bucket of them. `asked`:
    whether its shard, or that of its owner, is asked to release it.
    """
    if not target:
        return Decision(Action.NOTHING, source=source, reason=NO_SHARD, key=key)
    if source == target:
        return Decision(Action.NOTHING, target, source, ALREADY_ASSIGNED, key)
    if not source:
        return Decision(Action.ASSIGN, target, source, ASSIGNING, key)
    action, reason = _leave(source, available, main, asked), ""
    if action is Action.WAIT:
        reason = DRAIN_PENDING if main else OWNER_DRAIN_PENDING
    return Decision(action, target, source, reason, key)


def not_sharded(decision: Decision, meta: ObjectMeta) -> str:
    """Why the ring does not shard the object, "namespace" or one of `NOT_SHARDED`; "" if it does."""
    if decision.key or decision.reason == RING_DELETED:
        return ""
    if decision.action is Action.REFUSED:
        return "key"
    if decision.reason == NOT_SELECTED:
        return "namespace"
    if decision.reason == OWNER_UNKNOWN:
        return "owner_unknown"
    return "no_controller" if controller_of(meta) is None else "foreign_controller"


def _released(
    view: RingView, entry: RingEntry, type_: TypeMeta, meta: ObjectMeta, draining: Container[str]
) -> Decision:
    """The decision in a ring that is being cleaned up. An object without a key, which would not be assigned, is
    released like the others.
    """
    source = meta.label(view.shard_label)
    if not meta.has_label(view.shard_label):
        return Decision(Action.NOTHING, reason=RING_DELETED)
    try:
        key = hash_key(view, entry, type_, meta)
    except KeyRefused:
        key = ""
    except ControllerUnknown:
        return Decision(Action.LOOK_UP, source=source, reason=OWNER_UNKNOWN)
    asked = False
    if source in view.available:
        asked = meta.has_label(view.drain_label) if entry.main else bool(key) and key in draining
    action, reason = _leave(source, view.available, entry.main, asked), RING_DELETED
    if action is Action.WAIT and not entry.main:
        reason = OWNER_DRAIN_PENDING
    return Decision(action, "", source, reason, key)


def _leave(source: str, available: Container[str], main: bool, asked: bool) -> Action:
    if source not in available:
        return Action.MOVE
    if asked:
        return Action.WAIT
    return Action.DRAIN if main else Action.MOVE


def hash_key(view: RingView, entry: RingEntry, type_: TypeMeta, meta: ObjectMeta) -> str:
    """The object's key in this ring; `""` if it is not to be assigned. Raises KeyRefused (GeneratedName),
    ControllerUnknown.
    """
    if entry.main:
        return main_key(type_.api_version, type_.kind, meta)
    kinds, reference = view.owner_kinds.get(entry.resource), controller_of(meta)
    if reference is None:
        if (named := noted_main(kinds, meta)) is None:
            return ""
        kind, key = named
        return f"{kind.group}/{kind.kind}/{key.namespace}/{key.name}"
    place = meta.namespace
    own = controlled_key(reference, place)
    if kinds is None:
        return own
    if (owner := kinds.get(group_kind_of(reference))) is None:
        return ""
    if not owner.main:
        if (found := main_owner(view.owner_kinds, kinds, reference, view.controllers)) is None:
            return ""
        owner, reference = found
        return controlled_key(reference, place if owner.namespaced else "")
    return own if owner.namespaced or not place else controlled_key(reference, "")
