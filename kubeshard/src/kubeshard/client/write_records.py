"""Records of successful writes, and the bodies that writes send."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cache
from types import TracebackType
from typing import Any, Literal, NamedTuple, Protocol, TypedDict

import msgspec

from kubeshard.core.encoding import decoder, to_dict
from kubeshard.core.errors import (
    ApiError,
    Invalid,
    KubeshardError,
    Timeout,
    Unavailable,
    UnexpectedResponse,
)
from kubeshard.core.kinds import Kind, TypeMeta
from kubeshard.core.objects import Key, KubeObject, ObjectMeta, PartialObject, Struct
from kubeshard.runtime.transport import UNDELIVERED, TransportError

SERVERS_PATIENCE = 60.0
"""Seconds after which an API server gives up a request without a timeout (its `--request-timeout`)."""


class WriteRecord(NamedTuple):
    """A write, which a cache must have seen before its reads are up to date for the writer."""

    kind: Kind
    key: Key
    uid: str
    resource_version: str
    """Of the object, after the write; `""` if it is gone and the server did not return the version."""
    labels: Mapping[str, str] | None
    """After the write; None when unknown."""
    deleted: bool
    """Whether the object is gone; False for one that finalizers keep."""
    lost: bool = False
    """Whether it is unknown what became of the write, because there was no answer. Then the version is `""`, the labels
    are unknown, `uid` is that of a deletion's precondition, and the name of a generated name is `""`.
    """


WriteObserver = Callable[[WriteRecord], None]


class WriteLedger(Protocol):
    """Tracks every write from just before it is sent until its outcome is known (`Client.entered_in`)."""

    def sending(self, late: float) -> Callable[[bool], None]:
        """Called just before a write is sent; may raise to forbid it. The returned function is called once, when the
        client is done with the write: with True if its outcome is known, with False if it may still take effect
        within `late` seconds.
        """
        ...


class entered:  # noqa: N801 - used as a function
    """Surrounds the sending of a write, for which the server takes `server_seconds` at most."""

    __slots__ = ("_done", "_late", "_ledgers")

    def __init__(self, ledgers: Sequence[WriteLedger], server_seconds: float) -> None:
        self._ledgers = ledgers
        self._late = UNDELIVERED + server_seconds
        self._done: list[Callable[[bool], None]] = []

    def __enter__(self) -> None:
        try:
            for ledger in self._ledgers:
                self._done.append(ledger.sending(self._late))
        except BaseException:
            self._end(known=True)  # nothing is sent before all have entered it
            raise

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._end(known=error is None or is_known(error))

    def _end(self, *, known: bool) -> None:
        for each in self._done:
            each(known)


def is_known(error: BaseException) -> bool:
    """Whether a write that raised this has certainly not taken effect and never will.

    Unknown: cancelled while it was sent, no response, or the server reported that something broke or took too long
    (5xx). A response that no API server sends is from something in between, which may have forwarded the write.
    """
    match error:
        case Invalid():
            return True
        case ApiError(__cause__=TransportError(sent=sent)):
            return not sent
        case Timeout() | Unavailable() | UnexpectedResponse():
            return False
        case ApiError(code=code):
            return code < 500
        case _:
            return isinstance(error, KubeshardError)


Propagation = Literal["Background", "Foreground", "Orphan"]
"""What happens to the objects that a deleted object owns."""


class PatchOptions(TypedDict, total=False):
    """The options of `patch`, for callers that pass them on."""

    base: KubeObject | None
    subresource: str | None
    field_manager: str | None
    force: bool
    dry_run: bool
    unfenced: bool


class DeletionOptions(TypedDict, total=False):
    """The options of `delete` other than its preconditions."""

    propagation: Propagation | None
    grace_period: int | None
    dry_run: bool
    unfenced: bool


class Preconditions(Struct):
    uid: str | None = None
    resource_version: str | None = None


class DeleteOptions(Struct, omit_defaults=True):
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


def record_of_lost(
    kind: Kind, name: str, namespace: str | None, uid: str | None, *, deleted: bool
) -> WriteRecord:
    return WriteRecord(kind, Key(namespace or "", name), uid or "", "", None, deleted, lost=True)


def record_of_deletion(kind: Kind, key: Key, uid: str | None, body: bytes) -> WriteRecord:
    """From the response to a deletion: a Status if the object is gone, otherwise the object, which may still exist."""
    if decoder(TypeMeta).decode(body).kind == "Status":
        details = (msgspec.json.decode(body).get("details") or {}) if uid is None else {}
        return WriteRecord(kind, key, uid or details.get("uid", ""), "", None, deleted=True)
    metadata = decoder(PartialObject).decode(body).metadata
    kept = bool(metadata.finalizers) or bool(metadata.deletion_grace_period_seconds)
    return record_of(kind, metadata, deleted=not kept)


def apply_body(obj: KubeObject, subresource: str | None = None) -> dict[str, Any]:
    """The fields that an object sets, without what only the server sets. A status at its default is only sent to the
    subresource: elsewhere it means that the status was not set.
    """
    body = to_dict(obj)
    if subresource is None and "status" in body and body["status"] == _default_status(type(obj)):
        del body["status"]
    metadata = {name: value for name, value in body["metadata"].items() if name not in _SERVERS_OWN}
    return {**body, "metadata": metadata}


@cache
def _default_status(type_: type[KubeObject]) -> Any:
    (field,) = (field for field in msgspec.structs.fields(type_) if field.name == "status")
    factory = field.default_factory
    return None if factory is msgspec.NODEFAULT else msgspec.to_builtins(factory())


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
