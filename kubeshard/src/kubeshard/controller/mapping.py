"""Maps a changed object to the keys to reconcile.

An update maps both the old and the new object (`states`), so that objects that it no longer refers to are
reconciled as well as those it now refers to.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Protocol, TypeVar

from kubeshard.cache.deltas import Delta, Updated
from kubeshard.core.kinds import Kind
from kubeshard.core.namespaces import AllNamespaces
from kubeshard.core.objects import Form, Key, KubeObject
from kubeshard.core.owners import NOTED_OWNER, is_of, noted_owner
from kubeshard.core.selectors import Selector

T = TypeVar("T", bound=KubeObject)
U = TypeVar("U", bound=KubeObject)


class Reader(Protocol):
    """What a map function can read: the cached objects of declared kinds. Never waits."""

    def get(self, target: type[U] | Form[U], name: str, namespace: str | None = None) -> U | None: ...

    def list(
        self,
        target: type[U] | Form[U],
        namespace: str | AllNamespaces | None = None,
        *,
        index: tuple[str, str] | None = None,
        labels: Selector | None = None,
    ) -> Sequence[U]: ...


MapFunction = Callable[[Reader, T], Iterable[Key]]
"""The keys of primary objects that depend on the given object. Synchronous and quick: it runs inside the
informer. One that raises is called again later (`triggers`).
"""

KeysOf = Callable[[Any], Iterable[Key]]
"""The keys that depend on one state of an object."""


def states(delta: Delta[T]) -> tuple[T, ...]:
    """The states of the object that the delta is about, the newest last."""
    return (delta.old, delta.new) if isinstance(delta, Updated) else (delta.object,)


def to_itself(obj: KubeObject) -> Iterable[Key]:
    return (obj.key,)


def to_owner(owner: Kind, *, controller_only: bool = True) -> KeysOf:
    """Maps an object to its owners of that kind, in any version; without `controller_only`, also to owners that are not
    its controller. Also maps it to the owner of its desired set if it has no reference to that.
    """
    wanted = owner.group_kind

    def owners(obj: KubeObject) -> Iterable[Key]:
        meta = obj.metadata
        namespace = meta.namespace if owner.namespaced else ""
        for reference in meta.owner_references:
            if (reference.controller or not controller_only) and is_of(reference, wanted):
                yield Key(namespace, reference.name)
        if meta.annotations and NOTED_OWNER in meta.annotations:
            yield from noted_owner(meta, wanted)

    return owners


def mapped_by(function: MapFunction[Any], reader: Reader) -> KeysOf:
    return lambda obj: function(reader, obj)
