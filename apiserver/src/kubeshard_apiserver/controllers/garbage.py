"""Garbage collection: objects are deleted with their owners.

Guaranteed: an object is deleted once all of its owners are absent. An owner is absent if it is gone, if it is in
another namespace, or if its uid differs from the one in the reference. References to absent owners are removed from
objects that have other owners. An owner deleted in the foreground is removed after the dependents that block it
(`blockOwnerDeletion`); one deleted with `Orphan` is removed after the references to it. An object is left alone while
the kind of any of its owners is unknown, or if it is cluster-scoped and one of its owners is namespaced. Source:
kubernetes.io "Garbage Collection"; pkg/controller/garbagecollector.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from enum import Enum
from typing import NamedTuple

from kubeshard.core.kinds import GroupResource
from kubeshard.core.objects import Key
from kubeshard_apiserver.controllers.cluster import Account, ClusterView, service_account
from kubeshard_apiserver.controllers.controller import Controller
from kubeshard_apiserver.controllers.ownership import Node, Reference, references_of
from kubeshard_apiserver.history import Event
from kubeshard_apiserver.objects import Object, is_deleting, with_metadata, without_finalizer
from kubeshard_apiserver.resources.definitions import DEFINITIONS
from kubeshard_apiserver.steps import Steps

ORPHAN, FOREGROUND = "orphan", "foregroundDeletion"


class Owner(Enum):
    """The state of the owner named by a reference."""

    SOLID = "solid"
    WAITING = "is deleted in the foreground"
    ABSENT = "absent"
    UNKNOWN = "cannot be told"


class _Removed(NamedTuple):
    """What a reference has to say of an owner that is gone, besides its uid, to be about it."""

    api_version: str
    kind: str
    name: str
    namespace: str


class GarbageCollector(Controller[Node]):
    def __init__(self, cluster: ClusterView) -> None:
        super().__init__(cluster)
        self._account = Account(cluster, service_account("generic-garbage-collector"))
        # Removed objects that still have dependents, by uid. Looking them up would not work if their kind is gone too.
        self._removed: dict[str, _Removed] = {}
        self._waiting: dict[str, Node] = {}
        self._undecided: dict[Node, None] = {}

    def concerned(self, resource: GroupResource, event: Event) -> Iterable[Node]:
        old, new = event.old, event.new
        node = Node(resource, event.key)
        if new is None:
            yield from self._without_owner(node, old)
        elif is_deleting(new):
            yield from self._of_deleting(node, new)
        elif references_of(new) != references_of(old):
            yield node
        for reference in references_of(old):
            uid = reference["uid"]
            if uid in self._waiting:
                yield self._waiting[uid]
            if uid in self._removed and not self.cluster.ownership.dependents(uid):
                self._removed.pop(uid)
        if resource == DEFINITIONS:
            yield from self._undecided
            self._undecided.clear()

    def reconcile(self, key: Node) -> Steps[float | None]:
        obj = self.cluster.get(key)
        if obj is None:
            return None
        if is_deleting(obj):
            finalizers = obj["metadata"].get("finalizers") or ()
            if ORPHAN in finalizers:
                yield from self._orphan(key, obj)
            elif FOREGROUND in finalizers:
                yield from self._finish_foreground(key, obj)
        elif references_of(obj):
            yield from self._judge(key, obj)
        return None

    def _without_owner(self, node: Node, old: Object | None) -> Iterator[Node]:
        if old is None:
            return
        uid = old["metadata"]["uid"]
        self._waiting.pop(uid, None)
        if dependents := self.cluster.ownership.dependents(uid):
            self._removed[uid] = _Removed(old["apiVersion"], old["kind"], node.key.name, node.key.namespace)
            yield from dependents

    def _of_deleting(self, node: Node, obj: Object) -> Iterator[Node]:
        meta = obj["metadata"]
        finalizers = meta.get("finalizers") or ()
        if FOREGROUND in finalizers and meta["uid"] not in self._waiting:
            self._waiting[meta["uid"]] = node
            yield from self.cluster.ownership.dependents(meta["uid"])
        if FOREGROUND in finalizers or ORPHAN in finalizers:
            yield node

    def _judge(self, node: Node, obj: Object) -> Steps[None]:
        owners = [(reference, self._owner(reference, node)) for reference in references_of(obj)]
        found = {owner for _, owner in owners}
        if Owner.UNKNOWN in found:
            self._undecided[node] = None
        elif Owner.SOLID in found:
            dead = [reference["uid"] for reference, owner in owners if owner is not Owner.SOLID]
            if dead:
                yield from self._account.update(node, lambda live: _without_references(live, dead))
        elif Owner.WAITING in found and self.cluster.ownership.dependents(obj["metadata"]["uid"]):
            if self._in_a_circle(obj):
                yield from self._account.update(node, _unblocked)
            yield from self._account.delete(obj, node.resource, "Foreground")
        else:
            finalizers = obj["metadata"].get("finalizers") or ()
            policy = (
                "Orphan"
                if ORPHAN in finalizers
                else "Foreground"
                if FOREGROUND in finalizers
                else "Background"
            )
            yield from self._account.delete(obj, node.resource, policy)

    def _owner(self, reference: Reference, dependent: Node) -> Owner:
        removed = self._removed.get(reference["uid"])
        named = reference["apiVersion"], reference["kind"], reference["name"]
        if removed in ((*named, ""), (*named, dependent.key.namespace)):
            return Owner.ABSENT
        group, _, version = reference["apiVersion"].rpartition("/")
        of = self.cluster.server.registry.of(group, version)
        resource = next((found for found in of if found.kind.kind == reference["kind"]), None)
        if resource is None or (resource.kind.namespaced and not dependent.key.namespace):
            return Owner.UNKNOWN
        namespace = dependent.key.namespace if resource.kind.namespaced else ""
        owner = self.cluster.get(Node(resource.group_resource, Key(namespace, reference["name"])))
        if owner is None or owner["metadata"]["uid"] != reference["uid"]:
            return Owner.ABSENT
        return Owner.WAITING if _waits_for_dependents(owner) else Owner.SOLID

    def _in_a_circle(self, obj: Object) -> bool:
        """Report whether a dependent waits for its own dependents, and so perhaps for this object. Without this check
        neither would ever be deleted.
        """
        dependents = self.cluster.ownership.dependents(obj["metadata"]["uid"])
        return any(
            found is not None and _waits_for_dependents(found) for found in map(self.cluster.get, dependents)
        )

    def _orphan(self, node: Node, obj: Object) -> Steps[None]:
        uid = obj["metadata"]["uid"]
        for dependent in self.cluster.ownership.dependents(uid):
            yield from self._account.update(dependent, lambda live: _without_references(live, [uid]))
        yield from self._account.update(node, lambda live: without_finalizer(live, ORPHAN))

    def _finish_foreground(self, node: Node, obj: Object) -> Steps[None]:
        uid = obj["metadata"]["uid"]
        for dependent in map(self.cluster.get, self.cluster.ownership.dependents(uid)):
            for reference in references_of(dependent):
                if reference["uid"] == uid and reference.get("blockOwnerDeletion"):
                    return
        yield from self._account.update(node, lambda live: without_finalizer(live, FOREGROUND))


def _waits_for_dependents(obj: Object) -> bool:
    return is_deleting(obj) and FOREGROUND in (obj["metadata"].get("finalizers") or ())


def _without_references(live: Object, uids: list[str]) -> Object:
    left = [dict(reference) for reference in references_of(live) if reference["uid"] not in uids]
    return with_metadata(live, ownerReferences=left or None)


def _unblocked(live: Object) -> Object:
    references = [{**reference, "blockOwnerDeletion": False} for reference in references_of(live)]
    return with_metadata(live, ownerReferences=references)
