"""Transforms of an object between the server and the store.

kubectl's last-applied copy of the object is dropped: no controller reads it, and it can double the object's size.
(`metadata.managedFields` is never decoded.) Then the transform of the kind, if there is one, drops or shortens unused
parts.

Guaranteed: a transform gets each version of an object that the server sends, before it is stored, indexed or passed to
a handler, and never gets its own result, a tombstone or a resync. If it raises, returns something else or changes the
object's identity, the object counts as one that does not fit its class: lists omit it, `get` raises `TransformFailed`,
and other objects are not affected. It is never stored unchanged, because the transform may be meant to keep a secret
out of memory.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import msgspec

from kubeshard.cache.sharing import share_parts
from kubeshard.core.encoding import UndecodableObject
from kubeshard.core.objects import Form, KubeObject, PartialObject
from kubeshard.runtime.logs import error_line

T = TypeVar("T", bound=KubeObject)

Transform = Callable[[T], T]
"""Changes an object before it is stored. Pure and idempotent; leaves name, namespace, UID and resourceVersion alone."""

LAST_APPLIED = "kubectl.kubernetes.io/last-applied-configuration"


class TransformFailed(UndecodableObject):
    """An object whose transform raised or returned something else. `__cause__` is the exception."""

    def __init__(self, form: Form[Any], obj: KubeObject, error: Exception) -> None:
        super().__init__(
            form, f"its transform failed: {error_line(error)}", PartialObject(metadata=obj.metadata)
        )
        self.__cause__ = error


def arriving(form: Form[T], transform: Transform[T] | None) -> Callable[[T], T | UndecodableObject]:
    """The function that a reflector applies to each object."""

    def arrive(obj: T) -> T | UndecodableObject:
        obj = without_last_applied(obj)
        if transform is not None:
            try:
                obj = _same(transform(obj), obj)
            except Exception as error:
                return TransformFailed(form, obj, error)
        share_parts(obj)
        return obj

    return arrive


def without_last_applied(obj: T) -> T:
    metadata = obj.metadata
    if not metadata.annotations or LAST_APPLIED not in metadata.annotations:
        return obj
    kept = {name: value for name, value in metadata.annotations.items() if name != LAST_APPLIED}
    return msgspec.structs.replace(obj, metadata=msgspec.structs.replace(metadata, annotations=kept or None))


def _same(new: T, old: T) -> T:
    """The result of a transform. Raises TypeError if it is not the same version of the same object."""
    if not isinstance(new, type(old)):
        raise TypeError(f"it returned {type(new).__name__}: return the object")
    after, before = new.metadata, old.metadata
    if (new.key, after.uid, after.resource_version) != (old.key, before.uid, before.resource_version):
        raise TypeError("it changed the object's name, namespace, UID or resourceVersion")
    return new
