"""The stored objects, as an author's invariants see them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import msgspec

from kubeshard.core.encoding import decode
from kubeshard.core.kinds import GroupResource
from kubeshard.core.objects import Form, Key, KubeObject, form_of
from kubeshard.core.owners import controller_of
from kubeshard_apiserver.store import Store

T = TypeVar("T", bound=KubeObject)

Invariant = Callable[["Snapshot"], None]
"""Raises AssertionError if it does not hold."""


class Snapshot:
    """What the API server has stored at this moment.

    def at_most_one_build(snapshot: Snapshot) -> None:
        for page in snapshot.list(Page):
            assert len(snapshot.list(Build, owner=page)) <= 1, f"{page.metadata.name} has two builds"
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self._decoded: dict[tuple[Any, str], tuple[str, Any]] = {}

    def list(self, target: type[T] | Form[T], *, owner: KubeObject | None = None) -> list[T]:
        """All objects of the kind, or those that the owner controls, by name. None while the kind does not exist."""
        form = form_of(target)
        found = [self._read(form, key, obj) for key, obj in self._stored(form).items()]
        if owner is not None:
            uid = owner.metadata.uid
            found = [
                obj
                for obj in found
                if (reference := controller_of(obj.metadata)) is not None and reference.uid == uid
            ]
        return found

    def get(self, target: type[T] | Form[T], name: str, namespace: str = "default") -> T | None:
        """The object, or None."""
        form = form_of(target)
        key = Key(namespace if form.kind.namespaced else "", name)
        obj = self._stored(form).get(key)
        return None if obj is None else self._read(form, key, obj)

    def _stored(self, form: Form[Any]) -> dict[Key, Any]:
        resource = GroupResource(*form.kind.group_resource)
        if not self._store.has(resource):
            return {}
        return dict(sorted(self._store.objects(resource).items()))

    def _read(self, form: Form[T], key: Key, obj: Any) -> T:
        """Invariants are called after every write, and hardly anything has changed."""
        place, version = (form, str(key)), obj["metadata"]["resourceVersion"]
        known = self._decoded.get(place)
        if known is None or known[0] != version or known[1].metadata.uid != obj["metadata"]["uid"]:
            known = self._decoded[place] = version, decode(form, msgspec.json.encode(obj))
        return known[1]
