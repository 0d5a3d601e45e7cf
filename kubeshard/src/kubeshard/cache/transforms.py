"""Transforms of an object between the server and the store.

kubectl's last-applied copy of the object is dropped: no controller reads it, and it can double the object's size.
(`metadata.managedFields` is never decoded.) Then the transform of the kind, if there is one, drops or shortens unused
parts.

Guaranteed: a transform gets each version of an object that the server sends, before it is stored, indexed or passed to
a handler, and never gets its own result, a tombstone or a resync. If it raises, returns something else or changes the
object's identity, the object counts as one that does not fit its class: lists omit it, `get` raises `TransformFailed`,
and other objects are not affected. It is never stored unchanged, because the transform may be meant to keep a secret
out of memory. If the transform raises `NotKept`, the object counts as one that does not exist.

Then parts that many objects have in common are deduplicated: objects of one namespace, workload or owner have the same
strings, labels and owner references, and every decoded object has its own copies of them, about a fifth of the size of
a small object. Shared labels cannot be changed: any attempt raises TypeError and has no effect on other objects. Copies
of them (`dict(labels)`, `labels | {...}`, `copy.deepcopy`) are plain dicts.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from functools import lru_cache
from typing import Any, NoReturn, TypeVar

import msgspec
from msgspec.structs import force_setattr

from kubeshard.core.encoding import UndecodableObject
from kubeshard.core.objects import LAST_APPLIED, Form, KubeObject, PartialObject
from kubeshard.runtime.logs import error_line

T = TypeVar("T", bound=KubeObject)

Transform = Callable[[T], T]
"""Changes an object before it is stored. Pure and idempotent; leaves name, namespace, UID and resourceVersion alone."""


class NotKept(Exception):
    """Raised by a transform for an object that is not to be stored."""


class TransformFailed(UndecodableObject):
    """An object whose transform raised or returned something else. `__cause__` is the exception."""

    def __init__(self, form: Form[Any], obj: KubeObject, error: Exception) -> None:
        super().__init__(
            form, f"its transform failed: {error_line(error)}", PartialObject(metadata=obj.metadata)
        )
        self.__cause__ = error


def arriving(form: Form[T], transform: Transform[T] | None) -> Callable[[T], T | UndecodableObject | None]:
    """The function that a reflector applies to each object. None: it is not to be stored."""

    def arrive(obj: T) -> T | UndecodableObject | None:
        if (annotations := obj.metadata.annotations) and LAST_APPLIED in annotations:
            obj = without_last_applied(obj)
        if transform is not None:
            try:
                obj = _same(transform(obj), obj)
            except NotKept:
                return None
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


_REMEMBERED = 4096
"""The values seen most recently. It is bounded, since some labels are different on every object."""

H = TypeVar("H", bound=Hashable)


def share_parts(obj: KubeObject) -> None:
    """Parts equal to those of earlier objects are shared; after the object's own transform."""
    metadata = obj.metadata
    if metadata.namespace:
        force_setattr(metadata, "namespace", _first(metadata.namespace))
    if metadata.creation_timestamp:
        force_setattr(metadata, "creation_timestamp", _first(metadata.creation_timestamp))
    if metadata.labels:
        force_setattr(metadata, "labels", _first_dict(tuple(metadata.labels.items())))
    if metadata.owner_references:
        force_setattr(metadata, "owner_references", _first(metadata.owner_references))
    if metadata.finalizers:
        force_setattr(metadata, "finalizers", _first(metadata.finalizers))


@lru_cache(_REMEMBERED)
def _first(value: H) -> H:
    return value


@lru_cache(_REMEMBERED)
def _first_dict(items: tuple[tuple[str, str], ...]) -> dict[str, str]:
    return _Shared(items)


class _Shared(dict[str, str]):
    __slots__ = ()

    def _refuse(self, *_: Any, **__: Any) -> NoReturn:
        raise TypeError(
            "labels of a cached object are shared with other objects: change a copy of them, dict(labels), and "
            "give that to msgspec.structs.replace"
        )

    __setitem__ = __delitem__ = __ior__ = clear = pop = popitem = setdefault = update = _refuse

    def __copy__(self) -> dict[str, str]:
        return dict(self)

    def __deepcopy__(self, memo: dict[int, Any]) -> dict[str, str]:
        return dict(self)

    def __reduce__(self) -> tuple[Any, ...]:
        return dict, (dict(self),)
