"""Which objects belong to a desired set, as recorded on the objects and on their owner.

The owner is the parent of an ApplySet (KEP-3659), so that kubectl and other tools see which objects belong to it and do
not change them:

| where | key | value |
|---|---|---|
| owner, label | `applyset.kubernetes.io/id` | the set's id: a hash of the owner's name, namespace, kind and group |
| owner, annotation | `applyset.kubernetes.io/tooling` | `kubeshard/<version>` |
| owner, annotation | `applyset.kubernetes.io/contains-group-kinds` | the kinds in which members may be found |
| owner, annotation | `applyset.kubernetes.io/additional-namespaces` | namespaces of members, except the owner's |
| member, label | `applyset.kubernetes.io/part-of` | the id |

An owner may have several sets of several controllers. For kubectl they are one set; these keys distinguish them:

| where | key | value |
|---|---|---|
| owner, annotation | `sets.kubeshard.dev/<set>` | kinds and namespaces of this set, as JSON |
| member, label | `kubeshard.dev/set` | the set: the controller's name with dots doubled, or `<controller>.<name>` |
| member, annotation | `kubeshard.dev/applied` | a hash of what was applied, and one of the member's own name |
| member, annotation | `kubeshard.dev/after` | the members that it comes after (`kubeshard.controller.desired.order`) |
| member, annotation | `kubeshard.dev/owner` | kind, namespace and name of the owner, if it cannot refer to it |

The hash of the name distinguishes a member from a copy that somebody made of it, labels included.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import Enum
from functools import lru_cache
from typing import Any, NamedTuple

import msgspec

from kubeshard.core.errors import Terminal
from kubeshard.core.kinds import GroupKind, Kind
from kubeshard.core.names import is_label_value
from kubeshard.core.objects import Key, KubeObject, ObjectMeta, OwnerReference, Struct
from kubeshard.core.owners import NOTED_OWNER, controller_of, is_of
from kubeshard.version import __version__

ID = "applyset.kubernetes.io/id"
PART_OF = "applyset.kubernetes.io/part-of"
TOOLING = "applyset.kubernetes.io/tooling"
KINDS = "applyset.kubernetes.io/contains-group-kinds"
NAMESPACES = "applyset.kubernetes.io/additional-namespaces"

SET = "kubeshard.dev/set"
APPLIED = "kubeshard.dev/applied"
AFTER = "kubeshard.dev/after"
SETS = "sets.kubeshard.dev/"

RESERVED = frozenset({ID, PART_OF, SET, APPLIED, AFTER, NOTED_OWNER})
"""Keys that no desired object may have."""

_TOOL = "kubeshard"


class AnothersApplySet(Terminal):
    """The owner is the parent of an ApplySet of another tool, and only that tool may change it."""


class Address(NamedTuple):
    """Identifies an object, independent of the version of its kind."""

    kind: GroupKind
    key: Key

    def __str__(self) -> str:
        return f"{self.kind.kind} {self.key}"


def address_of(obj: KubeObject) -> Address:
    kind, meta = obj.KIND, obj.metadata
    return Address(GroupKind(kind.group, kind.kind), Key(meta.namespace, meta.name))


class Ownership(Enum):
    """How an object relates to a set."""

    MEMBER = "a member"
    OWNED = "controlled by the owner, but not marked yet"
    UNOWNED = "nobody's"
    FOREIGN = "somebody else's"


@dataclass(frozen=True, slots=True)
class ApplySet:
    """One set of one owner."""

    id: str
    name: str
    owner: KubeObject
    recorded: Memory
    """Where the owner records that members may be found."""
    index_value: str

    @property
    def labels(self) -> dict[str, str]:
        return {PART_OF: self.id, SET: self.name}

    def marks(self, obj: KubeObject) -> bool:
        """Whether the object has the labels of the set."""
        return obj.metadata.label(PART_OF) == self.id and obj.metadata.label(SET) == self.name

    def can_own(self, kind: Kind, namespace: str) -> bool:
        """Whether a member may refer to the owner, so that the garbage collector knows of it."""
        owner = self.owner
        return not owner.KIND.namespaced or (kind.namespaced and namespace == owner.metadata.namespace)

    def ownership(self, obj: KubeObject) -> Ownership:
        meta, controller = obj.metadata, controller_of(obj.metadata)
        ours = controller is not None and self._is_owner(controller)
        if controller is not None and not ours:
            return Ownership.FOREIGN
        labels = meta.labels or {}
        if part_of := labels.get(PART_OF, ""):
            if (part_of, labels.get(SET, "")) != (self.id, self.name):
                return Ownership.FOREIGN
            if is_own_mark((meta.annotations or {}).get(APPLIED, ""), address_of(obj)):
                return Ownership.MEMBER
        return Ownership.OWNED if ours else Ownership.UNOWNED

    def is_member(self, obj: KubeObject) -> bool:
        return self.ownership(obj) is Ownership.MEMBER

    def whose(self, obj: KubeObject) -> str:
        """What a FOREIGN object belongs to."""
        part_of, controller = obj.metadata.label(PART_OF), controller_of(obj.metadata)
        if controller is not None and not self._is_owner(controller):
            return f"it is controlled by {controller.kind} {controller.name}"
        if part_of == self.id:
            return f"it is in the set {obj.metadata.label(SET)!r} of the same owner"
        return f"it is in another ApplySet ({part_of})"

    def _is_owner(self, controller: OwnerReference) -> bool:
        """Whether this refers to the owner, by name and not UID: the garbage collector deletes what a predecessor of
        the owner controlled.
        """
        return controller.name == self.owner.metadata.name and is_of(controller, self.owner.KIND)


def applyset(owner: KubeObject, controller: str, name: str) -> ApplySet:
    """Identifies a set. Raises ValueError if its name cannot be a label value, AnothersApplySet."""
    # A single dot separates the two names, so that different pairs give different sets.
    of_controller = controller.replace(".", "..")
    full = f"{of_controller}.{name}" if name else of_controller
    if not is_label_value(full) or not is_label_value(name):
        raise ValueError(
            f"set {name!r} of controller {controller}: {full!r} cannot be a label value, which is at most 63 "
            "letters, digits, '-', '_' and '.', a letter or digit first and last"
        )
    tool, _, _ = owner.metadata.annotation(TOOLING).rpartition("/")
    if owner.metadata.has_label(ID) and tool != _TOOL:
        raise AnothersApplySet(
            f"{owner.KIND.kind} {owner.key} is the parent of an ApplySet of {tool or 'an unknown tool'}: let that tool "
            f"give it up, or remove its label {ID}"
        )
    kind, meta = owner.KIND, owner.metadata
    id = _id(meta.name, meta.namespace, kind.kind, kind.group)
    return ApplySet(id, full, owner, remembered(meta, full), f"{id}/{full}")


def index_values(obj: KubeObject) -> tuple[str, ...]:
    """`ApplySet.index_value` of the set that the object is marked for, if any."""
    labels = obj.metadata.labels
    if labels is None or PART_OF not in labels:
        return ()
    return (f"{labels[PART_OF]}/{labels.get(SET, '')}",)


@lru_cache(maxsize=4096)
def _id(name: str, namespace: str, kind: str, group: str) -> str:
    return f"applyset-{_digest(f'{name}.{namespace}.{kind}.{group}'.encode())}-v1"


# Marks record what was applied, how, and to which object.


def mark(operation: str, digest: str, address: Address) -> str:
    return f"{operation}.{digest}.{_own(address)}"


def is_own_mark(text: str, address: Address) -> bool:
    return text.rpartition(".")[2] == _own(address)


def read_mark(text: str) -> tuple[str, str]:
    """The operation and the digest in a mark."""
    operation, _, rest = text.partition(".")
    return operation, rest.partition(".")[0]


def digest_of(body: bytes) -> str:
    return _digest(body)[:16]


@lru_cache(maxsize=4096)
def _own(address: Address) -> str:
    kind, key = address
    return _digest(f"{kind.group}/{kind.kind}/{key.namespace}/{key.name}".encode())[:8]


def _digest(data: bytes) -> str:
    return base64.urlsafe_b64encode(hashlib.sha256(data).digest()).decode().rstrip("=")


# The owner's memory


class Memory(NamedTuple):
    """Where members of a set may be found."""

    kinds: frozenset[GroupKind] = frozenset()
    namespaces: frozenset[str] = frozenset()

    def united(self, other: Memory) -> Memory:
        return Memory(self.kinds | other.kinds, self.namespaces | other.namespaces)

    def within(self, other: Memory) -> bool:
        return self.kinds <= other.kinds and self.namespaces <= other.namespaces


class _Memory(Struct):
    kinds: tuple[str, ...] = ()
    namespaces: tuple[str, ...] = ()


def memory_of(addresses: Iterable[Address]) -> Memory:
    places = list(addresses)
    return Memory(
        frozenset(place.kind for place in places),
        frozenset(place.key.namespace for place in places if place.key.namespace),
    )


def remembered(meta: ObjectMeta, name: str) -> Memory:
    """What the owner's annotations record about the set, or about all sets if the set's annotation is unreadable."""
    return _read(meta.annotation(SETS + name), meta)


def _read(text: str, meta: ObjectMeta) -> Memory:
    if not text:
        return Memory()
    try:
        found = msgspec.json.decode(text, type=_Memory)
    except msgspec.DecodeError:
        kinds, namespaces = (meta.annotation(key).split(",") for key in (KINDS, NAMESPACES))
        found = _Memory(kinds=tuple(kinds), namespaces=(meta.namespace, *namespaces))
    return Memory(
        frozenset(_group_kind(kind) for kind in found.kinds if kind),
        frozenset(filter(None, found.namespaces)),
    )


def _group_kind(text: str) -> GroupKind:
    kind, _, group = text.partition(".")
    return GroupKind(group, kind)


def parent_patch(owner: ObjectMeta, set_: ApplySet, memory: Memory) -> dict[str, Any]:
    """The merge patch that records this on the owner; empty if it is already recorded. An owner without members is not
    a parent.
    """
    others = [
        _read(text, owner)
        for key, text in (owner.annotations or {}).items()
        if key.startswith(SETS) and key != SETS + set_.name
    ]
    total = memory
    for other in others:
        total = total.united(other)
    namespaces = sorted(total.namespaces - {owner.namespace})
    is_parent = bool(total.kinds)
    labels = {ID: set_.id if is_parent else None}
    annotations = {
        KINDS: ",".join(sorted(map(str, total.kinds))) if is_parent else None,
        NAMESPACES: ",".join(namespaces) or None,
        SETS + set_.name: _written(memory),
    }
    changes = {
        "labels": _differing(owner.labels, labels),
        "annotations": _differing(owner.annotations, annotations),
    }
    if not any(changes.values()):
        return {}
    changes["annotations"][TOOLING] = f"{_TOOL}/v{__version__}" if is_parent else None
    return {name: values for name, values in changes.items() if values}


def _written(memory: Memory) -> str | None:
    if not memory.kinds:
        return None
    kinds, namespaces = sorted(map(str, memory.kinds)), sorted(memory.namespaces)
    return msgspec.json.encode(_Memory(kinds=tuple(kinds), namespaces=tuple(namespaces))).decode()


def _differing(have: Mapping[str, str] | None, want: Mapping[str, str | None]) -> dict[str, str | None]:
    return {key: value for key, value in want.items() if (have or {}).get(key) != value}
