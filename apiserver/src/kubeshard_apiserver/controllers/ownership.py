"""An index of owner references, from owner to dependents, and of objects without a controller.

Every change updates it, so the cost of a query depends on the size of its result, not of the store.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from kubeshard.core.kinds import GroupResource
from kubeshard.core.objects import Key
from kubeshard_apiserver.history import Event
from kubeshard_apiserver.objects import Object

ADOPTED = (
    GroupResource("", "pods"),
    GroupResource("apps", "replicasets"),
    GroupResource("apps", "controllerrevisions"),
)


class Node(NamedTuple):
    """An object, identified by where it is stored."""

    resource: GroupResource
    key: Key


Reference = Mapping[str, Any]


def references_of(obj: Object | None) -> Sequence[Reference]:
    return (obj["metadata"].get("ownerReferences") or ()) if obj else ()


def controller_of(obj: Object | None) -> Reference | None:
    """Return the reference to the owner that controls the object."""
    for reference in references_of(obj):
        if reference.get("controller"):
            return reference
    return None


def owners_key(event: Event, kind: str) -> Iterator[Key]:
    """Yield the keys of the changed object's controllers of this kind, before and after the change."""
    for obj in (event.new, event.old):
        owner = controller_of(obj)
        if owner is not None and owner["kind"] == kind:
            yield Key(event.key.namespace, owner["name"])


class Ownership:
    def __init__(self) -> None:
        # Dictionaries rather than sets, because their order is the same in every run.
        self._dependents: dict[str, dict[Node, None]] = {}
        # Objects that may be adopted, by resource and namespace.
        self._orphans: dict[tuple[GroupResource, str], dict[Key, None]] = {}

    def change(self, resource: GroupResource, event: Event) -> None:
        old, new = references_of(event.old), references_of(event.new)
        if resource in ADOPTED:
            self._note_orphan(resource, event)
        if old == new:
            return
        before = {str(reference["uid"]) for reference in old}
        after = {str(reference["uid"]) for reference in new}
        node = Node(resource, event.key)
        for uid in before - after:
            dependents = self._dependents[uid]
            del dependents[node]
            if not dependents:
                del self._dependents[uid]
        for uid in after - before:
            self._dependents.setdefault(uid, {})[node] = None

    def orphans(self, resource: GroupResource, namespace: str) -> list[Key]:
        return list(self._orphans.get((resource, namespace), ()))

    def _note_orphan(self, resource: GroupResource, event: Event) -> None:
        place = (resource, event.key.namespace)
        if event.new is not None and controller_of(event.new) is None:
            self._orphans.setdefault(place, {})[event.key] = None
        elif (known := self._orphans.get(place)) is not None:
            known.pop(event.key, None)
            if not known:
                del self._orphans[place]

    def dependents(self, uid: str) -> list[Node]:
        """Return the dependents of the object with this uid, in the order in which they became dependents."""
        return list(self._dependents.get(uid, ()))
