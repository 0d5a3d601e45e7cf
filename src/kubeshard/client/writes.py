"""What is known of a write after it succeeded, and the bodies that writes send."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Literal, NamedTuple, TypedDict

import msgspec

from kubeshard.client.status import TypeMeta
from kubeshard.core.encoding import decoder, to_dict
from kubeshard.core.kinds import Kind
from kubeshard.core.objects import Key, KubeObject, ObjectMeta, PartialObject, Struct


class WriteRecord(NamedTuple):
    """A write that the server has carried out: what a cache must have seen before it tells the truth to the
    writer.
    """

    kind: Kind
    key: Key
    uid: str
    resource_version: str
    """Of the object after the write; `""` when the object is gone and the server did not say at which
    version.
    """
    labels: Mapping[str, str] | None
    """After the write; None when unknown."""
    deleted: bool
    """Whether the object is gone; False for one that finalizers keep."""


WriteObserver = Callable[[WriteRecord], None]

Propagation = Literal["Background", "Foreground", "Orphan"]
"""What becomes of the objects that a deleted one owns."""


class PatchOptions(TypedDict, total=False):
    """The options of `patch`, for those who pass them on."""

    base: KubeObject | None
    subresource: str | None
    field_manager: str | None
    force: bool
    dry_run: bool
    unfenced: bool


class DeletionOptions(TypedDict, total=False):
    """The options of `delete` besides its preconditions."""

    propagation: Propagation | None
    grace_period: int | None
    dry_run: bool
    unfenced: bool


class Preconditions(Struct):
    uid: str | None = None
    resource_version: str | None = None


class DeleteOptions(Struct):
    """metav1.DeleteOptions."""

    preconditions: Preconditions | None = None
    propagation_policy: Propagation | None = None
    grace_period_seconds: int | None = None
    dry_run: tuple[str, ...] = ()

    def encode(self) -> bytes:
        return msgspec.json.encode({"apiVersion": "v1", "kind": "DeleteOptions", **msgspec.to_builtins(self)})


def record_of(kind: Kind, metadata: ObjectMeta, *, deleted: bool = False) -> WriteRecord:
    key = Key(metadata.namespace, metadata.name)
    return WriteRecord(kind, key, metadata.uid, metadata.resource_version, metadata.labels, deleted)


def record_of_deletion(kind: Kind, key: Key, uid: str | None, body: bytes) -> WriteRecord:
    """From the answer to a DELETE: a Status when the object is gone, else the object, which may still be
    there.
    """
    if decoder(TypeMeta).decode(body).kind == "Status":
        details = (msgspec.json.decode(body).get("details") or {}) if uid is None else {}
        return WriteRecord(kind, key, uid or details.get("uid", ""), "", None, deleted=True)
    metadata = decoder(PartialObject).decode(body).metadata
    kept = bool(metadata.finalizers) or bool(metadata.deletion_grace_period_seconds)
    return record_of(kind, metadata, deleted=not kept)


def apply_body(obj: KubeObject) -> dict[str, Any]:
    """The fields that an object states, without what only the server sets."""
    body = to_dict(obj)
    metadata = {name: value for name, value in body["metadata"].items() if name not in _SERVERS_OWN}
    return {**body, "metadata": metadata}


_SERVERS_OWN = frozenset(
    {
        "uid",
        "resourceVersion",
        "generation",
        "creationTimestamp",
        "deletionTimestamp",
        "deletionGracePeriodSeconds",
        "managedFields",
    }
)
