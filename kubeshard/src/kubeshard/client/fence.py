"""Fenced writes: a process writes while it may, and a shard writes an object only while the object is its own.

A `Fence` is asked before each write, and adds to those of objects that belong to shards a `Proof` that the API server
checks within the write. There are two: by the label that names an object's shard (`kubeshard.client.label_fence`), and,
where nothing on the object names it, by the object's version (`kubeshard.client.version_fence`). What each guarantees
for each verb stands there.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import Enum, auto
from typing import Any, Protocol, TypeVar

import msgspec

from kubeshard.client.requests import Patch
from kubeshard.core.errors import ApiError
from kubeshard.core.kinds import Kind
from kubeshard.core.objects import KubeObject, ObjectMeta, OwnerReference
from kubeshard.core.selectors import Selector

T = TypeVar("T", bound=KubeObject)


class Standing(Enum):
    """What an object of a kind that belongs to shards, as read from the server, is to a shard."""

    OURS = auto()
    """Our caches show it, unless they lag behind."""
    ANOTHERS = auto()
    """It is for another shard to write, or for none yet."""
    TO_TAKE_OVER = auto()
    """It follows an object that we may write, but its label does not: the next write changes that."""
    NOBODYS = auto()
    """It follows nobody, and no cache of a shard shows it."""


class Fence(Protocol):
    """A process's permission to write."""

    def check(self) -> None:
        """Raises NotOurs once no write may start any more. Called before every write."""
        ...

    def proof(self, kind: Kind) -> Proof | None:
        """What writes of objects of the kind carry; None if these objects do not belong to shards."""
        ...


class Proof(Protocol):
    """An object is this shard's. Raises NotOurs if it is not, and ValueError if that cannot be proved."""

    def standing(self, meta: ObjectMeta, *, shown: bool = False) -> Standing:
        """`shown`: a cache of this shard shows it."""
        ...

    def created(self, obj: T) -> T:
        """The object to create, with its proof."""
        ...

    def require(self, obj: KubeObject) -> None:
        """Whether an object may be replaced or deleted as it was read."""
        ...

    def deleting(self, meta: ObjectMeta) -> None:
        """Whether an object may be deleted, of which `meta` has name, namespace, uid and version."""
        ...

    def patched(
        self, patch: Patch, base: KubeObject | None, *, subresource: str | None, force: bool
    ) -> Patch:
        """The patch with its proof. `base`: the object as read."""
        ...

    def refusal(self, patch: Patch, error: ApiError) -> ApiError:
        """The error for the server's refusal of such a patch: another one if the proof failed."""
        ...

    def collection(self, selector: Selector) -> Selector:
        """The selector for deleting a collection."""
        ...


class WhileAllowed:
    """The fence of a process that does not share objects with others: it may write all of them, or none."""

    def __init__(self, check: Callable[[], None]) -> None:
        self.check = check

    def proof(self, kind: Kind) -> None:
        return None


def require_as_read(kind: Kind, obj: KubeObject) -> None:
    """Raises ValueError unless the object was read from the server."""
    if not obj.metadata.resource_version:
        raise ValueError(
            f"{kind} {obj.key}: a fenced write needs the object as read, with its resourceVersion"
        )


def with_metadata(body: Mapping[str, Any], **fields: Any) -> dict[str, Any]:
    """The body of a patch with these fields in its metadata."""
    return {**body, "metadata": {**(body.get("metadata") or {}), **fields}}


def labelled(body: Mapping[str, Any], key: str, value: str) -> dict[str, Any]:
    """The body of a patch with this label in its metadata."""
    labels = (body.get("metadata") or {}).get("labels") or {}
    return with_metadata(body, labels={**labels, key: value})


def changed(base: ObjectMeta, changes: Mapping[str, Any]) -> ObjectMeta:
    """What tells to whom the object belongs, and its labels before, after a patch of its metadata."""
    annotations = {**(base.annotations or {}), **(changes.get("annotations") or {})}
    owners = base.owner_references
    if (given := changes.get("ownerReferences")) is not None:
        owners = msgspec.convert(given, tuple[OwnerReference, ...])
    return ObjectMeta(
        name=base.name,
        namespace=base.namespace,
        labels=base.labels,
        annotations={key: value for key, value in annotations.items() if value is not None},
        owner_references=owners,
    )
